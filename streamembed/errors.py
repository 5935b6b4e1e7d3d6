"""Every exception that streamembed raises on purpose.

::

    StreamembedError
    ├── ParameterError (ValueError)      an option is wrong, or two do not fit together
    │   └── UnknownParameterError (TypeError)   a class has no parameter of that name
    ├── InputError (ValueError)          data that cannot be learned or transformed
    │   ├── FeatureError                 wrong width, missing or unknown feature names
    │   ├── BadRowError                  rows with nulls, NaN, infinities or huge values
    │   └── DuplicateIdError             an id that the support already holds
    ├── NotReadyError (RuntimeError)     a snapshot was asked for before the warm-up ended
    ├── ConcurrentUseError (RuntimeError) an engine was used while it learns
    ├── StoppedError (RuntimeError)      a run refuses to write after an error
    ├── LogError (OSError)               an event log that cannot be read to its end
    ├── DamagedFileError (OSError)       a saved file whose bytes are not what was written
    ├── ServerError (ConnectionError)    a server that cannot be reached, or refuses a call
    └── FileError (OSError)              a file or folder that cannot be opened, read or written
        ├── MissingFileError (FileNotFoundError)
        ├── NotAFileError (IsADirectoryError)   a folder, pipe or device instead of a file
        └── DeniedFileError (PermissionError)

    ColumnWarning (UserWarning)          columns named like ids, times or targets; no numbers
    ResolutionWarning (UserWarning)      landmarks too far apart for the kernel
    CostWarning (UserWarning)            parameters that cost more than ten times the usual
    DegenerateMapWarning (UserWarning)   a map of zeros, few points, or separate parts alone
    ScalingWarning (UserWarning)         features whose scaling does not fit them any more


    TimeOrderWarning (UserWarning)       files of a log in another order than their event times
    NotLearnedWarning (UserWarning)      a metric that is the identity: it has learned nothing

A message says which argument, what it was, what it must be and what to try. Numerical
trouble (a certificate that is not met, a rank that fell) is no exception: it is a field of
the snapshot's certificate.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from types import FrameType
from typing import Self

# Characters of a value that a message quotes.
LONGEST_QUOTE = 120
# How a path begins that is a URI.
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
# Similarity by difflib from which a word may be a misspelling of another.
NEAR = 0.7
# Packages and modules whose lines no warning points to.
LIBRARIES = ("streamembed", "river", "sklearn", "contextlib", "functools")


class StreamembedError(Exception):
    """The base class of all errors that this package raises on purpose.

    Attributes
    ----------
    code : str or None
        Where a served run refused a call: why, as the page on serving lists it; None elsewhere.
    """

    code: str | None = None


class ParameterError(StreamembedError, ValueError):
    """A parameter has a value that is not allowed, alone or in combination with others."""


class UnknownParameterError(ParameterError, TypeError):
    """A class was given a parameter that it does not have."""


class InputError(StreamembedError, ValueError):
    """The data passed in cannot be used; nothing of the call was learned."""


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

    @classmethod
    def of(
        cls,
        rows: Sequence[tuple[int, str]],
        fault: str,
        remedy: str,
        name: Callable[[int], str] = "row {}".format,
    ) -> Self:
        """Of these rows, the first three in words.

        Parameters
        ----------
        fault
            Of how many rows they are, and what is wrong with them.
        name
            What an index is called.
        """
        first = "; ".join(f"{name(row)}: {why}" for row, why in rows[:3])
        return cls(f"{len(rows)} of {fault} ({first}); {remedy}", tuple(rows))


class DuplicateIdError(InputError):
    """An id is already in the support, or is repeated within one call."""


class NotReadyError(StreamembedError, RuntimeError):
    """The warm-up is not over: there is no embedding yet."""


class ConcurrentUseError(StreamembedError, RuntimeError):
    """An engine was used in a way that cannot wait, while it learns; nothing of the call was done.

    Two threads learned with one engine at the same time; or a signal handler or a callback called
    back into the engine that it had interrupted. Reading from another thread waits instead.
    """


class StoppedError(StreamembedError, RuntimeError):
    """A run writes nothing more: an error came before, or it was opened for reading."""


class LogError(StreamembedError, OSError):
    """An event log is missing, is not Arrow, or ends in the middle of a batch."""


class DamagedFileError(StreamembedError, OSError):
    """A saved file is not what was written: checksum, version, kind or content differ."""


class ServerError(StreamembedError, ConnectionError):
    """A server cannot be reached, or refuses a call.

    Attributes
    ----------
    code : str
        Why, as the page on serving lists it; "unavailable" may be tried again.
    """

    code: str

    def __init__(self, message: str, code: str = "unavailable") -> None:
        super().__init__(message)
        self.code = code


class FileError(StreamembedError, OSError):
    """A file or folder cannot be opened, read or written; ``errno`` is the system's."""


class MissingFileError(FileError, FileNotFoundError):
    """The file, or the folder that it should be in, does not exist."""


class NotAFileError(FileError, IsADirectoryError):
    """The path leads to a folder, a pipe or a device; it must lead to a regular file."""


class DeniedFileError(FileError, PermissionError):
    """The system denies permission."""


