"""Ctrl-C and SIGTERM: the first asks to stop where all is committed, the second stops at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["stops_gently"]


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
