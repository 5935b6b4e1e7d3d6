"""How learners are taught: events wait until their chunk is whole, and are learned in one piece.

Labelled points and given pairs are events of one sequence; a chunk ends at every multiple of
``size`` of them, the first with at least `WARM_UP`. An estimator has a course of one learner, an
engine one of all its metrics, and both are this one. Everything is a function of the events and
the seed: calls do not matter, nor does what is read in between.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np

from streamembed.metric_learners.labelled_examples import Examples, mapped
from streamembed.metric_learners.learner import NO_UPDATES, Learner, Totals, certificate, metric_of
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric import moments as spread
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import Chunks, Waiting
from streamembed.numeric.codec import NOT_KEPT
from streamembed.numeric.moments import Spread

__all__ = [
    "CHUNK_SIZE",
    "WARM_UP",
    "Course",
    "Progress",
    "Refused",
    "Untaught",
    "advance",
    "append",
    "chunks_of",
    "extend",
    "flush",
    "init",
    "merge",
    "read",
    "untaught",
]

# Events from which the features, and where a metric has one its scale, are settled: deviations of
# so many points are known to 16 %, and no chunk of usual size has to wait.
WARM_UP = 20
# Events an update, where nobody says otherwise.
CHUNK_SIZE = 50

Learning = Mapping[str, Learner]


@dataclass(frozen=True, slots=True)
class Refused:
    """The Info of an update that left the range of floating point numbers."""

    status: str = "refused"


@dataclass(frozen=True, slots=True)
class Untaught:
    """What is told of a metric of which no chunk was learned."""

    status: str = "untaught"


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far one learner is.

    Attributes
    ----------
    state : Any
        The learner's own; None before its first chunk.
    totals : Totals
    last : Any
        Info of the last update, for a look; None before one, and after loading.
    """

    state: Any = None
    totals: Totals = NO_UPDATES
    last: Any = field(default=None, metadata=NOT_KEPT)


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """What was taught, and how far every learner is.

    Attributes
    ----------
    seed : int
        Of what is drawn.
    waiting : Waiting of Examples
        Events of the chunk that is filling, in the caller's units, NaN where a value is missing.
    spread : Spread
        Means and deviations of the features, over all that was learned.
    learned : int
        Events in whole chunks.
    labelled, pairs : int
        Labelled points and given pairs among these.
    progress : dict
        By name of the metric.
    """

    seed: int
    waiting: Waiting[Examples]
    spread: Spread
    learned: int
    labelled: int
    pairs: int
    progress: dict[str, Progress]

    @property
    def position(self) -> int:
        """Events so far, learned and waiting."""
        return self.learned + self.waiting.count

    @property
    def pending(self) -> Examples:
        """What waits, in one piece."""
        if not self.waiting.parts:
            return Examples.empty(len(self.spread.means), self.learned, self.seed)
        return self.waiting.joined()


def init(names: tuple[str, ...], n_features: int, seed: int) -> Course:
    """Before any event."""
    fresh = {name: Progress() for name in names}
    return Course(seed, Waiting(), spread.init(n_features), 0, 0, 0, fresh)


def chunks_of(size: int) -> Chunks:
    """Where chunks of a course end: at every multiple of ``size``, the first behind the warm-up."""
    return Chunks(size, math.ceil(WARM_UP / size) * size)


def extend(
    course: Course, learning: Learning, first: Floats, second: Floats, codes: Ints, size: int
) -> Course:
    """The course after these events; every chunk that becomes whole is learned.

    Parameters
    ----------
    first, second
        Points, or both ends of pairs, shapes (n, d); the second end of a labelled point is 0.
    codes
        As in `Examples`.
    size
        Events a chunk.
    """
    for part, whole in chunks_of(size).split(course.learned, course.waiting.count, len(codes)):
        # copies, for what waits must neither hold on to the whole call nor change with it
        course = append(course, first[part].copy(), second[part].copy(), codes[part].copy())
        course = flush(course, learning) if whole else course
    return course


def append(course: Course, first: Floats, second: Floats, codes: Ints) -> Course:
    """The course with these events waiting, whether or not a chunk is whole; arrays are kept."""
    part = Examples(first, second, codes, course.position, course.seed)
    # not by `replace`, which takes longer than all the rest for a single event
    return Course(
        course.seed,
        course.waiting.followed_by(part),
        course.spread,
        course.learned,
        course.labelled,
        course.pairs,
        course.progress,
    )


