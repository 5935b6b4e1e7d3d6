"""A folder of log files that grows, read as one log: `follow_log`.

Files are taken in the natural order of their names (9 before 10), each once it is complete: Parquet
and Arrow IPC files that have their footer, streams that have their end. The folder is listed again
and again, since no system says reliably that a file is written. A file that is not complete is
waited for, and with it those behind it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from streamembed.data.column_roles import ColumnChoice
from streamembed.data.times import TimeOrder
from streamembed.errors import FeatureError, LogError, ParameterError, check_path, quote
from streamembed.logs.event_log import LogBatch, open_files, parse_choice
from streamembed.logs.log_file import HEAD, LogFile, probe, read_rows
from streamembed.logs.paths import Location, check_plain, list_folder
from streamembed.logs.remote_path import LogPath
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
        Of log files whose names ascend. Write a file under a name that begins with "." or "_", and
        rename it when it is complete.
    features, exclude, id, label, time
        As for `open_log`; decided by the first files.
    idle_exit
        Seconds without a new complete file after which the log ends; default: never.
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
    path = Path(check_path(folder, "folder"))
    if not path.is_dir():
        raise ParameterError(f"folder={quote(str(path))} must be a folder, which can grow")
    check_plain(path)
    seconds = math.inf
    if idle_exit is not None:
        seconds = check_real("idle_exit", idle_exit, 0.0, math.inf)
    return FollowedLog(path, parse_choice(features, exclude, id, label, time), seconds, stop)


class FollowedLog:
    """A log that grows, by `follow_log`.

    Attributes
    ----------
    log : EventLog
        The files that were taken.
    """

    def __init__(
        self,
        folder: Path,
        choice: ColumnChoice,
        idle_exit: float,
        stop: Callable[[], bool] | None,
    ) -> None:
        """Use `follow_log`."""
        self._folder, self._choice = folder, choice
        self._idle_exit, self._stop = idle_exit, stop
        self._files: list[LogFile] = []  # taken
        self._incomplete: tuple[Path, int, int] | None = None  # with its size and time
        if not self._take_files():
            self._wait()
        if not self._files:
            if self._is_stopped():
                raise KeyboardInterrupt
            raise ParameterError(f"{folder} is a folder without complete log files: none has come")
        self._head = tuple(self._files)
        self.log = open_files(self._head, choice, (folder,))

    def batches(self, start: int = 0) -> Iterator[LogBatch]:
        """Batches from a row on, also of the files that come while it waits for them.

        Raises
        ------
        ParameterError
            A file has come whose name sorts before those that were taken; or the folder has become
            a table, as of Delta.
        FeatureError
            A file has other columns than the first.
        LogError
            A taken file is gone or damaged, or the last is not complete at the end.
        """
        row, order = start, TimeOrder()
        while True:
            for part in self.log._batches(row, order):
                yield part
                row = part.offset + len(part)
            if not self._wait():
                break
            self._extend(self._files[len(self.log.paths) :])
        if self._incomplete is not None and not self._is_stopped():  # as of any log that ends so
            self._extend([probe(self._incomplete[0])])
            yield from self.log._batches(row, order)

    def _is_stopped(self) -> bool:
        return self._stop is not None and self._stop()

    def _wait(self) -> bool:
        """Wait for a complete file; False where none comes."""
        end = time.monotonic() + self._idle_exit
        while not self._take_files():
            left = end - time.monotonic()
            if left <= 0 or self._is_stopped():
                return False
            time.sleep(min(POLL, left))
        return True

    def _take_files(self) -> bool:
        """Take the complete files that have come; whether there are any."""
        paths, taken = list_folder(self._folder), [file.path for file in self._files]
        if paths[: len(taken)] != taken:
            self._raise_disorder(paths, taken)
        if self._incomplete is not None and self._incomplete[0] not in paths:
            self._incomplete = None
        for path in paths[len(taken) :]:
            file = self._probe_complete(path)
            if file is None:
                break
            self._files.append(file)
        return len(self._files) > len(taken)

    def _raise_disorder(self, paths: list[Path], taken: list[LogPath]) -> None:
        for path in taken:
            if path not in paths:
                raise LogError(f"{path} is gone, and its rows are taken: put it back")
        early = next(path for path in paths if path not in taken)
        raise ParameterError(
            f"{early} has come, whose name sorts before that of {taken[-1].name}, which is taken: "
            "names must ascend; give it a later name, or replay the folder from its first row with "
            "overwrite=True (--overwrite)"
        )

    def _probe_complete(self, path: Path) -> LogFile | None:
        """A file with its number of rows; None while it is not complete, or where it is gone."""
        previous, self._incomplete = self._incomplete, _read_state(path)
        if self._incomplete in (None, previous) or self._incomplete[1] < HEAD:
            return None
        try:
            file = probe(path)
        except (LogError, ParameterError):
            now = _read_state(path)
            if now == self._incomplete:
                raise
            if now is None:  # it was a temporary file
                self._incomplete = None
            return None
        if file.columns is None or file.damage is not None:
            return None
        if file.rows is None:  # a stream
            try:
                parts = read_rows(file, set(file.names), self._incomplete[1])
                file = replace(file, rows=sum(part.num_rows for part in parts))
            except LogError:
                return None
        self._incomplete = None
        return file

    def _extend(self, files: Sequence[LogFile]) -> None:
        """Add files behind those of the log; FeatureError where they have other columns."""
        log, opened = self.log, open_files((*self._head, *files), self._choice, self.log.folders)
        for name in FIXED:
            now, before = getattr(opened, name), getattr(log, name)
            if now != before:
                raise FeatureError(
                    f"{files[0]} makes the {name.removesuffix('_type')} of the log {now}, which is "
                    f"{before or 'absent'} in the files before it: write it like these, or replay "
                    "the whole folder"
                )
        both = {**opened.columns.left_out, **log.columns.left_out}
        left_out = {name: both[name] for name in sorted(both)}
        suspicious = tuple(sorted({*log.columns.suspicious, *opened.columns.suspicious}))
        counts = [log.n_rows, *(file.rows for file in files)]
        self.log = replace(
            log,
            paths=(*log.paths, *(file.path for file in files)),
            columns=replace(log.columns, left_out=left_out, suspicious=suspicious),
            n_rows=None if None in counts else sum(count or 0 for count in counts),
            _files=(*log._files, *files),
        )


def _read_state(path: Path) -> tuple[Path, int, int] | None:
    """The file with its size and time; None where it is gone."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return path, status.st_size, status.st_mtime_ns
