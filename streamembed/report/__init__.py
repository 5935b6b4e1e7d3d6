"""A run as a page: figures, tables, and what they mean; written once, or followed as it grows.

``contents`` reads a run into plain values; ``figures`` and ``page`` make a page of them, ``prints``
pictures for papers, ``server`` a page that follows.
"""
