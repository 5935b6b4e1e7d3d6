"""Metrics of features in far units, factored without losing the digits of the small ones.

Of features in units of 1e9 and 1e-9 the matrix has entries that differ by 1e36: its eigenvectors
would lose the smaller ones. Scaled to a unit diagonal first, every feature keeps its digits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh


def build_metric(matrix: Floats, certificate: Any, scale: Floats | float = 1.0) -> Mahalanobis:
    """The metric in the caller's units, of a matrix for features divided by ``scale``."""
    balanced, size = _scale_to_unit_diagonal(matrix)
    return Mahalanobis.of(balanced, certificate=certificate).unscaled(scale / size)


def compute_root(matrix: Floats) -> Floats:
    """R, (d, d), with R R^T = A: x R are points whose Euclidean distances are the metric's.

    S (S^-1 A S^-1)^1/2 with S the roots of the diagonal of A. It changes no more than the
    matrix does, where eigenvectors would flip and rotate: points mapped now and later are
    comparable.

    Examples
    --------
    >>> import numpy as np
    >>> compute_root(np.diag([4.0, 0.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    balanced, size = _scale_to_unit_diagonal(matrix)
    values, vectors = descending_eigh(balanced)
    symmetric_root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return size[:, None] * symmetric_root


def _scale_to_unit_diagonal(matrix: Floats) -> tuple[Floats, Floats]:
    """The matrix with a unit diagonal (0 where it is 0), and the roots of its own, (d,)."""
    size = np.sqrt(np.maximum(np.diag(matrix), 0.0))
    size[size == 0] = 1.0
    return matrix / size / size[:, None], size
