"""How far a published embedding is from the batch answer: residual, what lies outside, angle.

A small residual shows that every published column is an eigenvector; it does not show that the
leading ones were found. That is what ``outside`` is for: it is measured on directions that the
factor did not know (`probe_starts`), so that a mode the tracker lost shows up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.core.arrays import Floats

__all__ = ["SCOPE", "Certificate", "certify", "near_equal", "probe_starts", "sampled_residual"]

SCOPE = "the operator of the support, not of all events ever seen"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of a snapshot's distance to the batch answer on the same support.

    Attributes
    ----------
    residual : float
        max_i ||S v_i - lambda_i v_i|| / |lambda_1| over the published columns, ||v_i|| = 1.
    outside : float
        Estimate of the largest eigenvalue that was not published, lost modes included.
    gap : float
        lambda_k - lambda_(k+1); near 0 the k-dimensional subspace itself is not determined.
    angle_bound : float
        Sine of the largest angle to the true leading subspace, at most (Davis & Kahan), from
        lambda_k - outside - residual; 1 where that is not positive. As good as ``outside`` is.
    cut : tuple of int
        Components that cannot be told apart from the first one left out.
    method : str
        ``exact product`` (S v was computed) or ``sampled rows`` (an estimate; never claims).
    scope : str
        Which operator all this is about.
    met : bool or None
        True where residual <= tolerance and nothing larger than lambda_k lies outside; None
        where no tolerance was asked for.
    """

    residual: float
    outside: float
    gap: float
    angle_bound: float
    cut: tuple[int, ...]
    method: str
    scope: str
    met: bool | None


def probe_starts(n: int, count: int, seed: int, position: int) -> Floats:
    """Random signs, shape (n, count), a pure function of the seed and the stream position.

    One application of S minus what the factor knows turns them into the directions that the
    factor misses: a lost eigenvalue mu stands out of the truncated tail by mu / lambda_r.
    """
    generator = np.random.default_rng((seed, position, n))
    bits = np.unpackbits(np.frombuffer(generator.bytes(n * count // 8 + 1), dtype=np.uint8))
    return bits[: n * count].reshape(n, count).astype(np.float64) * 2.0 - 1.0


def near_equal(values: Floats, margin: float) -> list[range]:
    """Runs of the descending ``values`` whose spread, first to last, is at most ``margin``.

    Examples
    --------
    >>> import numpy as np
    >>> [list(run) for run in near_equal(np.array([0.9, 0.899, 0.5, 0.2]), 0.01)]
    [[0, 1], [2], [3]]
    """
    runs = []
    start = 0
    for i in range(1, len(values) + 1):
        if i == len(values) or values[start] - values[i] > margin:
            runs.append(range(start, i))
            start = i
    return runs


def certify(
    values: Floats,
    norms: Floats,
    block_norm: float,
    following: float,
    outside: float,
    tolerance: float | None,
    method: str,
) -> Certificate:
    """The certificate of k published columns.

    Parameters
    ----------
    values
        Published eigenvalues, shape (k,), descending.
    norms
        ||S v_i - lambda_i v_i||, shape (k,).
    block_norm
        Spectral norm of the (n, k) block of those residuals, for the angle.
    following
        lambda_(k+1) as far as known, 0 where the rank ends.
    outside
        Largest eigenvalue estimate among what is not published, probes included.
    tolerance
        Relative to lambda_1; None for an estimate that claims nothing.
    """
    largest = max(float(values[0]), np.finfo(np.float64).tiny)
    residual = float(norms.max()) / largest
    separation = float(values[-1]) - outside - float(norms.max())
    angle = min(1.0, block_norm / separation) if separation > 0 else 1.0
    margin = 2.0 * largest * (residual if tolerance is None else max(tolerance, residual))
    runs = near_equal(np.append(values, following), margin)
    cut = tuple(i for i in runs[-1] if i < len(values))
    met = None
    if tolerance is not None:
        met = residual <= tolerance and outside <= float(values[-1]) + tolerance * largest
    return Certificate(
        residual=residual,
        outside=float(outside),
        gap=float(values[-1]) - float(following),
        angle_bound=float(angle),
        cut=cut,
        method=method,
        scope=SCOPE,
        met=met,
    )


def sampled_residual(images: Floats, vectors: Floats, shares: Floats, values: Floats) -> Floats:
    """Residual norms estimated from a few rows of S V - V diag(lambda), shape (k,).

    It may be off by a factor of three either way: it never claims.

    Parameters
    ----------
    images, vectors
        The drawn rows of S V and of V, shape (m, k); drawn with replacement.
    shares
        Probability of each drawn row, shape (m,).
    values
        lambda, shape (k,).
    """
    errors = images - vectors * values
    norms: Floats = np.sqrt(np.mean(errors**2 / shares[:, None], axis=0))
    return norms
