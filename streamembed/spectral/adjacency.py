"""The edges of a graph of neighbours: a sparse symmetric matrix of weights, edited row by row.

Symbols: n = points, near, d2 = (n, K) lists of the nearest others, w_ij = weight of an edge.

The definition, once for all weights: i and j are joined where either has the other in its list,
and no point is joined to itself. A chunk of ten changes the lists of a few hundred points, so only
edges at these are looked at. Matrices are values: no update writes into one.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array, csr_array

from streamembed.geometry.lists import find_last
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

# The neighbour whose distance is a point's own scale; a point among duplicates has the scale 0,
# and gets this share of the median one.
SCALE_NEIGHBOR = 7
LEAST_SCALE = 0.1
# Share of the lists above which all edges are made from scratch, which costs no more: of binary
# weights, and of those that are looked up and computed for all edges of a changed list.
MOST_CHANGED, MOST_WEIGHED = 1 / 3, 1 / 12

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
    floored: Floats = np.maximum(scales, floor)
    return floored


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
    graph: csr_array = directed.maximum(directed.T.tocsr()).tocsr()
    return graph


def replace_edges(
    graph: csr_array, before: Lists, after: Lists, changed: Ints, weights: str, scale: float
) -> tuple[csr_array, Ints | None]:
    """The graph of lists ``after``, from that of lists ``before``.

    Parameters
    ----------
    changed
        Points whose lists differ, ascending: those beyond the lists before among them.

    Returns
    -------
    graph, touched
        The same bits as `join_lists`. ``touched`` are the rows that differ, ascending, or some
        more; None where all may. O(c K^2) for c changed lists, beside copies of the graph.
    """
    near, n, n_before = after[0], len(after[0]), len(before[0])
    if len(changed) > (MOST_CHANGED if weights == "binary" else MOST_WEIGHED) * n:
        return join_lists(after, weights, scale), None
    old = np.full((len(changed), near.shape[1]), -1, dtype=near.dtype)
    old[changed < n_before] = before[0][changed[changed < n_before]]
    new = near[changed]
    is_common = (old[:, :, None] == new[:, None, :]) & (new >= 0)[:, None, :]
    lost, column = np.nonzero((old >= 0) & ~is_common.any(axis=2))
    lost, left = changed[lost], old[lost, column]
    won, column = np.nonzero((new >= 0) & ~is_common.any(axis=1))
    won, joined = changed[won], new[won, column]
    # an edge goes where neither lists the other any more, and is new where neither did before
    is_removed = ~_is_listed(near, left, lost)
    is_new = ~_is_listed(before[0], joined, won)
    gone, added = _sort_edges(lost, left, is_removed, n), _sort_edges(won, joined, is_new, n)
    starts = np.append(graph.indptr, np.full(n - n_before, graph.indptr[-1], graph.indptr.dtype))
    place = _locate(starts, graph.indices, *gone)
    place_added = _locate(starts, graph.indices, *added)
    place_added -= np.searchsorted(place, place_added)  # among those that stay
    ends = np.insert(np.delete(graph.indices, place), place_added, added[1])
    starts = starts + _count_before(added[0], n) - _count_before(gone[0], n)
    rows = np.concatenate([gone[0], added[0]])
    if weights == "binary":
        values = np.ones(len(ends))
    else:
        values = np.insert(np.delete(graph.data, place), place_added, 1.0)
        scales = None
        if weights == "self_tuning":
            scales, earlier = compute_local_scales(after[1]), compute_local_scales(before[1])
            changed = np.union1d(changed, np.flatnonzero(scales[:n_before] != earlier))
        counts = np.diff(starts)[changed]
        heads = np.repeat(changed, counts)
        first = np.repeat(starts[changed] - (np.cumsum(counts) - counts), counts)
        entries = np.arange(len(heads)) + first
        others = ends[entries]
        d2 = _find_lengths(after, heads, others)
        values[entries] = _weigh(d2, heads, others, weights, scale, scales)
        values[_locate(starts, ends, others, heads)] = values[entries]
        rows = np.concatenate([rows, changed, others])
    is_touched = np.zeros(n, dtype=bool)
    is_touched[rows] = True
    return csr_array((values, ends, starts), shape=(n, n)), np.flatnonzero(is_touched)


def _is_listed(near: Array, heads: Ints, others: Ints) -> Bools:
    """Whether each of ``heads`` lists the other."""
    is_inside = heads < len(near)
    listed: Bools = (near[np.where(is_inside, heads, 0)] == others[:, None]).any(axis=1)
    return listed & is_inside


def _sort_edges(heads: Ints, ends: Ints, chosen: Bools, n: int) -> tuple[Ints, Ints]:
    """Chosen edges in both directions, each once, ascending."""
    heads, ends = heads[chosen].astype(np.int64), ends[chosen].astype(np.int64)
    keys = np.unique(np.concatenate([heads * n + ends, ends * n + heads]))
    return keys // n, keys % n


def _count_before(rows: Ints, n: int) -> Ints:
    """How many entries of ``rows`` come before each row's start, shape (n + 1,)."""
    return np.cumsum(np.bincount(rows + 1, minlength=n + 1), dtype=np.int32)


def _locate(starts: Ints, ends: Ints, rows: Ints, columns: Ints) -> Ints:
    """Where entries are, or belong, in ascending rows: a binary search in each."""
    low, high = starts[rows].astype(np.int64), starts[rows + 1].astype(np.int64)
    for _ in range(int((high - low).max(initial=0)).bit_length()):
        middle = (low + high) >> 1
        is_right = ends.take(middle, mode="clip") < columns
        is_right &= low < high
        np.copyto(high, middle, where=~is_right)
        np.copyto(low, middle + 1, where=is_right)
    return low


def _find_lengths(lists: Lists, heads: Ints, ends: Ints) -> Floats:
    """d2 of edges, from whichever end lists the other."""
    near, d2 = lists
    is_listed = near[heads] == ends[:, None]
    place, is_own = is_listed.argmax(axis=1), is_listed.any(axis=1)
    reverse = (near[ends] == heads[:, None]).argmax(axis=1)
    lengths: Floats = np.where(is_own, d2[heads, place], d2[ends, reverse])
    return lengths


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
