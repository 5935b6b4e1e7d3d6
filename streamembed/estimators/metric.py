"""What all metric estimators share: events, chunks, labels, missing features, reading, merging.

A metric estimator is a river transformer that learns a distance from labelled points, or from pairs
that somebody knows to be alike or not. An *event* is one labelled point or one pair. Events wait
until their chunk is whole, chunks being cut by the position in the stream; a chunk then goes, in
one piece, to the family's own core. So learning event by event or many at a time is the same, bit
for bit.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from river import base

from streamembed.core.arrays import Floats, Ints
from streamembed.core.mahalanobis import Mahalanobis
from streamembed.errors import FeatureError, InputError, NotReadyError, StreamembedError
from streamembed.estimators import balance, events, parameters, rows, spread
from streamembed.estimators.events import Chunk
from streamembed.estimators.rows import Rows
from streamembed.estimators.spread import Spread
from streamembed.threads import one_blas_thread

__all__ = ["LARGEST_CLASSES", "WARM_UP", "Early", "MetricEstimator"]

# Events from which the features, and where a metric has one its scale, are settled: deviations of
# so many points are known to 16 %, and no chunk of usual size has to wait.
WARM_UP = 20
# Class moments take d^2 numbers a class; a stream of more labels is a regression. Those that come
# later are counted, not learned.
LARGEST_CLASSES = 1000


# One or both ends of an event of the warm-up, by feature, and its code.
Early = tuple[dict[str, float], dict[str, float] | None, int]


class MetricEstimator(base.SupervisedTransformer, base.MiniBatchSupervisedTransformer, abc.ABC):
    """A distance learned from a stream of labels or pairs; see the module.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became the mean of their feature, and values of features
        that the warm-up did not show.
    unlabelled : int
        Points without a label, and pairs without an answer: not learned.
    unlearned : int
        Points of a class beyond the first `LARGEST_CLASSES`: not learned.
    refused : int
        Events of chunks that would have left the range of floating point numbers: not learned.
    """

    chunk_size: int
    seed: int

    def _begin(self) -> None:
        """Check what all have, and start with nothing learned."""
        parameters.whole("chunk_size", self.chunk_size, 1)
        parameters.whole("seed", self.seed, 0)
        self.imputed = 0
        self.ignored = 0
        self.unlabelled = 0
        self.unlearned = 0
        self.refused = 0
        self._classes: dict[Hashable, int] = {}
        self._early: list[Early] = []
        self._names: tuple[str, ...] = ()
        self._spread: Spread | None = None
        self._waiting: Chunk | None = None
        self._learned = 0
        self._state: Any = None
        self._read: tuple[Mahalanobis, Any, Floats] | None = None

    @abc.abstractmethod
    def _start(self, chunk: Chunk, seen: Spread) -> Any:
        """The family's state before the first chunk, which is at hand for scales and widths."""

    @abc.abstractmethod
    def _push(self, state: Any, chunk: Chunk, seen: Spread) -> Any:
        """A new state after a chunk; the old one stays as it is."""

    @abc.abstractmethod
    def _measure(self, state: Any, seen: Spread) -> tuple[Mahalanobis, Any]:
        """The metric in the caller's coordinates, and what the core tells of it. Pure."""

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the first chunk is learned; before, the metric is the identity."""
        return self._spread is not None

    @property
    def position(self) -> int:
        """Events accepted so far, learned and waiting."""
        return self._learned + self.pending

    @property
    def pending(self) -> int:
        """Events that wait for their chunk to be whole: 20 at first, then ``chunk_size``."""
        return len(self._early) + (0 if self._waiting is None else len(self._waiting))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the metric's order: by name, or by place for arrays."""
        if self._spread is not None:
            return self._names
        parts = (part for one, two, _ in self._early for part in (one, two) if part)
        return rows.in_order({name for part in parts for name in part})

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """Every label met, in the order of their first points."""
        return tuple(self._classes)

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's raw coordinates; the same object until more is learned.

        Before the first chunk it is the identity over the features seen so far.
        """
        return self._current()[0]

    @property
    def info(self) -> Any:
        """What the core tells of the metric: its status, and how good it is; None at first."""
        return self._current()[1]

    def _current(self) -> tuple[Mahalanobis, Any, Floats]:
        """Metric, info, and the columns that points are multiplied by."""
        if self._read is None:
            if self._spread is None:
                identity = np.eye(len(self.feature_names))
                if not len(identity):
                    raise NotReadyError(
                        "no event has come, so that the features are not known; learn one first"
                    )
                self._read = Mahalanobis.of(identity), None, identity
            else:
                with one_blas_thread(), np.errstate(all="ignore"):
                    metric, info = self._measure(self._state, self._spread)
                    self._read = metric, info, self._columns(metric, info)
        return self._read

    def _columns(self, metric: Mahalanobis, info: Any) -> Floats:
        """Columns (d, m) that points are multiplied by, m the same for ever."""
        return balance.root(metric.matrix)

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """The point in the metric's Euclidean space, keys 0 to d - 1."""
        return dict(enumerate(self._placed(rows.read_one(x))[0].tolist()))

    def transform_many(self, X: Any) -> Any:
        """Points in the metric's Euclidean space, as the kind of frame that came in.

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are 0 to d - 1, as strings where frames must have strings.
        """
        table = rows.read(X)
        return rows.given_back(self._placed(table), X, table.frame)

    def _placed(self, table: Rows) -> Floats:
        """Coordinates (n, m) of rows, missing values imputed."""
        if self._spread is None:
            names = self.feature_names or rows.in_order(set(table.names))
            values = table.aligned(names)[0]
            return np.where(np.isnan(values), 0.0, values)
        values = self._spread.filled(table.aligned(self._names)[0])
        placed: Floats = values @ self._current()[2]
        return placed

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:  # type: ignore[override]
        """Take one labelled point; a label that is None or NaN is counted, not learned."""
        table, labels = rows.read_one(x), rows.labels([y], 1)
        with self._whole():
            self._take_points(table, labels)

    def learn_many(self, X: Any, y: Any) -> None:
        """Take labelled points: any table that `transform_many` takes, and a label a row.

        Raises
        ------
        InputError
            X is no table, or y does not have a label a row; nothing was learned.
        FeatureError
            An array of another width than the first; nothing was learned.
        """
        table = rows.read(X)
        labels = rows.labels(y, len(table))
        with self._whole():
            self._take_points(table, labels)

    def learn_pairs(self, X1: Any, X2: Any, similar: Any) -> None:
        """Take pairs that somebody knows: row i of X1 and row i of X2 are alike, or they are not.

        Parameters
        ----------
        X1, X2
            Tables of equal length, as for `learn_many`.
        similar
            A boolean a pair; where it is None, the pair is counted and not learned.

        Raises
        ------
        InputError, FeatureError
            As `learn_many`; nothing was learned.
        """
        one, two = rows.read(X1), rows.read(X2)
        if len(one) != len(two):
            raise InputError(
                f"X1 has {len(one)} rows and X2 {len(two)}; row i of both is pair i: they must "
                "have the same length"
            )
        answers = rows.booleans(similar, len(one))
        self._check_width(one, two)
        codes = [
            events.NOT_LEARNED
            if answer is None
            else events.SIMILAR
            if answer
            else events.DISSIMILAR
            for answer in answers
        ]
        with self._whole():
            self._check_width(one, two)
            self.unlabelled += codes.count(events.NOT_LEARNED)
            self._take(one, two, np.array(codes, dtype=np.int64))

    def flush(self) -> None:
        """Learn the events that wait, as a short chunk; this is an event of the stream itself.

        In the warm-up it settles features and scale from what there is, if only one point.
        """
        with self._whole():
            if self._early:
                self._settle()
            if self._waiting is not None and len(self._waiting):
                self._learn(self._waiting)

    @contextmanager
    def _whole(self, keeping: bool = False) -> Iterator[None]:
        """A call that is refused changes nothing.

        After the warm-up every check comes before every change; what settles a warm-up, or merges
        (``keeping``), may be refused when it is half done.
        """
        if self.ready and not keeping:
            yield
            return
        before = {**vars(self), "_classes": dict(self._classes), "_early": list(self._early)}
        try:
            yield
        except StreamembedError:
            vars(self).update(before)
            raise

    def _take_points(self, table: Rows, labels: Sequence[Hashable | None]) -> None:
        self._check_width(table)
        self.unlabelled += sum(label is None for label in labels)
        codes = [events.NOT_LEARNED if label is None else self._code(label) for label in labels]
        self.unlearned += codes.count(events.NOT_LEARNED) - sum(label is None for label in labels)
        self._take(table, None, np.array(codes, dtype=np.int64))

    def _code(self, label: Hashable) -> int:
        """Index of a class, in the order of first points."""
        if label not in self._classes and len(self._classes) >= LARGEST_CLASSES:
            return events.NOT_LEARNED
        return self._classes.setdefault(label, len(self._classes))

    def _check_width(self, *tables: Rows) -> None:
        """Refuse arrays of another width before anything is counted."""
        names = self.feature_names
        for table in tables:
            if names and (self.ready or table.ordered):
                table.check(names)
            if table.ordered and len(table) and not table.names:
                raise FeatureError("X has no features: it must have at least one column")

    def _take(self, one: Rows, two: Rows | None, codes: Ints) -> None:
        """Events join the stream; every chunk that becomes whole is learned."""
        chosen = np.flatnonzero(codes != events.NOT_LEARNED).tolist()
        while chosen and self._spread is None:
            i = chosen.pop(0)
            self._read = None
            self._early.append((one.row(i), None if two is None else two.row(i), int(codes[i])))
            if len(self._early) == self._next_cut:
                self._settle()
        if not chosen:
            return
        first, second = self._aligned(one, chosen), np.zeros((len(chosen), len(self._names)))
        if two is not None:
            second = self._aligned(two, chosen)
        self._admit(first, second, codes[chosen])

    def _aligned(self, table: Rows, chosen: list[int]) -> Floats:
        """Some rows in the order of the features, with what is missing counted and still NaN."""
        part = Rows(
            table.values[chosen], table.names, table.ordered, table.present[chosen], table.frame
        )
        values, unknown = part.aligned(self._names)
        self.ignored += unknown
        self.imputed += int(np.count_nonzero(np.isnan(values)))
        return values

    def _admit(self, first: Floats, second: Floats, codes: Ints) -> None:
        """Fill chunk after chunk."""
        start = 0
        while start < len(codes):
            stop = min(len(codes), start + self._next_cut - self.position)
            part = slice(start, stop)
            assert self._waiting is not None
            joined = self._waiting.followed_by(first[part], second[part], codes[part])
            if self._learned + len(joined) == self._next_cut:
                self._learn(joined)
            else:
                self._waiting = joined
            start = stop

    @property
    def _next_cut(self) -> int:
        """The position at which the chunk that is filling now ends."""
        size = int(self.chunk_size)
        if self._learned == 0:
            return math.ceil(WARM_UP / size) * size
        return (self._learned // size + 1) * size

    def _settle(self) -> None:
        """The features are those of which a number was seen; what came early is the first chunk."""
        early, self._early = self._early, []
        ends = [end for one, two, _ in early for end in (one, two) if end is not None]
        usable = {name for end in ends for name, value in end.items() if not math.isnan(value)}
        if not usable:
            raise FeatureError(
                f"the {len(ends)} points of the warm-up hold no usable number; features must be "
                "numbers (not text, null, NaN, infinite or beyond 1e75): nothing was learned"
            )
        known = {name for end in ends for name in end}
        if all(name.isdecimal() for name in known):
            usable = known  # an array keeps its columns
        names = rows.in_order(usable)
        self.ignored += sum(name not in usable for end in ends for name in end)
        self._names, self._spread, self._waiting = names, spread.init(len(names)), None
        first, second = np.full((2, len(early), len(names)), np.nan)
        for i, (one, two, _) in enumerate(early):
            first[i] = [one.get(name, math.nan) for name in names]
            second[i] = 0.0 if two is None else [two.get(name, math.nan) for name in names]
        self.imputed += int(np.isnan(first).sum() + np.isnan(second).sum())
        self._waiting = self._empty()
        self._admit(first, second, np.array([code for *_, code in early], dtype=np.int64))

    def _empty(self) -> Chunk:
        return Chunk.empty(len(self._names), self._learned, int(self.seed))

    def _learn(self, chunk: Chunk) -> None:
        """Learn whole, or not at all: everything is computed first, and assigned last."""
        assert self._spread is not None
        with one_blas_thread(), np.errstate(all="ignore"):
            pairs = chunk.codes < 0
            seen = spread.update(self._spread, np.concatenate([chunk.first, chunk.second[pairs]]))
            whole = Chunk(
                seen.filled(chunk.first),
                seen.filled(chunk.second),
                chunk.codes,
                chunk.position,
                chunk.seed,
            )
            state = self._state if self._state is not None else self._start(whole, seen)
            try:
                after = self._push(state, whole, seen)
            except np.linalg.LinAlgError:
                after = None
        if after is not None and _finite(after) and _finite(seen):
            self._state, self._spread = after, seen
        else:
            self._state = state
            self.refused += len(chunk)
        self._learned += len(chunk)
        self._waiting, self._read = self._empty(), None

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_read": None}


def _finite(state: Any) -> bool:
    """Whether every number of a state is finite."""
    if isinstance(state, np.ndarray):
        return state.dtype.kind != "f" or bool(np.isfinite(state).all())
    if is_dataclass(state) and not isinstance(state, type):
        return all(_finite(getattr(state, field.name)) for field in fields(state))
    if isinstance(state, tuple):
        return all(_finite(part) for part in state)
    return not isinstance(state, float) or math.isfinite(state)
