"""What a run holds as of its last commit, while another process may be writing it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeVar

from streamembed.errors import DamagedFileError, check_path
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.storage.database import stat_files

T = TypeVar("T")
# The largest share of the time that reading may take.
MAX_SHARE = 0.1


class RunFollower(Generic[T]):
    """Reads a run again after each commit; used by many threads. It never waits for the writer.

    Parameters
    ----------
    run
        The folder of a run of any kind.
    read
        Makes the current value from an open reader and the value before, None at first.

    Attributes
    ----------
    current : T or None
        What was read last; None before that. Replaced by one assignment.
    """

    def __init__(
        self, run: str | os.PathLike[str], read: Callable[[RunReader, T | None], T | None]
    ) -> None:
        self.current: T | None = None
        self._folder = Path(check_path(run, "run"))
        self._read = read
        self._lock = threading.Lock()
        self._origin: dict[str, Any] | None = None
        self._last_stats: list[Any] = []
        self._not_before = 0.0

    def refresh(self) -> None:
        """Read the run if something was written since the last time.

        While another thread reads, and while reading takes more than its share of the time, the
        value stays as it is.

        Raises
        ------
        MissingFileError, DamagedFileError, FileError
            The run cannot be read, or was replaced by another one; the value stays.
        """
        if not self._lock.acquire(blocking=False):
            return
        try:
            began = time.monotonic()
            if began < self._not_before:
                return
            stats = stat_files(self._folder)
            if stats != self._last_stats:
                with self.open_reader() as reader:
                    self.current = self._read(reader, self.current)
                self._last_stats = stats
                now = time.monotonic()
                self._not_before = now + (now - began) / MAX_SHARE
        finally:
            self._lock.release()

    @contextmanager
    def open_reader(self) -> Iterator[RunReader]:
        """A reader of the run; DamagedFileError where it was replaced by another run."""
        with read_run(self._folder) as reader:
            origin = {name: value for name, value in reader.origin.items() if name != "version"}
            if self._origin is not None and origin != self._origin:
                raise DamagedFileError(
                    f"{self._folder} is another run than when the server started; restart the "
                    "server to serve it"
                )
            self._origin = origin
            yield reader

    def find_write_time(self) -> float:
        """When the run was last written, in seconds of the system clock."""
        # an empty file is what readers leave
        times = [stat[3] for stat in stat_files(self._folder) if stat is not None and stat[2]]
        return max(times, default=0) / 1e9
