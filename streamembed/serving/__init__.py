"""A run served by Arrow Flight, and its client.

::

     client ──► reader: a separate process with bounded memory
                  authentication   token, role, number of open calls, idle connections
                  messages         checks of schema, sizes, values; answers and errors
                  service          the Flight calls
                  latest_snapshot  the newest complete snapshot
                    │ ingest: checked rows, names, offset
                    ▼
                writer: the one process that learns, commits, and acknowledges (ingest_writer)
     supervisor: starts both, restarts ended processes, drains; never sees data (channel, counters)
"""
