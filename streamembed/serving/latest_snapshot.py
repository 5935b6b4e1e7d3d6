"""The newest complete snapshot of a run, shared by all calls: it never changes.

The server that learns into the run computes it from what is committed. Any other server reads it
from the run, which another process may be writing: where that is missing, damaged or replaced, the
last good snapshot stays published, and its age grows.
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
from streamembed.numeric.arrays import Floats
from streamembed.runs.run_follower import RunFollower
from streamembed.runs.run_reader import RunReader
from streamembed.serving.messages import build_answer_schema, mask_usable, pack_metadata
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

    def embed(self, points: Floats) -> Any:
        """The answer for points (n, d): null in rows that are not valid."""
        valid = mask_usable(points)
        coordinates = np.zeros((len(points), len(self.snapshot.eigenvalues)))
        coverage = np.zeros(len(points))
        if valid.any():
            rows = Batch.of_points(points[valid], self.snapshot.features)
            with one_blas_thread():
                embedded = self.snapshot.transform_with_coverage(rows)
            coordinates[valid], coverage[valid] = embedded
        kind = self.schema.field(0).type
        columns = [
            pa.FixedSizeListArray.from_arrays(
                pa.array(coordinates.ravel()), type=kind, mask=pa.array(~valid)
            ),
            pa.array(coverage, mask=~valid),
            pa.array(valid),
        ]
        return pa.record_batch(columns, schema=self.schema)


class LatestSnapshot(RunFollower[ServedSnapshot]):
    """The newest snapshot of a run, None before its warm-up has ended; and its other tables."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, self._read_newest)

    def _read_newest(
        self, reader: RunReader, previous: ServedSnapshot | None
    ) -> ServedSnapshot | None:
        positions = reader.positions
        if not positions or (previous and positions[-1] <= previous.snapshot.position):
            return previous
        return ServedSnapshot(reader.snapshot(), self.find_write_time())
