"""The newest complete snapshot of a run, which another process may be writing.

A snapshot is published after its checksums are verified. Where the run is missing, damaged or
replaced, the last good snapshot stays published, and its age grows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import StreamembedError
from streamembed.numeric.arrays import Bools, Floats
from streamembed.runs.run_follower import RunFollower
from streamembed.runs.run_reader import RunReader
from streamembed.serving.messages import (
    RefusedError,
    build_answer_schema,
    mask_usable,
    pack_metadata,
)
from streamembed.threads import one_blas_thread


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


class LatestSnapshot(RunFollower[ServedSnapshot]):
    """The newest snapshot of a run, None before its warm-up has ended; and its other files."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, self._read_newest)

    def _read_newest(
        self, reader: RunReader, previous: ServedSnapshot | None
    ) -> ServedSnapshot | None:
        positions = reader.positions
        if not positions or (previous and positions[-1] <= previous.snapshot.position):
            return previous
        return ServedSnapshot(reader.snapshot(), self.find_write_time())

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
