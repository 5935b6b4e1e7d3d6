"""A run as a page: figures, tables and explanations; written once, or updated as the run grows.

``report_contents`` reads a run into plain values; ``figures`` and ``page`` render a page from them;
``watch_server`` serves a page that follows a run.
"""
