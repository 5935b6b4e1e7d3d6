"""Shortest paths on a graph of neighbours.

Symbols: n = points, G_st = length of the shortest path from s to t, K = neighbours, d2 = squared
distances.

A length is the sum of its edges from the source on, rounded after every one: G_st and G_ts may
differ in the last bits.

Source: Tenenbaum, de Silva & Langford (2000), "A global geometric framework for nonlinear
dimensionality reduction"; Dijkstra (1959). Differs: parts of the graph are infinitely far apart;
no edge is invented between them.
"""

from __future__ import annotations

import numpy as np
import scipy
from scipy.sparse import coo_array, csr_array

from streamembed.geometry.lists import Slots
from streamembed.numeric.arrays import Floats, Ints, freeze

# The length of an edge between duplicates: a stored 0 would be no edge. Added to any other length
# it changes nothing.
NO_LENGTH = 1e-300
# A path of such edges only is shorter. Any other is longer: the smallest distance is the
# root of 5e-324.
LEAST_LENGTH = 1e-290


def build_graph(near: Slots, d2: Floats) -> csr_array:
    """The graph that joins two slots where either is in the list of the other, by their distance.

    Parameters
    ----------
    near, d2
        Lists of the nearest others and their squared distances, shape (n, K); -1 is no neighbour.
        The same two slots have the same d2 in both lists.

    Returns
    -------
    Shape (n, n), symmetric, indices in order; 1e-300 between duplicates. O(n K).

    Examples
    --------
    >>> import numpy as np
    >>> near = np.array([[1], [0], [1]], dtype=np.int32)
    >>> build_graph(near, np.array([[4.0], [4.0], [1.0]])).toarray().tolist()
    [[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    is_neighbor = near >= 0
    counts = np.count_nonzero(is_neighbor, axis=1)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
    lengths = np.maximum(np.sqrt(d2[is_neighbor]), NO_LENGTH)
    graph = csr_array((lengths, near[is_neighbor], starts), shape=(len(near), len(near)))
    graph = graph.maximum(graph.T.tocsr())  # not the sum: mutual edges would be double
    graph.sort_indices()
    return graph


def build_graph_of_edges(i: Ints | Slots, j: Ints | Slots, d2: Floats, n: int) -> csr_array:
    """As `build_graph`, of the edges between slots i and j, each given once, shapes (m,)."""
    lengths = np.tile(np.maximum(np.sqrt(d2), NO_LENGTH), 2)
    ends = (np.concatenate([i, j]).astype(np.int32), np.concatenate([j, i]).astype(np.int32))
    graph = coo_array((lengths, ends), shape=(n, n)).tocsr()
    graph.sort_indices()
    return graph


def compute_lengths(graph: csr_array, sources: Ints) -> Floats:
    """Of shortest paths from some slots to all, by Dijkstra, shape (m, n): O(m n (K + log n)).

    0 from a slot to itself, inf where there is no path.

    Examples
    --------
    >>> import numpy as np
    >>> line = build_graph_of_edges(np.array([0, 1]), np.array([1, 2]), np.array([4.0, 9.0]), 4)
    >>> compute_lengths(line, np.array([0])).tolist()
    [[0.0, 2.0, 5.0, inf]]
    """
    # the graph is symmetric: as a directed one it needs no transposed copy
    lengths: Floats = scipy.sparse.csgraph.dijkstra(graph, directed=True, indices=sources)
    return lengths


def zero_duplicates(lengths: Floats) -> Floats:
    """Lengths with 0 between duplicates; the same array where there are none.

    Examples
    --------
    >>> zero_duplicates(np.array([[0.0, 2e-300, 1.5]])).tolist()
    [[0.0, 0.0, 1.5]]
    """
    is_duplicate = (lengths > 0.0) & (lengths < LEAST_LENGTH)
    return freeze(np.where(is_duplicate, 0.0, lengths)) if is_duplicate.any() else lengths


def label_parts(graph: csr_array, arrivals: Ints | None = None) -> Ints:
    """The connected part of every slot, shape (n,): 0 is the largest, and so on.

    Parameters
    ----------
    arrivals
        Arrival positions, unique, shape (n,): of equally large parts the one with the oldest slot
        is first; None for the order of slots.
    """
    n = graph.shape[0]
    # in a symmetric graph strong parts are all parts, and need no transposed copy
    count, raw = scipy.sparse.csgraph.connected_components(graph, connection="strong")
    oldest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(oldest, raw, np.arange(n) if arrivals is None else arrivals)
    names = np.empty(count, dtype=np.int64)
    names[np.lexsort((oldest, -np.bincount(raw, minlength=count)))] = np.arange(count)
    labels: Ints = names[raw]
    return labels


def extend(d_near: Floats, near: Slots, lengths: Floats) -> Floats:
    """Lengths from new points: over the best of their nearest neighbours, min_k d_k + G[near_k].

    Parameters
    ----------
    d_near, near
        Distances, not squared, to slots, shape (b, K); -1 is no neighbour.
    lengths
        G, shape (n, n).

    Returns
    -------
    Shape (b, n); inf where no neighbour reaches. O(b K n).
    """
    result = np.full((len(near), lengths.shape[1]), np.inf)
    for column in range(near.shape[1]):
        is_neighbor = near[:, column] >= 0
        through = d_near[is_neighbor, column, None] + lengths[near[is_neighbor, column]]
        result[is_neighbor] = np.minimum(result[is_neighbor], through)
    return result
