"""Flight messages: schemas, checks of received rows, answers, and errors with their codes.

Received data is used only after its schema is the expected one, its sizes are within the limits,
and Arrow has validated all offsets and lengths.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl

from streamembed.data import batch, column_roles, split_table
from streamembed.data.features import Features
from streamembed.data.split_table import SplitTable
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
from streamembed.numeric.arrays import Bools, Floats

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
# What a client receives for an error of the first fitting kind: a code, and a message without paths
# or traceback; None for the message of the error, which is a mistake of the client.
ANSWERS: tuple[tuple[Any, str, str | None], ...] = (
    (InputError, "invalid", None),
    (NotReadyError, "not_ready", "the warm-up has not ended: there is no snapshot yet"),
    (StreamembedError, "unavailable", "the run cannot be used now; see the server's log"),
    (fl.FlightError, "unavailable", "the stream was interrupted"),
    (MemoryError, "invalid", "the message is too large"),
    # Arrow raises these for damaged messages
    (
        (pa.ArrowException, OSError, UnicodeDecodeError),
        "invalid",
        "the message is not valid Arrow data",
    ),
    (BaseException, "internal", "internal server error; see the server's log"),
)


class RefusedError(Exception):
    """A call is refused; the client receives the code and the message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def convert_error(error: BaseException) -> RefusedError:
    """An error in the form that a client may see."""
    if isinstance(error, RefusedError):
        return error
    code, message = next(answer for kind, *answer in ANSWERS if isinstance(error, kind))
    return RefusedError(str(code), message or summarise_error(error))


def build_flight_error(refused: RefusedError) -> fl.FlightError:
    """A refusal as a Flight error: with any other exception pyarrow sends the traceback."""
    kind = FLIGHT_ERRORS.get(refused.code, fl.FlightServerError)
    return kind(str(refused)[:MAX_MESSAGE], extra_info=refused.code.encode())


def read_code(error: BaseException) -> str:
    """The code of a Flight error, as a client receives it."""
    code = bytes(getattr(error, "extra_info", None) or b"").decode(errors="replace")
    kinds = [code for code, kind in FLIGHT_ERRORS.items() if isinstance(error, kind)]
    return code or next(iter(kinds), "internal")


def convert_flight_error(error: BaseException) -> StreamembedError:
    """A Flight error as an error of this package."""
    code = read_code(error)
    text = str(error).split(". Detail: ")[0].split(". gRPC client debug context")[0]
    if code == "internal" and isinstance(error, pa.ArrowInvalid | pa.ArrowTypeError):
        code = "invalid" if "handshake" not in text else code
    if code == "unavailable" and not getattr(error, "extra_info", None):
        text = (
            "the server cannot be reached, or its certificate is not trusted: check the address, "
            "grpc:// against grpc+tls://, and tls_roots (`openssl s_client -connect HOST:PORT` "
            "says why)"
        )
    failure = ERROR_TYPES.get(code, ServerError)(text)
    failure.code = code
    return failure


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


def check_schema(schema: pa.Schema, features: Features, optional: tuple[str, ...] = ()) -> None:
    """Refuse other columns than those of points, of numbers of any type, and of ``optional``."""
    expected = build_point_schema(features)
    size = len(features.names) if features.ordered else None
    others = set(optional).difference(expected.names)
    points = {field.name: field.type for field in schema if field.name not in others}
    has_numbers = all(_holds_numbers(kind, size) for kind in points.values())
    if len(set(schema.names)) == len(schema) and points.keys() == {*expected.names} and has_numbers:
        return
    columns = ", ".join(f"{field.name}: {field.type}" for field in expected)
    raise RefusedError(
        "invalid",
        f"the schema must be [{columns}] or other numbers"
        + (f", optionally with {' and '.join(optional)}" if optional else "")
        + "; GetFlightInfo returns it",
    )


def _holds_numbers(kind: Any, size: int | None) -> bool:
    """Whether an Arrow type is one of numbers; with a size, of lists of that many of them."""
    if size is not None:
        return holds_vectors(kind) and column_roles.find_list_size(kind) in (0, size)
    return is_numeric(kind)


def check_batch(rows: Any, max_rows: int, max_bytes: int) -> None:
    """Refuse a batch that is too large, or whose offsets and lengths are inconsistent."""
    if rows.num_rows > max_rows:
        raise RefusedError(
            "invalid", f"the batch has {rows.num_rows} rows; it must have at most {max_rows}"
        )
    if rows.get_total_buffer_size() > max_bytes:
        raise RefusedError("invalid", f"a batch must have at most {max_bytes} bytes")
    rows.validate(full=True)


def extract_points(rows: Any, features: Features) -> Floats:
    """The points of a checked batch, shape (n, d).

    NaN where a value is missing, and in all of a row whose list has another length.
    """
    if features.ordered:
        return lists_to_matrix(rows.column(POINT), POINT, len(features.names))[0]
    return np.column_stack([column_to_floats(rows.column(name), name) for name in features.names])


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
    split = split_table.split(X, names, remedy=column_roles.RENAME)
    table, own_features = batch.read_columns(split.points, features)
    table.values[list(table.faults)] = np.nan
    return table.values, features or own_features, split


def build_table(points: Floats, features: Features, others: dict[str, Any]) -> pa.RecordBatch:
    """Points (n, d), and other columns that are not None, as they are sent."""
    columns: dict[str, Any] = {name: points[:, j] for j, name in enumerate(features.names)}
    if features.ordered:
        lists = pa.FixedSizeListArray.from_arrays(pa.array(points.ravel()), points.shape[1])
        columns = {POINT: lists}
    columns |= {name: pa.array(values) for name, values in others.items() if values is not None}
    return pa.record_batch(columns)


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
    table = pa.Table.from_batches([chunk.data for chunk in chunks])
    k = table.column_names.index("coverage")
    coordinates = np.column_stack([column.to_numpy() for column in table.columns[:k]])
    valid = table["reason"].is_null().to_numpy()
    facts = json.loads(bytes(chunks[0].app_metadata))
    return Transformed(coordinates, table["coverage"].to_numpy(), valid, **facts)
