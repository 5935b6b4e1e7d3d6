"""Rows of a log on their way through an engine into a run folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import pyarrow as pa

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs.run_tables import ROW_GROUP_SIZE


@dataclass(frozen=True, slots=True, eq=False)
class EventRows:
    """Rows of a log that may become events, or have."""

    numbers: Ints  # (n,): row number in the log of each
    points: Floats  # (n, d): features in the engine's order; (n, 0) in a log of distances
    passthrough: dict[str, pa.Array]  # labels and times, where the log has them: written unchanged
    ids: Array | None = None  # (n,) or None: int64 or str; None where the log has none
    # In a log of distances, the row as the log has it; as the engine took it, once it has.
    distances: list[Floats] | None = None
    # Stream positions that these distances lead to; None before the engine took them.
    distance_positions: list[Ints] | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def slice(self, start: int, stop: int) -> Self:
        """A consecutive range of them, as views."""
        part = slice(start, stop)
        return replace(
            self,
            numbers=self.numbers[part],
            points=self.points[part],
            passthrough={k: v.slice(start, stop - start) for k, v in self.passthrough.items()},
            ids=None if self.ids is None else self.ids[part],
            distances=None if self.distances is None else self.distances[part],
            distance_positions=None
            if self.distance_positions is None
            else self.distance_positions[part],
        )

    def drop(self, indices: Sequence[int]) -> Self:
        """Without some of them; the same object without any of these."""
        if not len(indices):
            return self
        return self.take(np.delete(np.arange(len(self)), indices))

    def take(self, chosen: Ints) -> Self:
        """A selection of them, copied."""
        index = pa.array(chosen)
        rows = chosen.tolist()
        return replace(
            self,
            numbers=self.numbers[chosen],
            points=self.points[chosen],
            passthrough={name: column.take(index) for name, column in self.passthrough.items()},
            ids=None if self.ids is None else self.ids[chosen],
            distances=None if self.distances is None else [self.distances[i] for i in rows],
            distance_positions=None
            if self.distance_positions is None
            else [self.distance_positions[i] for i in rows],
        )

    @classmethod
    def concatenate(cls, parts: Sequence[EventRows]) -> Self:
        """All rows of several, in one piece; of one part, the part itself."""
        first = parts[0]
        if len(parts) == 1:
            return cast(Self, first)
        return cls(
            numbers=np.concatenate([part.numbers for part in parts]),
            points=np.concatenate([part.points for part in parts]),
            passthrough={
                name: pa.concat_arrays([part.passthrough[name] for part in parts])
                for name in first.passthrough
            },
            ids=None if first.ids is None else np.concatenate([part.ids for part in parts]),
            distances=_join_lists(parts, "distances"),
            distance_positions=_join_lists(parts, "distance_positions"),
        )


def _join_lists(parts: Sequence[EventRows], name: str) -> list[Any] | None:
    """The lists of that name behind one another; None where the first has none."""
    if getattr(parts[0], name) is None:
        return None
    return [row for part in parts for row in getattr(part, name)]


def regroup(parts: Iterable[EventRows]) -> Iterator[EventRows]:
    """The same rows, `streamembed.runs.run_tables.ROW_GROUP_SIZE` at a time."""
    waiting: list[EventRows] = []
    count = 0
    for rows in parts:
        start = 0
        while count + len(rows) - start >= ROW_GROUP_SIZE:
            stop = start + ROW_GROUP_SIZE - count
            yield EventRows.concatenate([*waiting, rows.slice(start, stop)])
            waiting, count, start = [], 0, stop
        if start < len(rows):
            waiting.append(rows.slice(start, len(rows)))
            count += len(rows) - start
    if waiting:
        yield EventRows.concatenate(waiting)
