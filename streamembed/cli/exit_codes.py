"""How a command ends: an error is one line on standard error and an exit code; signals are noted.

Of Ctrl-C and SIGTERM the first asks to stop where all is committed, the second stops at once.
"""

from __future__ import annotations

import errno
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import click

from streamembed.cli.terminal_text import echo
from streamembed.errors import (
    DamagedFileError,
    InputError,
    LogError,
    NotReadyError,
    ParameterError,
    StoppedError,
)

__all__ = [
    "ALARMED",
    "DAMAGED",
    "INTERRUPTED",
    "IO",
    "OK",
    "USAGE",
    "exit_codes",
    "stop",
    "stops_gently",
]

OK, USAGE, DAMAGED, IO = 0, 2, 3, 4
ALARMED = 5  # with --fail-on-alarm
INTERRUPTED = 130  # 128 + SIGINT: what a shell says of a program that Ctrl-C has ended


@contextmanager
def exit_codes() -> Iterator[None]:
    """Print errors as one line on standard error and exit with a documented code."""
    try:
        yield
    except (DamagedFileError, LogError) as error:
        cause = error.__cause__
        refused = isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.ENOSPC)
        stop(error, IO if refused else DAMAGED)
    except (ParameterError, InputError, NotReadyError) as error:
        stop(error, USAGE)
    except BrokenPipeError:  # whoever reads has seen enough: click ends without a word
        raise
    except (OSError, StoppedError) as error:
        stop(error, IO)
    except MemoryError as error:
        why = f" ({error})" if str(error) else ""
        stop(f"out of memory{why}: free some, or use a smaller --size, and try again", IO)
    except KeyboardInterrupt as error:
        click.echo(err=True)  # behind the terminal's ^C
        notes = getattr(error, "__notes__", ())  # of a replay whose run is whole
        stop(next(iter(notes), "interrupted"), getattr(error, "exit_code", INTERRUPTED))


def stop(error: object, code: int) -> None:
    """Say why, and exit with the code."""
    echo("streamembed: " + " ".join(str(error).split()), err=True)
    sys.exit(code)


@contextmanager
def stops_gently(gently: bool) -> Iterator[Callable[[], bool]]:
    """Within, a signal is only noted; gives what tells whether one came.

    A KeyboardInterrupt that leaves here has the exit code of the first signal.

    Parameters
    ----------
    gently
        False: the first stops at once, too, as where a read may wait for ever.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        if not gently or len(came) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, note) for number in numbers]
    try:
        yield lambda: bool(came)
    except KeyboardInterrupt as error:
        if came:
            error.exit_code = 128 + came[0]  # type: ignore[attr-defined]
        raise
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
