"""Rows of a log on their way into a run folder, and its tables: Parquet files that grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import numpy as np
import pyarrow as pa

from streamembed.data.ids import select_ids
from streamembed.logs.log_writer import open_writer
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.storage.archive import replace_file

# Rows buffered before a row group is written: fixed, so that the log's own batches do not show.
ROW_GROUP_SIZE = 4096
Rows = TypeVar("Rows", bound=Any)  # EventRows, or a table of Arrow


@dataclass(frozen=True, slots=True, eq=False)
class EventRows:
    """Rows of a log that may become events, or have."""

    numbers: Ints  # (n,): row number in the log of each
    points: Floats  # (n, d): features in the engine's order; (n, 0) in a log of distances
    passthrough: dict[str, pa.Array]  # labels and times, where the log has them: written unchanged
    ids: Array | None = None  # (n,) or None: int64 or str; None where the log has none

    def __len__(self) -> int:
        return len(self.numbers)

    def slice(self, offset: int, length: int | None = None) -> Self:
        """So many of them from one on, or all from there, as views."""
        stop = None if length is None else offset + length
        return self._map(lambda column: column[offset:stop])

    def drop(self, indices: Sequence[int]) -> Self:
        """Without some of them; the same object without any of these."""
        return self.take(np.delete(np.arange(len(self)), indices)) if len(indices) else self

    def take(self, chosen: Ints) -> Self:
        """A selection of them, copied."""
        index = pa.array(chosen)
        taken = self._map(lambda c: c.take(index) if isinstance(c, pa.Array) else c[chosen])
        return replace(taken, ids=select_ids(self.ids, chosen))

    def _map(self, select: Callable[[Any], Any]) -> Self:
        columns = {name: select(column) for name, column in self.passthrough.items()}
        ids = None if self.ids is None else select(self.ids)
        numbers, points = select(self.numbers), select(self.points)
        return replace(self, numbers=numbers, points=points, passthrough=columns, ids=ids)

    @classmethod
    def concatenate(cls, parts: Sequence[EventRows]) -> Self:
        """All rows of several, in one piece; of one part, the part itself."""
        first = parts[0]
        if len(parts) == 1:
            return cast(Self, first)
        names = ["numbers", "points", *(["ids"] if first.ids is not None else [])]
        columns = {
            name: pa.concat_arrays([part.passthrough[name] for part in parts])
            for name in first.passthrough
        }
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
        return cls(passthrough=columns, **arrays)


def regroup(parts: Iterable[Rows], join: Callable[[list[Rows]], Rows]) -> Iterator[Rows]:
    """The same rows, `ROW_GROUP_SIZE` at a time; ``join`` makes one piece of several."""
    waiting: list[Rows] = []
    count = 0
    for part in parts:
        rows = part
        while count + len(rows) >= ROW_GROUP_SIZE:
            wanted = ROW_GROUP_SIZE - count
            yield join([*waiting, rows.slice(0, wanted)])
            waiting, count, rows = [], 0, rows.slice(wanted)
        if len(rows):
            waiting.append(rows)
            count += len(rows)
    if waiting:
        yield join(waiting)


def write_tables(path: Path, schema: Any, tables: Iterable[Any]) -> None:
    """Write a Parquet file by row groups of one size; it gets its name when it is complete."""
    with (
        replace_file(path) as temporary,
        open_writer(temporary, schema, "parquet", "zstd") as writer,
    ):
        for group in regroup(tables, pa.concat_tables):
            # in one piece: Parquet ends its pages where the pieces of a column end
            writer.write_table(group.combine_chunks(), row_group_size=ROW_GROUP_SIZE)
