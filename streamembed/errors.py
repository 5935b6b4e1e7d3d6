"""Every exception that streamembed raises on purpose.

::

    StreamembedError
    ├── ParameterError (ValueError)      an option is wrong, or two do not fit together
    ├── InputError (ValueError)          data that cannot be learned or transformed
    │   ├── FeatureError                 wrong width, missing or unknown feature names
    │   ├── BadRowError                  rows with nulls, NaN, infinities or huge values
    │   └── DuplicateIdError             an id that the support already holds
    ├── NotReadyError (RuntimeError)     a snapshot was asked for before the warm-up ended
    ├── ConcurrentUseError (RuntimeError) an engine was used while it learns
    ├── LogError (OSError)               an event log that cannot be read to its end
    └── DamagedFileError (OSError)       a saved file whose bytes are not what was written

    ResolutionWarning (UserWarning)      landmarks too far apart for the bandwidth
    CostWarning (UserWarning)            parameters that cost more than ten times the usual

A message says which argument, what it was, what it must be and what to try. Numerical
trouble (a certificate that is not met, a rank that fell) is no exception: it is a field of
the snapshot's certificate.
"""

from __future__ import annotations

__all__ = [
    "BadRowError",
    "ConcurrentUseError",
    "CostWarning",
    "DamagedFileError",
    "DuplicateIdError",
    "FeatureError",
    "InputError",
    "LogError",
    "NotReadyError",
    "ParameterError",
    "ResolutionWarning",
    "StreamembedError",
]


class StreamembedError(Exception):
    """The root: ``except StreamembedError`` catches all that this package raises on purpose."""


class ParameterError(StreamembedError, ValueError):
    """A parameter has a value that it cannot have, alone or beside the others."""


class InputError(StreamembedError, ValueError):
    """Data that was handed in cannot be used; nothing of the call was learned."""


class FeatureError(InputError):
    """The features of a batch are not those that the engine was started with."""


class BadRowError(InputError):
    """Rows hold nulls, NaN, infinities or values too large to square.

    Attributes
    ----------
    rows : tuple of (int, str)
        Index in the call and reason, of every bad row.
    """

    def __init__(self, message: str, rows: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.rows = rows


class DuplicateIdError(InputError):
    """An id is already in the support, or comes twice in one call."""


class NotReadyError(StreamembedError, RuntimeError):
    """The warm-up is not over: there is no embedding to hand out yet."""


class ConcurrentUseError(StreamembedError, RuntimeError):
    """An engine was used in a way that cannot wait, while it learns; nothing of the call was done.

    Two threads learned with one engine at the same time; or a signal handler or a callback called
    back into the engine that it had interrupted. Reading from another thread waits instead.
    """


class LogError(StreamembedError, OSError):
    """An event log is missing, is not Arrow, or ends in the middle of a batch."""


class DamagedFileError(StreamembedError, OSError):
    """A saved snapshot or engine is not what was written: checksum, version or kind differ."""


class ResolutionWarning(UserWarning):
    """Landmarks are more than half a bandwidth apart: the map is coarser than its kernel."""


class CostWarning(UserWarning):
    """Parameters make a chunk or a snapshot more than ten times as dear as it usually is."""
