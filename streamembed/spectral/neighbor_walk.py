"""The walk on a sparse graph of neighbours: its operator, its parts, the eigenvalue 1.

Symbols: n = points, near, d2 = (n, K) lists of the nearest others, w_ij = weight of an edge,
m = masses, W = diag(m) w diag(m), q = W 1 = degrees, S = diag(q^-1/2) W diag(q^-1/2) with spectrum
in [-1, 1], pi = q / sum(q) = stationary measure, v_0 = sqrt(pi) with S v_0 = v_0,
psi = v / sqrt(pi).

The edges are those of `streamembed.spectral.adjacency`, and W_ii = 0. So S is not positive: a graph
in two halves that are joined only across has the eigenvalue -1. Points that nothing joins have
degree 0 and no part in S: their rows are zero, and they are listed.

Source: Jain, section 1.1; Belkin & Niyogi (2003), "Laplacian eigenmaps"; Zelnik-Manor & Perona
(2004), "Self-tuning spectral clustering", who also set the diagonal to 0; Chung (1997), lemma 1.7,
for the eigenvalue 1. Differs: 1. Jain's heat weight has a plus in the exponent; it is a minus. 2.
Edges that weigh nothing beside the others of one of their ends are left out: stored zeros would
join separate parts, and a point that only they join would have coordinates made of rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy
from scipy.sparse import csr_array

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import adjacency
from streamembed.spectral.adjacency import VANISHED

WEIGHTS = ("binary", "heat", "self_tuning")
# Parts up to which products with their basis are faster when it is dense.
FEW = 4
# Of the larger degree of its ends, below which an edge is none: psi = v / sqrt(pi) then divides by
# no less than 1e-6 of the divisors of its neighbours.
LEAST_WEIGHT = 1e-12
# And of the largest degree anywhere: with masses, psi then stays within what float32 holds.
FAINTEST = 1e-40
# Weights of which float32 holds inverse degrees.
SMALLEST_EVEN = 1e-30
# Weights that are all below this are taken in units of the largest, and so are degrees: 1 / w would
# overflow, and degrees have no digits.
TINIEST = 1e-200


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """W and q; S follows from them."""

    # (n, n): edges that count: w, sparse, symmetric to the last bit, float64, zero diagonal. And m.
    graph: csr_array
    masses: Floats | None
    degrees: Floats  # (n,): q; 0 where nothing joins the point

    @property
    def constant(self) -> Floats:
        """v_0 = sqrt(pi), shape (n,); zeros for a graph without an edge."""
        return np.sqrt(self.degrees / (float(self.degrees.sum()) or 1.0))

    @property
    def has_unit_masses(self) -> bool:
        """Whether all masses are 1, and no weight is so small that degrees are not float32's."""
        return self.masses is None and float(self.graph.data.min(initial=1.0)) >= SMALLEST_EVEN

    @property
    def scaling(self) -> Floats:
        """s, shape (n,): S = diag(s) w diag(s); 0 at isolated points."""
        masses = 1.0 if self.masses is None else self.masses
        is_joined = self.degrees > 0
        inverse = np.divide(1.0, self.degrees, out=np.zeros(len(is_joined)), where=is_joined)
        return masses * np.sqrt(inverse)

    @property
    def operator(self) -> csr_array:
        """S, (n, n), float64."""
        scaling = self.scaling
        graph = self.graph.copy()
        graph.data *= scaling[_read_heads(graph)] * scaling[graph.indices]
        return graph

    def apply(self, block: Floats) -> Floats:
        """S V, of columns (n, m) or one (n,)."""
        scaling = self.scaling if block.ndim == 1 else self.scaling[:, None]
        image: Floats = self.graph @ (scaling * block)
        image *= scaling
        return image

    def bind(self, dtype: npt.DTypeLike, factor: float = 1.0) -> Callable[[Array], Array]:
        """Psi -> ``factor`` P Psi of columns (n, m), P = diag(1/q) W, in that precision.

        V -> ``factor`` S V where single precision does not hold P; see `has_unit_masses`.
        """
        if not self.has_unit_masses:
            operator = (factor * self.operator).astype(dtype)
            return lambda block: operator @ block
        graph = self.graph.astype(dtype, copy=False)
        scale = (factor * self.scaling[:, None] ** 2).astype(dtype)

        def apply(block: Array) -> Array:
            image: Array = graph @ block
            image *= scale
            return image

        return apply


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """The connected parts of a walk, the heaviest first."""

    labels: Ints  # (n,): the part of every point; -1 for isolated ones, which are no part
    # How many parts there are, and how many points the one with most of them has.
    count: int
    largest: int
    # (n, count): sparse, orthonormal, of the whole eigenspace of 1, v_0 among it: one column a
    # part.
    basis: csr_array

    @property
    def isolated(self) -> Ints:
        """The points that nothing joins, ascending."""
        return np.flatnonzero(self.labels < 0)

    def deflate(self, block: Array) -> Array:
        """``block`` (n, m) without its part in the eigenspace of 1, in float64 or its own."""
        basis = self.basis.astype(block.dtype, copy=False)
        if self.count <= FEW:
            basis = basis.toarray()
        rest: Array = basis @ (basis.T @ block)
        return np.subtract(block, rest, out=rest)


