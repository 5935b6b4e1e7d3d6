"""How far a published embedding is from the batch answer: residual, what lies outside, angle.

A small residual shows that every published column is an eigenvector; it does not show that the
leading ones were found. That is what ``outside`` and ``outside_bound`` are for: they are measured
on directions that the factor did not know (`streamembed.spectral.probes`), or follow from a whole
decomposition. docs/algorithms/certificate.md says what is proven and what has a chance to miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.numeric.arrays import Floats

__all__ = [
    "SCOPE",
    "Certificate",
    "Outside",
    "certify",
    "describe",
    "following",
    "in_units_of",
    "inverse",
    "near_equal",
    "of_inverses",
    "sampled_residual",
]

TINY = float(np.finfo(np.float64).tiny)
# Where even the first eigenvalue is smaller than this, and too small for its tolerance, the
# operator is its constant vector: there are no components to publish.
NOTHING = 1e-10
# Halvings of the interval in which lambda_(k+1) is: a 32nd of what a residual leaves open.
BISECTIONS = 5
# A component carried by fewer events than this share is that of outliers: of 1,120 maps, those with
# one lost twice as much of what neighbours tell of the class (docs/decisions/0012). In supports of
# 60 to 300 events the line is at 3; in smaller ones, of which any component takes a few, below.
LONE_SHARE, LONE_POINTS, LONE_OF_FEW = 0.01, 3.0, 0.05
# Eigenvalues above it are those of parts that stand apart.
APART = 0.999
SCOPE = "the operator of the support, not of all events ever seen"


@dataclass(frozen=True, slots=True)
class Certificate:
    """What is known of a snapshot's distance to the batch answer on the same support.

    Attributes
    ----------
    residual : float
        max_i ``||S v_i - lambda_i v_i|| / |lambda_1|`` over the published columns, with
        ``||v_i|| = 1``, of the requested operator: the rounding of the kernel ring and its products
        is added.
    outside : float
        The largest eigenvalue that was seen and is not published: a lower bound on lambda_(k+1).
    outside_bound : float
        Upper bound on lambda_(k+1): exact after a full decomposition, otherwise with a probability
        of at most 3e-4 of missing an eigenvalue that the factor does not know.
    gap : float
        lambda_k - outside; near 0 the k-dimensional subspace itself is not determined.
    angle_bound : float
        Upper bound on the sine of the largest angle to the true leading subspace (Davis & Kahan),
        from lambda_k - outside_bound - residual; 1 if that is not positive.
    cut : tuple of int
        Components that cannot be distinguished from the first one left out.
    method : str
        ``exact product`` (S v was computed) or ``sampled rows`` (an estimate; never claims).
    scope : str
        The operator that this certificate is about.
    met : bool or None
        True if residual <= tolerance and no eigenvalue outside exceeds lambda_k by more than the
        tolerance; None without a tolerance.
    effective_points : tuple of float
        By how many events each component is carried: all, if it were constant; 1, if a single
        event stands apart from all others. Says how good the map is, not how exact.
    lone : tuple of int
        Components carried by fewer than 1 % of the events, or by fewer than 3 of at least 60.
    parts : int
        Parts that hardly any weight joins, at least: 1, and one for each eigenvalue above 0.999.
    missed : int or None
        Of a graph of neighbours: eigenvalues above the published ones that are not among them, by a
        count that proves it; None where they were not counted.
    isolated : int
        Of a graph of neighbours: points that nothing joins; of Isomap: those outside of the largest
        part. Their coordinates are 0.
    negative_mass : float
        Of classical scaling and kernel PCA of learned distances, and of Isomap: the share of
        negative eigenvalues in the sum of all sizes, to about 0.03; 0 where the distances, or
        lengths of paths, are Euclidean, and of every other method.
    stale : float
        Of Isomap: mean relative error of the shortest paths that were used, by a sample; 0 where
        they are exact.
    """

    residual: float
    outside: float
    outside_bound: float
    gap: float
    angle_bound: float
    cut: tuple[int, ...]
    method: str
    scope: str
    met: bool | None
    effective_points: tuple[float, ...] = ()
    lone: tuple[int, ...] = ()
    parts: int = 1
    missed: int | None = None
    isolated: int = 0
    negative_mass: float = 0.0
    stale: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """What is known of eigenvalues, whatever is published.

    Attributes
    ----------
    known, bound : float
        lambda_(k+1) is at least the one and at most the other.
    leading : (<= k,)
        lambda_1 to lambda_k are at least these.
    """

    known: float
    bound: float
    leading: Floats


def following(
    ritz: Floats, coupling: Floats, beyond: float, published: int, rounding: float
) -> Outside:
    """lambda_(k+1) from a block of orthonormal vectors and what is known of the rest.

    Parameters
    ----------
    ritz
        Ritz values of S on the block, descending, shape (m,).
    coupling
        K^T K, shape (m, m), in the order of ``ritz``: K is the part of S @ Ritz vectors that is
        outside of the block.
    beyond
        No eigenvalue of S on the orthogonal complement of the block is larger.
    published
        k.
    rounding
        Of the block's product, in norm.

    Notes
    -----
    With G the Ritz values after the k-th, sigma > beyond is above lambda_(k+1) where
    G + K_G^T K_G / (sigma - beyond) has no eigenvalue above sigma: the Schur complement of
    sigma - S on the complement of the first k is then positive definite, and Cauchy's interlacing
    does the rest.
    """
    if len(ritz) <= published:
        return Outside(0.0, beyond, ritz)
    rest, part = ritz[published:], coupling[published:, published:]
    first = float(rest[0])
    squared = max(float(np.linalg.eigvalsh(part)[-1]), 0.0)
    high = 0.5 * (first + beyond) + float(np.sqrt(0.25 * (first - beyond) ** 2 + squared))
    low = max(first, beyond)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if middle - low <= rounding:
            break
        top = np.linalg.eigvalsh(np.diag(rest) + part / (middle - beyond))[-1]
        low, high = (low, middle) if top <= middle else (middle, high)
    return Outside(first, min(high, 1.0), ritz[:published])


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
    outside: Outside,
    rounding: float,
    tolerance: float | None,
    method: str,
    floor: float = NOTHING,
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
    outside
        Of the operator that was measured.
    rounding
        By how much the operator that was measured may differ from the one that was asked for, in
        norm: it is added to every residual. Eigenvalues below it are nothing.
    tolerance
        Relative to lambda_1; None for an estimate that claims nothing.
    floor
        Eigenvalues below this count as zero. An operator known to no more than a larger
        ``rounding`` is never certified to have no components.
    """
    largest, last = max(float(values[0]), rounding, TINY), float(values[-1])
    worst = float(norms.max()) + (rounding if values[0] > 0 else 0.0)
    residual = worst / largest
    separation = last - min(1.0, outside.bound) - block_norm - 2.0 * rounding
    angle = min(1.0, (block_norm + rounding) / separation) if separation > 0 else 1.0
    margin = 2.0 * largest * (residual if tolerance is None else max(tolerance, residual))
    known = min(float(outside.known), 1.0)  # no eigenvalue is larger, but for rounding
    runs = near_equal(np.append(values, min(known, last)), margin)
    cut = tuple(i for i in runs[-1] if i < len(values))
    met = None
    if tolerance is not None:
        # without a single component: below what double precision can certify at that tolerance
        nothing = min(rounding / tolerance, floor) if rounding <= floor else -1.0
        room = max(tolerance * largest, rounding) if values[0] > 0 else nothing
        # turning may have put a later eigenvalue in the place of an earlier one
        short = float((outside.leading - values[: len(outside.leading)]).max(initial=0.0))
        small = max(known, outside.bound) <= last + room
        met = bool(residual <= tolerance and small and short <= room)
    return Certificate(
        residual=residual,
        outside=known,
        outside_bound=min(1.0, max(outside.bound, known) + rounding),
        gap=last - known,
        angle_bound=float(angle),
        cut=cut,
        method=method,
        scope=SCOPE,
        met=met,
        parts=1 + int(np.count_nonzero(np.append(values, known) > APART)),
    )


