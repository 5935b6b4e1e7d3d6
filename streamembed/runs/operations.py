"""Operations: calls that change an engine, as bytes; written before they are acknowledged.

A call is stored as it was checked, so that repeating it depends neither on the caller's table nor
on its library. Applied in the same order to engines of the same parameters, calls give the same
bytes.
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
from streamembed.data.labels import list_labels, read_booleans
from streamembed.engine.engine import Engine
from streamembed.engine.input_checks import Labelled, Learned
from streamembed.errors import InputError, ParameterError, quote
from streamembed.numeric.arrays import Array
from streamembed.storage import archive

OPERATION_KIND = "operation"


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One call, checked.

    Attributes
    ----------
    name : str
        The method of `Engine`.
    arrays : dict of arrays
        Its arguments that are numbers or ids.
    metadata : dict
        The rest, JSON-ready; after packing also the rows that were not learned, under "gone".
    """

    name: str
    arrays: dict[str, Array] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return int(self.metadata.get("n", 0))

    @property
    def events(self) -> int:
        """Events that it adds to the position; known after packing."""
        if self.name not in ("learn", "learn_distances"):
            return 0
        return self.rows - len(self.metadata["gone"])

    @property
    def digest(self) -> int:
        """A checksum of the call, without its result."""
        metadata = {name: value for name, value in self.metadata.items() if name != "gone"}
        crc = zlib.crc32(json.dumps([self.name, metadata], sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            crc = zlib.crc32(data, zlib.crc32(f"{name}{array.shape}".encode(), crc))
        return crc

    def pack(self, batch_id: str | None, result: Learned | Labelled | None) -> bytes:
        """The call and its result as bytes with a checksum."""
        rejected = [row.index for row in result.rejected] if isinstance(result, Learned) else []
        header = {**self.metadata, "name": self.name, "batch_id": batch_id, "gone": rejected}
        return archive.seal(archive.to_table(self.arrays), OPERATION_KIND, header)


def unpack(data: bytes) -> tuple[Operation, str | None]:
    """The operation that `Operation.pack` wrote, and its batch id; else DamagedFileError."""
    table, header = archive.unseal(data, OPERATION_KIND, "a batch of the run")
    with archive.raise_damaged("a batch of the run", OPERATION_KIND):
        name, batch_id = str(header.pop("name")), header.pop("batch_id")
        archive.must(name in _METHODS, f"its call is {name}")
        return Operation(name, archive.unpack(table), header), batch_id


# ------------------------------------------------------------------------ calls, checked


def check_points(
    engine: Engine, X: Any, y: Any, ids: Any, features: Any, times: Any = None
) -> Operation:
    """Check a call of `Engine.learn`, with its errors; nothing is learned yet."""
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
    batch_rows = batch.read(table.points, ids, names, ordered, engine.config.on_bad_row)
    n = len(batch_rows.kept) + len(batch_rows.rejected)
    arrays = {"points": batch_rows.points, "kept": batch_rows.kept}
    if batch_rows.ids is not None:
        arrays["ids"] = batch_rows.ids
    event_times = engine._read_times(table, times, n)
    if event_times is not None:
        arrays["times"] = event_times
    metadata = {
        "n": n,
        "names": list(batch_rows.names),
        "ordered": batch_rows.ordered,
        "labels": None if y is None else list_labels(y, n),
        "rejected": [[row.index, to_python(row.id), row.reason] for row in batch_rows.rejected],
    }
    return Operation("learn", arrays, metadata)


def check_distances(rows: Any, ids: Any) -> Operation:
    """Check a call of `Engine.learn_distances`; rows are checked when they are learned."""
    row_list = distances.list_rows(rows)
    known_ids = read_ids(ids, len(row_list))
    lengths = np.array([-1 if row is None else len(row) for row in row_list], dtype=np.int64)
    flat = [row for row in row_list if row is not None and len(row)]
    arrays: dict[str, Array] = {
        "lengths": lengths,
        "distances": np.concatenate(flat) if flat else np.zeros(0),
    }
    square = isinstance(rows, np.ndarray) and rows.ndim == 2
    keys = None if known_ids is None else [to_python(key) for key in known_ids.tolist()]
    return Operation(
        "learn_distances", arrays, {"n": len(row_list), "ids": keys, "square": bool(square)}
    )


def check_pairs(engine: Engine, X1: Any, X2: Any, similar: Any) -> Operation:
    """Check a call of `Engine.learn_pairs`, with the errors that concern the tables."""
    names, ordered = engine._features_of_points()
    with batch.rename_argument("X1"):
        left = batch.read(column_roles.split(X1, names).points, None, names, ordered)
    with batch.rename_argument("X2"):
        other = column_roles.split(X2, left.names).points
        right = batch.read(other, None, left.names, left.ordered)
    arrays = {
        "left": left.points,
        "right": right.points,
        "similar": read_booleans(similar, len(left.points)),
    }
    metadata = {"n": len(left.points), "names": list(left.names), "ordered": left.ordered}
    return Operation("learn_pairs", arrays, metadata)


def check_labels(ids: Any, y: Any) -> Operation:
    """Check a call of `Engine.label`."""
    if not hasattr(ids, "__len__"):
        raise InputError(f"ids={quote(ids)} must be a list or an array, an id for each label")
    n = len(ids)
    known_ids = read_ids(ids, n)
    keys = [] if known_ids is None else [to_python(key) for key in known_ids.tolist()]
    return Operation("label", {}, {"n": n, "ids": keys, "labels": list_labels(y, n)})


def create_plain(name: str) -> Operation:
    """A call without arguments: `flush`, `rescale` or `relayout`."""
    return Operation(name)


def to_python(value: Any) -> Any:
    """A numpy scalar as a Python one, for JSON."""
    return value.item() if isinstance(value, np.generic) else value


# ------------------------------------------------------------------------ calls, done


def apply(engine: Engine, operation: Operation) -> Learned | Labelled | None:
    """Call the engine."""
    result: Learned | Labelled | None = _METHODS[operation.name](engine, operation)
    return result


def _learn(engine: Engine, operation: Operation) -> Learned:
    metadata, arrays = operation.metadata, operation.arrays
    rejected = tuple(Rejected(index, key, why) for index, key, why in metadata["rejected"])
    rows = Batch(
        arrays["points"],
        tuple(metadata["names"]),
        bool(metadata["ordered"]),
        arrays.get("ids"),
        arrays["kept"],
        rejected,
    )
    return engine.admit(rows, None, metadata["labels"], times=arrays.get("times"))


def _learn_distances(engine: Engine, operation: Operation) -> Learned:
    lengths = operation.arrays["lengths"]
    ends = np.cumsum(np.maximum(lengths, 0))
    flat = operation.arrays["distances"]
    rows: Any = [
        None if length < 0 else flat[end - length : end]
        for length, end in zip(lengths.tolist(), ends.tolist(), strict=True)
    ]
    if operation.metadata["square"]:
        rows = flat.reshape(len(lengths), -1)
    return engine.admit_distances(rows, operation.metadata["ids"])


def _learn_pairs(engine: Engine, operation: Operation) -> None:
    arrays, index = operation.arrays, np.arange(operation.rows, dtype=np.int64)
    names, ordered = tuple(operation.metadata["names"]), bool(operation.metadata["ordered"])
    left, right = (
        Batch(arrays[side], names, ordered, None, index, ()) for side in ("left", "right")
    )
    engine.learn_pairs(left, right, arrays["similar"])


def _label(engine: Engine, operation: Operation) -> Labelled:
    return engine.label(operation.metadata["ids"], operation.metadata["labels"])


_METHODS: dict[str, Callable[[Engine, Operation], Any]] = {
    "learn": _learn,
    "learn_distances": _learn_distances,
    "learn_pairs": _learn_pairs,
    "label": _label,
    "flush": lambda engine, _: engine.flush(),
    "rescale": lambda engine, _: engine.rescale(),
    "relayout": lambda engine, _: engine.relayout(),
}
