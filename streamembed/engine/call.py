"""Calls: checked inputs of an engine, to be applied, written down as bytes and repeated.

A call holds what was checked, so that repeating it depends neither on the caller's table nor on its
library. Applied in the same order to engines of the same parameters, calls give the same bytes.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles, split_table
from streamembed.data.batch import Batch, Rejected
from streamembed.data.distance_rows import list_rows
from streamembed.data.features import Features
from streamembed.data.ids import classify_ids, read_ids
from streamembed.data.labels import Label, list_labels, read_booleans
from streamembed.data.times import read_times
from streamembed.engine.engine_state import EngineState
from streamembed.errors import InputError, ParameterError, quote
from streamembed.geometry.kernel_matrix import LARGEST_SUPPORT
from streamembed.methods.options import POSITION, Config
from streamembed.numeric import codec
from streamembed.numeric.arrays import LARGEST_VALUE, Array, Bools, Floats, Ints, freeze
from streamembed.numeric.codec import NOT_SAVED, SAVED_IF_SET, Count, Within
from streamembed.storage.archive import require
from streamembed.storage.saved_object import SavedObject

# Kernels of inner products, which distances do not tell.
OF_PRODUCTS = ("polynomial", "cosine")
LEARNABLE = Within(-LARGEST_VALUE, LARGEST_VALUE)

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

    accepted: Count
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class Labelled:
    """What became of the labels of one `Engine.label`; those that are null are in none of these.

    Attributes
    ----------
    learned : int
        Events that had no label, and have this one now.
    repeated : int
        Labels of events that had one already, which stays.
    not_held : tuple
        Ids of no event in the support or pending, in the order of the call: their events have left,
        were merged into a landmark, or never came.
    """

    learned: int
    repeated: int
    not_held: tuple[Hashable, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Call(SavedObject, ABC, Generic[Result]):
    """A checked call of an engine: of `Engine.check`, or a `Command`.

    Attributes
    ----------
    result : Learned or None
        Of a call that was written with its result, and that learned events.
    """

    _kind: ClassVar[str] = "operation"

    result: Learned | None = field(default=None, kw_only=True, metadata=SAVED_IF_SET)

    def __post_init__(self) -> None:
        """Freeze the arrays: they were checked."""
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                freeze(value)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{f' of {self.rows:,} rows' if self.rows else ''}>"

    @property
    def rows(self) -> int:
        """Rows of the call; a command has none."""
        return 0

    @property
    def digest(self) -> int:
        """A checksum of the call, without its result."""
        return zlib.crc32(replace(self, result=None).to_bytes())

    def with_result(self, result: object) -> Self:
        """The call with its result, if that is of events."""
        return replace(self, result=result) if isinstance(result, Learned) else self

    def _checked(self, config: Config) -> Self:
        """The call, if an engine of these parameters can learn it."""
        self._check(config)
        return self

    @abstractmethod
    def _check(self, config: Config) -> None:
        """Refuse a call that no engine of these parameters can learn."""


@dataclass(frozen=True, eq=False, repr=False)
class Points(Call[Learned]):
    """A call of `Engine.learn`: n rows that can be learned, and those that cannot."""

    points: Annotated[Floats, "n d", LEARNABLE]  # columns in the order of the features
    features: Features
    ids: Annotated[Array, "n", "int64 or text"] | None
    kept: Annotated[Ints, "n", "ascending"]  # index in the call of each of them
    rejected: tuple[Rejected, ...]  # the other rows, ascending by index
    labels: tuple[Label | None, ...] | None  # (n,)
    times: Annotated[Floats, "n"] | None  # NaN where one is missing
    # (n,) each: the columns that a run keeps beside the features, as text.
    texts: tuple[tuple[str | None, ...], ...] = field(default=(), metadata=SAVED_IF_SET)
    # What becomes of duplicate ids and wrong times; None for the engine's parameter.
    on_bad_row: str | None = field(default=None, metadata=NOT_SAVED)
    # (n,) or None: how many rows of their log are taken with each of them.
    log_offsets: Ints | None = field(default=None, metadata=NOT_SAVED)

    @staticmethod
    def __unpack__(call: Points) -> Points:
        """ValueError for names and labels of other numbers."""
        n, d = call.points.shape
        require(len(call.features.names) == d, f"{len(call.features.names)} names of {d} features")
        require(call.labels is None or len(call.labels) == n, f"labels of other rows than {n}")
        require(all(len(column) == n for column in call.texts), f"texts of other rows than {n}")
        return call

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return len(self.kept) + len(self.rejected)

    def _check(self, config: Config) -> None:
        """Refuse labels and times of no use, missing times, and rows left out."""
        if self.labels is not None:
            _need_metrics(config, "labels", "fenn")
        if self.times is not None and config.clock == POSITION:
            raise ParameterError(
                "times were given, but masses fade by positions: leave them out, or create the "
                "engine with clock='event_time'"
            )
        if self.times is None and config.clock != POSITION and len(self.points):
            raise InputError(
                "masses fade by event times (clock='event_time'), and these rows have none: give "
                "times=, or a table with a column event_time"
            )
        if self.rejected and (self.on_bad_row or config.on_bad_row) == "raise":
            raise ParameterError(
                f"the call left out {len(self.rejected)} bad rows, and here on_bad_row is 'raise'"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Distances(Call[Learned]):
    """A call of `Engine.learn_distances`; each row is checked when it is learned."""

    distances: tuple[Annotated[Floats, "*"] | None, ...]  # None for what is no row of numbers
    ids: tuple[int | str | None, ...] | None
    is_square: bool  # whether they were a matrix
    # As in `Points`.
    on_bad_row: str | None = field(default=None, metadata=NOT_SAVED)
    log_offsets: Ints | None = field(default=None, metadata=NOT_SAVED)

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return len(self.distances)

    def _check(self, config: Config) -> None:
        """Refuse parameters that need more than distances."""
        slots = config.max_slots or 0
        if slots > LARGEST_SUPPORT:
            raise InputError(
                f"distance rows were given to an engine of size={slots}: their ring would take "
                f"{4e-9 * slots**2:.1f} GB; up to size={LARGEST_SUPPORT} they can be learned"
            )
        if config.clock != POSITION:
            raise InputError(
                f"clock={config.clock!r} needs points with times, but distance rows were given: "
                "create the engine with clock='position'"
            )
        if config.metric == "cosine":
            raise InputError(
                "metric='cosine' needs vectors, but distance rows were given: leave it out"
            )
        if config.metrics:
            raise InputError(
                f"metrics={config.metrics!r} learn from points, but distance rows were given: "
                "create the engine without metrics"
            )
        if config.kernel in OF_PRODUCTS:
            raise InputError(
                f"kernel={config.kernel!r} is of points, but distance rows were given: try "
                "kernel='gaussian'"
            )
        if remedy := config.method_row.alternative:
            raise InputError(
                f"method={config.method!r} needs coordinates, which distance rows do not tell: try "
                f"{remedy}"
            )


@dataclass(frozen=True, eq=False, repr=False)
class Pairs(Call[None]):
    """A call of `Engine.learn_pairs`."""

    left: Annotated[Floats, "m d", LEARNABLE]
    right: Annotated[Floats, "m d", LEARNABLE]
    similar: Annotated[Bools, "m"]
    features: Features

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return len(self.similar)

    def _check(self, config: Config) -> None:
        """Refuse pairs that no metric learns."""
        _need_metrics(config, "pairs", "itml")


@dataclass(frozen=True, eq=False, repr=False)
class Labels(Call[Labelled]):
    """A call of `Engine.label`."""

    labels: tuple[tuple[int | str, Label | None], ...]  # ids of events, and their labels

    @property
    def rows(self) -> int:
        """Rows of the call."""
        return len(self.labels)

    def _check(self, config: Config) -> None:
        """Refuse labels that no metric learns."""
        _need_metrics(config, "labels", "fenn")


@dataclass(frozen=True, eq=False, repr=False)
class Command(Call[None]):
    """A call without arguments: "flush", "rescale" or "relayout", the methods of `Engine`."""

    name: Literal["flush", "rescale", "relayout"]

    def __repr__(self) -> str:
        return f"<Command {self.name}>"

    def _check(self, config: Config) -> None:
        """Refuse the layout of a picture that is not kept."""
        if self.name not in ("flush", "rescale", "relayout"):
            raise InputError(f"name={quote(self.name)} must be flush, rescale or relayout")
        if self.name == "relayout" and not config.picture:
            raise ParameterError("this engine keeps no picture: create it with picture=True")


codec.preload_types(Call)


def _need_metrics(config: Config, what: str, metric: str) -> None:
    if not config.metrics:
        raise ParameterError(
            f"{what} were given, but this engine learns no metrics: leave them out, or create it "
            f"with metrics=({metric!r},)"
        )


# ------------------------------------------------------------------------ reading


def read_points(
    now: EngineState, config: Config, X: Any, y: Any, ids: Any, features: Any, times: Any
) -> Points:
    """The call of `Engine.learn` with these arguments."""
    if isinstance(X, pa.RecordBatchReader):
        X = X.read_all()
    now.check_input(distances=False)
    if type(X) is not np.ndarray or features is not None:  # an array is all points
        table = split_table.split(X, now.feature_names or None, features)
        X, ids = table.points, table.read("id") if ids is None else ids
        y = table.read("label") if y is None and config.metrics else y
        times = table.read("event_time") if times is None and config.clock != POSITION else times
    rows = batch.read(X, ids, now.features, config.on_bad_row, metric=config.metric)
    n, labels = len(rows.kept) + len(rows.rejected), None
    if y is not None:
        given = list_labels(y, n)
        labels = tuple(given[i] for i in rows.kept.tolist())
    at = None if times is None else read_times(times, n)[rows.kept]
    return Points(rows.points, rows.features, rows.ids, rows.kept, rows.rejected, labels, at)


def read_distances(rows: Any, ids: Any) -> Distances:
    """The call of `Engine.learn_distances` with these arguments."""
    row_list = list_rows(rows)
    known_ids = read_ids(ids, len(row_list))
    keys = None if known_ids is None else tuple(known_ids.tolist())
    return Distances(tuple(row_list), keys, isinstance(rows, np.ndarray) and rows.ndim == 2)


def read_pairs(now: EngineState, config: Config, X1: Any, X2: Any, similar: Any) -> Pairs:
    """The call of `Engine.learn_pairs` with these arguments."""
    now.check_input(distances=False)

    def read(X: Any, features: Features | None, name: str) -> Batch:
        names = None if features is None else features.names
        points = split_table.split(X, names, name=name, remedy=column_roles.RENAME).points
        remedy = "nothing was learned: fix or drop these pairs"
        return batch.read(points, None, features, "raise", remedy, name, config.metric)

    left = read(X1, now.features, "X1")
    right = read(X2, left.features, "X2")
    if len(left.points) != len(right.points):
        raise InputError(
            f"X1 has {len(left.points)} points and X2 has {len(right.points)}: the numbers "
            "must be equal"
        )
    return Pairs(left.points, right.points, read_booleans(similar, len(left.points)), left.features)


def read_labels(now: EngineState, ids: Any, y: Any) -> Labels:
    """The call of `Engine.label` with these arguments."""
    try:
        n = len(ids)
    except TypeError as error:
        raise InputError(
            f"ids is {quote(ids)}; it must be a list, an array or a series of ids: for one event "
            "pass [id]"
        ) from error
    known_ids = read_ids([] if ids is None else ids, n)
    keys = [] if known_ids is None else known_ids.tolist()
    if None in keys:
        raise InputError(f"ids has None in row {keys.index(None)}; it must name an event")
    check_ids_known(now, known_ids)
    return Labels(tuple(zip(keys, list_labels(y, n), strict=True)))


def check_ids_known(now: EngineState, ids: Array | None) -> None:
    """Refuse ids of another kind than those of the events."""
    wanted = "strings" if now.ids_kind == "strings" else "numbers"
    kind = classify_ids(ids)
    if ids is not None and len(ids) and now.ids_kind is not None and kind != wanted:
        known_by = "stream positions" if now.ids_kind == "positions" else "the ids they came with"
        raise InputError(
            f"ids are {kind} in this call, but events are known by {now.ids_kind}: use {known_by}"
        )
