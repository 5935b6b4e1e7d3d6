"""The metric between C^-1 and F: similar pairs shrunk, dissimilar ones stretched.

Symbols: C, F as in `streamembed.metrics.class_moments`; m = features in which some pair differs.

Source: docs/algorithms/contrast.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.metrics.class_moments import MomentLearner, MomentState, PairMeans, compute_means
from streamembed.metrics.learner import Measured
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.numeric.pencil import SHARE_FLOOR
from streamembed.validation import check_real, set_fields

# Added to C and F, of their mean diagonal: with fewer pairs than features both are singular.
RIDGE = 1e-3


def geometric_mean_metric(
    means: PairMeans, t: float = 0.25, ridge: float = RIDGE
) -> tuple[Floats, dict[str, object]]:
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
    A, shape (d, d), and the facts, with the eigenvalues of C^1/2 F C^1/2, descending, C and F in
    units of their mean diagonals. Where close or far pairs are missing: the identity. O(d^3).

    Source: Zadeh, Hosseini & Sra (2016), Geometric Mean Metric Learning, ICML. Differs: default
    t = 1/4 (segment .953 for .945 at 1/2); means, not sums, as their counts differ.
    """
    if missing := means.no_close or means.no_far:
        return means.build_identity(missing)
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
    return means.build_metric(inverse_root @ rotation, weights), means.describe(
        values, floor, clipped
    )


@dataclass(frozen=True)
class GeometricMeanLearner(MomentLearner):
    """See `streamembed.estimators.GeometricMeanMetric`."""

    t: float = 0.25

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, t=check_real("t", self.t, 0.0, 1.0))

    def compute_metric(self, state: MomentState, scale: Floats) -> Measured:
        """The metric of features in deviations."""
        matrix, facts = geometric_mean_metric(compute_means(state, scale), self.t)
        return Measured(matrix, scale, facts)
