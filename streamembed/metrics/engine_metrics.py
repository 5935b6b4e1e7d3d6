"""The metrics of an engine: learned from labels and pairs, and until then from its embedding.

Labelled points and pairs that the caller knows go to a training stream
(`streamembed.metrics.training_stream`) in the caller's units. An estimator has the same
one, so that a metric of one name is the same here and there. Until it has learned, a metric is a
guess, in the units of the kernel: features weighed by how well the others predict them, and in
that space what is learned from pairs that the embedding separates.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.metrics import catalog, generated, training_stream
from streamembed.metrics.catalog import PAIR_METRICS
from streamembed.metrics.examples import DISSIMILAR, SIMILAR, Examples
from streamembed.metrics.generated import GeneratedMetrics
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.metrics.metric_roots import build_metric
from streamembed.metrics.training_stream import TrainingStream
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.codec import Count
from streamembed.pairs import predictability
from streamembed.pairs.predictability import FeatureWeights

# Events after which the guess is measured again, at least.
LEAST_RENEWED = 500


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """The state of the metrics of an engine."""

    names: tuple[str, ...]  # what is learned
    # Labelled points and given pairs, in the caller's units; files have it under this name.
    course: TrainingStream
    # How well features are predicted from each other, and what metrics without labels start from.
    weights: FeatureWeights
    # Of pairs of the embedding; None before these, and once all are fitted.
    guess: GeneratedMetrics | None
    measured: Count  # stream position at which weights and guess were measured; 0 before

    @property
    def all_fitted(self) -> bool:
        """Whether every metric that could learn from generated pairs is fitted by now."""
        return all(self.is_fitted(name) for name in self.names if name in PAIR_METRICS)

    def is_fitted(self, name: str) -> bool:
        """Whether a metric has learned from its training stream: one event, or one chunk."""
        learner = catalog.create_learner(name, self.course.seed)
        return (self.course.position if learner.additive else self.course.learned) > 0

    def is_measurement_due(self, position: int, n: int) -> bool:
        """Whether both are to be measured again: after as many events, or n, or 500."""
        return position >= min(2 * self.measured, self.measured + max(n, LEAST_RENEWED))


def init(names: tuple[str, ...], n_features: int, seed: int) -> Learners:
    """Before any pair or label."""
    return Learners(
        names,
        training_stream.init(tuple(catalog.create_learners(names, seed)), n_features, seed),
        predictability.init_feature_weights(n_features),
        None,
        0,
    )


def adopt_stream(learners: Learners, stream: TrainingStream) -> Learners:
    """The learners with a training stream that was learned elsewhere."""
    learners = replace(learners, course=stream)
    return replace(learners, guess=None) if learners.all_fitted else learners


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


def learn_unlabelled(
    learners: Learners, points: Floats, arrivals: Ints, position: int, seed: int
) -> Learners:
    """Weigh features again, and learn from generated pairs what is not fitted.

    Parameters
    ----------
    points, arrivals
        Of the support, in the units of the kernel, and its arrival positions.

    Notes
    -----
    For 600 points of 16 features some .4 s.
    """
    points = points[np.argsort(arrivals, kind="stable")]
    weights = predictability.weigh_features(points, (seed, position))
    unfitted = {
        name: catalog.create_learner(name, seed)
        for name in learners.names
        if name in PAIR_METRICS and not learners.is_fitted(name)
    }
    guess = generated.learn(points * np.sqrt(weights.weights), unfitted, (seed, position, 1))
    return replace(learners, weights=weights, guess=guess, measured=position)


def rescale(learners: Learners) -> Learners:
    """The learners after the scale of features has changed.

    The guess stays what it is in the new units until it is measured with the next chunk;
    training streams are in the caller's units.
    """
    return replace(learners, measured=0)


# ------------------------------------------------------------------ published metrics


def publish(learners: Learners, scale: Floats) -> dict[str, Mahalanobis]:
    """Every metric in the caller's units, with its certificate; ``scale`` is the kernel's."""
    return {name: _read_metric(learners, name, scale) for name in learners.names}


def _read_metric(learners: Learners, name: str, scale: Floats) -> Mahalanobis:
    stream, learner = learners.course, catalog.create_learner(name, learners.course.seed)
    if learners.is_fitted(name):
        return training_stream.read_metric(stream, learner, catalog.get_state_key(name))
    if name in PAIR_METRICS:
        return _publish_unlabelled(learners, name, scale)
    ones = np.ones(len(scale))
    state = learner.init(Examples.empty(len(scale), 0, stream.seed), ones)
    with np.errstate(all="ignore"):
        measured = learner.compute_metric(state, ones)
    facts = {**training_stream.describe_unfitted(), **measured.facts}
    return build_metric(measured.matrix, facts, measured.scale)


def _publish_unlabelled(learners: Learners, name: str, scale: Floats) -> Mahalanobis:
    """A metric without labels; before it is measured plain distance in the units of the kernel."""
    roots, guess = np.sqrt(learners.weights.weights), learners.guess
    status = "weights alone" if learners.measured else "not measured"
    facts = {
        **training_stream.describe_unfitted(),
        "source": "generated",
        "status": status if guess is None else "ok",
        "pairs": 0 if guess is None else guess.pairs,
        "agreement": None if guess is None else guess.agreement,
        "feature_weights": learners.weights.weights,
        "predictability": learners.weights.r2,
        "weighed": learners.weights.share,
        "measured": learners.measured,
    }
    matrix = np.eye(len(roots)) if guess is None else guess.matrices[name]
    return build_metric(matrix * np.outer(roots, roots), facts, scale)
