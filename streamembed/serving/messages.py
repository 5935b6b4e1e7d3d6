"""Flight messages: schemas, checks of received rows, answers, and errors with their codes.

Received data is used only after its schema is the expected one, its sizes are within the limits,
and Arrow has validated all offsets and lengths.
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
from streamembed.data.batch import choose_features
from streamembed.data.column_roles import SplitTable
from streamembed.data.features import Features
from streamembed.data.table import are_dicts, find_columns, read_table, sort_names, with_text_keys
from streamembed.data.values import (
    column_to_floats,
    holds_vectors,
    is_list_type,
    is_numeric,
    lists_to_matrix,
)
from streamembed.errors import (
    InputError,
    NotReadyError,
    ServerError,
    StreamembedError,
    summarise_error,
)
from streamembed.numeric.arrays import LARGEST_VALUE, Bools, Floats

# Columns beside the features, where events are learned.
ID, LABEL = "id", "label"
POINT = "point"
MAX_METADATA = 1 << 12
MAX_OFFSET = 1 << 53  # what JSON's numbers hold exactly
# Characters of an error message.
MAX_MESSAGE = 1000
FLIGHT_ERRORS = {
    "unavailable": fl.FlightUnavailableError,
    "unauthenticated": fl.FlightUnauthenticatedError,
    "unauthorized": fl.FlightUnauthorizedError,
}
# What a client raises, with the code on it; anything else is a ServerError.
ERROR_TYPES: dict[str, type[StreamembedError]] = {"invalid": InputError, "not_ready": NotReadyError}
INTERNAL_ERROR = "internal server error; see the server's log"


class RefusedError(Exception):
    """A call is refused; the client receives the code and the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def convert_error(error: BaseException) -> RefusedError:
    """An error in the form that a client may see: no paths, no traceback.

    A client's own mistake keeps its message; any other error is replaced by a general one.
    """
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, InputError):
        return RefusedError("invalid", summarise_error(error))
    if isinstance(error, NotReadyError):
        return RefusedError("not_ready", "the warm-up has not ended: there is no snapshot yet")
    if isinstance(error, pa.ArrowMemoryError | MemoryError):
        return RefusedError("invalid", "the message is too large")
    if isinstance(error, pa.ArrowInvalid | pa.ArrowTypeError | pa.ArrowNotImplementedError):
        return RefusedError("invalid", "the message is not valid Arrow data")
    if isinstance(error, StreamembedError):
        return RefusedError("unavailable", "the run cannot be used now; see the server's log")
    return RefusedError("internal", INTERNAL_ERROR)


def build_flight_error(refused: RefusedError) -> fl.FlightError:
    """A refusal as a Flight error: with any other exception pyarrow sends the traceback."""
    kind = FLIGHT_ERRORS.get(refused.code, fl.FlightServerError)
    return kind(str(refused)[:MAX_MESSAGE], extra_info=refused.code.encode())


def read_code(error: BaseException) -> str:
    """The code of a Flight error, as a client receives it."""
    code = bytes(getattr(error, "extra_info", None) or b"").decode(errors="replace")
    if code:
        return code
    return next(
        (code for code, kind in FLIGHT_ERRORS.items() if isinstance(error, kind)), "internal"
    )


def pack_metadata(**values: Any) -> bytes:
    """Values as ``app_metadata``: JSON."""
    return json.dumps(values).encode()


