"""Calls: checked inputs of an engine, to be applied, written down as bytes and repeated.

A call holds what was checked, so that repeating it depends neither on the caller's table nor on its
library. Applied in the same order to engines of the same parameters, calls give the same bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Hashable, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles
from streamembed.data.batch import Batch, Rejected
from streamembed.data.column_roles import SplitTable
from streamembed.data.distance_rows import list_rows
from streamembed.data.features import Features
from streamembed.data.ids import classify_ids, read_ids
from streamembed.data.labels import Label, list_labels, read_booleans
from streamembed.data.times import read_times
from streamembed.engine.engine_state import EngineState
from streamembed.errors import InputError, ParameterError, quote
from streamembed.geometry.kernel_matrix import LARGEST_SUPPORT
from streamembed.methods.options import POSITION, Config
from streamembed.numeric.arrays import LARGEST_VALUE, Array, Floats, freeze
from streamembed.storage import archive
from streamembed.validation import check_bytes

KIND = "operation"  # of the saved bytes
NAMES = ("learn", "learn_distances", "learn_pairs", "label", "flush", "rescale", "relayout")
# Kernels of inner products, which distances do not tell.
OF_PRODUCTS = ("polynomial", "cosine")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Learned:
    """What became of the rows of one `Engine.learn`.

    Attributes
    ----------
    accepted : int
        Rows that have become events of the stream.
    rejected : tuple of Rejected
        The others, as index in the call, id and reason (only with ``on_bad_row="skip"``).
    """

    accepted: int
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """What became of the labels of one `Engine.label`; those that are null are in none of these.

    Attributes
    ----------
    taught : int
        Events that had no label, and have this one now.
    repeated : int
        Labels of events that had one already, which stays.
    not_held : tuple
        Ids of no event in the support or pending, in the order of the call: their events have left,
        were merged into a landmark, or never came.
    """

    taught: int
    repeated: int
    not_held: tuple[Hashable, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Call(Generic[Result]):
    """A checked call of an engine: of `Engine.check`, or without arguments ``Call("flush")``.

    Attributes
    ----------
    result : Learned or None
        Of a call that was written with its result, and that learned events.
    """

    # The method of `Engine`: "learn", "learn_distances", "learn_pairs", "label", "flush", "rescale"
    # or "relayout".
    name: str
    arrays: dict[str, Array] = field(default_factory=dict)  # its arguments that are numbers or ids
    metadata: dict[str, Any] = field(default_factory=dict)  # the rest, JSON-ready
    result: Learned | None = None

    def __post_init__(self) -> None:
        """Refuse a name that no engine has, and freeze the arrays: they were checked."""
        if self.name not in NAMES:
            raise InputError(f"call is of {self.name!r}; it must be one of {', '.join(NAMES)}")
        if self.name in NAMES[:4] and "n" not in self.metadata:
            raise InputError(f"a call of {self.name} has arguments: use the checks of an engine")
        for array in self.arrays.values():
            freeze(array)

    def __repr__(self) -> str:
        return f"<Call {self.name}{f' of {self.rows:,} rows' if self.rows else ''}>"

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return int(self.metadata.get("n", 0))

    @property
    def events(self) -> int:
        """Events that it adds to the position, where it was written with its result."""
        return 0 if self.result is None else self.result.accepted

    @property
    def features(self) -> Features:
        """Those of the points."""
        return Features(tuple(self.metadata["names"]), bool(self.metadata["ordered"]))

    @property
    def digest(self) -> int:
        """A checksum of the call, without its result."""
        crc = zlib.crc32(json.dumps([self.name, self.metadata], sort_keys=True).encode())
        for name, array in sorted(self.arrays.items()):
            data = repr(array.tolist()).encode() if array.dtype == object else array.tobytes()
            crc = zlib.crc32(data, zlib.crc32(f"{name}{array.shape}".encode(), crc))
        return crc

    def to_bytes(self, result: Learned | Labelled | None = None) -> bytes:
        """The call as bytes with a checksum; with its result, if that is of events."""
        learned = astuple(result) if isinstance(result, Learned) else None
        header = {**self.metadata, "name": self.name, "result": learned}
        return archive.seal(archive.to_table(self.arrays), KIND, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Call[Any]:
        """The call of which `to_bytes` gave these; DamagedFileError where they are others."""
        table, header = archive.unseal(check_bytes("data", data), KIND, "a written call")
        with archive.raise_damaged("a written call", KIND):
            name, result = str(header.pop("name")), header.pop("result")
            archive.must(name in NAMES, f"its call is {name}")
            if result is not None:
                accepted, rejected = result
                result = Learned(accepted, tuple(Rejected(*row) for row in rejected))
            call: Call[Any] = Call(name, archive.unpack(table), header, result)
            _check_contents(call)
            return call


def _check_contents(call: Call[Any]) -> None:
    """Refuse what no engine has checked; within `archive.raise_damaged`."""
    must, arrays, facts = archive.must, call.arrays, call.metadata
    n, result = facts.get("n", 0), call.result
    must(type(n) is int and n >= 0, "n")
    if result is not None:
        must(type(result.accepted) is int, "result")
        must(result.accepted + len(result.rejected) == n, "result")
        _check_rejected(result.rejected)
    points = {"learn": ("points",), "learn_pairs": ("left", "right")}.get(call.name, ())
    if points:
        names = facts["names"]
        must(all(type(name) is str for name in names) and len(set(names)) == len(names), "names")
        must(type(facts["ordered"]) is bool, "ordered")
    accepted = n - len(facts["rejected"]) if call.name == "learn" else n
    for name in points:
        must(arrays[name].shape == (accepted, len(names)), f"shape of {name}")
        must(arrays[name].dtype == np.float64, f"type of {name}")
        must((np.abs(arrays[name]) <= LARGEST_VALUE).all(), f"{name} are not finite")
    if call.name == "learn":
        kept, rejected = arrays["kept"], [Rejected(*row) for row in facts["rejected"]]
        _check_rejected(rejected)
        order = np.sort(np.concatenate([kept, [row.index for row in rejected]]).astype(np.int64))
        must(kept.dtype == np.int64 and np.array_equal(order, np.arange(n)), "kept")
        must((np.diff(kept) > 0).all(), "kept")
        ids, times = arrays.get("ids"), arrays.get("times")
        must(ids is None or (len(ids) == accepted and ids.dtype == _read_ids(ids).dtype), "ids")
        must(times is None or (times.shape == (n,) and times.dtype == np.float64), "times")
    if call.name == "learn_pairs":
        must(arrays["similar"].shape == (n,) and arrays["similar"].dtype == np.bool_, "similar")
    if call.name == "learn_distances":
        lengths, distances = arrays["lengths"], arrays["distances"]
        must(lengths.shape == (n,) and lengths.dtype == np.int64, "lengths")
        total = int(np.maximum(lengths, 0).sum())
        must(distances.shape == (total,) and distances.dtype == np.float64, "distances")
        must(type(facts["square"]) is bool, "square")
    optional = call.name != "label"
    if call.name in ("learn_distances", "label") and not (optional and facts["ids"] is None):
        must(len(facts["ids"]) == n, "ids")
        _read_ids(facts["ids"])
    if call.name in ("learn", "label") and not (optional and facts["labels"] is None):
        must(list_labels(facts["labels"], n) == facts["labels"], "labels")


def _check_rejected(rows: Sequence[Rejected]) -> None:
    archive.must(
        all(type(row.index) is int and type(row.reason) is str for row in rows), "rejected"
    )


def _read_ids(ids: Any) -> Array:
    read = read_ids(ids, len(ids))
    assert read is not None
    return read


# ------------------------------------------------------------------------ checks


def check_accepted(name: str, config: Config) -> None:
    """Refuse a call that no engine of these parameters can learn."""
    if name in ("learn_pairs", "label") and not config.metrics:
        what, metric = ("pairs", "itml") if name == "learn_pairs" else ("labels", "fenn")
        raise ParameterError(
            f"{what} were given, but this engine learns no metrics: create it with "
            f"metrics=({metric!r},)"
        )
    if name == "relayout" and not config.picture:
        raise ParameterError("this engine keeps no picture: create it with picture=True")
    if name != "learn_distances":
        return
    slots = config.slots or 0
    if slots > LARGEST_SUPPORT:
        raise InputError(
            f"distance rows were given to an engine of size={slots}: their ring would take "
            f"{4e-9 * slots**2:.1f} GB; up to size={LARGEST_SUPPORT} they can be learned"
        )
    if config.clock != POSITION:
        raise InputError(
            f"clock={config.clock!r} needs points with times, but distance rows were given: create "
            "the engine with clock='position'"
        )
    if config.metrics:
        raise InputError(
            f"metrics={config.metrics!r} learn from points, but distance rows were given: create "
            "the engine without metrics"
        )
    if config.kernel in OF_PRODUCTS:
        raise InputError(
            f"kernel={config.kernel!r} is of points, but distance rows were given: try "
            "kernel='gaussian'"
        )
    if remedy := config.row.alternative:
        raise InputError(
            f"method={config.method!r} needs coordinates, which distance rows do not tell: try "
            f"{remedy}"
        )


def read_points(
    now: EngineState, config: Config, X: Any, y: Any, ids: Any, features: Any, times: Any
) -> tuple[Batch, list[Label | None] | None, Floats | None]:
    """Events of a call of `Engine.learn`, checked: rows, and labels and times of all rows."""
    if y is not None and not config.metrics:
        raise ParameterError(
            "y was given, but this engine learns no metrics: leave it out, or create the "
            "engine with metrics=('fenn',)"
        )
    if isinstance(X, pa.RecordBatchReader):
        X = X.read_all()
    now.check_input_kind(distances=False)
    table = column_roles.split(X, now.feature_names or None, features)
    ids = table.read("id") if ids is None else ids
    y = table.read("label") if y is None and config.metrics else y
    rows = batch.read(table.points, ids, now.features, config.on_bad_row)
    n = len(rows.kept) + len(rows.rejected)
    labels = None if y is None else list_labels(y, n)
    return rows, labels, choose_times(config, table, times, n)


def pack_points(
    rows: Batch, labels: list[Label | None] | None, times: Floats | None
) -> Call[Learned]:
    """The call of such events."""
    arrays: dict[str, Array] = {"points": rows.points, "kept": rows.kept}
    if rows.ids is not None:
        arrays["ids"] = rows.ids
    if times is not None:
        arrays["times"] = times
    metadata = {
        "n": len(rows.kept) + len(rows.rejected),
        "names": list(rows.features.names),
        "ordered": rows.features.ordered,
        "labels": labels,
        "rejected": [astuple(row) for row in rows.rejected],
    }
    return Call("learn", arrays, metadata)


def choose_times(config: Config, table: SplitTable | None, times: Any, n: int) -> Floats | None:
    """Times of n rows as numbers, (n,), NaN where one is missing; None if masses fade by positions.

    The column of the table is used if ``times`` is None. Without a table they are rows of a log,
    whose times may be unused.
    """
    if config.clock == POSITION:
        if table is not None and times is not None:
            raise ParameterError(
                "times were given, but masses fade by positions: leave them out, or create the "
                "engine with clock='event_time'"
            )
        return None
    if times is None and table is not None:
        times = table.read("event_time")
    if times is None:
        raise InputError(
            "masses fade by event times (clock='event_time'), and these rows have none: give "
            "times=, or a table with a column event_time"
        )
    return read_times(times, n)


def read_distances(
    config: Config, rows: Any, ids: Any
) -> tuple[list[Floats | None], Array | None, bool]:
    """Rows and ids of `Engine.learn_distances`, and whether the rows were a matrix.

    Each row is checked when it is learned.
    """
    check_accepted("learn_distances", config)
    row_list = list_rows(rows)
    is_square = isinstance(rows, np.ndarray) and rows.ndim == 2
    return row_list, read_ids(ids, len(row_list)), is_square


def pack_distances(rows: list[Floats | None], ids: Array | None, is_square: bool) -> Call[Learned]:
    """The call of such rows."""
    lengths = np.array([-1 if row is None else len(row) for row in rows], dtype=np.int64)
    flat = [row for row in rows if row is not None and len(row)]
    arrays: dict[str, Array] = {
        "lengths": lengths,
        "distances": np.concatenate(flat) if flat else np.zeros(0),
    }
    keys = None if ids is None else ids.tolist()
    return Call("learn_distances", arrays, {"n": len(rows), "ids": keys, "square": is_square})


def check_pairs(now: EngineState, config: Config, X1: Any, X2: Any, similar: Any) -> Call[None]:
    """Check a call of `Engine.learn_pairs` against the state of an engine."""
    check_accepted("learn_pairs", config)
    now.check_input_kind(distances=False)

    def read(X: Any, features: Features | None, name: str) -> Batch:
        names = None if features is None else features.names
        points = column_roles.split(X, names, name=name, remedy=column_roles.RENAME).points
        remedy = "nothing was learned: fix or drop these pairs"
        return batch.read(points, None, features, remedy=remedy, name=name)

    left = read(X1, now.features, "X1")
    right = read(X2, left.features, "X2")
    if len(left.points) != len(right.points):
        raise InputError(
            f"X1 has {len(left.points)} points and X2 has {len(right.points)}: the numbers "
            "must be equal"
        )
    kinds = read_booleans(similar, len(left.points))
    names, ordered = list(left.features.names), left.features.ordered
    arrays: dict[str, Array] = {"left": left.points, "right": right.points, "similar": kinds}
    return Call("learn_pairs", arrays, {"n": len(kinds), "names": names, "ordered": ordered})


def check_ids_known(now: EngineState, ids: Array | None) -> None:
    """Refuse ids of another kind than those of the events."""
    wanted = "strings" if now.ids_kind == "strings" else "numbers"
    kind = classify_ids(ids)
    if ids is not None and len(ids) and now.ids_kind is not None and kind != wanted:
        known_by = "stream positions" if now.ids_kind == "positions" else "the ids they came with"
        raise InputError(
            f"ids are {kind} in this call, but events are known by {now.ids_kind}: use {known_by}"
        )


def check_labels(now: EngineState, config: Config, ids: Any, y: Any) -> Call[Labelled]:
    """Check a call of `Engine.label` against the state of an engine."""
    check_accepted("label", config)
    try:
        n = len(ids)
    except TypeError as error:
        raise InputError(
            f"ids is {quote(ids)}; it must be a list, an array or a series of ids: for one event "
            "pass [id]"
        ) from error
    known_ids = read_ids([] if ids is None else ids, n)
    keys: list[Hashable] = [] if known_ids is None else known_ids.tolist()
    if None in keys:
        raise InputError(f"ids has None in row {keys.index(None)}; it must name an event")
    check_ids_known(now, known_ids)
    return Call("label", {}, {"n": n, "ids": keys, "labels": list_labels(y, n)})
