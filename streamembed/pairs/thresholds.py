"""Similar and dissimilar pairs without labels, by squared distances in an embedding.

Symbols: N = points, m = coordinates, d = features; p = squared distance of a pair in the embedding;
t_s, t_d = thresholds on p: similar where p <= t_s, dissimilar where p >= t_d.

Source: Jain, section 1.3; docs/algorithms/pairs.md. Differs: 1. pairs are a sample, not all N^2;
2. the coordinates may be lambda^t psi (`weight_columns`); 3. pairs of equal points, or of equal
coordinates, are dropped: they satisfy every metric, or none.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.numeric.arrays import Bools, Floats, Ints

# Coordinates that differ by less than this share of the largest are equal: eigenvectors are known
# to 1e-13 or so. It is squared where squared distances are compared.
EQUAL = 1e-12
# t_s and t_d, in per cent of the distances.
PERCENTILES = (5.0, 95.0)


@dataclass(frozen=True, slots=True, eq=False)
class DrawnPairs:
    """Pairs beyond a threshold, with the evidence for what they are."""

    # Rows of both points, the smaller one first.
    left: Ints  # (p,)
    right: Ints  # (p,)
    similar: Bools  # (p,): True for similar pairs, False for dissimilar ones
    d2: Floats  # (p,): squared distance in the embedding
    # t_s and t_d; NaN where no pair was drawn.
    similar_below: float
    dissimilar_above: float

    def __len__(self) -> int:
        return len(self.d2)


def weight_columns(psi: Floats, eigenvalues: Floats, diffusion_time: float | None = 16.0) -> Floats:
    """Embedding coordinates in which pairs are judged, shape (N, m).

    Parameters
    ----------
    psi
        Right eigenvectors of P, shape (N, m).
    eigenvalues
        Of P, descending, shape (m,).
    diffusion_time
        t of (lambda / lambda_1)^t psi; None: psi as it is, the source's Laplacian eigenmap.

    Notes
    -----
    Differs: divided by lambda_1^t, which changes no judgement of one map, and keeps distances of
    consecutive maps comparable: at t = 16 a lambda_1 of .85 in place of .9 would shrink squared
    distances 6 times.

    Examples
    --------
    >>> import numpy as np
    >>> weight_columns(np.ones((1, 2)), np.array([0.8, 0.4]), 2.0).tolist()
    [[1.0, 0.25]]
    """
    if diffusion_time is None or len(eigenvalues) == 0 or eigenvalues[0] <= 0:
        return psi
    with np.errstate(under="ignore"):
        result: Floats = psi * np.maximum(eigenvalues / eigenvalues[0], 0.0) ** diffusion_time
    return result


def draw_pairs(
    coordinates: Floats,
    points: Floats,
    candidates: int,
    generator: np.random.Generator,
    percentiles: tuple[float, float] = PERCENTILES,
    similar_below: float | None = None,
    dissimilar_above: float | None = None,
) -> DrawnPairs:
    """Pairs of points, those that an embedding puts clearly together or apart.

    Parameters
    ----------
    coordinates, points
        The points in the embedding, (N, m), see `weight_columns`, and as they are, (N, d).
    candidates
        Pairs drawn; of these one in ten is clear.
    percentiles
        t_s and t_d, in per cent of the squared distances of the candidates.
    similar_below, dissimilar_above
        t_s and t_d by hand; None: by the percentiles.

    Notes
    -----
    The order of the points, and the scale and rotation of the embedding, change nothing but what is
    drawn. Where the thresholds are not apart no pair is clear. O(n (m + d + log n)).
    """
    n = len(points)
    ends = np.zeros((0, 2), dtype=np.int64)
    if n > 1:
        left, right = generator.integers(0, n, candidates), generator.integers(0, n - 1, candidates)
        ends = np.sort(np.column_stack([left, right + (right >= left)]), axis=1)
        ends = np.unique(ends, axis=0)
    d2, inputs = (_compute_squares(part, ends) for part in (coordinates, points))
    largest = np.einsum("ij,ij->i", coordinates, coordinates).max(initial=0.0)
    is_valid = (d2 > EQUAL**2 * largest) & (inputs >= np.finfo(np.float64).tiny)
    ends, d2 = ends[is_valid], d2[is_valid]
    low, high = np.percentile(d2, percentiles).tolist() if len(d2) else (np.nan, np.nan)
    low = low if similar_below is None else similar_below
    high = high if dissimilar_above is None else dissimilar_above
    is_clear = ((d2 <= low) | (d2 >= high)) & (low < high)
    ends, d2 = ends[is_clear], d2[is_clear]
    return DrawnPairs(ends[:, 0], ends[:, 1], d2 <= low, d2, low, high)


def _compute_squares(rows: Floats, ends: Ints) -> Floats:
    """Squared distances of pairs of rows."""
    steps = rows[ends[:, 0]] - rows[ends[:, 1]]
    squares: Floats = np.einsum("ij,ij->i", steps, steps)
    return squares
