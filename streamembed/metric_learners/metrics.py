"""The metrics of an engine: what they are taught, and until then what its embedding suggests.

Labelled points and pairs that somebody knows go to a course
(`streamembed.metric_learners.training_stream`) in the caller's units: the very one that an
estimator has, so that a metric of one name is the same here and there. Pairs that the embedding
separates (`learn_generated`) are a guess beside it, in the units of the kernel: a metric is the
guess for as long as its course knows nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed.metric_learners import catalog, training_stream
from streamembed.metric_learners.catalog import CLASS_METRICS, NAMES, PAIR_METRICS
from streamembed.metric_learners.labelled_examples import DISSIMILAR, SIMILAR, Examples
from streamembed.metric_learners.learner import Measured, certificate, metric_of
from streamembed.metric_learners.training_stream import Course, Progress
from streamembed.metric_learning import itml
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.pairs import reproduction, shrinkage
from streamembed.pairs import thresholds as pairs

__all__ = [
    "CLASS_METRICS",
    "NAMES",
    "PAIR_METRICS",
    "Learners",
    "flush",
    "init",
    "learn_generated",
    "learn_labels",
    "learn_pairs",
    "measure_reproduction",
    "publish",
    "rescale",
]


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """Everything that the metrics of an engine remember.

    Attributes
    ----------
    names : tuple of str
        What is learned.
    course : Course
        What was taught: labelled points and given pairs, in the caller's units.
    pairs : pairs.State
        Those told by the embedding, in the units of the kernel.
    guess : dict
        How far learners are with these; empty once every metric is taught.
    reproduced : float
        How far what generated pairs teach reproduces, see `streamembed.pairs.reproduction`.
    """

    names: tuple[str, ...]
    course: Course
    pairs: pairs.State
    guess: dict[str, Progress]
    reproduced: float

    @property
    def given(self) -> bool:
        """Whether every metric that could learn from generated pairs is taught by now."""
        return all(self.teaches(name) for name in self.names if name in PAIR_METRICS)

    def teaches(self, name: str) -> bool:
        """Whether a metric is that of its course: from the first event, or the first chunk, on."""
        learner = catalog.learner(name, self.course.seed)
        return (self.course.position if learner.additive else self.course.learned) > 0

    @property
    def infos(self) -> Mapping[str, Any]:
        """The Info of every metric's last update; of those without one since loading, nothing."""
        found = {}
        for name in self.names:
            guessed = name in PAIR_METRICS and not self.teaches(name)
            progress = (self.guess if guessed else self.course.progress)[catalog.states_of(name)]
            if progress.last is not None:
                found[name] = progress.last
        return found


def init(names: tuple[str, ...], n_features: int, seed: int) -> Learners:
    """Before any pair or label."""
    return Learners(
        names,
        training_stream.init(tuple(catalog.learns_classes(names, seed)), n_features, seed),
        pairs.init(n_features),
        _fresh(names),
        0.0,
    )


def _fresh(names: tuple[str, ...]) -> dict[str, Progress]:
    return {catalog.states_of(name): Progress() for name in names if name in PAIR_METRICS}


# ------------------------------------------------------------------ what is taught


def learn_labels(learners: Learners, points: Floats, classes: Ints, seed: int) -> Learners:
    """Learn the labelled points of a chunk, raw (c, d); class -1 is unknown, and left out.

    Parameters
    ----------
    classes
        Shape (c,), indices from 0.
    """
    known = classes >= 0
    if not known.any():
        return learners
    first = points[known]
    return _learn(learners, first, np.zeros_like(first), classes[known], seed)


def learn_pairs(
    learners: Learners, first: Floats, second: Floats, similar: Bools, seed: int
) -> Learners:
    """Learn given pairs: both ends, raw (p, d), and whether they are similar (p,)."""
    codes = np.where(similar, SIMILAR, DISSIMILAR).astype(np.int64)
    return _learn(learners, first, second, codes, seed)


def _learn(learners: Learners, first: Floats, second: Floats, codes: Ints, seed: int) -> Learners:
    learning = catalog.learns_classes(learners.names, seed)
    after = training_stream.extend(
        learners.course, learning, first, second, codes, training_stream.CHUNK_SIZE
    )
    learners = replace(learners, course=after)
    return replace(learners, guess={}) if learners.given else learners


def flush(learners: Learners, seed: int) -> Learners:
    """The learners with all pending events learned, as a short chunk; or the same object."""
    if not learners.course.waiting.count:
        return learners
    learning = catalog.learns_classes(learners.names, seed)
    learners = replace(learners, course=training_stream.flush(learners.course, learning))
    return replace(learners, guess={}) if learners.given else learners


# ------------------------------------------------------------------ what the map suggests