def in_units_of(certificate: Certificate, unit: float) -> Certificate:
    """That of an operator whose eigenvalues were given in units of ``unit``.

    None of them is the 1 of a walk, and a bound of 1 was none.
    """
    bound = certificate.outside_bound
    return replace(
        certificate,
        outside=certificate.outside * unit,
        outside_bound=bound * unit if bound < 1.0 else np.inf,
        gap=certificate.gap * unit,
        parts=1,
    )


def inverse(values: Floats, unit: float) -> Floats:
    """mu of theta = unit / (mu + unit), in (0, 1]; inf of 0."""
    mu: Floats = unit * np.divide(
        1.0 - values, values, out=np.full_like(values, np.inf), where=values > 0
    )
    return np.maximum(mu, 0.0)


def of_inverses(certificate: Certificate, unit: float) -> Certificate:
    """That of the bottom of an operator whose pairs were given as theta = unit / (mu + unit).

    ``outside`` is the least mu that was seen and is not published, ``outside_bound`` what none is
    below, ``gap`` by how much the first is larger than the last published one.
    """
    seen, bound, last = inverse(
        np.array(
            [
                certificate.outside,
                certificate.outside_bound,
                certificate.gap + certificate.outside,
            ]
        ),
        unit,
    ).tolist()
    gap = seen - last if seen < np.inf else np.inf
    return replace(certificate, outside=seen, outside_bound=bound, gap=gap, parts=1)


def describe(
    certificate: Certificate, psi: Floats, masses: Floats, stationary: Floats
) -> Certificate:
    """The certificate with what it says of the map: who carries the columns, and how many parts.

    Parameters
    ----------
    psi
        Published columns, shape (n, k), sum(pi psi^2) = 1; those without an eigenvalue are zero.
    masses, stationary
        m and pi, shape (n,).
    """
    shares = stationary[:, None] * psi**2
    total = shares.sum(axis=0)
    squares = (shares**2 / masses[:, None]).sum(axis=0)
    known = squares > 0.0
    points = np.divide(total**2, squares, where=known, out=np.full(len(total), masses.sum()))
    events = float(masses.sum())
    least = max(LONE_SHARE * events, min(LONE_POINTS, LONE_OF_FEW * events))
    lone = tuple(np.flatnonzero(known & (points < least)).tolist())
    return replace(certificate, effective_points=tuple(points.tolist()), lone=lone)


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
