"""Whether pairs that a map tells apart teach the same metric twice: on two halves of the events.

Each half of the support has a map of its own, which knows nothing of the other half; the
pairs of either teach a metric by ITML, and the cosine of their trace-free logarithms is what
reproduces.

Source: docs/algorithms/unsupervised.md. Halves of the pairs of one map would not do: both have that
map's mistakes, and on a uniform grid, where nothing is to be learned, agree to .6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.geometry import kernel
from streamembed.metric_learning import itml
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.pairs import pair_memory, shrinkage, thresholds
from streamembed.spectral import operator

__all__ = ["Embed", "kernel_map", "measure"]

Embed = Callable[[Floats, int], tuple[Floats, Floats]]

# Of either half: points of its map, pairs drawn (one in ten is clear), and how well ITML is solved.
POINTS, CANDIDATES, TOLERANCE, SWEEPS = 250, 3000, 1e-3, 30


def measure(
    points: Floats,
    births: Ints,
    embed: Embed,
    position: int,
    seed: int,
) -> float:
    """s in [0, 1]: 1 where two halves of the support teach the same metric, 0 where they disagree.

    Parameters
    ----------
    points
        Of the support, as the kernel sees them, shape (N, d).
    births
        Stream positions, shape (N,): they settle which event is in which half.
    embed
        Points (n, d) and a number of columns -> psi and eigenvalues of a map of their own.
    position
        Events learned: with the seed, it settles what is drawn.

    Notes
    -----
    Of each half at most 250 points are looked at. 0 where a half is too small, or all its pairs are
    of one kind. O(250^3 + 300 d^2) or so: 15 to 30 ms for 4 to 13 features.
    """
    order = np.argsort(births, kind="stable")
    first = shrinkage.halves(births[order], seed)
    matrices = []
    for part, half in enumerate((order[first], order[~first])):
        generator = np.random.default_rng((seed, position, part))
        if len(half) > POINTS:
            half = np.sort(generator.choice(half, POINTS, replace=False))
        if len(half) < points.shape[1] + 2:
            return 0.0
        matrix = _learn(points[half], births[half], embed, position, seed + part)
        if matrix is None:
            return 0.0
        matrices.append(matrix)
    return shrinkage.factor(*matrices)


def _learn(points: Floats, births: Ints, embed: Embed, position: int, seed: int) -> Floats | None:
    """The metric of one half; None where its pairs are not of both kinds."""
    psi, values = embed(points, points.shape[1])
    settings = thresholds.Settings(candidates=CANDIDATES, decay=1.0, seed=seed)
    state, _ = thresholds.update(
        pair_memory.init(points.shape[1]),
        thresholds.weight_columns(psi, values),
        points,
        births,
        np.ones(len(points)),
        position,
        settings,
    )
    bounds = itml.percentile_bounds(state.inputs)
    found = state.pairs
    if bounds is None or not found.similar.any() or found.similar.all():
        return None
    solved, _ = itml.solve(
        found.differences, found.similar, *bounds, tolerance=TOLERANCE, max_sweeps=SWEEPS
    )
    return solved.matrix


def kernel_map(points: Floats, bandwidth: float, alpha: float, count: int) -> tuple[Floats, Floats]:
    """psi (n, m) and eigenvalues (m,) of the Gaussian kernel's diffusion map, m <= count. O(n^3).

        Examples
        --------
        >>> from collections.abc import Callable

    import numpy as np
        >>> psi, values = kernel_map(np.arange(6.0)[:, None], 2.0, 1.0, 2)
        >>> psi.shape, bool(1 > values[0] > values[1] > 0)
        ((6, 2), True)
    """
    weights = kernel.gaussian_rows(points, points, bandwidth)
    masses = np.ones(len(points))
    density = operator.density_weights(weights @ masses, alpha)
    normal = operator.normalise(density, masses, weights @ density)
    values, vectors = descending_eigh(normal.scaling[:, None] * weights * normal.scaling)
    chosen = slice(1, 1 + count)
    return vectors[:, chosen] / normal.constant[:, None], np.maximum(values[chosen], 0.0)
