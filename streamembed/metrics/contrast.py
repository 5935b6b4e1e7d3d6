"""Metrics in closed form from the sums of similar and of dissimilar pairs.

Symbols: delta = x - y, the difference of a pair; C = mean of delta delta^T over similar (close)
pairs, F = over dissimilar (far) ones, (d, d); m = features in which some pair differs.

The sums are the whole state: they add up over chunks and workers, and follow from the moments of
classes without any pair. Two metrics follow from them: `contrast_metric`, the
source's, and `geometric_mean_metric`, always positive definite, for standardised features.

Source: docs/algorithms/contrast.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np

from streamembed.metrics import scatter
from streamembed.metrics.scatter import ClassMoments
from streamembed.metrics.totals import NO_UPDATES, Totals
from streamembed.numeric.arrays import Array, Floats
from streamembed.numeric.linalg import descending_eigh, symmetrise
from streamembed.numeric.pencil import SHARE_FLOOR

# Of tr C / m: eigenvalues of alpha I + C - F below it are raised to it. It limits the
# weight of the best direction to a hundred times that of an average one.
GUARD = 0.01
# Added to C and F of the geometric mean, of their mean diagonal: with fewer pairs than features
# both are singular.
RIDGE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PairSums:
    """Sums over pairs, every pair so far having a weight of 1 or, after `decay`, less."""

    # S_C and S_F, sums of delta delta^T.
    close: Annotated[Floats, "d d"]
    far: Annotated[Floats, "d d"]
    # Sums of the weights.
    n_close: float
    n_far: float


def init(n_features: int) -> PairSums:
    """The sums over no pairs."""
    shape = (n_features, n_features)
    return PairSums(np.zeros(shape), np.zeros(shape), 0.0, 0.0)


def update(sums: PairSums, differences: Floats, similar: Array) -> PairSums:
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


def merge(left: PairSums, right: PairSums) -> PairSums:
    """The sums over the pairs of both; commutative and associative up to rounding."""
    return PairSums(
        left.close + right.close,
        left.far + right.far,
        left.n_close + right.n_close,
        left.n_far + right.n_far,
    )


def from_classes(moments: ClassMoments) -> PairSums:
    """The sums over all pairs of points of equal and of different class, without a pair.

    O(N d^2), instead of O(n^2 d^2); exact (`scatter.sum_all_pairs`).
    """
    return PairSums(*scatter.sum_all_pairs(moments))


Missing = Literal["no close pairs", "no far pairs", "no close spread", "no far spread"]


@dataclass(frozen=True, slots=True, eq=False)
class ContrastInfo:
    """The Info of a metric of pair sums."""

    # ``measured``; ``guarded`` where n_clipped > 0; otherwise what is missing, and the metric is
    # the identity: ``no close pairs``, ``no far pairs``, ``no close spread``, ``no far spread``
    # (pairs that differ in nothing). `contrast_metric` needs no far pairs: its formula holds, and
    # the status says that they are missing.
    status: Literal["measured", "guarded"] | Missing
    n_clipped: int  # eigenvalues that were raised to the floor
    n_constant: int  # features in which no pair differs; the metric ignores them
    # (k,): eigenvalues that the metric is a function of, before the guard, most discriminating
    # first.
    values: Floats
    floor: float  # the value to which they were raised
    totals: Totals = NO_UPDATES  # of all chunks, where a learner has them


@dataclass(frozen=True, slots=True, eq=False)
class _PairMeans:
    """C and F over the m features that vary, these features, and what is missing on each side."""

    close: Floats  # (m, m)
    far: Floats  # (m, m)
    varies: Array  # (d,)
    no_close: Missing | None
    no_far: Missing | None

    def identity(self, missing: Missing) -> tuple[Floats, ContrastInfo]:
        """The fallback: plain distance, and why."""
        return np.eye(len(self.varies)), self.info(np.zeros(0), 0.0, 0, missing)

    def info(
        self, values: Floats, floor: float, n_clipped: int, missing: Missing | None = None
    ) -> ContrastInfo:
        """The Info of a metric whose ``n_clipped`` values were raised to the floor."""
        status = missing or ("guarded" if n_clipped else "measured")
        n_constant = int(np.count_nonzero(~self.varies))
        return ContrastInfo(status, n_clipped, n_constant, values, floor)

    def metric(self, vectors: Floats, weights: Floats) -> Floats:
        """sum_i weights_i v_i v_i^T among all d features; symmetric to the last bit."""
        factor = vectors * np.sqrt(weights)
        full = np.zeros((len(self.varies), len(weights)))
        full[self.varies] = factor
        return full @ full.T


def _compute_means(sums: PairSums) -> _PairMeans:
    """Means over pairs; features in which no pair differs are left out."""
    spread = np.diag(sums.close) + np.diag(sums.far)
    varies = spread > 0
    varying = np.ix_(varies, varies)
    no_close: Missing | None = None
    no_far: Missing | None = None
    if not np.diag(sums.close).any():
        no_close = "no close spread" if sums.n_close > 0 else "no close pairs"
    if not np.diag(sums.far).any():
        no_far = "no far spread" if sums.n_far > 0 else "no far pairs"
    return _PairMeans(
        symmetrise(sums.close[varying]) / (sums.n_close or 1.0),
        symmetrise(sums.far[varying]) / (sums.n_far or 1.0),
        varies,
        no_close,
        no_far,
    )


def contrast_metric(sums: PairSums, alpha: float = 0.01) -> tuple[Floats, ContrastInfo]:
    """M = (alpha I + C - F)^-1 as a metric: eigenvalues below a floor are raised to it first.

    Far pairs are farther apart, so C - F is mostly negative: as printed, the formula is indefinite
    on all seven data sets that it was tried on (docs/algorithms/contrast.md).

    Parameters
    ----------
    alpha
        Positive, in squared units of the data, which should be standardised.

    Returns
    -------
    M, shape (d, d), positive semidefinite; the Info has the eigenvalues of alpha I + C - F,
    ascending, all of them. Without close pairs: the identity. O(d^3).

    Source: Phillips, Metric Learning, section 17.3, "LDA Analog". Differs: 1. The guard, at .01
    of the mean diagonal of C. 2. All of M, whose top the notes take.
    """
    means = _compute_means(sums)
    if means.no_close:
        return means.identity(means.no_close)
    m = len(means.close)
    values, vectors = descending_eigh(alpha * np.eye(m) + means.close - means.far)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = GUARD * float(np.trace(means.close)) / m
    metric = means.metric(vectors, 1.0 / np.maximum(values, floor))
    return metric, means.info(values, floor, int(np.count_nonzero(values < floor)), means.no_far)


def geometric_mean_metric(
    sums: PairSums, t: float = 0.25, ridge: float = RIDGE
) -> tuple[Floats, ContrastInfo]:
    """A = C^-1/2 (C^1/2 F C^1/2)^t C^-1/2, the point at t on the geodesic from C^-1 to F.

    Always positive definite (on the features that vary). At t = 1/2 it solves A C A = F, and
    minimises tr(A C) + tr(A^-1 F). It depends on the units of the features: standardise first.

    Parameters
    ----------
    t
        In [0, 1]. 0 gives C^-1, 1 gives F.
    ridge
        This share of the mean diagonal is added to the diagonals of C and of F; positive where
        there may be fewer pairs than features.

    Returns
    -------
    A, shape (d, d), and the Info, with the eigenvalues of C^1/2 F C^1/2, descending, C and F in
    units of their mean diagonals. Where close or far pairs are missing: the identity. O(d^3).

    Source: Zadeh, Hosseini & Sra (2016), Geometric Mean Metric Learning, ICML. Differs: default
    t = 1/4 (segment .953 for .945 at 1/2); means, not sums, as their counts differ.
    """
    means = _compute_means(sums)
    if missing := means.no_close or means.no_far:
        return means.identity(missing)
    m = len(means.close)
    # in units of their mean diagonals, so that products of C and F do not leave the range of floats
    size_c, size_f = np.trace(means.close) / m, np.trace(means.far) / m
    c, vectors = descending_eigh(means.close / size_c + ridge * np.eye(m))
    floor = SHARE_FLOOR * float(c[0])
    clipped = int(np.count_nonzero(c < floor))  # none with a ridge
    c = np.maximum(c, floor)
    root = (vectors * np.sqrt(c)) @ vectors.T
    inverse_root = (vectors / np.sqrt(c)) @ vectors.T
    values, rotation = descending_eigh(root @ (means.far / size_f + ridge * np.eye(m)) @ root)
    weights = np.maximum(values, 0.0) ** t * (size_c ** (t - 1.0) * size_f**t)
    return means.metric(inverse_root @ rotation, weights), means.info(values, floor, clipped)
