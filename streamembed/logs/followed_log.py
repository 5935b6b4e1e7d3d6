"""A folder of log files that grows, read as one log: `follow_log`.

Files are read in the natural order of their names (9 before 10). When the log ends, the folder is
listed again: the files that were read must come first, and the log goes on with those behind them.
No system says reliably that a file is written, so files are renamed into place; one that is half
written is an error, after which a new start resumes.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path

from pyarrow.fs import FileType

from streamembed.data.column_roles import ColumnChoice
from streamembed.errors import FeatureError, LogError, ParameterError, check_path
from streamembed.logs.event_log import EventLog, LogBatch, open_files, parse_choice
from streamembed.logs.log_file import LogFile, probe, read_rows
from streamembed.logs.paths import Location, check_no_table, list_folder
from streamembed.logs.place import Place, find_place, is_uri
from streamembed.validation import check_real

POLL = 1.0  # seconds between two lists of the folder


def follow_log(
    folder: Location,
    features: Sequence[str] | None = None,
    *,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    keep: Sequence[str] | None = None,
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
    features, exclude, id, label, time, keep
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
    check_no_table(place)
    seconds = check_real("idle_exit", math.inf if idle_exit is None else idle_exit, 0.0, math.inf)
    choice = parse_choice(features, exclude, id, label, time, keep)
    return FollowedLog(place, choice, seconds, stop or (lambda: False))


@dataclass(eq=False)
class FollowedLog:
    """A log that grows, by `follow_log`.

    Attributes
    ----------
    log : EventLog
        The files so far.
    """

    _folder: Place
    _choice: ColumnChoice
    _idle_exit: float
    _stop: Callable[[], bool]
    log: EventLog = field(init=False)
    _files: tuple[LogFile, ...] = ()

    def __post_init__(self) -> None:
        """Wait for the first files."""
        if not self._wait():
            if self._stop():
                raise KeyboardInterrupt
            raise ParameterError(f"{self._folder} is a folder without log files: none has come")

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """Batches from a row on, also of the files that come while it waits for them.

        Raises
        ------
        ParameterError
            A file that was read is missing, or a new one has a name that sorts before it; or the
            folder has become a table, as of Delta.
        FeatureError
            A file has other columns than those before.
        LogError
            A file is damaged or half-written: with a whole one, a new start resumes.
        """
        return self.log.read(start, self._list_files())

    def _list_files(self) -> Iterator[LogFile]:
        """The files so far, then those that come."""
        done = 0
        while True:
            yield from self._files[done:]
            done = len(self._files)
            if not self._wait():
                return

    def _wait(self) -> bool:
        """Wait for more files, and add them to the log; False where none comes."""
        end = time.monotonic() + self._idle_exit
        while not (new := self._list_new()):
            left = end - time.monotonic()
            if left <= 0 or self._stop():
                return False
            time.sleep(min(POLL, left))
        files = (*self._files, *map(_probe_counted, new))
        folders = (Path(str(self._folder)),) if self._folder.is_local else ()
        log = open_files(files, self._choice, folders)
        if self._files and log.columns_read != self.log.columns_read:
            raise FeatureError(
                f"{new[0]} changes the columns of the log from {self.log.columns_read} to "
                f"{log.columns_read}: write it like the files before, or replay the whole folder"
            )
        self._files, self.log = files, log
        return True

    def _list_new(self) -> list[Place]:
        """The files behind those of the log."""
        places, known = list_folder(self._folder), [file.place for file in self._files]
        for before, now in zip_longest(known, places[: len(known)]):
            if before != now:
                raise ParameterError(
                    f"{self._folder} has {now or 'nothing'} in the place of {before}, which was "
                    "read: files must stay, and the names of new ones must come after theirs; give "
                    "it a later name, or replay the folder with overwrite=True"
                )
        return places[len(known) :]


def _probe_counted(place: Place) -> LogFile:
    """A file, of a stream with its rows: what was learned of all rows is committed."""
    file = probe(place)
    if file.rows is None:
        with suppress(LogError):  # reading the rows raises it
            return replace(file, rows=sum(read_rows(file, set(), 1, sys.maxsize)))
    return file
