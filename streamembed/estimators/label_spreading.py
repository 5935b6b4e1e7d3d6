"""`LabelSpreading`: a classifier for streams in which few events have a label."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from river import base

from streamembed.data.impute import FeatureRows
from streamembed.data.labels import LabelIndex, read_hashable_labels
from streamembed.data.values import to_list
from streamembed.errors import InputError, NotReadyError, quote
from streamembed.estimators.estimator import ColdStartLearner, FeatureStatistics
from streamembed.geometry.scaling import LEAST_SHARE, Scaling, fit_points
from streamembed.manifold import label_spreading
from streamembed.manifold.label_spreading import UNLABELLED, LabelGraph
from streamembed.numeric.arrays import LARGEST_VALUE, Array, Bools, Floats, Ints
from streamembed.parameters import declare_parameters
from streamembed.threads import one_blas_thread
from streamembed.validation import check_choice, check_real, check_whole

# Events between two solves, unless a reader asks for a label that came since.
CHUNK = 16


@dataclass(frozen=True, slots=True, eq=False)
class LabelStream:
    """What was learned once the warm-up is over: a graph, and events of an unfinished chunk."""

    scaling: Scaling
    graph: LabelGraph
    points: Floats  # (b, d), scaled, waiting
    classes: Ints  # (b,)
    labels: LabelIndex
    position: int  # events of the stream
    changed: bool  # whether a label of the graph came after its scores


@declare_parameters({})
class LabelSpreading(ColdStartLearner, base.MiniBatchClassifier):
    """A classifier that needs few labels: they spread to unlabelled events by their neighbours.

    Where each class has one to three labels, or one event in a hundred has one, it is on average
    more accurate than classifiers of the labelled events alone; from ten labels a class on, use
    those. It keeps the newest ``size`` events, and of those that left the newest 40 labelled ones a
    class (400 in all).

    - *Labels* are strings, numbers or anything that can be a key. None and NaN are no label: the
      event is learned without one. A label that comes later is given to `label`.
    - *Features* and *missing values*: as for all estimators of maps. Before the warm-up ends,
      predictions rest on what came so far.

    Parameters
    ----------
    n_neighbors
        Neighbours of an event over which labels spread.
    size
        Newest events that are kept; labelled ones stay longer.
    damping
        How far labels spread: between 0 and 1, both excluded. A label is worth this share of what
        it was after each step from neighbour to neighbour.
    scaling
        "standard": features are divided by their standard deviation in the warm-up; "global": all
        by one; None: by nothing.
    warm_up
        Events that settle features and scaling; at most ``size``.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> from river.stream import shuffle
    >>> model, right = LabelSpreading(), 0
    >>> for i, (x, y) in enumerate(shuffle(datasets.ImageSegments(), buffer_size=2310, seed=0)):
    ...     right += model.predict_one(x) == y
    ...     model.learn_one(x, y if i % 30 == 0 else None)
    >>> right / i > 0.7, model.certificate["met"], len(model.ask(2))
    (True, True, 2)
    """

    n_neighbors: int = 10
    size: int = 2000
    damping: float = 0.9
    scaling: str | None = "standard"
    warm_up: int = 100

    _largest, _smallest = LARGEST_VALUE, 0.0
    _title = "this classifier"
    _hints: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fit", "partial_fit"), "learn_many(X, y)"),
        "predict": "predict_many(X)",
        "predict_proba": "predict_proba_many(X)",
    }

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        check_whole("n_neighbors", self.n_neighbors, 1, high=1000)
        check_whole("size", self.size, 2)
        check_real("damping", self.damping, 0.0, 1.0, opened=True)
        check_choice("scaling", self.scaling, ("standard", "global", None))
        check_whole("warm_up", self.warm_up, 2, high=self.size)
        self._begin()
        self._stream: LabelStream | None = None
        # Position of the first event of which the stream does not know yet, and labels from there.
        self._early_labels: tuple[int, tuple[Hashable | None, ...]] = 0, ()
        # Of the last read: graph and waiting events, or early statistics; and what they gave.
        self._read: tuple[Any, FeatureStatistics | None, LabelStream] | None = None

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "size": 60, "n_neighbors": 5}

    # ------------------------------------------------------------------ reading

    @property
    def _multiclass(self) -> bool:
        return True

    @property
    def position(self) -> int:
        """Events so far: the id of the next one."""
        return self._n_learned + len(self._early)

    @property
    def classes(self) -> tuple[Hashable, ...]:
        """Every label seen, in order of first occurrence."""
        return () if self.position == 0 else self._get_scored_stream()[1].labels.known

    @property
    def certificate(self) -> dict[str, Any]:
        """How exact the scores are, and on what they rest.

        ``residual`` is that of the linear system, relative to its right side, the largest over
        classes; ``met`` whether it is at most ``tolerance``; ``events``, ``anchors`` and ``labels``
        are counts of the graph. NotReadyError before the first event.
        """
        graph = self._get_scored_stream()[1].graph
        return {
            "residual": graph.residual,
            "tolerance": label_spreading.TOLERANCE,
            "met": graph.residual <= label_spreading.TOLERANCE,
            "events": len(graph.points),
            "anchors": len(graph.points) - len(graph.window),
            "labels": int(np.count_nonzero(graph.classes != UNLABELLED)),
        }

    def predict_proba_one(self, x: Mapping[Any, Any]) -> dict[Any, float]:  # type: ignore[override]
        """Shares of the classes' scores, by label; empty before the first label."""
        shares, labels = self._predict(self._read_point(x))
        return dict(zip(labels, shares[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """The same of a mini-batch: a data frame of pandas for one, else an array (n, c).

        Columns are in the order of `classes`.
        """
        shares, labels = self._predict(self._read_rows(X))
        return _to_pandas(X, "DataFrame", shares, columns=list(labels))

    def predict_many(self, X: Any) -> Any:
        """The likeliest label of each row: a series of pandas for a frame of it, else an array.

        None before the first label.
        """
        rows = self._read_rows(X)
        shares, labels = self._predict(rows)
        predicted = np.full(len(rows), None, dtype=object)
        if labels:
            predicted[:] = [labels[code] for code in shares.argmax(axis=1).tolist()]
        return _to_pandas(X, "Series", predicted)

    def ask(self, n: int = 1) -> list[int]:
        """Ids of the n events whose labels would tell most, best first; see `label`.

        Fewer where the window has fewer events without a label.
        """
        check_whole("n", n, 1)
        if self.position == 0:
            return []
        with one_blas_thread():
            graph = self._get_scored_stream(whole=True)[1].graph
            slots = label_spreading.choose_questions(graph, n, float(self.damping))
        return [int(event) for event in graph.positions[slots]]

    def _predict(self, rows: FeatureRows) -> tuple[Floats, tuple[Any, ...]]:
        """Shares (n, c) and labels of the classes."""
        if self.position == 0:
            return np.zeros((len(rows), 0)), ()
        statistics, stream = self._get_scored_stream()
        values = self._count_missing(rows.arrange(statistics.names))
        points = stream.scaling.apply(np.where(np.isnan(values), statistics.means, values))
        with one_blas_thread():
            scores = label_spreading.score(stream.graph, points, float(self.damping))
        return label_spreading.compute_shares(scores), stream.labels.known

    def _get_scored_stream(self, whole: bool = False) -> tuple[FeatureStatistics, LabelStream]:
        """Statistics, and the stream with every label so far in its scores; changes nothing.

        Events that wait are in the graph up to the last that has a label; ``whole``: all are.
        Learning goes on from what it was: when it is read makes no difference.
        """
        if self.position == 0:
            raise NotReadyError("no event has been learned: learn one first")
        statistics, stream, n = self._statistics, self._stream, 0
        key: tuple[Any, ...] = (statistics,)
        if stream is not None:
            labelled = np.flatnonzero(stream.classes != UNLABELLED)
            n = len(stream.classes) if whole else int(labelled.max(initial=-1)) + 1
            if n == 0 and not stream.changed:
                return statistics, stream
            key = stream.graph, n
        if self._read is None or self._read[0] != key:  # which are equal if they are the same
            with one_blas_thread():
                if stream is None:
                    settled, values = statistics.fix_features()
                    statistics, points = settled.update_and_fill(values, len(values))
                    self._read = key, statistics, self._start(points)
                else:
                    self._read = key, None, self._solve(stream, n)
        _, early, read = self._read
        return early or statistics, read

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any], y: Any = None) -> None:
        """Learn one event; without a label where y is None or NaN."""
        self._learn_rows(self._read_point(x), read_hashable_labels([y], 1))

    def learn_many(self, X: Any, y: Any = None) -> None:
        """Learn a mini-batch, and a label a row or None for all.

        Raises
        ------
        InputError
            X is no table, or y has not one label a row; nothing was learned.
        """
        rows = self._read_rows(X)
        self._learn_rows(
            rows, [None] * len(rows) if y is None else read_hashable_labels(y, len(rows))
        )

    def label(self, ids: Any, y: Any) -> tuple[int, ...]:
        """Give events a label that came late, or another one.

        Parameters
        ----------
        ids, y
            Positions of events, the first of the stream being 0, and as many labels; None is none.

        Returns
        -------
        tuple of int
            Ids of events that are no longer kept, whose labels were not learned.

        Raises
        ------
        InputError
            An id that is no position so far, or another number of labels; nothing was learned.
        """
        ids = to_list(ids, len(ids) if hasattr(ids, "__len__") else 0, "ids")
        for event in ids:
            if type(event) is not int or not 0 <= event < self.position:
                raise InputError(
                    f"ids has {quote(event)}; it must have positions of events, whole numbers from "
                    f"0 to {self.position - 1}"
                )
        keys = read_hashable_labels(y, len(ids))
        stream, (start, early) = self._stream, self._early_labels
        early = early[: self.position - start]
        if stream is None:
            given = dict(zip(ids, keys, strict=True))
            early = tuple(given.get(start + i, key) for i, key in enumerate(early))
            self._read, self._early_labels = None, (start, early)
            return ()
        codes, labels = stream.labels.encode_labels(keys)
        graph, waiting = stream.graph, range(stream.position - len(stream.points), self._n_learned)
        at = {event: i for i, event in enumerate([*graph.positions.tolist(), *waiting])}
        classes = np.concatenate([graph.classes, stream.classes])
        for event, code in zip(ids, codes.tolist(), strict=True):
            if event in at:
                classes[at[event]] = code
        old, new = np.split(classes, [len(graph.classes)])
        graph = replace(graph, classes=old)
        self._stream = replace(stream, graph=graph, classes=new, labels=labels, changed=True)
        return tuple(event for event in ids if event not in at)

    def _learn_rows(self, rows: FeatureRows, keys: Sequence[Hashable | None]) -> None:
        before = self._statistics.count_before(rows)
        start, early = self._early_labels
        early = early[self._n_learned - start : self.position - start]
        self._early_labels = self._n_learned, (*early, *keys[before:])
        self._learn_imputed(rows.take(slice(before, None)), int(self.warm_up))

    @property
    def _n_learned(self) -> int:
        return 0 if self._stream is None else self._stream.position

    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        stream = self._stream
        with one_blas_thread():
            if stream is None:
                self._stream = self._start(points)
                return
            start, keys = self._early_labels
            at = stream.position - start
            codes, labels = stream.labels.encode_labels(keys[at : at + len(points)])
            after = replace(
                stream,
                points=np.concatenate([stream.points, stream.scaling.apply(points)]),
                classes=np.concatenate([stream.classes, codes]),
                labels=labels,
                position=stream.position + len(points),
            )
            self._stream = after if after.position % CHUNK else self._solve(after, CHUNK)

    def _start(self, points: Floats) -> LabelStream:
        """A stream of the first events, (n, d)."""
        classes, labels = LabelIndex().encode_labels(self._early_labels[1][: len(points)])
        scaling = fit_points(points, np.ones(len(points)), self.scaling, 1.0, LEAST_SHARE)
        graph = label_spreading.create_empty(points.shape[1], int(self.n_neighbors))
        stream = LabelStream(
            scaling, graph, scaling.apply(points), classes, labels, len(points), changed=False
        )
        return self._solve(stream, len(points))

    def _solve(self, stream: LabelStream, n: int) -> LabelStream:
        """The stream with the first n events that wait in the graph, and scores of its labels."""
        first = stream.position - len(stream.points)
        graph = label_spreading.advance(
            stream.graph,
            stream.points[:n],
            np.arange(first, first + n),
            stream.classes[:n],
            n_classes=len(stream.labels.known),
            size=int(self.size),
            damping=float(self.damping),
        )
        rest = stream.points[n:], stream.classes[n:]
        return replace(stream, graph=graph, points=rest[0], classes=rest[1], changed=False)

    def __getstate__(self) -> dict[str, Any]:
        start, early = self._early_labels
        unknown = self._n_learned, early[self._n_learned - start : self.position - start]
        return {**super().__getstate__(), "_early_labels": unknown, "_read": None}


def _to_pandas(X: Any, kind: str, values: Array, **options: Any) -> Any:
    """The values as that class of pandas, with the index of X, where X is one of its frames."""
    pandas = sys.modules.get("pandas")
    if pandas is None or not isinstance(X, pandas.DataFrame):
        return values
    return getattr(pandas, kind)(values, index=X.index, **options)
