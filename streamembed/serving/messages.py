"""What goes over the wire: schemas, rows that are checked before they are used, words of refusal.

Nothing that a client sent is used before its schema is the one that was told, its sizes are within
the limits, and Arrow has looked at every offset and length of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from streamembed.data import column_roles
from streamembed.data.batch import LARGEST_VALUE, names_of
from streamembed.data.table import are_dicts, column_order, in_order, read_table, row_by_name
from streamembed.errors import InputError, NotReadyError, ServerError, StreamembedError, said
from streamembed.numeric.arrays import Array, Bools, Floats

__all__ = [
    "ID",
    "LABEL",
    "Features",
    "Put",
    "RefusedError",
    "Transformed",
    "answer_schema",
    "as_refused",
    "code_of",
    "digest_of",
    "failure_of",
    "features_in",
    "flight_error",
    "joined",
    "number_in",
    "packed",
    "points_of",
    "put_of",
    "read_points",
    "table_of",
    "usable",
    "within",
]

# Of columns beside the features, where events are learned.
ID, LABEL = "id", "label"
POINT = "point"
LARGEST_METADATA = 1 << 12
LARGEST_OFFSET = 1 << 53  # what JSON's numbers hold exactly
# Of a message: more says nothing more.
LONGEST = 1000
KINDS = {
    "unavailable": fl.FlightUnavailableError,
    "unauthenticated": fl.FlightUnauthenticatedError,
    "unauthorized": fl.FlightUnauthorizedError,
}
# What a client raises, with the code on it; anything else is a ServerError.
OWN: dict[str, type[StreamembedError]] = {"invalid": InputError, "not_ready": NotReadyError}
BROKEN = "something went wrong here that is not yours to know: its operator's log says what"


class RefusedError(Exception):
    """A call is not answered; both the code and the message are for the client to see."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def as_refused(error: BaseException) -> RefusedError:
    """An error as what a client may see of it: no paths, no traceback.

    What a client did wrong is told in full; of anything else only that it happened.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, InputError):
        return RefusedError("invalid", said(error))
    if isinstance(error, NotReadyError):
        return RefusedError("not_ready", "the warm-up has not ended: there is no snapshot yet")
    if isinstance(error, pa.ArrowMemoryError | MemoryError):
        return RefusedError("invalid", "that is too large")
    if isinstance(error, pa.ArrowInvalid | pa.ArrowTypeError | pa.ArrowNotImplementedError):
        return RefusedError("invalid", "what was sent is no sound Arrow data")
    if isinstance(error, StreamembedError):
        return RefusedError(
            "unavailable", "the run cannot be used now: its operator's log says why"
        )
    return RefusedError("internal", BROKEN)


def flight_error(refused: RefusedError) -> fl.FlightError:
    """The same as an error of Flight: pyarrow sends the traceback with any other."""
    kind = KINDS.get(refused.code, fl.FlightServerError)
    return kind(str(refused)[:LONGEST], extra_info=refused.code.encode())


def code_of(error: BaseException) -> str:
    """The code that an error of Flight brought to a client."""
    told = bytes(getattr(error, "extra_info", None) or b"").decode(errors="replace")
    if told:
        return told
    return next((code for code, kind in KINDS.items() if isinstance(error, kind)), "internal")


def packed(**told: Any) -> bytes:
    """Facts, as they travel beside rows."""
    return json.dumps(told).encode()


def number_in(metadata: Any, name: str) -> int:
    """A whole number, at least 0, out of what came beside rows."""
    found: Any = None
    if metadata is not None and len(metadata) <= LARGEST_METADATA:
        try:
            found = json.loads(bytes(metadata))[name]
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
    if type(found) is not int or not 0 <= found < LARGEST_OFFSET:
        raise RefusedError(
            "offset",
            f'every batch must have app_metadata such as {{"{name}": 0}}, a whole number: how many '
            "rows this producer has put before",
        )
    return found


# ------------------------------------------------------------------------ rows that come in


@dataclass(frozen=True, slots=True)
class Features:
    """What a point is.

    Attributes
    ----------
    names : tuple of str
    ordered : bool
        True where they have no names but their places: points are then one column of lists.
    """

    names: tuple[str, ...]
    ordered: bool

    def schema(self) -> pa.Schema:
        """A column of doubles for each feature, by name; or one, ``point``, of lists of them."""
        if self.ordered:
            return pa.schema([(POINT, pa.list_(pa.float64(), len(self.names)))])
        return pa.schema([(name, pa.float64()) for name in self.names])

    def must_be(self, schema: pa.Schema, more: tuple[str, ...] = ()) -> None:
        """Refuse any other schema; columns of ``more`` may come behind."""
        wanted = list(self.schema())
        found = list(schema)
        beside = [field.name for field in found[len(wanted) :]]
        is_known = len(found) >= len(wanted) and all(map(_same, wanted, found))
        if is_known and set(beside) <= {*more} and len({*beside}) == len(beside):
            return
        told = ", ".join(f"{field.name}: {field.type}" for field in wanted)
        raise RefusedError(
            "invalid",
            f"the schema must be [{told}]"
            + (f", and then perhaps {' or '.join(more)}" if more else "")
            + "; GetFlightInfo has it",
        )


def _same(one: Any, other: Any) -> bool:
    """Whether two fields are of one name and type, whatever the items of lists are called."""
    lists = all(pa.types.is_fixed_size_list(field.type) for field in (one, other))
    if lists:
        kinds = [(field.type.list_size, field.type.value_type) for field in (one, other)]
        return one.name == other.name and kinds[0] == kinds[1]
    return bool(one.name == other.name and one.type == other.type)


def within(batch: Any, max_rows: int, max_bytes: int) -> None:
    """Refuse a batch that is too large, or whose offsets and lengths do not hold together."""
    if batch.num_rows > max_rows:
        raise RefusedError(
            "invalid", f"a batch has {batch.num_rows} rows; it must have at most {max_rows}"
        )
    if batch.get_total_buffer_size() > max_bytes:
        raise RefusedError("invalid", f"a batch must have at most {max_bytes} bytes")
    batch.validate(full=True)


def points_of(batch: Any, features: Features) -> Floats:
    """The points of a checked batch, shape (n, d), NaN where a value is missing."""
    n, d = batch.num_rows, len(features.names)
    if not features.ordered:
        points = np.empty((n, d))
        for j in range(d):
            points[:, j] = batch.column(j).to_numpy(zero_copy_only=False)
        return points
    column = batch.column(0)
    flat = column.values.slice(column.offset * d, n * d).to_numpy(zero_copy_only=False)
    points = flat.reshape(n, d)
    if column.null_count:
        points = np.where(column.is_null().to_numpy(zero_copy_only=False)[:, None], np.nan, points)
    return points


def usable(points: Floats) -> Bools:
    """Which points can be embedded, shape (n,): no NaN, no infinity, nothing beyond 1e150."""
    fine: Bools = np.all(np.abs(points) <= LARGEST_VALUE, axis=1)
    return fine


@dataclass(frozen=True, slots=True, eq=False)
class Put:
    """Events that were checked.

    Attributes
    ----------
    points : (n, d)
    ids, labels : list or None
        Plain values, one a row.
    """

    points: Array
    ids: list[int | str | None] | None
    labels: list[int | str | bool | None] | None


def put_of(batch: Any, features: Features) -> Put:
    """The events of a checked batch whose schema `Features.must_be` has let in."""
    beside = {}
    width = len(features.schema())
    kinds = {
        ID: (pa.int64(), pa.string()),
        LABEL: (pa.int64(), pa.string(), pa.bool_()),
    }
    for place in range(width, batch.num_columns):
        name, column = batch.schema.field(place).name, batch.column(place)
        if column.type not in kinds[name]:
            allowed = " or ".join(map(str, kinds[name]))
            raise RefusedError(
                "invalid", f"the column {name} is {column.type}; it must be {allowed}"
            )
        beside[name] = column.to_pylist()
    return Put(points_of(batch, features), beside.get(ID), beside.get(LABEL))


def features_in(schema: pa.Schema, beside: tuple[str, ...] = ()) -> Features:
    """What a point is, by a schema; columns of ``beside`` are none of it."""
    fields = [field for field in schema if field.name not in beside]
    if len(fields) == 1 and pa.types.is_fixed_size_list(fields[0].type):
        return Features(tuple(map(str, range(fields[0].type.list_size))), True)
    return Features(tuple(field.name for field in fields), False)


# ------------------------------------------------------------------------ rows that go back


def answer_schema(n_components: int) -> pa.Schema:
    """Coordinates and coverage of each row, null where it is not valid."""
    return pa.schema(
        [
            ("coordinates", pa.list_(pa.float64(), n_components)),
            ("coverage", pa.float64()),
            pa.field("valid", pa.bool_(), nullable=False),
        ]
    )


# ------------------------------------------------------------------------ of a client


def read_points(X: Any, features: Features | None) -> tuple[Floats, Features]:
    """The points of any table, as `Run.learn` and `Snapshot.transform` take them, to be sent.

    Shape (n, d), in the order of the features (None: those of X), NaN where a value is missing.

    Raises
    ------
    FeatureError, InputError
        It is none, or has other features.
    """
    names = None if features is None else features.names
    ordered = features is not None and features.ordered
    points = column_roles.split(X, names).points
    wanted = names
    if names is None and are_dicts(points):
        wanted = in_order(row_by_name(points[0])) if len(points) else None
    table = read_table(points, wanted)
    if table.refused is not None:
        raise table.refused
    known = names_of(table, names, ordered)
    values = table.values
    if known != table.names:
        values = values[:, column_order(table.names, known)]
    if table.faults:
        values[list(table.faults)] = np.nan
    return np.ascontiguousarray(values), features or Features(known, table.ordered)


def table_of(
    points: Floats, features: Features, labels: list[Any] | None, ids: list[Any] | None
) -> pa.Table:
    """Points (n, d), and what is beside them, as they are sent."""
    schema = features.schema()
    if features.ordered:
        flat = pa.array(points.ravel())
        columns = [pa.FixedSizeListArray.from_arrays(flat, points.shape[1])]
    else:
        columns = [pa.array(points[:, j]) for j in range(points.shape[1])]
    table = pa.table(
        [column.cast(kind) for column, kind in zip(columns, schema.types, strict=True)], schema
    )
    for name, values in ((ID, ids), (LABEL, labels)):
        if values is not None:
            table = table.append_column(name, [_column(name, values)])
    return table


def _column(name: str, values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except pa.ArrowException as error:
        raise InputError(f"{name}s must be all text or all whole numbers to be sent") from error
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def digest_of(table: pa.Table) -> bytes:
    """Of what is sent: equal for equal rows, NaN and all."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).digest()


