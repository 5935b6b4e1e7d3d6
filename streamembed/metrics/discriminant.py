"""Linear discriminant analysis from the moments of classes: the directions that separate them.

Source: docs/algorithms/discriminant.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamembed.metrics import fenn, scatter
from streamembed.metrics.class_moments import MomentLearner, MomentState, join_scatters
from streamembed.metrics.learner import Measured
from streamembed.metrics.scatter import ClassMoments
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import symmetrise
from streamembed.numeric.pencil import RANK_CUT, SHARE_FLOOR, fix_signs, scaled_identity, whiten

# Squares of numbers near this, or larger, exceed double precision.
LARGEST_ROOT = 1e153


@dataclass(frozen=True, slots=True, eq=False)
class Discriminant:
    """Directions that separate the classes, with their ratios and status."""

    # (d, k): u_1 .. u_k, k <= N - 1, best first, with u^T W u = 1 and u_i^T W u_j = 0 (W the within
    # scatter); the largest loading, in units of a feature's spread, is positive.
    directions: Floats
    # (k,): u^T B u / u^T W u, descending; at most 1 / SHARE_FLOOR = 5e5, which stands for no spread
    # within the classes.
    ratios: Floats
    rank: int  # directions in which the points vary at all
    n_classes: int  # classes seen; those of one point count
    n_constant: int  # features without any spread; all directions ignore them
    # ``measured``; ``no spread within`` where a direction separates the classes perfectly (also
    # where there are more features than points): its length is set by the floor of the ratio; ``one
    # class``; ``equal means``. The last two have no direction.
    status: Literal["measured", "no spread within", "one class", "equal means"]


def decompose(moments: ClassMoments) -> Discriminant:
    """Directions u that maximise u^T B u / u^T W u, each uncorrelated with those before.

    B = (1/n) sum_c n_c (m_c - m)(m_c - m)^T and W = (1/n) sum_c M_c, over all classes seen.

    Notes
    -----
    Whitened by W + B with its columns scaled (`pencil.whiten`), the offsets of the means have
    singular values sigma_j, and sigma_j^2 = B / (W + B) in [0, 1]: defined where W is singular,
    and at most N - 1 of them differ from 0. O(N d^2 + d^3).

    Source: Phillips, Metric Learning, section 17.2. Differs: 1. W^-1 B is not symmetric and does
    not exist with more features than points; the pair (B, W + B) has the same vectors in the
    same order. 2. The notes call the vectors an orthogonal basis: they are orthogonal in W, not
    in the plain product.
    """
    moments = scatter.drop_rounding(moments)
    n_observed = int(np.count_nonzero(moments.masses > 0))
    d, total = moments.n_features, max(float(moments.masses.sum()), np.finfo(np.float64).tiny)
    within = symmetrise(moments.scatters.sum(axis=0) / total)
    offsets = scatter.compute_weighted_offsets(moments) / np.sqrt(total)
    whitening = whiten(within + offsets.T @ offsets)
    no_directions = np.zeros((d, 0)), np.zeros(0), whitening.rank, n_observed, whitening.n_constant
    if n_observed < 2:
        return Discriminant(*no_directions, "one class")

    _, sigma, rotation = np.linalg.svd(offsets @ whitening.basis, full_matrices=False)
    k = min(n_observed - 1, int(np.count_nonzero(sigma**2 > RANK_CUT)))
    if k == 0:
        return Discriminant(*no_directions, "equal means")
    directions = fix_signs(whitening.basis @ rotation[:k].T, whitening.scale)
    share = np.einsum("ij,ij->j", directions, within @ directions)
    floored = np.maximum(share, SHARE_FLOOR)
    return Discriminant(
        directions / np.sqrt(floored),
        sigma[:k] ** 2 / floored,
        whitening.rank,
        n_observed,
        whitening.n_constant,
        "no spread within" if np.any(share < SHARE_FLOOR) else "measured",
    )


def compute_metric(moments: ClassMoments) -> tuple[Floats, Discriminant]:
    """The metric A = sum_j u_j u_j^T of the discriminant directions, shape (d, d), rank k.

    With one class, or equal means, there is no direction: A is `pencil.scaled_identity` of the
    within scatter, and the status says so.
    """
    discriminant = decompose(moments)
    if discriminant.directions.shape[1]:
        # in units of 1e-150 entries exceed double precision: the metric is then a smaller multiple
        largest = np.abs(discriminant.directions).max() * np.sqrt(discriminant.directions.shape[1])
        directions = discriminant.directions * min(1.0, LARGEST_ROOT / largest)
        return directions @ directions.T, discriminant
    moments = scatter.drop_rounding(moments)
    total = max(float(moments.masses.sum()), scatter.LEAST_MASS)
    return scaled_identity(moments.scatters.sum(axis=0) / total), discriminant


@dataclass(frozen=True)
class DiscriminantLearner(MomentLearner):
    """See `streamembed.estimators.DiscriminantAnalysis`; nothing is scaled."""

    def compute_metric(self, state: MomentState, scale: Floats) -> Measured:
        """Distance along the directions that separate the classes."""
        if state.pairs.n_close + state.pairs.n_far == 0:
            matrix, own = compute_metric(state.moments)
            directions, ratios, status = own.directions, own.ratios, str(own.status)
        else:
            spectrum = fenn.compute_spectrum(join_scatters(state))
            k = spectrum.n_informative
            shares = np.maximum(spectrum.energies[:k], SHARE_FLOOR)
            separating = shares < 1.0 - SHARE_FLOOR
            directions = (spectrum.directions[:, :k] / np.sqrt(shares))[:, separating]
            ratios, status = 1.0 / shares[separating] - 1.0, "pairs"
            matrix = directions @ directions.T
            if directions.shape[1] == 0:
                matrix = scaled_identity(spectrum.within)
        facts = {"status": status, "directions": directions, "ratios": ratios}
        return Measured(matrix, np.ones(len(scale)), facts)
