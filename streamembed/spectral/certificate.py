"""How far a published embedding is from the batch answer: residual, what lies outside, angle.

A small residual shows that every published column is an eigenvector; it does not show that the
leading ones were found. That is what ``outside`` and ``outside_bound`` are for: they are measured
on directions outside of trial functions, factor or block (`streamembed.spectral.probes`,
`streamembed.spectral.sketched_view`), or follow from a whole decomposition.
docs/algorithms/certificate.md states what is proven and what has a chance to miss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.linalg import lapack

from streamembed.notebook import list_fields, write_table
from streamembed.numeric.arrays import Floats
from streamembed.numeric.codec import Count

TINY = float(np.finfo(np.float64).tiny)
# Where even the first eigenvalue is smaller than this, and too small for its tolerance, the
# operator is its constant vector: there are no components to publish.
NEGLIGIBLE = 1e-10
# Halvings of the interval in which lambda_(k+1) is: a 256th of what a residual leaves open.
BISECTIONS = 8
# A component carried by fewer events than this share is that of outliers: of 1,120 maps, those with
# one lost twice as much of the class information of neighbours. In supports
# of 60 to 300 events the line is at 3; in smaller ones, of which any component takes a few, below.
LONE_SHARE, LONE_POINTS, LONE_OF_FEW = 0.01, 3.0, 0.05
# Eigenvalues above it are those of parts that stand apart.
APART = 0.999
SCOPE = "the operator of the support, not of all events ever seen"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Bounds on a snapshot's distance to the batch answer on the same support.

    Attributes
    ----------
    residual : float
        max_i ``||S v_i - lambda_i v_i|| / |lambda_1|`` over the published columns, with
        ``||v_i|| = 1``, of the requested operator: the rounding of weights and products is added.
        ``method`` says how it was found.
    outside : float
        The largest observed eigenvalue that is not published: a lower bound on lambda_(k+1).
    outside_bound : float
        Upper bound on lambda_(k+1): exact after a full decomposition, otherwise with a probability
        of at most 3e-4 of missing an eigenvalue that trial functions, factor or block lack. It is
        as of ``bound_age`` events ago.
    gap : float
        lambda_k - outside; near 0 the k-dimensional subspace itself is not determined.
    angle_bound : float
        Upper bound on the sine of the largest angle to the true leading subspace (Davis & Kahan),
        from lambda_k - outside_bound - residual; 1 if that is not positive.
    cut : tuple of int
        Components that cannot be distinguished from the first one left out.
    method : str
        How the residual was found. ``sketched bound``: it is at most that, by kept products and
        probes, but for a chance of 1e-4 per column; ``exact product``: S v was computed.
    scope : str
        The operator that this certificate is about.
    met : bool or None
        True if residual <= tolerance and no eigenvalue outside exceeds lambda_k by more than the
        tolerance, as far as ``outside_bound`` knows; None without a tolerance.
    effective_points : tuple of float
        By how many events each component is carried: all, if it were constant; 1, if a single
        event stands apart from all others. Says how good the map is, not how exact.
    lone : tuple of int
        Components carried by fewer than 1 % of the events, or by fewer than 3 of at least 60.
    parts : int
        Parts that hardly any weight joins, at least: 1, and one for each eigenvalue above 0.999.
    isolated : int
        Of a graph of neighbours: points that nothing joins; of Isomap: those outside of the largest
        part. Their coordinates are 0.
    negative_mass : float
        Of classical scaling and kernel PCA of learned distances, and of Isomap: the share of
        negative eigenvalues in the sum of all sizes: exact up to 1,000 points and of Isomap, a
        lower bound above. 0 where the distances, or lengths of paths, are Euclidean, and of every
        other method. Of Isomap with more points than ``n_landmarks`` it is that of the paths
        between landmarks alone, which is smaller than that of all.
    residual_last : float
        The residual relative to the last published eigenvalue, at most 1: small where the smallest
        component is known as well as the first.
    residual_rate : float or None
        Of a graph of neighbours: the residual relative to 1 - lambda_k, the rate at which a walk
        forgets the last component, at most 1; None of other methods.
    bound_age : int
        Of a graph of neighbours: how many events ago ``outside_bound`` was taken. What it does not
        know of is carried by events that arrived since, or was joined by events that have left.
        Residual and parts are of now. 0 of other methods, and of ``snapshot(fresh=True)``.
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
    lone: tuple[Count, ...] = ()
    parts: Annotated[int, "positive"] = 1
    isolated: Count = 0
    negative_mass: float = 0.0
    residual_last: float = 0.0
    residual_rate: float | None = None
    bound_age: Count = 0

    def _repr_html_(self) -> str:
        """What notebooks show: all fields."""
        claim = {True: "met", False: "not met", None: "an estimate, without a claim"}[self.met]
        return write_table(f"Certificate: {claim}", list_fields(self))


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """Bounds on the eigenvalues of S, whatever is published."""

    # lambda_(k+1) is at least the first and at most the second.
    estimate: float
    bound: float
    leading: Floats  # (<= k,): lambda_1 to lambda_k are at least these


def bound_next_eigenvalue(
    ritz: Floats, coupling: Floats, beyond: float, published: int, rounding: float
) -> Outside:
    """lambda_(k+1) from a block of orthonormal vectors and a bound on the rest.

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
    later, part = ritz[published:], coupling[published:, published:]
    first = float(later[0])
    squared = float(np.linalg.norm(part))
    high = 0.5 * (first + beyond) + float(np.sqrt(0.25 * (first - beyond) ** 2 + squared))
    low = max(first, beyond)
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if middle - low <= rounding:
            break
        complement = part / (beyond - middle)
        complement.flat[:: len(later) + 1] += middle - later
        is_above = not lapack.dpotrf(complement.T, overwrite_a=True, clean=False)[1]
        low, high = (low, middle) if is_above else (middle, high)
    return Outside(first, min(high, 1.0), ritz[:published])


