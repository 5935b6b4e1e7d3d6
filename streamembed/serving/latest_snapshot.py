"""What is served: the newest whole snapshot of a run, which another process may be writing.

A snapshot is published once its checksums have been found to hold. Where the run is gone, damaged,
or another run than it was, the last good one goes on being served, and its age says so.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DamagedFileError, NotReadyError, StreamembedError, said
from streamembed.numeric.arrays import Bools, Floats
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.serving.messages import Features, RefusedError, answer_schema, packed, usable
from streamembed.storage.database import NAME
from streamembed.threads import one_blas_thread

__all__ = ["Follower", "Served"]

# Seconds between two looks, and the share of the time that looking takes at most.
EVERY, SHARE = 0.5, 0.1


@dataclass(frozen=True, eq=False)
class Served:
    """A snapshot, and what goes with every answer of it.

    Attributes
    ----------
    snapshot : Snapshot
    stamp : float
        When its run was written to, in seconds of the system's clock.
    """

    snapshot: Snapshot
    stamp: float

    @cached_property
    def features(self) -> Features | None:
        """None where it was learned from distances."""
        names = self.snapshot.feature_names
        return Features(names, self.snapshot._ordered) if names else None

    @cached_property
    def metadata(self) -> bytes:
        """Which snapshot it is, beside every batch of answers."""
        one = self.snapshot
        return packed(epoch=one.frame.epoch, position=one.position, met=bool(one.certificate.met))

    @cached_property
    def answers(self) -> pa.Schema:
        """Of its answers."""
        return answer_schema(len(self.snapshot.eigenvalues))

    @cached_property
    def data(self) -> bytes:
        """Its file."""
        return self.snapshot.to_bytes()

    def answer(self, points: Floats) -> tuple[Any, Bools]:
        """Coordinates and coverage of points (n, d), a row each, and which of them have any."""
        valid = usable(points)
        all_are = bool(valid.all())
        if all_are:
            coordinates, coverage = self._embed(points)
        else:
            coordinates = np.zeros((len(points), len(self.snapshot.eigenvalues)))
            coverage = np.zeros(len(points))
            if valid.any():
                coordinates[valid], coverage[valid] = self._embed(points[valid])
        gone = None if all_are else pa.array(~valid)
        kind = self.answers.field(0).type
        columns = [
            pa.FixedSizeListArray.from_arrays(pa.array(coordinates.ravel()), type=kind, mask=gone),
            pa.array(coverage, mask=None if all_are else ~valid),
            pa.array(valid),
        ]
        return pa.record_batch(columns, schema=self.answers), valid

    def _embed(self, points: Floats) -> tuple[Floats, Floats]:
        assert self.features is not None
        names, ordered = self.features.names, self.features.ordered
        rows = Batch(points, names, ordered, None, np.arange(len(points)), ())
        with one_blas_thread():
            found: tuple[Floats, Floats] = self.snapshot.transform_with_coverage(rows)
        return found


class Follower:
    """The newest snapshot of a run, looked for now and then; read by many threads.

    Parameters
    ----------
    folder
        Of the run.

    Attributes
    ----------
    current : Served or None
        None before the warm-up of the run has ended. One assignment replaces it.
    """

    def __init__(self, folder: str) -> None:
        self.current: Served | None = None
        self._folder = Path(folder)
        self._origin: dict[str, Any] | None = None
        self._seen: Any = None
        self._told = ""

    def look(self) -> None:
        """Publish what is new.

        Raises
        ------
        DamagedFileError, FileError
            The run cannot be read, or it is another one.
        """
        now = self._marks()
        if now == self._seen:
            return
        with self.reading() as reader:
            at = reader.positions
            if at and (self.current is None or at[-1] > self.current.snapshot.position):
                stamp = max([mark[2] / 1e9 for mark in now if mark is not None], default=0.0)
                made = Served(reader.snapshot(), stamp)
                self.current = made
        self._seen = now

    def watch(self, stop: threading.Event) -> None:
        """Look until it is to stop; what goes wrong is said once, and looked at again."""
        took = 0.0
        while not stop.wait(max(EVERY, took / SHARE)):
            began = time.monotonic()
            try:
                self.look()
                self._told = ""
            except NotReadyError:
                pass
            except Exception as error:  # whatever it is, what is served goes on being served
                if said(error) != self._told:
                    self._told = said(error)
                    print(f"streamembed: {self._told}", file=sys.stderr, flush=True)
            took = time.monotonic() - began

    @contextmanager
    def reading(self) -> Iterator[RunReader]:
        """The run as it is now; DamagedFileError where it is another one than it was."""
        with read_run(self._folder) as reader:
            origin = {name: told for name, told in reader.origin.items() if name != "version"}
            if self._origin is not None and origin != self._origin:
                raise DamagedFileError(
                    f"{self._folder} is another run than it was when serving began: start again "
                    "to serve it"
                )
            self._origin = origin
            yield reader

    def must_have(self) -> Served:
        """The current one; RefusedError before there is one."""
        if self.current is None:
            raise RefusedError("not_ready", "the warm-up has not ended: there is no snapshot yet")
        return self.current

    def data_of(self, position: int) -> bytes:
        """The file of a kept snapshot."""
        if (now := self.current) is not None and now.snapshot.position == position:
            return now.data
        with self.reading() as reader:
            if position not in reader.positions:
                raise RefusedError("not_found", f"no snapshot at {position} is kept")
            return reader.snapshot(position).to_bytes()

    def landmarks(self, partition: int) -> bytes:
        """The landmarks of the engine that was committed last, as a set of a partition."""
        with self.reading() as reader:
            engine = reader.engine()
        if engine.config.memory != "landmarks" or engine.learns_distances:
            raise RefusedError("not_found", "this run keeps no landmarks that could be merged")
        return engine.landmark_set(partition).to_bytes()

    def timeline(self) -> Any:
        """The run's, as a table."""
        with self.reading() as reader:
            return reader.timeline()

    def positions(self) -> list[int]:
        """Of the snapshots that can be asked for; of the current one where the run is not well."""
        try:
            with self.reading() as reader:
                return sorted({*reader.positions})
        except StreamembedError:
            return [] if self.current is None else [self.current.snapshot.position]

    def _marks(self) -> tuple[tuple[int, int, int] | None, ...]:
        """What changes when anything is written; cheap to ask for."""
        found: list[tuple[int, int, int] | None] = []
        for name in (NAME, f"{NAME}-wal"):
            try:
                state = (self._folder / name).stat()
            except OSError:
                found.append(None)
                continue
            found.append((state.st_ino, state.st_size, state.st_mtime_ns))
        return tuple(found)
