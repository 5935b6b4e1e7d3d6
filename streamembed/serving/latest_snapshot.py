"""The newest complete snapshot of a run, shared by all calls: it never changes.

The server that learns into the run computes it from what is committed. Any other server reads it
from the run, which another process may be writing: where that is missing, damaged or replaced, the
last good snapshot stays published, and its age grows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data import batch
from streamembed.data.values import NO_NULLS
from streamembed.engine.snapshot import Snapshot
from streamembed.numeric.arrays import Floats
from streamembed.runs.log_transform import embed_rows
from streamembed.runs.run_reader import RunFollower, RunReader
from streamembed.serving.messages import pack_metadata
from streamembed.threads import one_blas_thread


@dataclass(frozen=True, eq=False)
class ServedSnapshot:
    """A snapshot with the schema and metadata of its answers."""

    snapshot: Snapshot
    written_at: float  # when its run was last written, in seconds of the system clock

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
        return self.embed(np.zeros((0, len(self.snapshot.feature_names)))).schema

    @cached_property
    def file_bytes(self) -> bytes:
        """The snapshot as the bytes of its file."""
        return self.snapshot.to_bytes()

    @cached_property
    def _map(self) -> Snapshot:
        """The snapshot without its picture: places in it take longer than all else."""
        return replace(self.snapshot, picture_contents=None)

    def embed(self, points: Floats) -> Any:
        """The answer for points (n, d): null, with a reason, in rows that cannot be embedded."""
        rows = batch.check_table(points, self._map.features, NO_NULLS, {}, None, "skip")
        with one_blas_thread():
            return pa.record_batch(embed_rows(self._map, rows, len(points)))


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
