"""A run served by Arrow Flight from one process, and its client.

::

     client ──► authentication   token, role, number of open calls: before anything is parsed
                  service          the Flight calls
                  messages         checks of schema, sizes, values; answers and errors
                    │ points to transform: latest_snapshot, a snapshot that never changes
                    ▼ events to learn: batch_learner, one batch at a time
                runs.open_run
     server: starts and drains all of it (server_settings, tokens, server_metrics)
"""