def learn_generated(
    learners: Learners,
    coordinates: Floats,
    points: Floats,
    births: Ints,
    masses: Floats,
    position: int,
    seed: int,
) -> Learners:
    """Draw pairs of the support, judge them by the embedding, and learn those that are clear.

    Parameters are those of `streamembed.pairs.thresholds.update`. Remembered pairs are judged
    again; one that has turned over is learned again as what it is now. Once every metric is taught,
    the embedding has no say, and nothing happens.
    """
    if learners.given:
        return learners
    settings = pairs.Settings(seed=seed)
    before = learners.pairs.pairs
    drawn, _ = pairs.update(learners.pairs, coordinates, points, births, masses, position, settings)
    fresh = drawn.pairs.positions == position
    judged, _ = pairs.rejudge(drawn, coordinates, births, settings)
    turned = _find_turned(before, judged.pairs)
    differences = np.concatenate([judged.pairs.differences[turned], drawn.pairs.differences[fresh]])
    similar = np.concatenate([judged.pairs.similar[turned], drawn.pairs.similar[fresh]])
    return _learn_guess(replace(learners, pairs=judged), differences, similar, position, seed)


def _learn_guess(
    learners: Learners, differences: Floats, similar: Bools, position: int, seed: int
) -> Learners:
    """Every learner that is not taught yet with these pairs, in the units of the kernel."""
    if len(differences) == 0:
        return learners
    examples = Examples.of_pairs(differences, similar, position, seed)
    examples = replace(examples, bounds=itml.percentile_bounds(learners.pairs.inputs))
    ones = np.ones(differences.shape[1])
    learning = catalog.learns_classes(learners.names, seed)
    guess = {
        name: training_stream.advance(learning[name], progress, examples, ones)
        for name, progress in learners.guess.items()
    }
    return replace(learners, guess=guess)


def measure_reproduction(
    learners: Learners,
    points: Floats,
    births: Ints,
    embed: reproduction.Embed,
    position: int,
    seed: int,
) -> Learners:
    """Measure again how reproducible the metrics of generated pairs are."""
    if learners.given:
        return learners
    factor = reproduction.measure(points, births, embed, position, seed)
    return replace(learners, reproduced=factor)


def _find_turned(before: pairs.Pairs, after: pairs.Pairs) -> Bools:
    """Which remembered pairs are of the other kind now, shape (len(after),)."""
    kinds = zip(before.births.tolist(), before.similar.tolist(), strict=True)
    was = {(left, right): kind for (left, right), kind in kinds}
    now = zip(after.births.tolist(), after.similar.tolist(), strict=True)
    changed = [was.get((left, right), kind) != kind for (left, right), kind in now]
    return np.array(changed, dtype=bool)


def rescale(learners: Learners, ratio: Floats, seed: int) -> Learners:
    """The learners after the scale of every feature has grown by ``ratio`` (d,).

    What was taught is in the caller's units, and stays as it is. Metrics of generated pairs start
    again from the pairs that are remembered.
    """
    held = learners.pairs.pairs
    held = replace(held, differences=held.differences / ratio)
    squares = np.einsum("ij,ij->i", held.differences, held.differences)
    inputs = histogram.update(histogram.init(), squares)
    moved = replace(learners, pairs=replace(learners.pairs, pairs=held, inputs=inputs))
    if learners.given:
        return moved
    moved = replace(moved, guess=_fresh(learners.names))
    return _learn_guess(moved, held.differences, held.similar, learners.pairs.position, seed)


# ------------------------------------------------------------------ what is known


def publish(learners: Learners, scale: Floats) -> dict[str, Mahalanobis]:
    """Every metric in the caller's units, with its certificate; ``scale`` is the kernel's."""
    return {name: _metric(learners, name, scale) for name in learners.names}


def _metric(learners: Learners, name: str, scale: Floats) -> Mahalanobis:
    events, key = learners.course, catalog.states_of(name)
    learner = catalog.learner(name, events.seed)
    taught = training_stream.read(events, learner, key)
    if taught is not None:
        return taught[0]
    ones = np.ones(len(scale))
    by_map = name in PAIR_METRICS
    progress = learners.guess.get(key, Progress()) if by_map else Progress()
    state = progress.state
    if state is None:
        state = learner.init(Examples.empty(len(scale), 0, events.seed), ones)
    with np.errstate(all="ignore"):
        measured = learner.measure(state, ones)
    if not by_map:
        told = certificate("labels", progress.totals, measured.told, labelled=0, pairs=0)
        return metric_of(measured, told)
    told = certificate(
        "generated",
        progress.totals,
        measured.told,
        labelled=0,
        pairs=learners.pairs.counts.kept,
        reproduced=learners.reproduced,
    )
    matrix = shrinkage.temper(measured.matrix, learners.reproduced)
    return metric_of(Measured(matrix, scale, measured.info, measured.told), told)
