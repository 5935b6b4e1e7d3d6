"""Events on their way into the state: points, or objects known only by their distances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

import numpy as np

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.codec import NOT_SAVED, SAVED_IF_SET


@dataclass(frozen=True, slots=True, eq=False)
class AcceptedEvents:
    """Accepted events in the order of the stream: some that wait, or a whole chunk."""

    points: Annotated[Floats, "c d"]  # raw; (c, 0) for objects without coordinates
    ids: Annotated[Array, "c", "int64 or text", "different"]
    # For objects without coordinates: distances to the most recent objects, oldest first, and
    # behind them to the events of the chunk before; (L_i,) each.
    rows: tuple[Annotated[Floats, "*"], ...] | None = None
    # Class indices, -1 where unknown; None where no metric learns from labels.
    classes: Annotated[Ints, "c"] | None = None
    # Where masses fade by them; None where they fade by positions.
    times: Annotated[Floats, "c"] | None = field(default=None, metadata=SAVED_IF_SET)
    # Of a chunk of objects without coordinates, (c, n): unsquared distances to the n items of the
    # support, oldest first; inf where the item has left the window before the event came.
    distances: Floats | None = field(default=None, metadata=NOT_SAVED)
    # (c, c): the same to one another: symmetric, zero diagonal.
    mutual_distances: Floats | None = field(default=None, metadata=NOT_SAVED)

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

    def with_distances(self, n_objects: int) -> Self:
        """A chunk with the distances of its rows, beside a support of ``n_objects``."""
        rows, c = self.rows or (), len(self)
        distances, mutual_distances = np.full((c, n_objects), np.inf), np.zeros((c, c))
        for i, row in enumerate(rows):
            n_known = min(len(row) - i, n_objects)
            distances[i, n_objects - n_known :] = row[len(row) - i - n_known : len(row) - i]
            mutual_distances[i, :i] = mutual_distances[:i, i] = row[len(row) - i :]
        return replace(self, distances=distances, mutual_distances=mutual_distances)
