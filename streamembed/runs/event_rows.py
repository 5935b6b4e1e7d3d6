"""Rows of a log on their way through an engine into a run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = ["Embedded", "Rows"]


@dataclass(frozen=True, slots=True, eq=False)
class Embedded:
    """Where events are in a snapshot; NaN where nobody knows.

    Attributes
    ----------
    coordinates : (n, k)
    coverage : (n,)
    places : (n, 2) or None
        In its picture, where there is one.
    kept : (n,) or None
        See `streamembed.engine.picture.Picture`; NaN for events that have no slot any more.
    snapshot, epoch : int
        Position of the snapshot, and the epoch of its frame.
    """

    coordinates: Floats
    coverage: Floats
    snapshot: int
    epoch: int
    places: Floats | None = None
    kept: Floats | None = None

    @classmethod
    def nowhere(cls, n: int, k: int) -> Self:
        """For n events that are known to no snapshot."""
        unknown = np.full((n, k + 4), np.nan)
        places, kept = unknown[:, k + 1 : -1], unknown[:, -1]
        return cls(unknown[:, :k], unknown[:, k], -1, -1, places, kept)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows of a log that may become events, or have.

    Attributes
    ----------
    numbers : (n,)
        Row number in the log of each.
    points : (n, d)
        Features in the engine's order; (n, 0) in a log of distances.
    carried : dict of pyarrow.Array of n
        Labels and times, where the log has them: what is handed on as it is.
    ids : (n,) or None
        int64 or str; None where the log has none.
    distances : list of (L_i,), or None
        In a log of distances, the row as the log has it; as the engine took it, once it has.
    reached : list of (L_i,), or None
        Stream positions that these distances lead to; None before the engine took them.
    """

    numbers: Ints
    points: Floats
    carried: dict[str, pa.Array]
    ids: Array | None = None
    distances: list[Floats] | None = None
    reached: list[Ints] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def part(self, start: int, stop: int) -> Self:
        """A consecutive part of them."""
        return self.take(np.arange(start, stop))

    def take(self, chosen: Ints) -> Self:
        """Some of them, a copy that holds on to no others."""
        index = pa.array(chosen)
        rows = chosen.tolist()
        return replace(
            self,
            numbers=self.numbers[chosen],
            points=self.points[chosen],
            carried={name: column.take(index) for name, column in self.carried.items()},
            ids=None if self.ids is None else self.ids[chosen],
            distances=None if self.distances is None else [self.distances[i] for i in rows],
            reached=None if self.reached is None else [self.reached[i] for i in rows],
        )

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Self:
        """All rows of several, in one piece."""
        first = parts[0]
        return cls(
            numbers=np.concatenate([part.numbers for part in parts]),
            points=np.concatenate([part.points for part in parts]),
            carried={
                name: pa.concat_arrays([part.carried[name] for part in parts])
                for name in first.carried
            },
            ids=None if first.ids is None else np.concatenate([part.ids for part in parts]),
            distances=_chain(parts, "distances"),
            reached=_chain(parts, "reached"),
        )


def _chain(parts: Sequence[Rows], name: str) -> list[Any] | None:
    """The lists of that name behind one another; None where the first has none."""
    if getattr(parts[0], name) is None:
        return None
    return [row for part in parts for row in getattr(part, name)]
