"""The walk on a graph of nearest neighbours: its leading eigenfunctions, from scratch.

Symbols: N = points, W = symmetric weights, sparse, q = W 1 = degrees, P = diag(1/q) W = the walk,
S = diag(q^-1/2) W diag(q^-1/2) its symmetric conjugate, v_0 = sqrt(pi) with pi = q / sum(q).

Pairs are judged on this graph and not on the tracked Gaussian kernel: where features are many or
noisy a kernel of one width leaves outlying points alone, and its leading eigenfunctions are theirs
(docs/algorithms/unsupervised.md measures both).

Source: Jain, section 1.1, with the graph (b), k nearest neighbours; Zelnik-Manor & Perona (2004),
Self-tuning spectral clustering, for the weights. Differs: 1. the source's heat weight has a plus in
the exponent; it is a minus. 2. Two points are joined where either is a neighbour of the other.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy
from scipy.sparse import coo_array, csr_array

from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh, squared_distances

# Neighbours that are joined, and the one whose distance is a point's own scale.
N_NEIGHBORS, SCALE_NEIGHBOR = 20, 7
# A point among many duplicates has the scale 0: it gets this share of the median one, or it would
# be joined to nothing but its duplicates.
LEAST_SCALE = 0.1
# Of the largest degree: below it a point is alone.
LEAST_DEGREE = 1e-12
# Rows of distances at a time, so that memory stays O(N) for every one of them.
BLOCK = 512
# Of an eigenvector found by Lanczos; and how much larger an eigenvalue must be to have been missed.
PRECISION, MISSED = 1e-8, 1e-6
# Up to here all eigenvectors at once are cheaper than Lanczos.
SMALL = 400


def find_nearest(points: Floats, count: int) -> tuple[Floats, Ints]:
    """Squared distances and indices of the nearest other points, ascending, shapes (N, count).

    Fewer columns where there are fewer points. O(N^2 d).
    """
    n = len(points)
    count = min(count, n - 1)
    d2, near = np.empty((n, count)), np.empty((n, count), dtype=np.int64)
    centred = points - points.mean(axis=0)
    for start in range(0, n, BLOCK):
        rows = slice(start, min(start + BLOCK, n))
        block = squared_distances(centred[rows], centred)
        row_index = np.arange(rows.start, rows.stop)
        block[row_index - start, row_index] = np.inf
        candidates = np.argpartition(block, count - 1, axis=1)[:, :count] if count else near[rows]
        values = np.take_along_axis(block, candidates, 1)
        order = np.lexsort((candidates, values))  # ties by index
        near[rows] = np.take_along_axis(candidates, order, 1)
        d2[rows] = np.take_along_axis(values, order, 1)
    return d2, near


def join_neighbors(weights: Floats, near: Ints) -> csr_array:
    """The symmetric graph in which i and j weigh what either gives the other, shape (N, N)."""
    n = len(near)
    rows = np.repeat(np.arange(n), near.shape[1])
    graph = coo_array((weights.ravel(), (rows, near.ravel())), shape=(n, n)).tocsr()
    return graph.maximum(graph.T).tocsr()


def build_self_tuning_graph(points: Floats, n_neighbors: int = N_NEIGHBORS) -> csr_array:
    """W = exp(-d2 / (s_i s_j)) between neighbours, s_i the distance to the 7th; shape (N, N)."""
    d2, near = find_nearest(points, n_neighbors)
    if near.shape[1] == 0:
        return csr_array((len(points), len(points)))
    scale = np.sqrt(d2[:, min(SCALE_NEIGHBOR, near.shape[1]) - 1])
    positive = scale[scale > 0]
    floor = LEAST_SCALE * float(np.median(positive)) if len(positive) else 1.0
    scale = np.maximum(scale, floor)
    with np.errstate(under="ignore"):
        weights = np.exp(-(d2 / scale[:, None]) / scale[near])
    return join_neighbors(weights, near)


def embed_walk(graph: csr_array, count: int) -> tuple[Floats, Floats]:
    """The leading eigenfunctions of the walk on a graph, the constant one left out.

    Parameters
    ----------
    graph
        W, shape (N, N), sparse, symmetric, not negative.
    count
        How many, at most N - 2.

    Returns
    -------
    psi, eigenvalues
        Shapes (N, c) and (c,), descending, of P; sum(pi psi^2) = 1. A graph in c parts has the
        eigenvalue 1 c - 1 times more; a point that nothing joins is 0 in all columns of others.
        Same bits every time: Lanczos starts from a fixed vector. O(N k c) a step of Lanczos.
    """
    n = graph.shape[0]
    count = max(0, min(count, n - 2))
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    # a point whose neighbours are all too far away to weigh anything keeps a share of its own
    degrees = np.maximum(degrees, LEAST_DEGREE * degrees.max(initial=1e-300))
    constant = np.sqrt(degrees / degrees.sum())
    scaling = 1.0 / np.sqrt(degrees)
    if count == 0:
        return np.zeros((n, 0)), np.zeros(0)
    values, vectors = _solve(graph, scaling, constant, count)
    return vectors / constant[:, None], values


def embed_self_tuning(points: Floats, count: int) -> tuple[Floats, Floats]:
    """psi and eigenvalues of the walk on the self-tuning graph of ``points`` (N, d)."""
    return embed_walk(build_self_tuning_graph(points), count)


def _solve(
    graph: csr_array, scaling: Floats, constant: Floats, count: int
) -> tuple[Floats, Floats]:
    """The leading pairs of S - v_0 v_0^T, descending."""
    n = len(constant)
    if n > SMALL:

        def product(column: Floats) -> Floats:
            image: Floats = scaling * (graph @ (scaling * column))
            return image - constant * (constant @ column)

        try:
            return _run_lanczos(product, n, count)
        except scipy.sparse.linalg.ArpackError:  # eigenvalues too near to one another
            pass
    full = scaling[:, None] * graph.toarray() * scaling - np.outer(constant, constant)
    values, vectors = descending_eigh(full)
    return values[:count], vectors[:, :count]


def _run_lanczos(product: Callable[[Floats], Floats], n: int, count: int) -> tuple[Floats, Floats]:
    """The leading pairs by Lanczos, with what one run overlooks.

    It sees one direction of every eigenspace: of a graph in parts, or a symmetric one, copies of an
    eigenvalue are missing. The pairs found so far are deflated, and the largest of the rest
    computed, until it is no larger than the least one found.
    """
    values, vectors = np.zeros(0), np.zeros((n, 0))
    for run in range(count + 1):

        def apply_rest(block: Floats, values: Floats = values, vectors: Floats = vectors) -> Floats:
            column = block.reshape(n)
            return product(column) - vectors @ (values * (vectors.T @ column))

        start = np.random.default_rng((n, run)).standard_normal(n)
        operator = scipy.sparse.linalg.LinearOperator((n, n), matvec=apply_rest, dtype=np.float64)
        new_values, block = scipy.sparse.linalg.eigsh(
            operator, k=1 if run else count, which="LA", v0=start, tol=PRECISION
        )
        if run and new_values[0] <= values[-1] + MISSED:
            break
        vectors = np.linalg.qr(np.concatenate([vectors, block], axis=1))[0]
        images = np.column_stack([product(column) for column in vectors.T])
        values, mix = descending_eigh(vectors.T @ images)
        values, vectors = values[:count], vectors @ mix[:, :count]
    return values, vectors
