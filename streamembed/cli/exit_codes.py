"""Exit codes and signals: an error is one line on standard error and an exit code.

The first Ctrl-C or SIGTERM asks to stop at the next commit, the second stops at once.
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

from streamembed.cli.terminal_text import echo, name_options
from streamembed.errors import (
    DamagedFileError,
    InputError,
    LogError,
    NotReadyError,
    ParameterError,
    StoppedError,
)

OK, USAGE, DAMAGED, IO = 0, 2, 3, 4
ALARMED = 5  # with --fail-on-alarm
# Of a log or saved file that the system does not give: no damage.
IO_FAILURES = (errno.ENOENT, errno.EACCES, errno.ENOSPC)
INTERRUPTED = 130  # 128 + SIGINT: what a shell reports for a program that Ctrl-C ended


@contextmanager
def handle_errors() -> Iterator[None]:
    """Print errors as one line on standard error and exit with a documented code."""
    try:
        yield
    except (DamagedFileError, LogError) as error:
        cause = error.__cause__
        is_io_failure = isinstance(cause, OSError) and cause.errno in IO_FAILURES
        exit_with(error, IO if is_io_failure else DAMAGED)
    except (ParameterError, InputError, NotReadyError) as error:
        exit_with(error, USAGE)
    except BrokenPipeError:  # the reader has closed the pipe: click exits without a message
        raise
    except (OSError, StoppedError) as error:
        exit_with(error, IO)
    except MemoryError as error:
        reason = f" ({error})" if str(error) else ""
        exit_with(f"out of memory{reason}: free some, or use a smaller size, and try again", IO)
    except KeyboardInterrupt as error:
        click.echo(err=True)  # behind the terminal's ^C
        notes = getattr(error, "__notes__", ())  # of a replay whose run is complete
        exit_with(next(iter(notes), "interrupted"), getattr(error, "exit_code", INTERRUPTED))


def exit_with(error: object, code: int) -> None:
    """Print the error, and exit with the code."""
    echo("streamembed: " + name_options(" ".join(str(error).split())), err=True)
    sys.exit(code)


@contextmanager
def catch_signals(deferred: bool) -> Iterator[Callable[[], bool]]:
    """Record signals in the block; yield a function that returns whether one was received.

    A KeyboardInterrupt that leaves the block has the exit code of the first signal.

    Parameters
    ----------
    deferred
        False: the first signal stops at once, too, such as where a read may wait for ever.
    """
    received: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        received.append(number)
        if not deferred or len(received) > 1:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    previous = [signal.signal(number, record) for number in numbers]
    try:
        yield lambda: bool(received)
    except KeyboardInterrupt as error:
        if received:
            error.exit_code = 128 + received[0]  # type: ignore[attr-defined]
        raise
    finally:
        for number, handler in zip(numbers, previous, strict=True):
            signal.signal(number, handler)
