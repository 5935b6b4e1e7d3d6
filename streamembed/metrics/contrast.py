"""The contrast metric (alpha I + C - F)^-1: similar pairs near, dissimilar ones far, in one step.

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
from streamembed.validation import check_real, set_fields

# Of tr C / m: eigenvalues of alpha I + C - F below it are raised to it. It limits the
# weight of the best direction to a hundred times that of an average one.
GUARD = 0.01


def contrast_metric(means: PairMeans, alpha: float = 0.01) -> tuple[Floats, dict[str, object]]:
    """M = (alpha I + C - F)^-1 as a metric: eigenvalues below a floor are raised to it first.

    Far pairs are farther apart, so C - F is mostly negative: as printed, the formula is indefinite
    on all seven data sets that it was tried on (docs/algorithms/contrast.md).

    Parameters
    ----------
    alpha
        Positive, in squared units of the data, which should be standardised.

    Returns
    -------
    M, shape (d, d), positive semidefinite; the facts have the eigenvalues of alpha I + C - F,
    ascending, all of them. Without close pairs: the identity. O(d^3).

    Source: Phillips, Metric Learning, section 17.3, "LDA Analog". Differs: 1. The guard, at .01
    of the mean diagonal of C. 2. All of M, whose top the notes take.
    """
    if means.no_close:
        return means.build_identity(means.no_close)
    m = len(means.close)
    values, vectors = descending_eigh(alpha * np.eye(m) + means.close - means.far)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = GUARD * float(np.trace(means.close)) / m
    metric = means.build_metric(vectors, 1.0 / np.maximum(values, floor))
    return metric, means.describe(
        values, floor, int(np.count_nonzero(values < floor)), means.no_far
    )


@dataclass(frozen=True)
class ContrastLearner(MomentLearner):
    """See `streamembed.estimators.ContrastMetric`."""

    alpha: float = 0.01

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, alpha=check_real("alpha", self.alpha, 1e-12, 1e12))

    def compute_metric(self, state: MomentState, scale: Floats) -> Measured:
        """The metric of features in deviations."""
        matrix, facts = contrast_metric(compute_means(state, scale), self.alpha)
        return Measured(matrix, scale, facts)
