"""How a command ends: an error is one line on standard error and an exit code."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

from streamembed.errors import (
    DamagedFileError,
    InputError,
    LogError,
    NotReadyError,
    ParameterError,
)

__all__ = ["DAMAGED", "INTERRUPTED", "IO", "OK", "USAGE", "exit_codes", "stop"]

OK, USAGE, DAMAGED, IO = 0, 2, 3, 4
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
    except OSError as error:
        stop(error, IO)
    except KeyboardInterrupt as error:
        click.echo(err=True)  # behind the terminal's ^C
        notes = getattr(error, "__notes__", ())  # of a replay whose run is whole
        stop(next(iter(notes), "interrupted"), getattr(error, "exit_code", INTERRUPTED))


def stop(error: object, code: int) -> None:
    """Say why, and exit with the code."""
    click.echo("streamembed: " + " ".join(str(error).split()), err=True)
    sys.exit(code)
