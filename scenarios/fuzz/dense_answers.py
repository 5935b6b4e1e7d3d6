"""Dense answers in float64, restated from the formulas: what certificates are held against.

`answer` gives the symmetric operator whose leading eigenpairs a snapshot publishes, made of the
snapshot's own points, masses, widths and parameters. It imports nothing of the algorithms.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.spatial.distance import cdist

import streamembed as se
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.threads import one_blas_thread

__all__ = ["CENTRED", "Answer", "operator", "solve_dense", "walk"]

# Methods whose eigenvalues are those of a centred matrix, in the units of the data.
CENTRED = ("pca", "classical_mds", "kernel_pca", "isomap")
# Of sums of n products in doubles, by n.
SUMS = 1e-13
# Deviations from the median up to which a centre takes no digits that matter: of sums, and of
# neighbours, where another centre would break ties in another way.
NEAR, NEAR_OF_LISTS = 10.0, 1e6
# Methods that join neighbours.
OF_LISTS = ("laplacian_eigenmaps", "linear_eigenmap", "isomap", "lle")
# An edge of this length stands for 0, which in a sparse graph is no edge.
NO_LENGTH = 1e-300
# Largest value of a polynomial kernel (docs/algorithms/kernel-pca.md).
LARGEST_ENTRY = 1e300


def _same(values: Floats) -> Floats:
    return values


@dataclass(frozen=True)
class Answer:
    """A dense operator, and what a snapshot's numbers are in its terms.

    Attributes
    ----------
    operator : (n, n)
        Symmetric; its constant vector, of eigenvalue 0, is taken out.
    to_operator : callable
        Eigenvalues as published -> eigenvalues of the operator.
    rounding : float
        By how much the eigenvalues of the operator are uncertain, beside those of a walk.
    parts : int or None
        Components of the graph.
    negative_mass : float or None
        Share of negative eigenvalues.
    """

    operator: Floats
    to_operator: Callable[[Floats], Floats] = _same
    rounding: float = 0.0
    parts: int | None = None
    negative_mass: float | None = None


def solve_dense(snapshot: se.Snapshot, d: Floats | None = None) -> Answer:
    """The dense answer for a snapshot; ``d`` as in `fuzz_certificate.check`."""
    if d is not None:
        scaled, d2 = np.zeros((len(d), 0)), d**2
    else:
        scaled = _scale_points(snapshot)
        d2 = cdist(scaled, scaled, "sqeuclidean")
        if snapshot.method in OF_LISTS:
            apart = scaled[:, None] - scaled  # on a lattice the last bit decides who is nearer
            d2 = np.einsum("ijk,ijk->ij", apart, apart)
    if snapshot.method == "laplacian_eigenmaps":
        weights, dense = walk(d2, snapshot)
        return Answer(dense, parts=connected_components(weights > 0.0)[0])
    if snapshot.method == "linear_eigenmap":
        weights, dense = walk(d2, snapshot)
        parts = connected_components(weights > 0.0)[0]
        return Answer(_restrict_to_linear(dense, scaled, snapshot.stationary), parts=parts)
    if snapshot.method == "lle" and not d2.any():  # equal points: no components, by definition
        return Answer(np.zeros_like(d2), lambda published: np.zeros_like(published))
    if snapshot.method == "lle":
        return _alignment(scaled, d2, snapshot)
    if snapshot.method == "isomap":
        return _solve_geodesics(d2, snapshot)
    if snapshot.method in CENTRED:
        return _solve_centred(_solve_gram(scaled, d2, snapshot), snapshot.masses, d is not None)
    d2 = d2 / snapshot.widths / (snapshot.width * snapshot.widths)[:, None]
    weights, dense = operator(d2, snapshot.alpha, snapshot.masses)
    return Answer(dense, parts=connected_components(weights > np.finfo(np.float64).eps)[0])


def _scale_points(snapshot: se.Snapshot) -> Floats:
    """Points in units of the snapshot: about its own centre where that is near, or their medians.

    The centre is part of kernels of inner products alone. Elsewhere one that is far from the points
    would take their digits, in the oracle too.
    """
    center, middle = snapshot.center, np.median(snapshot.points, axis=0)
    with np.errstate(over="ignore", under="ignore"):
        most = NEAR_OF_LISTS if snapshot.method in OF_LISTS else NEAR
        near = np.abs(center - middle) <= most * np.abs(snapshot.points - middle).mean(axis=0)
        if not (near.all() or snapshot.kernel in ("polynomial", "cosine")):
            center = middle
        scaled: Floats = (snapshot.points - center) / snapshot.scale
    return scaled


def operator(d2: Floats, alpha: float, masses: Floats) -> tuple[Floats, Floats]:
    """W and S of squared distances in bandwidths, dense and in float64, from the formulas."""
    with np.errstate(under="ignore", over="ignore"):
        weights = np.exp(-d2)
    density = (weights @ masses) ** -alpha
    delta = density * (weights @ (masses * density))
    scaling = np.sqrt(masses) * density / np.sqrt(delta)
    stationary = masses * delta / (masses * delta).sum()
    dense = weights * np.outer(scaling, scaling)
    return weights, dense - np.sqrt(np.outer(stationary, stationary))


def walk(d2: Floats, snapshot: se.Snapshot) -> tuple[Floats, Floats]:
    """The same of a graph of neighbours, weights as the snapshot says, points oldest first."""
    n, k = len(d2), snapshot.n_neighbors
    others = d2 + np.diag(np.full(n, np.inf))
    order = np.argsort(others, axis=1, kind="stable")  # ties by age
    joined = np.zeros((n, n), dtype=bool)
    if snapshot.radius:
        joined = others <= snapshot.radius**2
    else:
        joined[np.arange(n)[:, None], order[:, : min(k, n - 1)]] = True
        joined |= joined.T
    scales = snapshot.widths
    if snapshot.kernel == "self_tuning":
        own = order[:, min(7, k, n - 1) - 1]
        scales = np.sqrt(others[np.arange(n), own])
        listed = np.take_along_axis(others, order[:, : min(k, n - 1)], 1)
        positive, share = scales[scales > 0], 0.1
        if not len(positive):
            positive, share = np.sqrt(listed[listed > 0]), 1.0
        scales = np.maximum(scales, share * np.median(positive) if len(positive) else 1.0)
    weights = joined.astype(np.float64)
    if snapshot.kernel != "binary":
        with np.errstate(under="ignore"):
            weights = joined * np.exp(-d2 / (snapshot.width * np.outer(scales, scales)))
    degrees = weights.sum(axis=1)
    least = np.maximum(1e-12 * np.maximum.outer(degrees, degrees), 1e-40 * degrees.max())
    weights[weights < least] = 0.0
    masses = snapshot.masses
    full = weights / (weights.max() or 1.0) * np.outer(masses, masses)
    degrees = full.sum(axis=1)
    scaling = np.divide(1.0, np.sqrt(degrees), out=np.zeros(n), where=degrees > 0)
    stationary = degrees / (degrees.sum() or 1.0)
    dense = full * scaling[:, None] * scaling - np.sqrt(np.outer(stationary, stationary))
    return weights, dense


def _restrict_to_linear(dense: Floats, scaled: Floats, stationary: Floats) -> Floats:
    """H^1/2 S H^1/2, H the ridge regression on linear functions of the features.

    Of more than 60 on those of 50 principal axes.
    """
    centred = scaled - stationary @ scaled
    centred -= stationary @ centred  # a mean far from 0 is known to its own rounding
    unit = float(np.abs(centred).max())
    if unit <= 1e-14 * float(np.abs(scaled).max()):  # all points are equal
        return np.zeros_like(dense)
    centred /= unit
    if scaled.shape[1] > 60:
        right = scipy.linalg.svd((scaled - scaled.mean(axis=0)) / unit, full_matrices=False)[2]
        centred = centred @ right[:50].T
    root = np.sqrt(stationary)[:, None] * centred
    n_axes = scaled.shape[1] if scaled.shape[1] <= 60 else 50
    ridge = 1e-3 * float((root**2).sum()) / n_axes
    # eigenvalues of the regression near 0 would have no digits left under a root
    vectors, spreads, _ = scipy.linalg.svd(root, full_matrices=False)
    half = (vectors * (spreads / np.hypot(spreads, np.sqrt(ridge)))) @ vectors.T
    result: Floats = half @ dense @ half
    return result


def _join_neighbours(d2: Floats, snapshot: se.Snapshot) -> tuple[Ints, Bools]:
    """Neighbours of every point, nearest first and then oldest, shape (n, K), and who is joined."""
    n = len(d2)
    others = d2 + np.diag(np.full(n, np.inf))
    near = np.argsort(others, axis=1, kind="stable")[:, : min(snapshot.n_neighbors, n - 1)]
    joined = np.zeros((n, n), dtype=bool)
    joined[np.arange(n)[:, None], near] = True
    return near, joined


def _solve_gram(scaled: Floats, d2: Floats, snapshot: se.Snapshot) -> Floats:
    """The matrix that is centred."""
    if snapshot.method == "classical_mds":
        return -0.5 * d2
    if snapshot.method == "pca":
        return scaled @ scaled.T
    if snapshot.kernel == "gaussian":
        with np.errstate(under="ignore", over="ignore"):
            return np.asarray(np.exp(-(d2 / snapshot.bandwidth) / snapshot.bandwidth))
    if snapshot.kernel == "cosine":
        largest = np.abs(scaled).max(axis=1)[:, None]
        units = np.divide(scaled, largest, out=np.zeros_like(scaled), where=largest > 0)
        lengths = np.linalg.norm(units, axis=1)[:, None]
        units = np.divide(units, lengths, out=np.zeros_like(units), where=lengths > 0)
        return np.asarray(units @ units.T)
    inside = snapshot.gamma * (scaled @ scaled.T) + snapshot.coef0
    most = LARGEST_ENTRY ** (1.0 / snapshot.degree)
    return np.asarray(np.clip(inside, -most, most) ** snapshot.degree)


def _solve_centred(matrix: Floats, masses: Floats, signed: bool) -> Answer:
    """Of diag(m)^(1/2) J H J^T diag(m)^(1/2), in units of its norm."""
    entry = float(np.abs(matrix).max()) or 1.0
    root = np.sqrt(masses)
    dense = (matrix / entry) * np.outer(root, root)
    constant = root / np.linalg.norm(root)
    dense -= np.outer(constant, constant @ dense)
    dense -= np.outer(dense @ constant, constant)
    with one_blas_thread():
        values = scipy.linalg.eigvalsh(dense)
    norm = float(np.abs(values).max())
    lost = SUMS * len(masses) * float(masses.max())  # of a matrix whose largest entry is 1
    norm = max(norm, lost)
    share = None
    if signed and norm > lost:
        share = float(np.abs(values[values < 0]).sum() / np.abs(values).sum())
    return Answer(
        0.5 * (dense + dense.T) / norm,
        lambda published: published / entry / norm,
        lost / norm,
        negative_mass=share,
    )


def _solve_geodesics(d2: Floats, snapshot: se.Snapshot) -> Answer:
    """Of the shortest paths of the part that has coordinates."""
    _, joined = _join_neighbours(d2, snapshot)
    joined = joined | joined.T
    lengths = np.where(joined, np.maximum(np.sqrt(d2), NO_LENGTH), 0.0)
    graph = csr_array(lengths)
    parts, labels = connected_components(graph, directed=False)
    inside = snapshot.stationary > 0.0
    sizes = np.bincount(labels)
    if len(set(labels[inside])) != 1 or inside.sum() != sizes.max():
        raise AssertionError("coordinates are not those of one largest part")
    paths = shortest_path(graph, directed=False)
    paths = np.where(np.outer(inside, inside), paths, 0.0)
    solution = _solve_centred(-0.5 * paths**2, snapshot.masses * inside, True)
    return Answer(
        solution.operator, solution.to_operator, solution.rounding, parts, solution.negative_mass
    )


def _alignment(scaled: Floats, d2: Floats, snapshot: se.Snapshot) -> Answer:
    """u (M + u)^-1 without its constant, for the weights that rebuild every point; u = mu_(k+1)."""
    near, _ = _join_neighbours(d2, snapshot)
    n, root = len(d2), np.sqrt(snapshot.masses)
    rebuilt = np.eye(n)
    for i, row in enumerate(near if n > 1 else []):
        apart = scaled[row] - scaled[i]
        size = float(np.abs(apart).max())
        apart = apart / size if size > 0 else apart
        gram = apart @ apart.T
        gram += np.eye(len(row)) * (snapshot.reg * (np.trace(gram) or 1.0))
        weights = np.linalg.solve(gram, np.ones(len(row)))
        rebuilt[i, row] -= weights / weights.sum()
    rebuilt *= root[:, None] / root
    matrix = rebuilt.T @ rebuilt
    constant = root / np.linalg.norm(root)
    norm = float(np.abs(matrix).sum(axis=1).max()) or 1.0
    with one_blas_thread():
        values, vectors = scipy.linalg.eigh(matrix + norm * np.outer(constant, constant))
    unit = snapshot.certificate.outside
    if not 0.0 < unit < np.inf:  # nothing is left out
        unit = float(snapshot.eigenvalues.max()) or 1.0
    thetas = unit / (np.maximum(values, 0.0) + unit)
    thetas[np.abs(constant @ vectors) > 0.5] = 0.0
    dense = (vectors * thetas) @ vectors.T

    def to_operator(published: Floats) -> Floats:
        inside = unit / (published + unit)
        result: Floats = np.where(np.isfinite(published), inside, 0.0)
        return result

    parts = connected_components(_join_neighbours(d2, snapshot)[1], directed=False)[0]
    # weights are known to the condition of a ridge of 1e-3; values to the rounding of the matrix
    return Answer(dense, to_operator, 1e-10 + 1e-14 * norm / unit, parts)
