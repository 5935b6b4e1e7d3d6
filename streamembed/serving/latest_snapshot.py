"""The newest complete snapshot of a run, which another process may be writing.

A snapshot is published after its checksums are verified. Where the run is missing, damaged or
replaced, the last good snapshot stays published, and its age grows.
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
from streamembed.data.features import Features
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DamagedFileError, NotReadyError, StreamembedError, summarise_error
from streamembed.numeric.arrays import Bools, Floats
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.serving.messages import (
    RefusedError,
    build_answer_schema,
    mask_usable,
    pack_metadata,
)
from streamembed.storage.database import find_write_time, stat_files
from streamembed.threads import one_blas_thread

# Seconds between two refreshes, and the largest share of the time that they take.
INTERVAL, MAX_SHARE = 0.5, 0.1


@dataclass(frozen=True, eq=False)
class ServedSnapshot:
    """A snapshot with the schema and metadata of its answers."""

    snapshot: Snapshot
    written_at: float  # when its run was last written, in seconds of the system clock

    @cached_property
    def features(self) -> Features | None:
        """Features of its points; None where it was learned from distances."""
        features = self.snapshot.features
        return features if features.names else None

    @cached_property
    def metadata(self) -> bytes:
        """Epoch, position and certificate, sent with every batch of answers."""
        snapshot = self.snapshot
        return pack_metadata(
            epoch=snapshot.frame.epoch,
            position=snapshot.position,
            met=bool(snapshot.certificate.met),
        )

    @cached_property
    def schema(self) -> pa.Schema:
        """Schema of its answers."""
        return build_answer_schema(len(self.snapshot.eigenvalues))

    @cached_property
    def file_bytes(self) -> bytes:
        """The snapshot as the bytes of its file."""
        return self.snapshot.to_bytes()

    def embed(self, points: Floats) -> tuple[Any, Bools]:
        """The answer for points (n, d), and which rows are valid, shape (n,)."""
        valid = mask_usable(points)
        all_valid = bool(valid.all())
        if all_valid:
            coordinates, coverage = self._transform(points)
        else:
            coordinates = np.zeros((len(points), len(self.snapshot.eigenvalues)))
            coverage = np.zeros(len(points))
            if valid.any():
                coordinates[valid], coverage[valid] = self._transform(points[valid])
        nulls = None if all_valid else pa.array(~valid)
        kind = self.schema.field(0).type
        columns = [
            pa.FixedSizeListArray.from_arrays(pa.array(coordinates.ravel()), type=kind, mask=nulls),
            pa.array(coverage, mask=None if all_valid else ~valid),
            pa.array(valid),
        ]
        return pa.record_batch(columns, schema=self.schema), valid

    def _transform(self, points: Floats) -> tuple[Floats, Floats]:
        rows = Batch.of_points(points, self.snapshot.features)
        with one_blas_thread():
            embedded: tuple[Floats, Floats] = self.snapshot.transform_with_coverage(rows)
        return embedded


class RunFollower:
    """Publishes the newest snapshot of a run; used by many threads.

    Attributes
    ----------
    current : ServedSnapshot or None
        None before the warm-up of the run has ended. Replaced by one assignment.
    """

    def __init__(self, folder: str) -> None:
        self.current: ServedSnapshot | None = None
        self._folder = Path(folder)
        self._origin: dict[str, Any] | None = None
        self._last_changes: Any = None
        self._last_error = ""

    def refresh(self) -> None:
        """Publish the newest snapshot of the run.

        Raises
        ------
        DamagedFileError, FileError
            The run cannot be read, or was replaced by another one.
        """
        stats = stat_files(self._folder)
        changes = [stat and (stat.st_ino, stat.st_size, stat.st_mtime_ns) for stat in stats]
        if changes == self._last_changes:
            return
        with self.open_reader() as reader:
            positions, current = reader.positions, self.current
            if positions and (current is None or positions[-1] > current.snapshot.position):
                self.current = ServedSnapshot(reader.snapshot(), find_write_time(stats))
        self._last_changes = changes

    def follow(self, stop: threading.Event) -> None:
        """Refresh until ``stop`` is set; an error is printed once, and tried again."""
        took = 0.0
        while not stop.wait(max(INTERVAL, took / MAX_SHARE)):
            began = time.monotonic()
            try:
                self.refresh()
                self._last_error = ""
            except NotReadyError:
                pass
            except Exception as error:  # the published snapshot stays, whatever the error
                if summarise_error(error) != self._last_error:
                    self._last_error = summarise_error(error)
                    print(f"streamembed: {self._last_error}", file=sys.stderr, flush=True)
            took = time.monotonic() - began

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

    def require_current(self) -> ServedSnapshot:
        """The current snapshot; RefusedError before the first one."""
        if self.current is None:
            raise RefusedError("not_ready", "the warm-up has not ended: there is no snapshot yet")
        return self.current

    def read_snapshot(self, position: int) -> bytes:
        """The bytes of the file of a stored snapshot."""
        if (current := self.current) is not None and current.snapshot.position == position:
            return current.file_bytes
        with self.open_reader() as reader:
            if position not in reader.positions:
                raise RefusedError("not_found", f"there is no snapshot at position {position}")
            return reader.snapshot(position).to_bytes()

    def read_landmarks(self, partition: int) -> bytes:
        """The file of the landmarks of the last committed engine, as those of a partition."""
        with self.open_reader() as reader:
            engine = reader.engine()
        if engine.config.memory != "landmarks" or engine.learns_distances:
            raise RefusedError("not_found", "this run has no landmarks to merge")
        return engine.landmark_set(partition).to_bytes()

    def list_positions(self) -> list[int]:
        """Positions of the stored snapshots; of the current one where the run cannot be read."""
        try:
            with self.open_reader() as reader:
                return sorted({*reader.positions})
        except StreamembedError:
            return [] if self.current is None else [self.current.snapshot.position]
