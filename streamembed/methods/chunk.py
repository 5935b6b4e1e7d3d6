"""Events on their way into the state: points, or objects known only by their distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Self

import numpy as np

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.codec import SAVED_IF_SET


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Events in the order of the stream."""

    points: Floats  # (c, d): raw; (c, 0) for objects without coordinates
    ids: Array  # (c,): int64 or str
    # (c, n): unsquared distances to the n items of the support, oldest first, for objects without
    # coordinates; inf where the item has left the window before the event came.
    distances: Floats | None = None
    # (c, c): the same to one another: symmetric, zero diagonal.
    mutual_distances: Floats | None = None
    classes: Ints | None = None  # (c,): class indices of labelled events, -1 where unknown
    # (c,): where masses fade by them; None where they fade by positions.
    times: Floats | None = None

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of_rows(cls, rows: Sequence[Floats], ids: Array, n_objects: int) -> Self:
        """A chunk of distance rows.

        Parameters
        ----------
        rows
            Row i: distances to the most recent of the ``n_objects`` items, oldest first, and behind
            them to the i events of the chunk before it.
        """
        c = len(rows)
        distances, mutual_distances = np.full((c, n_objects), np.inf), np.zeros((c, c))
        for i, row in enumerate(rows):
            n_known = min(len(row) - i, n_objects)
            distances[i, n_objects - n_known :] = row[len(row) - i - n_known : len(row) - i]
            mutual_distances[i, :i] = mutual_distances[:i, i] = row[len(row) - i :]
        return cls(np.zeros((c, 0)), ids, distances, mutual_distances)


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedEvents:
    """Accepted events in the order of the stream, from which a chunk is made."""

    points: Annotated[Floats, "c d"]  # raw; (c, 0) for objects without coordinates
    ids: Annotated[Array, "c", "int64 or text", "different"]
    # (L_i,) each, for objects without coordinates: see `Chunk.of_rows`.
    rows: tuple[Annotated[Floats, "*"], ...] | None = None
    # Class indices, -1 where unknown; None where no metric learns from labels.
    classes: Annotated[Ints, "c"] | None = None
    # As in `Chunk`.
    times: Annotated[Floats, "c"] | None = field(default=None, metadata=SAVED_IF_SET)

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def joined(cls, parts: Sequence[AcceptedEvents]) -> Self:
        """The same events in one array each."""
        rows = None
        if parts[0].rows is not None:
            rows = tuple(row for part in parts for row in part.rows or ())
        classes = None
        if parts[0].classes is not None:
            classes = np.concatenate([part.classes for part in parts if part.classes is not None])
        times = None
        if parts[0].times is not None:
            times = np.concatenate([part.times for part in parts if part.times is not None])
        return cls(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.ids for part in parts]),
            rows,
            classes,
            times,
        )

    def chunk(self, n_objects: int) -> Chunk:
        """All events as one chunk, for a support of ``n_objects``."""
        if self.rows is None:
            return Chunk(self.points, self.ids, classes=self.classes, times=self.times)
        return Chunk.of_rows(self.rows, self.ids, n_objects)
