"""The edges of a graph of neighbours: a sparse symmetric matrix of weights.

Symbols: n = points, near, d2 = (n, K) lists of the nearest others, w_ij = weight of an edge.

The definition, once for all weights: i and j are joined where either has the other in its list,
and no point is joined to itself.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from streamembed.numeric.arrays import Array, Floats, find_last

# The neighbour whose distance is a point's own scale; a point among duplicates has the scale 0,
# and gets this share of the median one.
SCALE_NEIGHBOR = 7
LEAST_SCALE = 0.1
# What a weight that underflows is stored as: the edge is one of the lists, and none of the walk.
VANISHED = float(np.nextafter(0.0, 1.0))

Lists = tuple[Array, Floats]  # near, d2: -1 and inf behind the end of a list


def compute_local_scales(d2: Floats) -> Floats:
    """s, shape (n,): the distance to the 7th neighbour, or to the last of a shorter list.

    Parameters
    ----------
    d2
        Squared distances of the lists, ascending, shape (n, K); inf behind the end of a list.

    Returns
    -------
    Positive, at least a tenth of the median of those that are. Where all are 0, as of points that
    have seven duplicates each, the median of what is positive in the lists.
    """
    scales = np.sqrt(find_last(d2[:, :SCALE_NEIGHBOR]))
    positive, share = scales[scales > 0], LEAST_SCALE
    if not len(positive):
        positive, share = np.sqrt(d2[(d2 > 0) & np.isfinite(d2)]), 1.0
    floor = share * float(np.median(positive)) if len(positive) else 1.0
    return np.maximum(scales, floor)


def join_lists(lists: Lists, weights: str, scale: float) -> csr_array:
    """The graph in which i and j are joined where either lists the other, (n, n). O(n K).

    Parameters
    ----------
    weights
        ``binary`` (1), ``heat`` (exp(-d2 / scale)) or ``self_tuning`` (exp(-d2 / (scale s_i s_j)),
        see `compute_local_scales`).
    scale
        Positive; its meaning depends on ``weights``.

    Returns
    -------
    Rows are ascending, and weights the same bits from either end.

    Examples
    --------
    >>> import numpy as np
    >>> lists = np.array([[1], [0], [1]]), np.array([[1.0], [1.0], [4.0]])
    >>> join_lists(lists, "binary", 1.0).toarray().sum(axis=1).tolist()
    [1.0, 2.0, 1.0]
    """
    near, d2 = lists
    n = len(near)
    is_neighbor = near >= 0
    lengths = is_neighbor.sum(axis=1)
    ends, d2_known = near[is_neighbor], d2[is_neighbor]
    # of the lists' own width: one array of wider integers would widen the whole graph
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(near.dtype)
    scales = compute_local_scales(d2) if weights == "self_tuning" else None
    heads = np.repeat(np.arange(n), lengths)
    values = _weigh(d2_known, heads, ends, weights, scale, scales)
    return _join_either_way(csr_array((values, ends, starts), shape=(n, n)))


def join_edges(edges: tuple[Array, Array, Floats], n: int, weights: str, scale: float) -> csr_array:
    """The graph of given edges: heads, ends and d2, each (e,), once in one or both directions.

    Weights are ``binary`` or ``heat``.
    """
    heads, ends, d2 = edges
    values = _weigh(d2, heads, ends, weights, scale, None)
    return _join_either_way(coo_array((values, (heads, ends)), shape=(n, n)).tocsr())


def _join_either_way(directed: csr_array) -> csr_array:
    directed.sort_indices()
    return directed.maximum(directed.T.tocsr()).tocsr()


def _weigh(
    d2: Floats, heads: Array, ends: Array, weights: str, scale: float, scales: Floats | None
) -> Floats:
    """w of every edge, the same bits for (i, j) and (j, i)."""
    if weights == "binary":
        return np.ones(len(d2))
    divisor: float | Floats = scale
    if weights == "self_tuning":
        assert scales is not None
        divisor = scale * (scales[heads] * scales[ends])
    with np.errstate(under="ignore"):
        values: Floats = np.maximum(np.exp(-d2 / divisor), VANISHED)
    return values
