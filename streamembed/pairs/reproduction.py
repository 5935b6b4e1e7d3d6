"""Whether pairs that an embedding separates give the same metric on two halves of the events.

Each half of the support has a map of its own, independent of the other half. ITML learns a metric
from the pairs of each, and the cosine of their trace-free logarithms is the share that reproduces.

Source: docs/algorithms/unsupervised.md. Halves of the pairs of one map would not do: both have that
map's mistakes, and on a uniform grid, where there is nothing to learn, agree to .6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.geometry import kernel
from streamembed.metric_learning import itml
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.pairs import metric_shrinkage, pair_memory, thresholds
from streamembed.spectral import operator

Embed = Callable[[Floats, int], tuple[Floats, Floats]]

# Of each half: points of its map, pairs drawn (one in ten is clear), and the accuracy of ITML.
N_POINTS, N_CANDIDATES, TOLERANCE, N_SWEEPS = 250, 3000, 1e-3, 30


def measure(
    points: Floats,
    arrivals: Ints,
    embed: Embed,
    position: int,
    seed: int,
) -> float:
    """s in [0, 1]: 1 where two halves of the support give the same metric, 0 where they disagree.

    Parameters
    ----------
    points
        Of the support, as the kernel sees them, shape (N, d).
    arrivals
        Arrival positions, shape (N,): they decide which event is in which half.
    embed
        Points (n, d) and a number of columns -> psi and eigenvalues of a map of their own.
    position
        Events learned: with the seed, it determines the draws.

    Notes
    -----
    At most 250 points of each half count. 0 where a half is too small, or all its pairs are
    of one kind. O(250^3 + 300 d^2) or so: 15 to 30 ms for 4 to 13 features.
    """
    order = np.argsort(arrivals, kind="stable")
    first = metric_shrinkage.split_halves(arrivals[order], seed)
    matrices = []
    for part, half in enumerate((order[first], order[~first])):
        generator = np.random.default_rng((seed, position, part))
        if len(half) > N_POINTS:
            half = np.sort(generator.choice(half, N_POINTS, replace=False))
        if len(half) < points.shape[1] + 2:
            return 0.0
        matrix = _learn(points[half], arrivals[half], embed, position, seed + part)
        if matrix is None:
            return 0.0
        matrices.append(matrix)
    return metric_shrinkage.compute_factor(*matrices)


def _learn(points: Floats, arrivals: Ints, embed: Embed, position: int, seed: int) -> Floats | None:
    """The metric of one half; None where its pairs are not of both kinds."""
    psi, values = embed(points, points.shape[1])
    settings = thresholds.PairSettings(candidates=N_CANDIDATES, decay=1.0, seed=seed)
    state = thresholds.update(
        pair_memory.init(points.shape[1]),
        thresholds.weight_columns(psi, values),
        points,
        arrivals,
        np.ones(len(points)),
        position,
        settings,
    )
    bounds = itml.compute_percentile_bounds(state.inputs)
    pairs = state.pairs
    if bounds is None or not pairs.has_both_kinds:
        return None
    fit, _ = itml.solve(
        pairs.differences, pairs.similar, *bounds, tolerance=TOLERANCE, max_sweeps=N_SWEEPS
    )
    return fit.matrix


def compute_kernel_map(
    points: Floats, bandwidth: float, alpha: float, count: int
) -> tuple[Floats, Floats]:
    """psi (n, m) and eigenvalues (m,) of the Gaussian kernel's diffusion map, m <= count. O(n^3).

    Examples
    --------
    >>> import numpy as np
    >>> psi, values = compute_kernel_map(np.arange(6.0)[:, None], 2.0, 1.0, 2)
    >>> psi.shape, bool(1 > values[0] > values[1] > 0)
    ((6, 2), True)
    """
    weights = kernel.gaussian_rows(points, points, bandwidth)
    masses = np.ones(len(points))
    density = operator.compute_density_weights(weights @ masses, alpha)
    normal = operator.normalise(density, masses, weights @ density)
    values, vectors = descending_eigh(normal.scaling[:, None] * weights * normal.scaling)
    columns = slice(1, 1 + count)
    return vectors[:, columns] / normal.constant[:, None], np.maximum(values[columns], 0.0)