def certify(
    values: Floats,
    norms: Floats,
    block_norm: float,
    outside: Outside,
    rounding: float,
    tolerance: float | None,
    method: str,
    floor: float = NEGLIGIBLE,
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
    estimate = min(float(outside.estimate), 1.0)  # no eigenvalue is larger, but for rounding
    cut = np.flatnonzero(values - min(estimate, last) <= margin)
    met = None
    if tolerance is not None:
        # without a single component: below what double precision can certify at that tolerance
        is_empty = min(rounding / tolerance, floor) if rounding <= floor else -1.0
        allowance = max(tolerance * largest, rounding) if values[0] > 0 else is_empty
        # a later pair must not stand in the place of an earlier one
        short = float((outside.leading - values[: len(outside.leading)]).max(initial=0.0))
        small = max(estimate, outside.bound) <= last + allowance
        met = bool(residual <= tolerance and small and short <= allowance)
    return Certificate(
        residual=float(residual),
        outside=estimate,
        outside_bound=float(min(1.0, max(outside.bound, estimate) + rounding)),
        gap=last - estimate,
        angle_bound=float(angle),
        cut=tuple(cut.tolist()),
        method=method,
        scope=SCOPE,
        met=met,
        residual_last=float(worst / last) if worst < last else float(worst > 0.0),
        parts=1 + int(np.count_nonzero(np.append(values, estimate) > APART)),
    )


def scale_certificate(certificate: Certificate, unit: float) -> Certificate:
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


def invert_values(values: Floats, unit: float) -> Floats:
    """mu of theta = unit / (mu + unit), in (0, 1]; inf of 0."""
    mu: Floats = unit * np.divide(
        1.0 - values, values, out=np.full_like(values, np.inf), where=values > 0
    )
    return np.maximum(mu, 0.0)


def invert_certificate(certificate: Certificate, unit: float) -> Certificate:
    """That of the bottom of an operator whose pairs were given as theta = unit / (mu + unit).

    ``outside`` is the least observed mu that is not published, ``outside_bound`` the bound that
    none is below, ``gap`` by how much the first is larger than the last published one.
    """
    outside, bound, last = invert_values(
        np.array(
            [certificate.outside, certificate.outside_bound, certificate.gap + certificate.outside]
        ),
        unit,
    ).tolist()
    gap = outside - last if outside < np.inf else np.inf
    return replace(certificate, outside=outside, outside_bound=bound, gap=gap, parts=1)


def add_map_figures(
    certificate: Certificate, psi: Floats, masses: Floats, stationary: Floats
) -> Certificate:
    """The certificate with figures about the map: which points carry columns, and the parts.

    Parameters
    ----------
    psi
        Published columns, shape (n, k), sum(pi psi^2) = 1; those without an eigenvalue are zero.
    masses, stationary
        m and pi, shape (n,).
    """
    shares = stationary * np.ascontiguousarray(psi.T) ** 2  # (k, n)
    total = shares.sum(axis=1)
    squares = np.square(shares, out=shares) @ (1.0 / masses)
    is_positive = squares > 0.0
    events = float(masses.sum())
    points = np.divide(total**2, squares, where=is_positive, out=np.full(len(total), events))
    least = max(LONE_SHARE * events, min(LONE_POINTS, LONE_OF_FEW * events))
    lone = tuple(np.flatnonzero(is_positive & (points < least)).tolist())
    return replace(certificate, effective_points=tuple(points.tolist()), lone=lone)
