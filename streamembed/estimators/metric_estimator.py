"""What metric estimators share: events, chunks, labels, missing features, reading, merging.

A metric estimator is a river transformer that learns a distance from labelled points, or from pairs
with an answer, similar or not. An *event* is one labelled point or one pair. Features are
settled by the first events; from then on a training stream
(`streamembed.metrics.training_stream`)
feeds the metric's learner, chunk by chunk of the stream's own positions. So learning event by event
or many at a time is the same, bit for bit; and so is an engine that learns the metric beside its
map.
"""

from __future__ import annotations

import abc
from collections.abc import Hashable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass, fields
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from river import base

from streamembed import validation
from streamembed.data import impute
from streamembed.data.impute import FeatureRows
from streamembed.data.labels import UNKNOWN, LabelIndex, read_answers, read_hashable_labels
from streamembed.errors import (
    InputError,
    NotLearnedWarning,
    NotReadyError,
    ParameterError,
    warn,
)
from streamembed.estimators.estimator import ColdStart, PointEstimator
from streamembed.metrics import metric_roots, training_stream
from streamembed.metrics.examples import DISSIMILAR, NOT_LEARNED, SIMILAR
from streamembed.metrics.learner import NOT_MERGED, MetricLearner
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.metrics.training_stream import Totals, TrainingStream
from streamembed.numeric.arrays import Floats, Ints
from streamembed.parameters import Class, declare_parameters, parse_parameter_texts
from streamembed.threads import one_blas_thread


