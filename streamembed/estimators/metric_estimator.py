"""What metric estimators share: events, chunks, labels, missing features, reading, merging.

A metric estimator is a river transformer that learns a distance from labelled points, or from pairs
with an answer, similar or not. An *event* is one labelled point or one pair. Features are
settled by the first events; from then on a training stream
(`streamembed.metric_learners.training_stream`)
feeds the metric's learner, chunk by chunk of the stream's own positions. So learning event by event
or many at a time is the same, bit for bit; and so is an engine that learns the metric beside its
map.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from river import base

from streamembed import validation
from streamembed.data import column_roles, impute
from streamembed.data.impute import FeatureRows
from streamembed.data.labels import LARGEST_CLASSES, label_key, read_answers, read_keys
from streamembed.data.table import sort_names
from streamembed.errors import (
    FeatureError,
    InputError,
    NotLearnedWarning,
    NotReadyError,
    warn,
)
from streamembed.estimators.estimator import PointEstimator
from streamembed.metric_learners import labelled_examples, training_stream
from streamembed.metric_learners.learner import MetricLearner, Totals
from streamembed.metric_learners.training_stream import TrainingStream
from streamembed.metric_learning import balance
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import Chunks
from streamembed.threads import one_blas_thread

# One or both ends of an event of the warm-up, by feature, and its code.
Early = tuple[dict[str, float], dict[str, float] | None, int]


@dataclass(frozen=True, slots=True, eq=False)
class _WarmUpEvents:
    """The events of a warm-up as numbers: n of them, in d features, NaN where one is missing."""

    names: tuple[str, ...]
    unusable: tuple[str, ...]  # features without a number, which are not learned
    first: Floats  # (n, d)
    second: Floats  # (n, d)
    codes: Ints  # (n,)
    ignored: int
    imputed: int


class MetricEstimator(
    PointEstimator, base.SupervisedTransformer, base.MiniBatchSupervisedTransformer, abc.ABC
):
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
    """

    chunk_size: int
    seed: int
    _key: ClassVar[str] = "metric"

    def _begin(self) -> None:
        """Check what all have, and start with nothing learned."""
        validation.check_whole("chunk_size", self.chunk_size, 1)
        validation.check_whole("seed", self.seed, 0)
        self.imputed = 0
        self.ignored = 0
        self.unlabelled = 0
        self.unlearned = 0
        self._learner = self._make_learner()
        self._classes: dict[Hashable, int] = {}  # index by key
        self._labels: list[Hashable] = []
        self._early: list[Early] = []
        self._names: tuple[str, ...] = ()
        self._stream: TrainingStream | None = None
        self._read: tuple[Mahalanobis, Any] | None = None
        self._root: Floats | None = None

    @abc.abstractmethod
    def _make_learner(self) -> MetricLearner:
        """The learner of these parameters, which are checked."""

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the first chunk is learned; until then, points are mapped to themselves."""
        return self._stream is not None

    @property
    def position(self) -> int:
        """Events accepted so far, learned and pending."""
        return len(self._early) + (0 if self._stream is None else self._stream.position)

    @property
    def pending(self) -> int:
        """Events whose chunk is not complete yet: 20 for the first, then ``chunk_size``."""
        return len(self._early) + (0 if self._stream is None else self._stream.waiting.count)

    @property
    def totals(self) -> Totals:
        """Number of chunks learned and refused, by status."""
        return Totals() if self._stream is None else self._stream.progress[self._key].totals

    @property
    def refused(self) -> int:
        """Events of chunks refused because the result would exceed floating-point range."""
        return self.totals.refused_events

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the metric's order: by name, or by place for arrays."""
        if self._stream is not None:
            return self._names
        parts = (part for one, two, _ in self._early for part in (one, two) if part)
        return sort_names({name for part in parts for name in part})

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """Every label seen, in order of first occurrence."""
        return tuple(self._labels)

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; the same object until more is learned.

        It takes frames by name, and arrays with their columns in the order of ``feature_names``;
        its own are None where features are called by their place, 0 to d - 1.

        Metrics of sums show every event that came, those that wait for their chunk too; the others
        are as of the last whole chunk, and before the first the identity over the features seen so
        far. What is known of the metric, with the same keys for every metric, is its
        ``certificate`` (`streamembed.metric_learners.learner.build_certificate`).

        Warns
        -----
        NotLearnedWarning
            The metric is the identity, because no chunk is whole yet.
        """
        metric, info = self._current()
        if info is None:
            warn(
                f"{type(self).__name__} has learned nothing yet: its metric is the identity until "
                f"its first chunk is whole (chunk_size={self.chunk_size}); learn more, or call "
                "flush()",
                NotLearnedWarning,
            )
        return metric

    @property
    def info(self) -> Any:
        """Facts about the metric: its status, its quality, and ``totals`` of updates.

        None where the metric is the identity for want of a chunk.
        """
        return self._current()[1]

    def _current(self) -> tuple[Mahalanobis, Any]:
        """Metric and info."""
        if self._read is None:
            with one_blas_thread():
                result = self._reading()
            self._read = result or (self._identity(), None)
        return self._read

    def _reading(self) -> tuple[Mahalanobis, Any] | None:
        """The metric learned so far; in the warm-up, as if with the features seen so far."""
        if self._stream is not None:
            return _named(
                training_stream.read_metric(self._stream, self._learner, self._key), self._names
            )
        if not self._learner.additive or not self._early:
            return None
        try:
            events = self._settle_features()
        except FeatureError:
            return None  # no number yet
        stream = self._start(events, whole=False)
        return _named(training_stream.read_metric(stream, self._learner, self._key), events.names)

    def _identity(self) -> Mahalanobis:
        names = self.feature_names
        if not names:
            raise NotReadyError(
                "no event has been learned, so the features are unknown; learn one first"
            )
        return training_stream.create_unfitted_metric(len(names)).named(
            impute.name_metric_columns(names)
        )

    def _columns(self) -> Floats:
        """Columns (d, m) that points are multiplied by, m the same for ever; of whole chunks."""
        if self._root is None:
            assert self._stream is not None
            with one_blas_thread():
                result = training_stream.read_metric(
                    self._stream, self._learner, self._key, waiting=False
                )
                self._root = self._root_of(*(result or (self._identity(), None)))
        return self._root

    def _root_of(self, metric: Mahalanobis, info: Any) -> Floats:
        return balance.compute_root(metric.matrix)

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """The point in the metric's Euclidean space, by names such as ``itml_0``.

        The space moves with whole chunks only, so that points mapped between two can be compared;
        `metric` may be ahead of it by the events that wait.
        """
        return super().transform_one(x)

    def _place(self, rows: FeatureRows) -> Floats:
        """Coordinates (n, m) of rows, missing values imputed."""
        if self._stream is None:
            names = self.feature_names or sort_names(set(rows.names))
            values = rows.align(names)[0]
            return np.where(np.isnan(values), 0.0, values)
        values = self._stream.spread.fill_gaps(self._count_missing(rows.align(self._names)))
        coordinates: Floats = values @ self._columns()
        return coordinates

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:  # type: ignore[override]
        """Learn one labelled point; a label that is None or NaN is counted, not learned."""
        table, labels = impute.read_point(x), read_keys([y], 1)
        with self._whole() as after:
            after._take_points(table, labels)

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn labelled points: any table that `transform_many` takes, and one label per row.

        Raises
        ------
        InputError
            X is no table, or y does not have a label a row; nothing was learned.
        FeatureError
            An array of another width than the first; nothing was learned.
        """
        table = impute.read(X)
        labels = read_keys(y, len(table))
        with self._whole() as after:
            after._take_points(table, labels)

    def learn_pairs(self, X1: Any, X2: Any, similar: Any) -> None:
        """Learn given pairs: row i of X1 and row i of X2 are similar, or they are not.

        Parameters
        ----------
        X1, X2
            Tables of equal length and of the same features, as for `learn_many`; of dicts, each
            may lack some.
        similar
            A boolean a pair, or a number that is exactly 0 or 1; where it is None or NaN, the pair
            is counted and not learned.

        Raises
        ------
        InputError, FeatureError
            As `learn_many`; nothing was learned.
        """
        left, right = impute.read(X1, name="X1"), impute.read(X2, name="X2")
        if len(left) != len(right):
            raise InputError(
                f"X1 has {len(left)} rows and X2 has {len(right)}; they must have the same number, "
                "since row i of both is pair i"
            )
        answers = read_answers(similar, len(left))
        impute.check_pairs(left, right)
        for table, name in ((left, "X1"), (right, "X2")):
            self._check_width(table, name)
        codes = [
            labelled_examples.NOT_LEARNED
            if answer is None
            else labelled_examples.SIMILAR
            if answer
            else labelled_examples.DISSIMILAR
            for answer in answers
        ]
        with self._whole() as after:
            after.unlabelled += codes.count(labelled_examples.NOT_LEARNED)
            after._take(left, right, np.array(codes, dtype=np.int64))

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        In the warm-up it settles features and scale from what there is, if only one point.
        """
        with self._whole() as after:
            if after._early:
                after._settle()
            if after._stream is not None:
                with one_blas_thread():
                    after._keep(training_stream.flush(after._stream, after._learning))

    @contextmanager
    def _whole(self) -> Iterator[Self]:
        """A copy to compute a call on; assigned at once, last: what breaks off changes nothing."""
        after = object.__new__(type(self))
        vars(after).update(vars(self))
        yield after
        vars(self).update(vars(after))
        self._warn_of_suspects()

    def _take_points(self, table: FeatureRows, labels: Sequence[Hashable | None]) -> None:
        self._check_width(table)
        self.unlabelled += sum(label is None for label in labels)
        codes = [
            labelled_examples.NOT_LEARNED if label is None else self._code(label)
            for label in labels
        ]
        self.unlearned += codes.count(labelled_examples.NOT_LEARNED) - sum(
            label is None for label in labels
        )
        self._take(table, None, np.array(codes, dtype=np.int64))

    def _code(self, label: Hashable) -> int:
        """Index of a class, in the order of first points."""
        key = label_key(label)
        if key not in self._classes:
            if len(self._classes) >= LARGEST_CLASSES:
                return labelled_examples.NOT_LEARNED
            # others: those there are belong to what was before the call, too
            self._classes = {**self._classes, key: len(self._labels)}
            self._labels = [*self._labels, label]
        return self._classes[key]

    def _check_width(self, table: FeatureRows, name: str = "X") -> None:
        """Refuse arrays of another width before anything is counted."""
        names = self.feature_names
        if names and (self.ready or table.ordered):
            table.check(names, name=name)
        if table.ordered and len(table) and not table.names:
            raise FeatureError(f"{name} has no features: it must have at least one column")

    def _take(self, one: FeatureRows, two: FeatureRows | None, codes: Ints) -> None:
        """Events join the stream; every chunk that becomes whole is learned."""
        chosen = np.flatnonzero(codes != labelled_examples.NOT_LEARNED).tolist()
        while chosen and self._stream is None:
            i = chosen.pop(0)
            self._read = None
            early = one.row(i), None if two is None else two.row(i), int(codes[i])
            self._early = [*self._early, early]
            if len(self._early) == self._chunks.next_cut(0):
                self._settle()
        if not chosen:
            return
        first, second = self._align(one, chosen), np.zeros((len(chosen), len(self._names)))
        if two is not None:
            second = self._align(two, chosen)
        self._extend(first, second, codes[chosen])

    def _align(self, table: FeatureRows, chosen: list[int]) -> Floats:
        """Some rows in the order of the features, with what is missing counted and still NaN."""
        values, unknown = table.take(chosen).align(self._names)
        self.ignored += unknown
        self.imputed += int(np.count_nonzero(np.isnan(values)))
        return values

    def _extend(self, first: Floats, second: Floats, codes: Ints) -> None:
        """Learn these events."""
        assert self._stream is not None
        cut = self._chunks.next_cut(self._stream.learned)
        whole = self._stream.position + len(codes) >= cut
        with one_blas_thread() if whole else nullcontext():
            after = training_stream.extend(
                self._stream, self._learning, first, second, codes, int(self.chunk_size)
            )
        self._keep(after)

    def _keep(self, after: TrainingStream) -> None:
        """Everything was computed first, and is assigned last."""
        assert self._stream is not None
        if after.learned != self._stream.learned:
            self._read = self._root = None
        elif self._learner.additive:
            self._read = None
        self._stream = after

    @property
    def _chunks(self) -> Chunks:
        return training_stream.create_chunks(int(self.chunk_size))

    @property
    def _learning(self) -> dict[str, MetricLearner]:
        return {self._key: self._learner}

    def _settle(self) -> None:
        """The features are those of which a number was seen; what came early is the first chunk."""
        events = self._settle_features()
        with one_blas_thread():
            self._stream = self._start(events, whole=True)
        self._early, self._names = [], events.names
        self._suspects = column_roles.describe_suspects(
            events.names, events.first, impute.LARGEST, events.unusable
        )
        self.ignored += events.ignored
        self.imputed += events.imputed
        self._read = self._root = None

    def _settle_features(self) -> _WarmUpEvents:
        """The events that came early, as numbers; FeatureError where they hold none. Pure."""
        ends = [end for one, two, _ in self._early for end in (one, two) if end is not None]
        usable = {name for end in ends for name, value in end.items() if not math.isnan(value)}
        if not usable:
            raise FeatureError(
                f"the {len(ends)} points of the warm-up have no usable number; features must be "
                "numbers (not text, null, NaN, infinite or beyond 1e75): nothing was learned"
            )
        all_names = {name for end in ends for name in end}
        if all(name.isdecimal() for name in all_names):
            usable = all_names  # an array keeps its columns
        names = sort_names(usable)
        first, second = np.full((2, len(self._early), len(names)), np.nan)
        for i, (one, two, _) in enumerate(self._early):
            first[i] = [one.get(name, math.nan) for name in names]
            second[i] = 0.0 if two is None else [two.get(name, math.nan) for name in names]
        return _WarmUpEvents(
            names,
            sort_names(all_names.difference(usable)),
            first,
            second,
            np.array([code for *_, code in self._early], dtype=np.int64),
            ignored=sum(name not in usable for end in ends for name in end),
            imputed=int(np.isnan(first).sum() + np.isnan(second).sum()),
        )

    def _start(self, events: _WarmUpEvents, whole: bool) -> TrainingStream:
        """A training stream with these events: learned as its first chunk, or waiting for it."""
        stream = training_stream.init((self._key,), len(events.names), int(self.seed))
        stream = training_stream.append(stream, events.first, events.second, events.codes)
        return training_stream.flush(stream, self._learning) if whole else stream

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_read": None, "_root": None}


def _named(
    read: tuple[Mahalanobis, Any] | None, names: tuple[str, ...]
) -> tuple[Mahalanobis, Any] | None:
    """What was read of a training stream, the metric with the names of its columns."""
    return None if read is None else (read[0].named(impute.name_metric_columns(names)), read[1])