class ColumnWarning(UserWarning):
    """Columns named like ids, times or targets are left out, or features have no number so far."""


class ResolutionWarning(UserWarning):
    """Landmarks are too far apart for the kernel."""


class CostWarning(UserWarning):
    """Parameters make a chunk or a snapshot more than ten times as expensive as usual."""


class DegenerateMapWarning(UserWarning):
    """A component is zero or carried by a few points, or all only tell separate parts apart."""


class ScalingWarning(UserWarning):
    """A feature varies more than 20 times as much, or as little, as when its scaling was taken."""


class TimeOrderWarning(UserWarning):
    """A file of a log begins with an earlier event than the file before it ends with."""


class NotLearnedWarning(UserWarning):
    """A metric is read that has learned nothing yet: it is the identity."""


__all__ = [
    name
    for name, public in list(globals().items())
    if isinstance(public, type) and public.__module__ == __name__
]


def build_file_error(
    error: OSError, path: object, action: str, why: str | None = None
) -> FileError:
    """An error of the system as one of this package: ``path cannot be <action> (<why>)``.

    The reason is the system's own, not that of pyarrow, which names temporary files.

    Examples
    --------
    >>> raise build_file_error(FileNotFoundError(2, "No such file or directory"), "a.arrow", "read")
    Traceback (most recent call last):
    streamembed.errors.MissingFileError: a.arrow cannot be read (No such file or directory)
    """
    kinds = {
        FileNotFoundError: MissingFileError,
        IsADirectoryError: NotAFileError,
        PermissionError: DeniedFileError,
    }
    kind = next((ours for theirs, ours in kinds.items() if isinstance(error, theirs)), FileError)
    reason = os.strerror(error.errno) if error.errno else str(error) or type(error).__name__
    result = kind(f"{path} cannot be {action} ({why or reason})")
    result.errno = error.errno
    return result


def check_path(path: object, name: str = "path") -> str:
    """A path as the text that the system takes.

    Raises
    ------
    ParameterError
        It is not a path: neither text nor `os.PathLike`, or text that cannot name a file; or it is
        a URI.
    """
    try:
        text = os.fsdecode(path)  # type: ignore[arg-type]
        os.fsencode(text)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"{name}={quote(path)} must be the path of a file or folder"
        ) from error
    if not text or "\0" in text:
        raise ParameterError(
            f"{name}={quote(path)} must be a path that is not empty and has no NUL"
        )
    if SCHEME.match(text):
        raise ParameterError(
            f"{name}={quote(path)} must be a path of this machine: only logs are read by URI; copy "
            "files from there or to there, or mount it"
        )
    return text


def describe_feature_mismatch(name: str, given: Iterable[str], wanted: Sequence[str]) -> str:
    """The message of a `FeatureError` for named features other than the expected ones.

    Examples
    --------
    >>> describe_feature_mismatch("X", ["a", "z"], ["a"])
    "X has the unknown features ['z']; it must have ['a']: try X[list(feature_names)]"
    """
    actual, expected = set(given), set(wanted)
    missing, unknown = sorted(expected - actual), sorted(actual - expected)
    parts = [f"lacks the features {quote(missing)}"] if missing else []
    if unknown:
        parts.append(f"has the unknown features {quote(unknown)}")
    remedy = "add or rename columns" if missing else f"try {name}[list(feature_names)]"
    return f"{name} {' and '.join(parts)}; it must have {quote(list(wanted))}: {remedy}"


def warn(message: str, kind: type[Warning]) -> None:
    """Warn at the line of the user: the innermost one that is of no library."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and _is_library_frame(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, kind, stacklevel=level)


def _is_library_frame(frame: FrameType) -> bool:
    """Whether a frame is of this package, or of what may stand between its user and it."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in LIBRARIES


def suggest_word(word: str, words: Iterable[str]) -> str:
    """Ask for the most similar one of these words; "" if none is similar.

    Examples
    --------
    >>> suggest_word("chunk_sise", ["chunk_size", "seed"]), suggest_word("chunk", ["seed"])
    ("did you mean 'chunk_size'?", '')
    """
    near = difflib.get_close_matches(word, list(words), 1, NEAR)
    return f"did you mean {near[0]!r}?" if near else ""


def summarise_error(error: BaseException) -> str:
    """The first line of an exception's message, or its class name."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def format_count(number: int, what: str) -> str:
    """A number of things, in the singular where it is one.

    Examples
    --------
    >>> format_count(1, "round"), format_count(1200, "row")
    ('1 round', '1,200 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def quote(value: object) -> str:
    """A value as messages quote it: its repr, on one line and cut where it is long.

    Examples
    --------
    >>> quote("x" * 1000)[-20:], quote(1.5)
    ('xxxxxxxxxxxxxxxxx...', '1.5')
    >>> quote(["area"] * 1000)[-18:]
    "rea', 'area', ...]"
    """
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a foreign repr must not hide the error that quotes it
        return f"<{type(value).__name__}>"
    if len(text) <= LONGEST_QUOTE:
        return text
    if isinstance(value, list | tuple) and (end := text.rfind(", ", 0, LONGEST_QUOTE)) > 0:
        return f"{text[:end]}, ...{text[-1]}"
    return text[:LONGEST_QUOTE] + "..."
