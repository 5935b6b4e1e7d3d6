"""The source's incremental diffusion map as printed: a baseline to measure against, not to use.

Source: docs/algorithms/zha-simon.md; Jain, section 2.3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.geometry.kernel import gaussian
from streamembed.numeric import svd
from streamembed.numeric.arrays import Floats
from streamembed.numeric.svd import TruncatedSVD

__all__ = ["LiteralMap", "coordinates", "init", "span", "update"]


@dataclass(frozen=True, slots=True, eq=False)
class LiteralMap:
    """The state of the source's incremental diffusion map over N points.

    Attributes
    ----------
    svd : TruncatedSVD
        Of the stale Markov matrix M, (N, N).
    degrees : (N,)
        D, row sums of W over all N points: exact.
    sums : (N,)
        D^(alpha), row sums of L^(alpha): the entries between old points are those of their time.
    bandwidth, alpha : float
        sigma of exp(-d^2 / sigma^2), and the power of the density that is divided out.
    """

    svd: TruncatedSVD
    degrees: Floats
    sums: Floats
    bandwidth: float
    alpha: float


def init(distances: Floats, bandwidth: float, alpha: float, rank: int) -> LiteralMap:
    """The state after the first N points, in batch: here nothing is stale yet.

    ``distances`` are unsquared, shape (N, N); ``rank`` triplets of M are kept. O(N^3).

    Source: Jain, eq. (4), (6), (7).
    """
    weights = gaussian(distances**2, bandwidth)
    degrees = weights.sum(axis=1)
    laplacian = weights / np.outer(degrees, degrees) ** alpha
    sums = laplacian.sum(axis=1)
    return LiteralMap(
        svd.decompose(laplacian / sums[:, None], rank), degrees, sums, bandwidth, alpha
    )


def update(state: LiteralMap, rows: Floats, rank: int) -> LiteralMap:
    """The state after p more points, by the letter of the source; its errors are kept.

    Parameters
    ----------
    rows
        Unsquared distances of the new points to all, themselves last: shape (p, N + p), the
        transpose of the box's T. O(N (p + k) k + N p^2 + (k + p)^3).

    Notes
    -----
    Literal, and wrong: a new point changes the degree of every old point, hence *every* entry of
    L^(alpha) and of M. The box computes the new rows R and columns C only ("by storing the
    previous values of row sum"), with the sums of now, so that old entries of M keep the sums of
    their own time, a row of M no longer sums to 1 and M has no diffusion. Also literal, and wrong:
    M is not symmetric, so its left singular vectors are not the right eigenvectors of eq. (8).

    Source: Jain, section 2.3, steps 1-6. Differs: D and W are not stored, for no later step
    reads them; the SVD update is the corrected one above.
    """
    old = len(state.degrees)
    weights = gaussian(rows**2, state.bandwidth)
    degrees = np.append(state.degrees + weights[:, :old].sum(axis=0), weights.sum(axis=1))
    laplacian = weights / np.outer(degrees[old:], degrees) ** state.alpha
    sums = np.append(state.sums + laplacian[:, :old].sum(axis=0), laplacian.sum(axis=1))
    wider = svd.append_columns(state.svd, (laplacian[:, :old] / sums[:old]).T, rank)
    taller = svd.append_rows(wider, laplacian / sums[old:, None], rank)
    return LiteralMap(taller, degrees, sums, state.bandwidth, state.alpha)


def coordinates(state: LiteralMap, n_components: int, diffusion_time: float) -> Floats:
    """sigma_l^t u_l for l = 1 .. n_components, in the place of the lambda_l^t psi_l of eq. (8).

    Literal (step 7, "use U, S"), and wrong: singular for eigen. The first triplet is left out as
    the trivial one, though u_0 is not constant. Columns have unit length, shape (N, n_components).

    Differs: the box takes the SVD of M^t and then appends rows of M; here it is always M, and
    sigma is raised to t, which is the box itself at t = 1.
    """
    chosen = slice(1, 1 + n_components)
    result: Floats = state.svd.left[:, chosen] * state.svd.values[chosen] ** diffusion_time
    return result


def span(state: LiteralMap, count: int) -> Floats:
    """Orthonormal basis of what the literal map puts for psi_0 .. psi_(count-1): (N, count).

    Compare by the largest angle with the batch right eigenvectors, the constant one included.
    """
    return state.svd.left[:, :count]
