"""Calls that change an engine, as bytes: written before they are acknowledged, done again after.

A call is kept as it was checked, so that doing it again hangs neither on the caller's table nor on
its library. Done in the same order on an engine of the same parameters, calls give the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles
from streamembed.data import distance_rows as distances
from streamembed.data.batch import Batch, Rejected
from streamembed.data.ids import read_ids
from streamembed.data.labels import booleans, list_labels
from streamembed.engine.engine import Engine, Labelled, Learned
from streamembed.errors import InputError, ParameterError, shown
from streamembed.numeric.arrays import Array
from streamembed.storage import archive

__all__ = [
    "Operation",
    "bare",
    "distance_rows",
    "do",
    "late_labels",
    "pairs",
    "plain",
    "points",
    "unpack",
]

KIND = "operation"


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One call, checked.

    Attributes
    ----------
    name : str
        Of the method of `Engine`.
    arrays : dict of arrays
        What it was called with, as far as it is numbers or ids.
    told : dict
        The rest, as JSON has it; once it was packed, also the rows that were not learned, "gone".
    """

    name: str
    arrays: dict[str, Array] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return int(self.told.get("n", 0))

    @property
    def events(self) -> int:
        """How far it moves the position, once it was packed."""
        if self.name not in ("learn", "learn_distances"):
            return 0
        return self.rows - len(self.told["gone"])

    @property
    def digest(self) -> int:
        """A checksum of the call, without what it gave."""
        told = {name: value for name, value in self.told.items() if name != "gone"}
        crc = zlib.crc32(json.dumps([self.name, told], sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            crc = zlib.crc32(data, zlib.crc32(f"{name}{array.shape}".encode(), crc))
        return crc

    def pack(self, batch_id: str | None, found: Learned | Labelled | None) -> bytes:
        """As bytes, checked by a checksum of their own, with what it gave."""
        gone = [row.index for row in found.rejected] if isinstance(found, Learned) else []
        header = {**self.told, "name": self.name, "batch_id": batch_id, "gone": gone}
        return archive.seal(archive.table_of(self.arrays), KIND, header)


def unpack(data: bytes) -> tuple[Operation, str | None]:
    """What `Operation.pack` gave, with its batch id; DamagedFileError for anything else."""
    table, header = archive.unseal(data, KIND, "a batch of the run")
    with archive.sound("a batch of the run", KIND):
        name, batch_id = str(header.pop("name")), header.pop("batch_id")
        archive.must(name in _DONE, f"its call is {name}")
        return Operation(name, archive.unpack(table), header), batch_id


# ------------------------------------------------------------------------ calls, checked


def points(engine: Engine, X: Any, y: Any, ids: Any, features: Any, times: Any = None) -> Operation:
    """`Engine.learn`, and its errors; nothing is learned yet."""
    if y is not None and not engine.config.metrics:
        raise ParameterError(
            "y was given, but this engine learns no metrics: leave it out, or create the run with "
            "metrics=('fenn',)"
        )
    if isinstance(X, pa.RecordBatchReader):
        X = X.read_all()
    names, ordered = engine._features_of_points()
    table = column_roles.split(X, names, features)
    ids = table.ids if ids is None else ids
    y = table.labels if y is None and engine.config.metrics else y
    read = batch.read(table.points, ids, names, ordered, engine.config.on_bad_row)
    n = len(read.kept) + len(read.rejected)
    arrays = {"points": read.points, "kept": read.kept}
    if read.ids is not None:
        arrays["ids"] = read.ids
    at = engine._read_times(table, times, n)
    if at is not None:
        arrays["times"] = at
    told = {
        "n": n,
        "names": list(read.names),
        "ordered": read.ordered,
        "labels": None if y is None else list_labels(y, n),
        "rejected": [[row.index, plain(row.id), row.reason] for row in read.rejected],
    }
    return Operation("learn", arrays, told)


def distance_rows(rows: Any, ids: Any) -> Operation:
    """`Engine.learn_distances`; what is wrong with a row is found where it is learned."""
    listed = distances.listed(rows)
    known = read_ids(ids, len(listed))
    lengths = np.array([-1 if row is None else len(row) for row in listed], dtype=np.int64)
    flat = [row for row in listed if row is not None and len(row)]
    arrays: dict[str, Array] = {
        "lengths": lengths,
        "distances": np.concatenate(flat) if flat else np.zeros(0),
    }
    square = isinstance(rows, np.ndarray) and rows.ndim == 2
    keys = None if known is None else [plain(key) for key in known.tolist()]
    return Operation(
        "learn_distances", arrays, {"n": len(listed), "ids": keys, "square": bool(square)}
    )


def pairs(engine: Engine, X1: Any, X2: Any, similar: Any) -> Operation:
    """`Engine.learn_pairs`, and its errors as far as they come of the tables."""
    names, ordered = engine._features_of_points()
    with batch.called("X1"):
        left = batch.read(column_roles.split(X1, names).points, None, names, ordered)
    with batch.called("X2"):
        other = column_roles.split(X2, left.names).points
        right = batch.read(other, None, left.names, left.ordered)
    arrays = {
        "left": left.points,
        "right": right.points,
        "similar": booleans(similar, len(left.points)),
    }
    told = {"n": len(left.points), "names": list(left.names), "ordered": left.ordered}
    return Operation("learn_pairs", arrays, told)


def late_labels(ids: Any, y: Any) -> Operation:
    """`Engine.label`."""
    if not hasattr(ids, "__len__"):
        raise InputError(f"ids={shown(ids)} must be a list or an array, an id for each label")
    n = len(ids)
    known = read_ids(ids, n)
    keys = [] if known is None else [plain(key) for key in known.tolist()]
    return Operation("label", {}, {"n": n, "ids": keys, "labels": list_labels(y, n)})


def bare(name: str) -> Operation:
    """A call without arguments: `flush`, `rescale` or `relayout`."""
    return Operation(name)


def plain(value: Any) -> Any:
    """A number of numpy as Python's, for JSON."""
    return value.item() if isinstance(value, np.generic) else value


# ------------------------------------------------------------------------ calls, done


def do(engine: Engine, operation: Operation) -> Learned | Labelled | None:
    """Call the engine."""
    found: Learned | Labelled | None = _DONE[operation.name](engine, operation)
    return found


def _learn(engine: Engine, operation: Operation) -> Learned:
    told, arrays = operation.told, operation.arrays
    rejected = tuple(Rejected(index, key, why) for index, key, why in told["rejected"])
    rows = Batch(
        arrays["points"],
        tuple(told["names"]),
        bool(told["ordered"]),
        arrays.get("ids"),
        arrays["kept"],
        rejected,
    )
    return engine.admit(rows, None, told["labels"], times=arrays.get("times"))


def _learn_distances(engine: Engine, operation: Operation) -> Learned:
    lengths = operation.arrays["lengths"]
    ends = np.cumsum(np.maximum(lengths, 0))
    flat = operation.arrays["distances"]
    rows: Any = [
        None if length < 0 else flat[end - length : end]
        for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
    ]
    if operation.told["square"]:
        rows = flat.reshape(len(lengths), -1)
    return engine.admit_distances(rows, operation.told["ids"])


def _learn_pairs(engine: Engine, operation: Operation) -> None:
    arrays, index = operation.arrays, np.arange(operation.rows, dtype=np.int64)
    names, ordered = tuple(operation.told["names"]), bool(operation.told["ordered"])
    left, right = (
        Batch(arrays[side], names, ordered, None, index, ()) for side in ("left", "right")
    )
    engine.learn_pairs(left, right, arrays["similar"])


def _label(engine: Engine, operation: Operation) -> Labelled:
    return engine.label(operation.told["ids"], operation.told["labels"])


_DONE: dict[str, Callable[[Engine, Operation], Any]] = {
    "learn": _learn,
    "learn_distances": _learn_distances,
    "learn_pairs": _learn_pairs,
    "label": _label,
    "flush": lambda engine, _: engine.flush(),
    "rescale": lambda engine, _: engine.rescale(),
    "relayout": lambda engine, _: engine.relayout(),
}