def read_metadata(metadata: Any, name: str) -> Any:
    """A value of ``app_metadata``; None where it has none of this name, or is not valid."""
    if metadata is None or len(metadata) > MAX_METADATA:
        return None
    try:
        return json.loads(bytes(metadata))[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def read_offset(metadata: Any) -> int:
    """The offset of a batch of events, at least 0."""
    offset = read_metadata(metadata, "offset")
    if type(offset) is not int or not 0 <= offset < MAX_OFFSET:
        raise RefusedError(
            "offset",
            'every batch must have app_metadata such as {"offset": 0}, a whole number: the rows '
            "that this producer has sent before",
        )
    return offset


# ------------------------------------------------------------------------ received rows


def build_point_schema(features: Features) -> pa.Schema:
    """A column of doubles per feature; or, where ordered, one column ``point`` of lists."""
    if features.ordered:
        return pa.schema([(POINT, pa.list_(pa.float64(), len(features.names)))])
    return pa.schema([(name, pa.float64()) for name in features.names])


def _list_point_columns(features: Features) -> tuple[str, ...]:
    return (POINT,) if features.ordered else features.names


def check_schema(schema: pa.Schema, features: Features, optional: tuple[str, ...] = ()) -> None:
    """Refuse other columns than those of points, of numbers of any type, and of ``optional``."""
    types = {field.name: field.type for field in schema}
    columns = _list_point_columns(features)
    others = set(types) - set(columns)
    size = len(features.names) if features.ordered else None
    if (
        len(types) == len(schema)
        and others <= set(optional)
        and all(name in types and _holds_numbers(types[name], size) for name in columns)
    ):
        return
    expected = ", ".join(f"{field.name}: {field.type}" for field in build_point_schema(features))
    raise RefusedError(
        "invalid",
        f"the schema must be [{expected}] or other numbers"
        + (f", optionally with {' and '.join(optional)}" if optional else "")
        + "; GetFlightInfo returns it",
    )


def _holds_numbers(kind: Any, size: int | None) -> bool:
    """Whether an Arrow type is one of numbers; with a size, of lists of that many of them."""
    if size is not None:
        return holds_vectors(kind) and column_roles.find_list_size(kind) in (0, size)
    return is_numeric(kind)


def check_batch(batch: Any, max_rows: int, max_bytes: int) -> None:
    """Refuse a batch that is too large, or whose offsets and lengths are inconsistent."""
    if batch.num_rows > max_rows:
        raise RefusedError(
            "invalid", f"the batch has {batch.num_rows} rows; it must have at most {max_rows}"
        )
    if batch.get_total_buffer_size() > max_bytes:
        raise RefusedError("invalid", f"a batch must have at most {max_bytes} bytes")
    batch.validate(full=True)


def extract_points(batch: Any, features: Features) -> Floats:
    """The points of a checked batch, shape (n, d).

    NaN where a value is missing, and in all of a row whose list has another length.
    """
    if features.ordered:
        return lists_to_matrix(batch.column(POINT), POINT, len(features.names))[0]
    return np.column_stack([column_to_floats(batch.column(name), name) for name in features.names])


def mask_usable(points: Floats) -> Bools:
    """Which points can be embedded, shape (n,): no NaN, no infinity, nothing beyond 1e150."""
    valid: Bools = np.all(np.abs(points) <= LARGEST_VALUE, axis=1)
    return valid


def infer_features(schema: pa.Schema, exclude: tuple[str, ...] = ()) -> Features:
    """The features of a schema, without the columns of ``exclude``."""
    fields = [field for field in schema if field.name not in exclude]
    if len(fields) == 1 and is_list_type(fields[0].type):
        size = column_roles.find_list_size(fields[0].type)
        if not size:
            raise RefusedError(
                "invalid",
                "the first events must have lists of a fixed size, which is the number of features",
            )
        return Features(tuple(map(str, range(size))), True)
    return Features(tuple(field.name for field in fields), False)


# ------------------------------------------------------------------------ answers


def build_answer_schema(n_components: int) -> pa.Schema:
    """Columns of an answer: coordinates and coverage are null in rows that are not valid."""
    return pa.schema(
        [
            ("coordinates", pa.list_(pa.float64(), n_components)),
            ("coverage", pa.float64()),
            pa.field("valid", pa.bool_(), nullable=False),
        ]
    )


# ------------------------------------------------------------------------ client side


def read_rows(X: Any, features: Features | None) -> tuple[Floats, Features, SplitTable]:
    """The points of any table that `Run.learn` and `Snapshot.transform` take, and its columns.

    Shape (n, d), in the order of the features (None: those of X), NaN where a value is missing.

    Raises
    ------
    FeatureError, InputError
        X is not a table of numbers, or has other features.
    """
    names = None if features is None else features.names
    split = column_roles.split(X, names, remedy=column_roles.RENAME)
    points, requested = split.points, names
    if names is None and are_dicts(points):
        requested = sort_names(with_text_keys(points[0])) if len(points) else None
    table = read_table(points, requested)
    if table.refused is not None:
        raise table.refused
    matched = choose_features(table, features)
    values = table.values
    if matched.names != table.names:
        values = values[:, find_columns(table.names, matched.names)]
    if table.faults:
        values[list(table.faults)] = np.nan
    return np.ascontiguousarray(values), features or matched, split


def build_table(
    points: Floats, features: Features, labels: list[Any] | None, ids: list[Any] | None
) -> pa.Table:
    """Points (n, d), ids and labels as the table that is sent."""
    schema = build_point_schema(features)
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
            table = table.append_column(name, [_build_column(name, values)])
    return table


def _build_column(name: str, values: list[Any]) -> pa.Array:
    try:
        column = pa.array(values)
    except pa.ArrowException as error:
        raise InputError(f"{name}s must be all text or all whole numbers") from error
    return column.cast(pa.string()) if pa.types.is_null(column.type) else column


def compute_digest(table: pa.Table) -> bytes:
    """A digest that is equal for equal rows, NaN included."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).digest()


def convert_flight_error(error: BaseException) -> StreamembedError:
    """A Flight error as an error of this package."""
    code = read_code(error)
    text = str(error).split(". Detail: ")[0].split(". gRPC client debug context")[0]
    if code == "internal" and isinstance(error, pa.ArrowInvalid) and "handshake" not in text:
        code = "invalid"
    if code == "unavailable" and not getattr(error, "extra_info", None):
        text = (
            "the server cannot be reached, or its certificate is not trusted: check the address, "
            "grpc:// against grpc+tls://, and tls_roots (`openssl s_client -connect HOST:PORT` "
            "says why)"
        )
    if code not in ERROR_TYPES:
        return ServerError(text, code)
    failure = ERROR_TYPES[code](text)
    failure.code = code
    return failure


@dataclass(frozen=True, slots=True, eq=False)
class Transformed:
    """Points embedded by one snapshot.

    Attributes
    ----------
    coordinates : (n, n_components)
        NaN in rows that are not valid.
    coverage : (n,)
        As from `Snapshot.coverage`; NaN in rows that are not valid.
    valid : (n,)
        False where a value of the point is missing, infinite or beyond 1e150.
    epoch : int
        Epoch of the snapshot's axes, which are kept within it; where it goes up,
        ``frame.lost`` of the snapshot names those that are lost.
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


def join_answers(chunks: list[Any]) -> Transformed:
    """The answers of one call, all from one snapshot, as one."""
    metadata = json.loads(bytes(chunks[0].app_metadata))
    table = pa.Table.from_batches([chunk.data for chunk in chunks])
    column = table["coordinates"].combine_chunks()
    k, valid = column.type.list_size, table["valid"].to_numpy()
    flat = column.values.slice(column.offset * k, len(column) * k)
    coordinates = flat.to_numpy(zero_copy_only=False).reshape(-1, k).copy()
    coordinates[~valid] = np.nan
    coverage = table["coverage"].to_numpy().astype(np.float64)
    epoch, position, met = (metadata[name] for name in ("epoch", "position", "met"))
    return Transformed(coordinates, coverage, valid, epoch, position, met)