def flush(course: Course, learning: Learning) -> Course:
    """What waits is learned, as a short chunk."""
    if not course.waiting.count:
        return course
    chunk = course.pending
    values = np.concatenate([chunk.first, chunk.second[chunk.codes < 0]])
    with np.errstate(all="ignore"):
        seen = spread.update(course.spread, values)
    sound, labelled = _finite(seen), len(chunk.classes)
    whole = replace(chunk, first=seen.fill_gaps(chunk.first), second=seen.fill_gaps(chunk.second))
    return replace(
        course,
        waiting=Waiting(),
        spread=seen if sound else course.spread,
        learned=course.position,
        labelled=course.labelled + labelled,
        pairs=course.pairs + len(chunk) - labelled,
        progress={
            name: advance(learning[name], one, whole, seen.scale, sound)
            for name, one in course.progress.items()
        },
    )


def advance(
    learner: Learner, progress: Progress, examples: Examples, scale: Floats, sound: bool = True
) -> Progress:
    """The learner after these events: wholly learned, or counted as refused.

    ``sound`` is False where it is known beforehand that they cannot be.
    """
    state, info = progress.state, Refused()
    after: Any = None
    with np.errstate(all="ignore"):
        try:
            if sound:
                state = learner.init(examples, scale) if state is None else state
                after, info = learner.update(state, examples)
        except np.linalg.LinAlgError:
            after, info = None, Refused()
        if after is None or info.status == "refused" or not _finite(after):
            totals = progress.totals.plus("refused", len(examples))
            return Progress(state, totals, replace(info, status="refused"))
    return Progress(after, progress.totals.plus(info.status), info)


def read(
    course: Course, learner: Learner, name: str, waiting: bool = True
) -> tuple[Mahalanobis, Any] | None:
    """A metric and its Info; None before anything of it can be told. Pure.

    Where not one of several chunks could be learned it is the identity, and the Info is None.

    Parameters
    ----------
    waiting
        Whether a metric that is additive shows what waits for its chunk.
    """
    shown = course
    if waiting and learner.additive and course.waiting.count:
        alone = replace(course, progress={name: course.progress[name]})
        ahead = flush(alone, {name: learner})
        if ahead.progress[name].totals.refused == course.progress[name].totals.refused:
            shown = ahead
    state = shown.progress[name].state
    if state is None:
        d = len(course.spread.means)
        return (untaught(d, course.progress[name].totals), None) if course.learned else None
    with np.errstate(all="ignore"):
        measured = learner.measure(state, shown.spread.scale)
    totals = course.progress[name].totals
    told = certificate(
        "given" if shown.pairs else "labels",
        totals,
        measured.told,
        labelled=shown.labelled,
        pairs=shown.pairs,
    )
    return metric_of(measured, told), replace(measured.info, totals=totals)


def untaught(n_features: int, totals: Totals = NO_UPDATES) -> Mahalanobis:
    """The identity, which a metric is before its first chunk."""
    told = certificate("labels", totals, Untaught(), labelled=0, pairs=0)
    return Mahalanobis.of(np.eye(n_features), certificate=told)


def merge(left: Course, right: Course, learning: Learning, indices: Ints, size: int) -> Course:
    """Both courses as one; class c of the right one is class ``indices[c]`` of the left.

    What waits in either is learned after the rest, that of the left first.
    """
    progress = {}
    for name, one in left.progress.items():
        other, learner = right.progress[name], learning[name]
        state = one.state
        if other.state is not None:  # else there is nothing to take in
            state = learner.init(right.pending, right.spread.scale) if state is None else state
            state = learner.merge(state, other.state, indices)
        progress[name] = Progress(state, one.totals.merged(other.totals))
    joined = replace(
        left,
        waiting=Waiting(),
        spread=spread.merge(left.spread, right.spread),
        learned=left.learned + right.learned,
        labelled=left.labelled + right.labelled,
        pairs=left.pairs + right.pairs,
        progress=progress,
    )
    mine, theirs = left.pending, right.pending
    joined = extend(joined, learning, mine.first, mine.second, mine.codes, size)
    codes = mapped(theirs.codes, indices)
    return extend(joined, learning, theirs.first, theirs.second, codes, size)


def _finite(state: Any) -> bool:
    """Whether every number of a state is finite."""
    if isinstance(state, np.ndarray):
        return state.dtype.kind != "f" or bool(np.isfinite(state).all())
    if is_dataclass(state) and not isinstance(state, type):
        return all(_finite(getattr(state, field.name)) for field in fields(state))
    if isinstance(state, tuple):
        return all(_finite(part) for part in state)
    return not isinstance(state, float) or math.isfinite(state)
