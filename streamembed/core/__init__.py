"""The pure floor: numpy and scipy only, no I/O, no clock, no global state.

Every room is a handful of functions on frozen dataclasses, ``(state, data) -> new state``. The
rooms do not know each other; `streamembed.engine` is the one place that knows their order. The
single array that is written in place is the kernel ring of `graph` (docs/decisions/0002).
"""