@dataclass(eq=False, repr=False)
class MetricEstimator(
    PointEstimator, base.SupervisedTransformer, base.MiniBatchSupervisedTransformer, abc.ABC
):
    """A distance learned from a stream of labels or pairs; see the module.

    Parameters
    ----------
    chunk_size
        Events per update. Chunks are cut at multiples of it in the stream, never by the call; the
        first one has at least 20 events.
    seed
        Random seed of what is drawn, together with the position; moments draw nothing.

    Attributes
    ----------
    unlabelled : int
        Points without a label, and pairs without an answer: not learned.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.
    """

    _: KW_ONLY
    chunk_size: int = 50
    seed: int = 0
    _key: ClassVar[str] = "metric"
    _learner_type: ClassVar[Any]  # a dataclass, whose fields are parameters of the estimator
    _hints: ClassVar[Mapping[str, str]] = {
        **PointEstimator._hints,
        **dict.fromkeys(("fit", "partial_fit"), "learn_many(X, y)"),
    }

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        validation.check_whole("chunk_size", self.chunk_size, 1)
        validation.check_whole("seed", self.seed, 0)
        self.unlabelled = 0
        self._learner = self._make_learner()
        self._labels = LabelIndex()
        self._cold_start = ColdStart()
        self._early_codes: tuple[int, ...] = ()  # of a pair, both ends are early rows
        self._stream: TrainingStream | None = None
        # What was read last, each with the events that it shows.
        self._read: tuple[object, Mahalanobis] | None = None
        self._root: tuple[int, Floats] | None = None

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}

    def _make_learner(self) -> MetricLearner:
        """The learner of these parameters, which checks them."""
        names = [each.name for each in fields(self._learner_type) if hasattr(self, each.name)]
        learner: MetricLearner = self._learner_type(**{name: getattr(self, name) for name in names})
        return learner

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the first chunk is learned; until then, points are mapped to themselves."""
        return self._stream is not None

    @property
    def position(self) -> int:
        """Events accepted so far, learned and pending."""
        return len(self._early_codes) + (0 if self._stream is None else self._stream.position)

    @property
    def pending(self) -> int:
        """Events whose chunk is not complete yet: 20 for the first, then ``chunk_size``."""
        return len(self._early_codes) + (0 if self._stream is None else self._stream.waiting.count)

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
        return self._observed_names

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """Every label seen, in order of first occurrence."""
        return self._labels.known

    @property
    def unlearned(self) -> int:
        """Points of a class beyond the first `LARGEST_CLASSES`: not learned."""
        return self._labels.unlearned

    @property
    def metric(self) -> Mahalanobis:
        """The metric in the caller's units; the same object until more is learned.

        It takes frames by name, and arrays with their columns in the order of ``feature_names``;
        its own are None where features are called by their place, 0 to d - 1.

        Metrics of sums show every event that came, those that wait for their chunk too; the others
        are as of the last whole chunk, and before the first the identity over the features seen so
        far. What is known of the metric, with the same keys for every metric, is its
        ``certificate`` (`streamembed.metrics.metric_certificate.MetricCertificate`).

        Warns
        -----
        NotLearnedWarning
            The metric is the identity, because no chunk is whole yet.
        """
        learned = self.position - self.pending
        shows_waiting = self._stream is None or self._learner.additive
        key = learned, self.position if shows_waiting else learned
        if self._read is None or self._read[0] != key:
            with one_blas_thread():
                self._read = key, self._compute_metric()
        metric = self._read[1]
        if metric.certificate["status"] == "unfitted":
            warn(
                f"{type(self).__name__} has learned nothing yet: its metric is the identity until "
                f"its first chunk is whole (chunk_size={self.chunk_size}); learn more, or call "
                "flush()",
                NotLearnedWarning,
            )
        return metric

    def _compute_metric(self) -> Mahalanobis:
        """The metric learned so far; in the warm-up, as if with the features seen so far."""
        stream, names = self._stream, self.feature_names
        if stream is None:
            if not names:
                raise NotReadyError(
                    "no event has been learned, so the features are unknown; learn one first"
                )
            if self._learner.additive and self._early:
                settled, stream = self._start()
                names = settled.names
        if stream is None:
            metric = training_stream.create_unfitted_metric(len(names))
        else:
            metric = training_stream.read_metric(stream, self._learner, self._key)
        return metric.named(impute.name_metric_columns(names))

    def _get_transform_matrix(self) -> Floats:
        """Columns (d, m) that points are multiplied by, m the same for ever; of whole chunks."""
        stream = self._stream
        assert stream is not None
        if self._root is None or self._root[0] != stream.learned:
            with one_blas_thread():
                metric = training_stream.read_metric(
                    stream, self._learner, self._key, waiting=False
                )
                self._root = stream.learned, self._compute_root(metric)
        return self._root[1]

    def _compute_root(self, metric: Mahalanobis) -> Floats:
        return metric_roots.compute_root(metric.matrix)

    def _compute_coordinates(self, rows: FeatureRows) -> Floats:
        """Coordinates (n, m) of rows in the metric's Euclidean space, missing values imputed.

        The space moves with whole chunks only, so that points mapped between two can be compared.
        """
        if self._stream is None:
            return self._fill_with_zeros(rows)
        values = self._stream.spread.fill_gaps(self._count_missing(rows.align(self._names)))
        return values @ self._get_transform_matrix()

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any], y: Any) -> None:  # type: ignore[override]
        """Learn one labelled point; a label that is None or NaN is counted, not learned."""
        self._learn_labelled(self._read_point(x), [y])

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn labelled points: any table that `transform_many` takes, and one label per row.

        Raises
        ------
        InputError
            X is no table, or y does not have a label a row; nothing was learned.
        FeatureError
            An array of another width than the first; nothing was learned.
        """
        self._learn_labelled(self._read_rows(X), y)

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
        left, right = self._read_rows(X1, "X1"), self._read_rows(X2, "X2")
        if len(left) != len(right):
            raise InputError(
                f"X1 has {len(left)} rows and X2 has {len(right)}; they must have the same number, "
                "since row i of both is pair i"
            )
        answers = read_answers(similar, len(left))
        impute.check_pairs(left, right)
        code_of = {None: NOT_LEARNED, True: SIMILAR, False: DISSIMILAR}
        codes = [code_of[answer] for answer in answers]
        with self._compute_on_copy() as after:
            after.unlabelled += answers.count(None)
            after._extend_stream(left, right, np.array(codes, dtype=np.int64))

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        In the warm-up it settles features and scale from what there is, if only one point.
        """
        with self._compute_on_copy() as after:
            if after._early:
                after._end_cold_start()
            if after._stream is not None:
                with one_blas_thread():
                    after._stream = training_stream.flush(after._stream, after._learning)

    def _learn_labelled(self, table: FeatureRows, y: Any) -> None:
        labels = read_hashable_labels(y, len(table))
        with self._compute_on_copy() as after:
            after.unlabelled += labels.count(None)
            codes, after._labels = after._labels.encode_labels(labels)
            after._extend_stream(table, None, np.where(codes == UNKNOWN, NOT_LEARNED, codes))

    def _extend_stream(self, one: FeatureRows, two: FeatureRows | None, codes: Ints) -> None:
        """Append events to the stream; every chunk that becomes whole is learned."""
        chunks = training_stream.create_chunks(int(self.chunk_size))
        chosen = np.flatnonzero(codes != NOT_LEARNED).tolist()
        while chosen and self._stream is None:
            i = chosen.pop(0)
            ends = (one,) if two is None else (one, two)
            self._cold_start = self._cold_start.add(*(end.row(i) for end in ends))
            if not self._early:
                continue  # no event has had a number yet
            self._early_codes = (*self._early_codes, int(codes[i]))
            if len(self._early_codes) == chunks.next_cut(0):
                self._end_cold_start()
        stream = self._stream
        if stream is None or not chosen:
            return
        first = self._align(one, chosen)
        second = np.zeros_like(first) if two is None else self._align(two, chosen)
        whole = stream.position + len(chosen) >= chunks.next_cut(stream.learned)
        with one_blas_thread() if whole else nullcontext():
            self._stream = training_stream.extend(
                stream, self._learning, first, second, codes[chosen], chunks.size
            )

    def _align(self, table: FeatureRows, chosen: list[int]) -> Floats:
        """Some rows in the order of the features, with what is missing counted and still NaN."""
        table.check(self._names)
        self._cold_start, values = self._cold_start.arrange(table.take(chosen))
        return values

    @property
    def _learning(self) -> dict[str, MetricLearner]:
        return {self._key: self._learner}

    def _end_cold_start(self) -> None:
        """Fix the features, those with a number; the early events become the first chunk."""
        with one_blas_thread():
            settled, stream = self._start()
            self._stream = training_stream.flush(stream, self._learning)
        self._cold_start, self._early_codes = settled, ()

    def _start(self) -> tuple[ColdStart, TrainingStream]:
        """The features of the early events, and a training stream in which these wait. Pure."""
        settled, values = self._cold_start.fix_features(numbers_only=True)
        codes = np.array(self._early_codes, dtype=np.int64)
        is_pair = codes < 0
        starts = np.cumsum(1 + is_pair) - (1 + is_pair)
        first, second = values[starts], np.zeros((len(codes), len(settled.names)))
        second[is_pair] = values[starts[is_pair] + 1]
        stream = training_stream.init((self._key,), len(settled.names), int(self.seed))
        return settled, training_stream.append(stream, first, second, codes)

    def _early_events(self) -> Iterator[tuple[dict[str, float], dict[str, float] | None, int]]:
        """The events of the warm-up: one end or both, and the code."""
        rows = iter(self._early)
        for code in self._early_codes:
            yield next(rows), (next(rows) if code < 0 else None), code

    # ------------------------------------------------------------------ merging

    def merge(self, other: Self) -> None:
        """Add what another estimator of the same parameters and features has learned.

        ``other`` stays as it is. The streams count as having run side by side. Where either is
        still in its warm-up, or has events that wait, these are learned after the rest.

        Raises
        ------
        ParameterError
            Itself, another class, or other parameters; or ITML, which cannot be merged.
        FeatureError
            Other features.
        """
        self._check_mergeable(other)
        if not self._learner.mergeable:
            raise ParameterError(NOT_MERGED)
        with self._compute_on_copy() as after:
            after._merge_in_place(other)

    def _merge_in_place(self, other: Self) -> None:
        """Merge the other into this copy."""
        self._read = self._root = None
        self.unlabelled += other.unlabelled
        indices, self._labels = self._labels.merge(other._labels)
        early = [*self._early_events()]
        for one, two, code in other._early_events():
            early.append((one, two, code if code < 0 else int(indices[code])))
        self._cold_start, self._early_codes = self._cold_start.merge(other._cold_start), ()
        if other._stream is not None:
            if self._stream is None:
                self._stream = training_stream.init((self._key,), len(other._names), int(self.seed))
            size = int(self.chunk_size)
            with one_blas_thread():
                self._stream = training_stream.merge(
                    self._stream, other._stream, self._learning, indices, size
                )
        for one, two, code in early:
            ends = impute.read([one]), None if two is None else impute.read([two])
            self._extend_stream(*ends, np.array([code]))

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_read": None, "_root": None}


@dataclass_transform(eq_default=False)
def declare_metric(cls: Class) -> Class:
    """Class decorator: give a metric its `__init__` by annotated parameters, and document them."""
    shared = MetricEstimator.__doc__
    return declare_parameters(parse_parameter_texts(shared), base=shared)(cls)