def failure_of(error: BaseException) -> StreamembedError:
    """An error of Flight as one of this package."""
    code = code_of(error)
    text = str(error).split(". Detail: ")[0].split(". gRPC client debug context")[0]
    if code == "internal" and isinstance(error, pa.ArrowInvalid) and "handshake" not in text:
        code = "invalid"
    if code == "unavailable" and not getattr(error, "extra_info", None):
        text = "the server cannot be reached: is the address right, and TLS as there?"
    if code not in OWN:
        return ServerError(text, code)
    failure = OWN[code](text)
    failure.code = code
    return failure


@dataclass(frozen=True, slots=True, eq=False)
class Transformed:
    """Points, embedded by one snapshot.

    Attributes
    ----------
    coordinates : (n, n_components)
        NaN in rows that are not valid.
    coverage : (n,)
        As of `Snapshot.coverage`; NaN likewise.
    valid : (n,)
        False where a point has a value that is missing, infinite or beyond 1e150.
    epoch : int
        Of the snapshot: coordinates of one epoch can be compared.
    position : int
        Events that the snapshot has learned.
    met : bool
        Whether its certificate meets the tolerance.
    """

    coordinates: Floats
    coverage: Floats
    valid: Bools
    epoch: int
    position: int
    met: bool


def joined(chunks: list[Any]) -> Transformed:
    """The answers of one call, which are of one snapshot."""
    told = json.loads(bytes(chunks[0].app_metadata))
    table = pa.Table.from_batches([chunk.data for chunk in chunks])
    column = table["coordinates"].combine_chunks()
    k, valid = column.type.list_size, table["valid"].to_numpy()
    flat = column.values.slice(column.offset * k, len(column) * k)
    coordinates = flat.to_numpy(zero_copy_only=False).reshape(-1, k).copy()
    coordinates[~valid] = np.nan
    coverage = table["coverage"].to_numpy().astype(np.float64)
    return Transformed(coordinates, coverage, valid, told["epoch"], told["position"], told["met"])
