"""Ranks of values, ties by their mean; scipy.stats, which has them, takes a second to import."""

from __future__ import annotations

import numpy as np

from streamembed.numeric.arrays import Floats


def rank_columns(values: Floats) -> Floats:
    """The rank of every entry in its column, from 1, shape (n, d); equal ones have their mean.

    Examples
    --------
    >>> import numpy as np
    >>> rank_columns(np.array([[5.0], [1.0], [5.0], [2.0]]))[:, 0].tolist()
    [3.5, 1.0, 3.5, 2.0]
    """
    ranks = np.empty(values.shape)
    for j, column in enumerate(values.T):
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, j] = (np.cumsum(counts) - 0.5 * (counts - 1))[place]
    return ranks