def build_walk(edges: csr_array, masses: Floats | None) -> Walk:
    """W and q of a graph's edges, without those that weigh nothing. O(n K).

    Parameters
    ----------
    edges
        From `streamembed.spectral.adjacency`.
    masses
        m, shape (n,), positive; None for ones.
    """
    graph, n = edges, edges.shape[0]
    least, largest = float(edges.data.min(initial=1.0)), float(edges.data.max(initial=0.0))
    if largest < TINIEST or least <= VANISHED:
        graph = edges.copy()
        graph.data[graph.data <= VANISHED] = 0.0
        if 0.0 < (largest := float(graph.data.max(initial=0.0))) < TINIEST:
            graph.data /= largest
        least = float(graph.data.min(initial=1.0))
    is_binary = least == largest == 1.0
    degrees = np.diff(graph.indptr).astype(np.float64) if is_binary else graph @ np.ones(n)
    if least < LEAST_WEIGHT * degrees.max(initial=0.0):
        larger = np.maximum(degrees[_read_heads(graph)], degrees[graph.indices])
        faint = graph.data < np.maximum(LEAST_WEIGHT * larger, FAINTEST * degrees.max())
        graph = graph.copy()
        graph.data[faint] = 0.0
        graph.eliminate_zeros()
        degrees = graph @ np.ones(n)
    elif least == 0.0:
        graph.eliminate_zeros()  # all of them
    if masses is not None:
        degrees = masses * (graph @ masses)
    return Walk(graph, masses, degrees)


def _read_heads(graph: csr_array) -> Array:
    """The row of every entry."""
    rows: Array = np.arange(graph.shape[0], dtype=graph.indices.dtype)
    return np.repeat(rows, np.diff(graph.indptr))


def find_parts(walk: Walk) -> Parts:
    """The connected parts of a walk, and its isolated points. O(n K)."""
    # of a symmetric graph the strong components are all, and need no transposed copy
    n_components, raw = scipy.sparse.csgraph.connected_components(walk.graph, connection="strong")
    weight = np.bincount(raw, weights=walk.degrees, minlength=n_components)
    order = np.argsort(-weight, kind="stable")
    count = int(np.count_nonzero(weight > 0))
    names = np.full(n_components, -1, dtype=np.int64)
    names[order[:count]] = np.arange(count)
    labels, weight = names[raw], weight[order[:count]]
    members = np.flatnonzero(labels >= 0)
    belongs = labels[members]
    values = np.sqrt(walk.degrees[members] / weight[belongs])
    starts = np.concatenate([[0], np.cumsum(labels >= 0)])
    basis = csr_array((values, belongs, starts), shape=(len(labels), count))
    return Parts(labels, count, int(np.bincount(belongs).max(initial=0)), basis)


def are_same(previous: Parts, parts: Parts, slots: Ints) -> bool:
    """Whether parts are those before, whatever their numbers: points only came to them or left.

    ``slots`` hold other points than before.
    """
    if previous.count != parts.count:
        return False
    has_stayed = np.ones(len(previous.labels), dtype=bool)
    has_stayed[slots[slots < len(has_stayed)]] = False
    before = previous.labels[has_stayed]
    now = parts.labels[: len(has_stayed)][has_stayed]
    if not np.array_equal(before < 0, now < 0):
        return False
    names = np.full(parts.count + 1, -1, dtype=now.dtype)  # the last is that of isolated points
    names[before] = now
    return np.array_equal(names[before], now) and np.array_equal(
        np.sort(names[:-1]), np.arange(parts.count)
    )


def build_contrasts(labels: Ints, degrees: Floats, limit: int) -> Floats:
    """Orthonormal columns of parts, orthogonal to v_0: of eigenvalue 1 where they are S's own.

    Parameters
    ----------
    labels
        Parts from 0 on, shape (n,), every one with a positive degree; -1 is in none.
    degrees
        q, shape (n,).
    limit
        Columns at most: the parts after the first ``limit`` + 1 are 0 in all of them.

    Returns
    -------
    Shape (n, c): column j sets part j + 1 against all parts before it.

    Notes
    -----
    With p_j = pi(part j) and P = p_0 + ... + p_(j-1), psi is sqrt(P / (p_j (P + p_j))) on part j
    and -sqrt(p_j / (P (P + p_j))) on those before: mean 0 and square 1 under pi. O(n c).
    """
    member = labels >= 0
    total = float(degrees.sum())
    shares = np.bincount(labels[member], weights=degrees[member] / (total or 1.0))[: limit + 1]
    count = len(shares)
    if count < 2:
        return np.zeros((len(labels), 0))
    own_shares, shares_before = shares[1:], np.cumsum(shares)[:-1]
    sums = shares_before + own_shares
    levels = np.triu(np.ones((count, 1)) * -np.sqrt(own_shares / shares_before / sums))
    levels[np.arange(1, count), np.arange(count - 1)] = np.sqrt(shares_before / own_shares / sums)
    levels = np.concatenate([levels, np.zeros((1, count - 1))])  # for those in no part
    index = np.where(member & (labels < count), labels, count)
    return levels[index] * np.sqrt(degrees / (total or 1.0))[:, None]


def embed_lists(
    lists: adjacency.Lists, weights: str, scale: float, count: int
) -> tuple[Floats, Floats]:
    """psi (n, c) and eigenvalues (c,), descending, of the walk on some lists, without the constant.

    All pairs are computed, and at most n - 2 are kept; psi is 0 at isolated points. O(n^3).
    """
    walk = build_walk(adjacency.join_lists(lists, weights, scale), None)
    count, constant = min(count, len(walk.degrees) - 2), walk.constant[:, None]
    values, vectors = descending_eigh(walk.operator.toarray() - constant * constant.T)
    vectors = vectors[:, :count]
    psi = np.divide(vectors, constant, out=np.zeros(vectors.shape), where=constant > 0)
    return psi, values[:count]
