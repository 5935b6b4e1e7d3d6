"""The metrics of an engine: learned from labels and pairs, and until then from its embedding.

Labelled points and pairs that the caller knows go to a training stream
(`streamembed.metric_learners.training_stream`) in the caller's units. An estimator has the same
one, so that a metric of one name is the same here and there. Pairs that the embedding separates
(`learn_generated`) are a guess beside it, in the units of the kernel: a metric is the guess until
its training stream has learned.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.metric_learners import catalog, training_stream
from streamembed.metric_learners.catalog import PAIR_METRICS
from streamembed.metric_learners.labelled_examples import DISSIMILAR, SIMILAR, Examples
from streamembed.metric_learners.learner import build_certificate
from streamembed.metric_learners.training_stream import LearnerProgress, TrainingStream
from streamembed.metric_learning import itml
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.metric_learning.metric_roots import build_metric
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.pairs import metric_shrinkage, pair_memory, reproduction, thresholds


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """The state of the metrics of an engine."""

    names: tuple[str, ...]  # what is learned
    # Labelled points and given pairs, in the caller's units; files have it under this name.
    course: TrainingStream
    pairs: pair_memory.State  # pairs that the embedding separates, in the units of the kernel
    # Progress of the learners with these; empty once every metric is fitted.
    guess: dict[str, LearnerProgress]
    # How far metrics of generated pairs reproduce, see `streamembed.pairs.reproduction`.
    reproduced: float

    @property
    def all_fitted(self) -> bool:
        """Whether every metric that could learn from generated pairs is fitted by now."""
        return all(self.is_fitted(name) for name in self.names if name in PAIR_METRICS)

    def is_fitted(self, name: str) -> bool:
        """Whether a metric has learned from its training stream: one event, or one chunk."""
        learner = catalog.create_learner(name, self.course.seed)
        return (self.course.position if learner.additive else self.course.learned) > 0


def init(names: tuple[str, ...], n_features: int, seed: int) -> Learners:
    """Before any pair or label."""
    return Learners(
        names,
        training_stream.init(tuple(catalog.create_learners(names, seed)), n_features, seed),
        pair_memory.init(n_features),
        _init_guess(names),
        0.0,
    )


def _init_guess(names: tuple[str, ...]) -> dict[str, LearnerProgress]:
    return {
        catalog.get_state_key(name): LearnerProgress() for name in names if name in PAIR_METRICS
    }


def adopt_stream(learners: Learners, stream: TrainingStream) -> Learners:
    """The learners with a training stream that was learned elsewhere."""
    learners = replace(learners, course=stream)
    return replace(learners, guess={}) if learners.all_fitted else learners


# ------------------------------------------------------------------ labels and given pairs


def learn_labels(learners: Learners, points: Floats, classes: Ints, seed: int) -> Learners:
    """Learn the labelled points of a chunk, raw (c, d); class -1 is unknown, and left out.

    Parameters
    ----------
    classes
        Shape (c,), indices from 0.
    """
    is_labelled = classes >= 0
    if not is_labelled.any():
        return learners
    first = points[is_labelled]
    return _learn(learners, first, np.zeros_like(first), classes[is_labelled], seed)


def learn_pairs(
    learners: Learners, first: Floats, second: Floats, similar: Bools, seed: int
) -> Learners:
    """Learn given pairs: both ends, raw (p, d), and whether they are similar (p,)."""
    codes = np.where(similar, SIMILAR, DISSIMILAR).astype(np.int64)
    return _learn(learners, first, second, codes, seed)


def _learn(learners: Learners, first: Floats, second: Floats, codes: Ints, seed: int) -> Learners:
    by_name = catalog.create_learners(learners.names, seed)
    after = training_stream.extend(
        learners.course, by_name, first, second, codes, training_stream.CHUNK_SIZE
    )
    return adopt_stream(learners, after)


def flush(learners: Learners, seed: int) -> Learners:
    """The learners with all pending events learned, as a short chunk; or the same object."""
    if not learners.course.waiting.count:
        return learners
    by_name = catalog.create_learners(learners.names, seed)
    return adopt_stream(learners, training_stream.flush(learners.course, by_name))


# ------------------------------------------------------------------ generated pairs


def learn_generated(
    learners: Learners,
    coordinates: Floats,
    points: Floats,
    arrivals: Ints,
    masses: Floats,
    position: int,
    seed: int,
) -> Learners:
    """Draw pairs of the support, judge them by the embedding, and learn those that are clear.

    Parameters are those of `streamembed.pairs.thresholds.update`; ``arrivals`` are the arrival
    positions of the support. Remembered pairs are judged again; one that is of the other kind now
    is learned again as that. Once every metric is fitted, this does nothing.
    """
    if learners.all_fitted:
        return learners
    settings = thresholds.PairSettings(seed=seed)
    pairs = thresholds.update(
        learners.pairs, coordinates, points, arrivals, masses, position, settings
    )
    is_new, is_flipped = pair_memory.compare(learners.pairs.pairs, pairs.pairs)
    changed = pairs.pairs.take(is_new | is_flipped)
    learners = replace(learners, pairs=pairs)
    return _learn_guess(learners, changed.differences, changed.similar, position, seed)


def _learn_guess(
    learners: Learners, differences: Floats, similar: Bools, position: int, seed: int
) -> Learners:
    """Every learner that is not fitted yet with these pairs, in the units of the kernel."""
    if len(differences) == 0:
        return learners
    examples = Examples.of_pairs(differences, similar, position, seed)
    examples = replace(examples, bounds=itml.compute_percentile_bounds(learners.pairs.inputs))
    ones = np.ones(differences.shape[1])
    by_name = catalog.create_learners(learners.names, seed)
    guess = {
        name: training_stream.advance(by_name[name], progress, examples, ones)
        for name, progress in learners.guess.items()
    }
    return replace(learners, guess=guess)


def measure_reproduction(
    learners: Learners,
    points: Floats,
    arrivals: Ints,
    embed: reproduction.Embed,
    position: int,
    seed: int,
) -> Learners:
    """Measure again how reproducible the metrics of generated pairs are."""
    if learners.all_fitted:
        return learners
    factor = reproduction.measure(points, arrivals, embed, position, seed)
    return replace(learners, reproduced=factor)


def rescale(learners: Learners, ratio: Floats, seed: int) -> Learners:
    """The learners after the scale of every feature has grown by ``ratio`` (d,).

    Training streams are in the caller's units, and stay as they are. Metrics of generated pairs
    start from scratch with the pairs that are remembered.
    """
    pairs = learners.pairs.pairs
    pairs = replace(pairs, differences=pairs.differences / ratio)
    squares = np.einsum("ij,ij->i", pairs.differences, pairs.differences)
    inputs = histogram.update(histogram.init(), squares)
    rescaled = replace(learners, pairs=replace(learners.pairs, pairs=pairs, inputs=inputs))
    if learners.all_fitted:
        return rescaled
    rescaled = replace(rescaled, guess=_init_guess(learners.names))
    return _learn_guess(rescaled, pairs.differences, pairs.similar, learners.pairs.position, seed)


# ------------------------------------------------------------------ published metrics


def publish(learners: Learners, scale: Floats) -> dict[str, Mahalanobis]:
    """Every metric in the caller's units, with its certificate; ``scale`` is the kernel's."""
    return {name: _read_metric(learners, name, scale) for name in learners.names}


def _read_metric(learners: Learners, name: str, scale: Floats) -> Mahalanobis:
    stream, key = learners.course, catalog.get_state_key(name)
    learner = catalog.create_learner(name, stream.seed)
    fitted = training_stream.read_metric(stream, learner, key)
    if fitted is not None:
        return fitted[0]
    ones = np.ones(len(scale))
    uses_pairs = name in PAIR_METRICS
    progress = learners.guess.get(key, LearnerProgress()) if uses_pairs else LearnerProgress()
    state = progress.state
    if state is None:
        state = learner.init(Examples.empty(len(scale), 0, stream.seed), ones)
    with np.errstate(all="ignore"):
        measured = learner.measure(state, ones)
    if not uses_pairs:
        facts = build_certificate("labels", progress.totals, measured.summary, labelled=0, pairs=0)
        return build_metric(measured.matrix, facts, measured.scale)
    facts = build_certificate(
        "generated",
        progress.totals,
        measured.summary,
        labelled=0,
        pairs=learners.pairs.counts.kept,
        reproduced=learners.reproduced,
    )
    matrix = metric_shrinkage.temper(measured.matrix, learners.reproduced)
    return build_metric(matrix, facts, scale)
