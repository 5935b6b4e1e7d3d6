"""How learners are fitted: events wait until their chunk is whole, and are learned in one piece.

Labelled points and given pairs are events of one sequence; a chunk ends at every multiple of
``size`` of them, the first with at least `WARM_UP`. An estimator has a training stream of one
learner, an engine one of all its metrics; both use this module. Everything is a function of the
events and the seed: calls do not matter, nor does what is read in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from streamembed.metrics.examples import Examples, remap_codes
from streamembed.metrics.learner import MetricLearner
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.metrics.metric_roots import build_metric
from streamembed.numeric import moments as spread
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import Chunks, PendingParts
from streamembed.numeric.codec import Count
from streamembed.numeric.moments import FeatureMoments

# Events that settle the features, and the scale where a metric has one: deviations of this many
# points are known to 16 %, and no chunk of usual size has to wait.
WARM_UP = 20
# Events per update, unless the caller says otherwise.
CHUNK_SIZE = 50

LearnersByName = Mapping[str, MetricLearner]


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of a learner's updates since the first event."""

    updates: Count = 0  # chunks that it received
    # Those that would have left the range of floating point numbers: nothing of them was learned.
    refused: Count = 0
    refused_events: Count = 0  # labelled points and pairs in these
    # How many updates ended with which status; refused ones count under ``refused``.
    by_status: Mapping[str, int] = field(default_factory=dict)

    def count(self, status: str, refused_events: int = 0) -> Totals:
        """With one more update."""
        by_status = {**self.by_status, status: self.by_status.get(status, 0) + 1}
        return Totals(
            self.updates + 1,
            self.refused + (status == "refused"),
            self.refused_events + refused_events,
            by_status,
        )

    def merge(self, other: Totals) -> Totals:
        """Of two streams."""
        statuses = sorted({*self.by_status, *other.by_status})
        return Totals(
            self.updates + other.updates,
            self.refused + other.refused,
            self.refused_events + other.refused_events,
            {
                status: self.by_status.get(status, 0) + other.by_status.get(status, 0)
                for status in statuses
            },
        )


NO_UPDATES = Totals()


@dataclass(frozen=True, slots=True, eq=False)
class LearnerProgress:
    """The progress of one learner."""

    state: Any = None  # the learner's own; None before its first chunk
    totals: Totals = NO_UPDATES


@dataclass(frozen=True, slots=True, eq=False)
class TrainingStream:
    """The events that metrics learn from, chunk by chunk, and the progress of every learner."""

    seed: Count  # of what is drawn
    # Events of the chunk that is filling, in the caller's units, NaN where a value is missing.
    waiting: PendingParts[Examples]
    spread: FeatureMoments  # means and deviations of the features, over all that was learned
    learned: Count  # events in whole chunks
    # Labelled points and given pairs among these.
    labelled: Count
    pairs: Count
    progress: dict[str, LearnerProgress]  # by name of the metric

    @property
    def position(self) -> int:
        """Events so far, learned and waiting."""
        return self.learned + self.waiting.count

    @property
    def pending(self) -> Examples:
        """What waits, in one piece."""
        if not self.waiting.parts:
            return Examples.empty(len(self.spread.means), self.learned, self.seed)
        return Examples.joined(self.waiting.parts)


def init(names: tuple[str, ...], n_features: int, seed: int) -> TrainingStream:
    """Before any event."""
    progress = {name: LearnerProgress() for name in names}
    return TrainingStream(seed, PendingParts(), spread.init(n_features), 0, 0, 0, progress)


def create_chunks(size: int) -> Chunks:
    """Where chunks of a training stream end: every multiple of ``size`` past the warm-up."""
    return Chunks(size, math.ceil(WARM_UP / size) * size)


def extend(
    stream: TrainingStream,
    learners: LearnersByName,
    first: Floats,
    second: Floats,
    codes: Ints,
    size: int,
) -> TrainingStream:
    """The stream after these events; every chunk that becomes whole is learned.

    Parameters
    ----------
    first, second
        Points, or both ends of pairs, shapes (n, d); the second end of a labelled point is 0.
    codes
        As in `Examples`.
    size
        Events a chunk.
    """
    for part, is_whole in create_chunks(size).split(
        stream.learned, stream.waiting.count, len(codes)
    ):
        # copies: what waits must neither keep the whole call alive nor change with it
        stream = append(stream, first[part].copy(), second[part].copy(), codes[part].copy())
        stream = flush(stream, learners) if is_whole else stream
    return stream


def append(stream: TrainingStream, first: Floats, second: Floats, codes: Ints) -> TrainingStream:
    """The stream with these events waiting, whether or not a chunk is whole; arrays are kept."""
    part = Examples(first, second, codes, stream.position, stream.seed)
    # not by `replace`, which takes longer than all the rest for a single event
    return TrainingStream(
        stream.seed,
        stream.waiting.followed_by(part),
        stream.spread,
        stream.learned,
        stream.labelled,
        stream.pairs,
        stream.progress,
    )


