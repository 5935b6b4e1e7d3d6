"""Shortest paths on a graph of neighbours: all pairs, kept while points are replaced.

A chunk of ten points changes 5 to 30 % of all lengths, so that an update is a repair of rows: see
`streamembed.manifold.geodesics_numba`, which needs a compiler. Without one, only rows and columns
of new points are put in; the rest grows stale, which a few fresh rows measure.

Symbols: n = points, G_st = length of the shortest path from s to t, K = neighbours, d2 = squared
distances.

A length is the sum of its edges from the source on, rounded after every one, and the least such
sum of all paths. Rounding keeps order, so that it is one number, whatever finds it; but G_st and
G_ts may differ in the last bits.

Source: Tenenbaum, de Silva & Langford (2000), "A global geometric framework for nonlinear
dimensionality reduction"; Dijkstra (1959). Differs: parts of the graph are infinitely far apart;
no edge is invented between them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components, dijkstra

from streamembed.geometry.lists import Slots
from streamembed.numeric.arrays import Floats, Ints, frozen
from streamembed.numeric.codec import NOT_KEPT

__all__ = [
    "Geodesics",
    "extend",
    "graph_of",
    "graph_of_edges",
    "parts",
    "patch",
    "rows",
    "shown",
    "staleness",
]

# The length of an edge between duplicates: a stored 0 would be no edge. Added to any other, it is
# nothing.
NO_LENGTH = 1e-300
# A path of nothing but such edges is shorter. Any other is longer: the smallest distance is the
# root of 5e-324.
LEAST_LENGTH = 1e-290
# Rows whose staleness is that of all to a factor of 1.5: it is a mean over pairs.
SAMPLE = 32


@dataclass(frozen=True, slots=True, eq=False)
class Geodesics:
    """The lengths of shortest paths to all slots: a value, whose arrays are never written.

    Attributes
    ----------
    lengths : (m, n)
        A row a source: from it to all; 0 to itself, inf where there is no path.
    sources : (m,) or None
        Slots, ascending; None where every slot is one.
    parents : (m, n) or None
        The slot before t on a shortest path from s, -1 where there is none; None where rows are
        stale, and cannot be repaired. Not kept in files: paths made afresh have the same lengths.
    """

    lengths: Annotated[Floats, "m n"]
    sources: Annotated[Ints, "m"] | None = None
    parents: Slots | None = field(default=None, metadata=NOT_KEPT)

    @classmethod
    def build(cls, graph: csr_array, sources: Ints | None = None) -> Geodesics:
        """All rows afresh, or those of some sources: O(m n (K + log n)).

        Examples
        --------
        >>> import numpy as np
        >>> line = graph_of_edges(np.array([0, 1]), np.array([1, 2]), np.array([4.0, 9.0]), 4)
        >>> geodesics = Geodesics.build(line)
        >>> geodesics.lengths[0].tolist(), geodesics.parents[0].tolist()
        ([0.0, 2.0, 5.0, inf], [-1, 0, 1, -1])
        """
        lengths, parents = rows(graph, np.arange(graph.shape[0]) if sources is None else sources)
        return cls(frozen(lengths), sources, frozen(parents))

    def __len__(self) -> int:
        return int(self.lengths.shape[1])

    @property
    def slots(self) -> Ints:
        """The sources, shape (m,)."""
        return np.arange(len(self)) if self.sources is None else self.sources


def graph_of(near: Slots, d2: Floats) -> csr_array:
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
    >>> graph_of(near, np.array([[4.0], [4.0], [1.0]])).toarray().tolist()
    [[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    known = near >= 0
    starts = np.concatenate([[0], np.cumsum(np.count_nonzero(known, axis=1))]).astype(np.int32)
    lengths = np.maximum(np.sqrt(d2[known]), NO_LENGTH)
    graph = csr_array((lengths, near[known], starts), shape=(len(near), len(near)))
    return _in_order(graph.maximum(graph.T.tocsr()))  # not the sum: mutual edges would be double


def graph_of_edges(i: Ints | Slots, j: Ints | Slots, d2: Floats, n: int) -> csr_array:
    """As `graph_of`, of the edges between slots i and j, each named once, shapes (m,)."""
    lengths = np.maximum(np.sqrt(d2), NO_LENGTH)
    ends = (np.concatenate([i, j]).astype(np.int32), np.concatenate([j, i]).astype(np.int32))
    return _in_order(coo_array((np.concatenate([lengths, lengths]), ends), shape=(n, n)).tocsr())


def _in_order(graph: csr_array) -> csr_array:
    graph.sort_indices()
    return graph


def rows(graph: csr_array, sources: Ints) -> tuple[Floats, Slots]:
    """The rows of some sources afresh, by Dijkstra.

    Returns
    -------
    lengths, parents
        Shape (b, n), as in `Geodesics`. O(b n (K + log n)).
    """
    n = graph.shape[0]
    if not len(sources):
        return np.zeros((0, n)), np.zeros((0, n), dtype=np.int32)
    # the graph is symmetric, and taken as directed needs no transposed copy
    lengths, before = dijkstra(graph, directed=True, indices=sources, return_predecessors=True)
    parents: Slots = np.maximum(before, -1).astype(np.int32, copy=False)
    return lengths, parents


def patch(geodesics: Geodesics, graph: csr_array, refilled: Ints) -> Geodesics:
    """Lengths with fresh rows and columns of new points; between all others they stay as they were.

    Parameters
    ----------
    graph
        Afterwards, of n slots.
    refilled
        Shape (b,), distinct; among them all that are new, which follow without a hole.

    Returns
    -------
    Without parents. O(b n (K + log n) + n^2).
    """
    n, before = graph.shape[0], len(geodesics)
    lengths = np.full((n, n), np.inf)
    lengths[:before, :before] = geodesics.lengths
    fresh, _ = rows(graph, refilled)
    lengths[:, refilled] = fresh.T
    lengths[refilled] = fresh
    return Geodesics(frozen(lengths))


def shown(lengths: Floats) -> Floats:
    """Lengths with 0 between duplicates; the same array where there are none.

    Examples
    --------
    >>> shown(np.array([[0.0, 2e-300, 1.5]])).tolist()
    [[0.0, 0.0, 1.5]]
    """
    none = (lengths > 0.0) & (lengths < LEAST_LENGTH)
    return frozen(np.where(none, 0.0, lengths)) if none.any() else lengths


def staleness(geodesics: Geodesics, graph: csr_array, sources: Ints) -> float:
    """How far kept lengths are from true ones, as a share of these: mean |G - G*| / mean G*.

    Parameters
    ----------
    sources
        Rows that are compared, 32 random ones (`SAMPLE`) or all.

    Returns
    -------
    Over pairs that have a path in both, and 1 more where some pair has one in only one of them.
    0 where every row is right.
    """
    kept, (true, _) = geodesics.lengths[sources], rows(graph, sources)
    reached = np.isfinite(true)
    both = reached & np.isfinite(kept)
    apart = float(np.abs(kept[both] - true[both]).sum())
    share = 0.0 if apart == 0.0 else min(apart / max(float(true[both].sum()), NO_LENGTH), 1e300)
    return share + float(not np.array_equal(reached, np.isfinite(kept)))


def parts(graph: csr_array, births: Ints | None = None) -> Ints:
    """The connected part of every slot, the largest named 0 and so on, shape (n,).

    Parameters
    ----------
    births
        Unique, shape (n,): of equally large parts the one with the oldest slot is first; None for
        the order of slots.
    """
    n = graph.shape[0]
    # of a symmetric graph the strong parts are all, and need no transposed copy
    count, raw = connected_components(graph, connection="strong")
    oldest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(oldest, raw, np.arange(n) if births is None else births)
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
        known = near[:, column] >= 0
        way = d_near[known, column, None] + lengths[near[known, column]]
        result[known] = np.minimum(result[known], way)
    return result
