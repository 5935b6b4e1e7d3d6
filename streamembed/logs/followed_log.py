"""A folder of log files that grows, read as one log: `follow_log`.

Files are taken in the natural order of their names (9 before 10). When the log ends, the folder is
listed again: the files that were taken must come first, and the log goes on with those behind them.
No system says reliably that a file is written, so files are renamed into place; one that is half
written is an error, after which a new start resumes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from pyarrow.fs import FileType

from streamembed.data.column_roles import ColumnChoice
from streamembed.data.times import TimeOrder
from streamembed.errors import FeatureError, LogError, ParameterError, check_path
from streamembed.logs.event_log import EventLog, LogBatch, open_files, parse_choice
from streamembed.logs.log_file import LogFile, probe, read_rows
from streamembed.logs.paths import Location, check_plain, list_folder
from streamembed.logs.place import Place, find_place, is_uri
from streamembed.validation import check_real

POLL = 1.0  # seconds between two lists of the folder
FIXED = ("label_type", "event_time_type", "feature_names")  # what a later file must not bring in


def follow_log(
    folder: Location,
    features: Sequence[str] | None = None,
    *,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    idle_exit: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> FollowedLog:
    """Wait for the first files of a folder, and open them and all that follow as one log.

    It has the rows that `open_log` has of the folder once nothing more comes.

    Parameters
    ----------
    folder
        Of log files whose names ascend, or its URI. Write a file under a name that begins with "."
        or "_", and rename it when it is complete.
    features, exclude, id, label, time
        As for `open_log`; decided by the first files.
    idle_exit
        Seconds without a new file after which the log ends; default: never.
    stop
        Asked while it waits; once it says True, the log ends.

    Raises
    ------
    ParameterError
        ``folder`` is no folder, or no file has come.
    KeyboardInterrupt
        ``stop`` said True before there was a file.
    FeatureError, LogError
        As `open_log`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from streamembed.logs import write_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/day-1", np.eye(3), ["a", "b", "c"])
    ...     log = follow_log(folder, idle_exit=0)
    ...     [len(batch) for batch in log.batches()]
    [3]
    """
    place = find_place(folder if is_uri(folder) else check_path(folder, "folder"))
    if place.kind != FileType.Directory:
        raise ParameterError(f"folder={str(place)!r} must be a folder, which can grow")
    check_plain(place)
    seconds = math.inf
    if idle_exit is not None:
        seconds = check_real("idle_exit", idle_exit, 0.0, math.inf)
    return FollowedLog(place, parse_choice(features, exclude, id, label, time), seconds, stop)


class FollowedLog:
    """A log that grows, by `follow_log`.

    Attributes
    ----------
    log : EventLog
        The files so far.
    """

    def __init__(
        self,
        folder: Place,
        choice: ColumnChoice,
        idle_exit: float,
        stop: Callable[[], bool] | None,
    ) -> None:
        """Use `follow_log`."""
        self._folder, self._choice = folder, choice
        self._idle_exit, self._stop = idle_exit, stop
        self._files: tuple[LogFile, ...] = ()
        self.log: EventLog
        if not self._wait():
            if stop is not None and stop():
                raise KeyboardInterrupt
            raise ParameterError(f"{folder} is a folder without log files: none has come")

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """Batches from a row on, also of the files that come while it waits for them.

        Raises
        ------
        ParameterError
            A file has come whose name sorts before those that were taken; or the folder has become
            a table, as of Delta.
        FeatureError
            A file has other columns than those before.
        LogError
            A file is gone, damaged or half-written: with a whole one, a new start resumes.
        """
        row, order, done = start, TimeOrder(), 0
        while True:
            for part in self.log._batches(row, order, done):
                yield part
                row = part.offset + len(part)
            done = len(self._files)
            if not self._wait():
                return

    def _wait(self) -> bool:
        """Wait for more files, and take them; False where none comes."""
        end = time.monotonic() + self._idle_exit
        while not (places := self._list_new()):
            left = end - time.monotonic()
            if left <= 0 or (self._stop is not None and self._stop()):
                return False
            time.sleep(min(POLL, left))
        files = (*self._files, *map(_probe_counted, places))
        log = open_files(files, self._choice, self._folders)
        for name in FIXED if self._files else ():
            now, before = getattr(log, name), getattr(self.log, name)
            if now != before:
                raise FeatureError(
                    f"{places[0]} makes the {name.removesuffix('_type')} of the log {now}, which "
                    f"is {before or 'absent'} in the files before it: write it like these, or "
                    "replay the whole folder"
                )
        self._files, self.log = files, log
        return True

    @property
    def _folders(self) -> tuple[Path, ...]:
        return tuple(path for path in [self._folder.address] if isinstance(path, Path))

    def _list_new(self) -> list[Place]:
        """The files behind those that are taken."""
        places, taken = list_folder(self._folder), [file.place for file in self._files]
        if places[: len(taken)] == taken:
            return places[len(taken) :]
        for place in taken:
            if place not in places:
                raise LogError(f"{place} is gone, and its rows are taken: put it back")
        early = next(place for place in places if place not in taken)
        raise ParameterError(
            f"{early} has come, whose name sorts before that of {taken[-1].name}, which is taken: "
            "names must ascend; give it a later name, or replay the folder from its first row with "
            "overwrite=True"
        )


def _probe_counted(place: Place) -> LogFile:
    """A file, of a stream with its rows: what was learned of all rows is committed."""
    file = probe(place)
    if file.rows is None:
        with suppress(LogError):  # reading the rows raises it
            return replace(file, rows=sum(read_rows(file, set(), 1, sys.maxsize)))
    return file