def flush(stream: TrainingStream, learners: LearnersByName) -> TrainingStream:
    """What waits is learned, as a short chunk."""
    if not stream.waiting.count:
        return stream
    chunk = stream.pending
    values = np.concatenate([chunk.first, chunk.second[chunk.codes < 0]])
    with np.errstate(all="ignore"):
        observed = spread.update(stream.spread, values)
    is_finite, labelled = _is_finite(observed), len(chunk.classes)
    filled = replace(
        chunk, first=observed.fill_gaps(chunk.first), second=observed.fill_gaps(chunk.second)
    )
    return replace(
        stream,
        waiting=PendingParts(),
        spread=observed if is_finite else stream.spread,
        learned=stream.position,
        labelled=stream.labelled + labelled,
        pairs=stream.pairs + len(chunk) - labelled,
        progress={
            name: advance(learners[name], progress, filled, observed.scale, is_finite)
            for name, progress in stream.progress.items()
        },
    )


def advance(
    learner: MetricLearner,
    progress: LearnerProgress,
    examples: Examples,
    scale: Floats,
    is_finite: bool = True,
) -> LearnerProgress:
    """The learner after these events: wholly learned, or counted as refused.

    ``is_finite`` is False where it is known beforehand that they cannot be learned.
    """
    state, after, status = progress.state, None, "refused"
    with np.errstate(all="ignore"):
        try:
            if is_finite:
                state = learner.init(examples, scale) if state is None else state
                after, status = learner.update(state, examples)
        except np.linalg.LinAlgError:
            after = None
        if after is None or status == "refused" or not _is_finite(after):
            return LearnerProgress(state, progress.totals.count("refused", len(examples)))
    return LearnerProgress(after, progress.totals.count(status))


def show_waiting(stream: TrainingStream, learner: MetricLearner, name: str) -> TrainingStream:
    """The stream as a metric shows it: of one that is additive, with what waits for its chunk."""
    if not (learner.additive and stream.waiting.count):
        return stream
    flushed = flush(replace(stream, progress={name: stream.progress[name]}), {name: learner})
    is_learned = flushed.progress[name].totals.refused == stream.progress[name].totals.refused
    return flushed if is_learned else stream


def read_metric(
    stream: TrainingStream, learner: MetricLearner, name: str, waiting: bool = True
) -> Mahalanobis:
    """A metric with its certificate; the identity, ``unfitted``, where there is none. Pure.

    Parameters
    ----------
    waiting
        Whether a metric that is additive shows what waits for its chunk.
    """
    current = show_waiting(stream, learner, name) if waiting else stream
    state, totals = current.progress[name].state, stream.progress[name].totals
    if state is None:
        return create_unfitted_metric(len(stream.spread.means), totals)
    with np.errstate(all="ignore"):
        measured = learner.compute_metric(state, current.spread.scale)
        in_units = measured.matrix / measured.scale / measured.scale[:, None]
    if not np.isfinite(in_units).all():  # sums near the largest double, or scales near the least
        return create_unfitted_metric(len(measured.matrix), totals)
    varies = current.spread.varies
    weights = np.outer(varies, varies) if varies.any() else 1.0  # of what never varied: 0
    facts = {
        "source": "given" if current.pairs else "labels",
        "labelled": current.labelled,
        "pairs": current.pairs,
        **asdict(totals),
        **measured.facts,
    }
    return build_metric(measured.matrix * weights, facts, measured.scale)


def create_unfitted_metric(n_features: int, totals: Totals = NO_UPDATES) -> Mahalanobis:
    """The identity, which a metric is before its first chunk."""
    return Mahalanobis.of(np.eye(n_features), certificate=describe_unfitted(totals))


def describe_unfitted(totals: Totals = NO_UPDATES) -> dict[str, Any]:
    """The certificate of a metric that has learned nothing."""
    counts = {"source": "labels", "status": "unfitted", "labelled": 0, "pairs": 0}
    return {**counts, **asdict(totals)}


def merge(
    left: TrainingStream, right: TrainingStream, learners: LearnersByName, indices: Ints, size: int
) -> TrainingStream:
    """Both streams as one; class c of the right one is class ``indices[c]`` of the left.

    What waits in either is learned after the rest, that of the left first.
    """
    progress = {}
    for name, left_progress in left.progress.items():
        right_progress, learner = right.progress[name], learners[name]
        state = left_progress.state
        if right_progress.state is not None:  # else there is nothing to merge
            state = learner.init(right.pending, right.spread.scale) if state is None else state
            state = learner.merge(state, right_progress.state, indices)
        progress[name] = LearnerProgress(state, left_progress.totals.merge(right_progress.totals))
    joined = replace(
        left,
        waiting=PendingParts(),
        spread=spread.merge(left.spread, right.spread),
        learned=left.learned + right.learned,
        labelled=left.labelled + right.labelled,
        pairs=left.pairs + right.pairs,
        progress=progress,
    )
    left_pending, right_pending = left.pending, right.pending
    joined = extend(
        joined, learners, left_pending.first, left_pending.second, left_pending.codes, size
    )
    codes = remap_codes(right_pending.codes, indices)
    return extend(joined, learners, right_pending.first, right_pending.second, codes, size)


def _is_finite(state: Any) -> bool:
    """Whether every number of a state is finite."""
    if isinstance(state, np.ndarray):
        return state.dtype.kind != "f" or bool(np.isfinite(state).all())
    if is_dataclass(state) and not isinstance(state, type):
        return all(_is_finite(getattr(state, field.name)) for field in fields(state))
    if isinstance(state, tuple):
        return all(_is_finite(part) for part in state)
    return not isinstance(state, float) or math.isfinite(state)
