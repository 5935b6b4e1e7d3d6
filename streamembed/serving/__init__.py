"""A run, served by Arrow Flight: who may ask, what is answered, and a client.

::

     client ──► reader: a process of its own, with bounded memory
                  calls      who may: token, role, number of open streams, silence
                  wire       what came: schema, sizes, values; what goes back
                  service    the calls of Flight
                  published  the newest snapshot that is whole
                    │ puts, checked: rows, names, offset
                    ▼
                writer: the one process that learns, commits, and acknowledges
     supervisor: starts both, starts again what died, drains; sees counts, never data
"""
