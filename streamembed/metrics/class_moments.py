"""Learners whose state is sums, exact and mergeable, of which the metric is a closed form.

Nothing is sampled: from labels, all pairs of the stream count, by way of class moments
(`streamembed.metrics.scatter`); given pairs count beside them. So neither the order of the events
nor their chunks matter, and the metric includes what waits for its chunk.

Symbols: delta = x - y, the difference of a pair; S_C, S_F = sums of delta delta^T over similar
(close) and over dissimilar (far) pairs, C, F = their means, (d, d).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from streamembed.metrics import drawn_pairs, scatter
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import MetricLearner
from streamembed.metrics.scatter import ClassMoments, Scatters
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import symmetrise
from streamembed.numeric.pencil import generalised_eigh
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs


@dataclass(frozen=True, slots=True, eq=False)
class PairSums:
    """Sums over pairs, each counting the same."""

    # S_C and S_F, sums of delta delta^T.
    close: Annotated[Floats, "d d"]
    far: Annotated[Floats, "d d"]
    # How many of either.
    n_close: float
    n_far: float


def init_sums(n_features: int) -> PairSums:
    """The sums over no pairs."""
    shape = (n_features, n_features)
    return PairSums(np.zeros(shape), np.zeros(shape), 0.0, 0.0)


def update_sums(sums: PairSums, differences: Floats, similar: Array) -> PairSums:
    """The sums with these pairs too.

    Parameters
    ----------
    differences
        delta, shape (n, d), one pair a row; of a pair of equal points a row of zeros, which
        counts as a pair.
    similar
        Shape (n,), booleans.

    Returns
    -------
    New sums; the old ones are untouched. O(n d^2).
    """
    similar = np.asarray(similar, dtype=bool)
    close, far = differences[similar], differences[~similar]
    return PairSums(
        sums.close + close.T @ close,
        sums.far + far.T @ far,
        sums.n_close + len(close),
        sums.n_far + len(far),
    )


def merge_sums(left: PairSums, right: PairSums) -> PairSums:
    """The sums over the pairs of both; commutative and associative up to rounding."""
    return PairSums(
        left.close + right.close,
        left.far + right.far,
        left.n_close + right.n_close,
        left.n_far + right.n_far,
    )


@dataclass(frozen=True, slots=True, eq=False)
class MomentState:
    """Moments of every class, sums over the given pairs, and a labelled sample."""

    moments: ClassMoments
    pairs: PairSums
    sample: Reservoirs | None


class MomentLearner(MetricLearner):
    """A metric that is a closed form of class moments and pair sums."""

    additive: ClassVar[bool] = True
    seed: int = 0

    @property
    def keeps_sample(self) -> bool:
        """Whether a labelled sample is kept."""
        return False

    def init(self, examples: Examples, scale: Floats) -> MomentState:
        """The sums over nothing."""
        sample = reservoir.init(drawn_pairs.CAPACITY) if self.keeps_sample else None
        return MomentState(scatter.init(len(scale)), init_sums(len(scale)), sample)

    def update(self, state: MomentState, examples: Examples) -> tuple[MomentState, str]:
        """The sums with these events."""
        sample, points, classes = state.sample, examples.points, examples.classes
        if sample is not None:
            sample, _ = reservoir.update(sample, points, classes, examples.generator())
        after = MomentState(
            scatter.update(state.moments, points, classes),
            update_sums(state.pairs, examples.differences, examples.similar),
            sample,
        )
        return after, "added"

    def merge(self, left: MomentState, right: MomentState, indices: Ints) -> MomentState:
        """The sums over the events of both."""
        n_right = right.moments.n_classes
        n_classes = max(left.moments.n_classes, int(indices[:n_right].max(initial=-1)) + 1)
        renumbered = scatter.renumber(right.moments, indices[:n_right], n_classes)
        sample = left.sample
        if sample is not None and right.sample is not None:
            sample = drawn_pairs.merge_samples(sample, right.sample, indices, self.seed)
        return MomentState(
            scatter.merge(left.moments, renumbered), merge_sums(left.pairs, right.pairs), sample
        )


@dataclass(frozen=True, slots=True, eq=False)
class PairMeans:
    """C and F over the m features that vary, these features, and what is missing on each side."""

    close: Floats  # (m, m)
    far: Floats  # (m, m)
    varies: Array  # (d,)
    # ``no close pairs``, ``no close spread`` (pairs that differ in nothing), or None; of far pairs.
    no_close: str | None
    no_far: str | None

    def describe(
        self, values: Floats, floor: float, n_clipped: int, missing: str | None = None
    ) -> dict[str, object]:
        """The facts of a metric.

        Parameters
        ----------
        values
            The eigenvalues that the metric is a function of, most discriminating first, (k,).
        floor
            The value to which ``n_clipped`` of them were raised.
        missing
            What is missing, else the status is ``measured``, or ``guarded`` if any was raised.
        """
        return {
            "status": missing or ("guarded" if n_clipped else "measured"),
            "n_clipped": n_clipped,
            "n_constant": int(np.count_nonzero(~self.varies)),  # the metric ignores these features
            "values": values,
            "floor": floor,
        }

    def build_identity(self, missing: str) -> tuple[Floats, dict[str, object]]:
        """Plain distance, and why."""
        return np.eye(len(self.varies)), self.describe(np.zeros(0), 0.0, 0, missing)

    def build_metric(self, vectors: Floats, weights: Floats) -> Floats:
        """sum_i weights_i v_i v_i^T among all d features; symmetric to the last bit."""
        full = np.zeros((len(self.varies), len(weights)))
        full[self.varies] = vectors * np.sqrt(weights)
        return full @ full.T


def sum_pairs(state: MomentState) -> PairSums:
    """The sums over all pairs of labelled points, and over the given pairs."""
    return merge_sums(PairSums(*scatter.sum_all_pairs(state.moments)), state.pairs)


def compute_means(state: MomentState, scale: Floats) -> PairMeans:
    """Means over all pairs of features in deviations; features in which no pair differs are out."""
    return average_pairs(sum_pairs(state), scale)


def average_pairs(sums: PairSums, scale: Floats | float = 1.0) -> PairMeans:
    """C and F of features divided by ``scale``."""
    size = np.outer(scale, scale)
    close, far = sums.close / size, sums.far / size
    varies = np.diag(close) + np.diag(far) > 0
    varying = np.ix_(varies, varies)
    no_close = no_far = None
    if not np.diag(close).any():
        no_close = "no close spread" if sums.n_close > 0 else "no close pairs"
    if not np.diag(far).any():
        no_far = "no far spread" if sums.n_far > 0 else "no far pairs"
    return PairMeans(
        symmetrise(close[varying]) / (sums.n_close or 1.0),
        symmetrise(far[varying]) / (sums.n_far or 1.0),
        varies,
        no_close,
        no_far,
    )


def join_scatters(state: MomentState) -> Scatters:
    """Within and between scatter of labels and pairs; a pair weighs as much as a point.

    Half the mean over similar pairs is a scatter within, as half the mean over dissimilar ones is
    within plus between (`scatter.compute_scatters`); of the difference the positive part is taken,
    in the basis of both, so that units and linear maps of the data do not matter.
    """
    labelled = scatter.compute_scatters(state.moments)
    sums = state.pairs
    if sums.n_close + sums.n_far == 0:
        return labelled
    mass = float(state.moments.masses.sum()) if labelled.n_classes else 0.0
    close = 0.5 * sums.close / (sums.n_close or 1.0)
    far = 0.5 * sums.far / (sums.n_far or 1.0)
    total = mass + sums.n_close
    within = (mass * labelled.within + sums.n_close * close) / total if total else far
    offsets = np.zeros((0, len(within)))  # (p, d)
    if sums.n_close and sums.n_far:
        shares, vectors, _ = generalised_eigh(close, close + far)
        separating = shares < 0.5
        offsets = np.sqrt(1.0 - 2.0 * shares[separating])[:, None] * (
            vectors[:, separating].T @ (close + far)
        )
    mass = mass if labelled.n_classes >= 2 else 0.0
    total = mass + (sums.n_far if sums.n_close else 0.0)
    joined = np.concatenate(
        [
            np.sqrt(mass / (total or 1.0)) * labelled.offsets,
            np.sqrt(1.0 - mass / (total or 1.0)) * offsets,
            np.zeros((1, len(within))),  # p directions are those of p + 1 classes
        ]
    )
    rank = len(offsets) + max(labelled.n_classes - 1, 0)
    return Scatters(within, joined, min(rank, len(within)) + 1, labelled.n_thin)
