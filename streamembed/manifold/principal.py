"""Principal axes of a stream: its moments, or their leading part, and the axes of either.

Symbols: x = rows, n = how many count (not whole under forgetting), S = sum (x - mean)(x - mean)^T;
theta, v = eigenvalues and eigenvectors of S; s = sqrt(theta), the singular values of the centred
rows; b = rows that come or go at once; r = columns of a truncated state.

`Moments` are exact, can remove rows again, and take d^2 numbers. `OneSided` keeps r axes, for many
features; `TwoSided` (`streamembed.manifold.two_sided`) is that of a window. `compute_axes` reads
any.

Source: docs/algorithms/pca.md; Chan, Golub & LeVeque (1983), The American Statistician 37(3),
242-247 (moments); Ross, Lim, Lin & Yang (2008), Int. J. Computer Vision 77, 125-141 (the row of the
mean in the update of the axes); Levy & Lindenbaum (2000), IEEE Trans. Image Processing 9(8),
1371-1374 (forgetting).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dpotrf

from streamembed.manifold.two_sided import TwoSided
from streamembed.numeric.arrays import Floats
from streamembed.numeric.codec import Count
from streamembed.numeric.linalg import descending_eigh, largest_pairs
from streamembed.spectral.alignment import choose_signs

EPS, TINY = float(np.finfo(np.float64).eps), float(np.finfo(np.float64).tiny)
# Singular values below this share of the largest have no direction in double precision.
NO_VARIANCE = 1e-12
# New directions below this share of the whole are rounding: products of some thousand terms.
ROUNDING = 1e-13
# Up to here all of S is decomposed: a millisecond.
SMALL = 128
# Columns beyond those that are published: the wider the gap behind them, the fewer the products.
GUARDS = 12
# Rounds of the block, and columns for each direction that it lacks. One or two rounds are enough as
# a rule; where more are needed the whole decomposition is faster.
ROUNDS, POWERS = 6, 3
# Of its eigenvalue, the residual at which an axis has converged: at a gap of 1e-1 an angle of 1e-4.
SOLVED = 1e-5
# The same of axes that waiting rows have updated since.
UPDATED = 1e-3
# Below this overlap with every axis of the reference an axis is new: its sign is its own.
LEAST_OVERLAP = 0.1
# Eigenvalues nearer than this share of the smaller one are a cluster, whose axes are aligned
# together: residuals and correlations of whitened coordinates are smaller than that.
NEAR = 1e-3


def choose_rank(n_components: int) -> int:
    """The rank with which `OneSided` has so many accurate axes, on chunks of ten.

    Examples
    --------
    >>> choose_rank(2), choose_rank(10)
    (22, 40)
    """
    return max(4 * n_components, n_components + 20)


# ------------------------------------------------------------------------------------------- states


@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Count, mean and scatter of rows, exact up to rounding."""

    count: float  # n, the sum of the weights
    mean: Annotated[Floats, "d"]
    scatter: Annotated[Floats, "d d"]  # S, symmetric up to the rounding of a product

    @classmethod
    def init(cls, n_features: int) -> Self:
        """No rows."""
        return cls(0.0, np.zeros(n_features), np.zeros((n_features, n_features)))

    @property
    def total(self) -> float:
        """The trace of S."""
        return float(np.trace(self.scatter))

    def join(self, rows: Floats, weights: Floats | None = None) -> Self:
        """With these rows (b, d) too, each counting once or as much as its weight. O(b d^2)."""
        if not len(rows):
            return self
        weight, mean, spread = _compute_moment_update(self, rows, weights)
        n = self.count + weight
        return replace(self, count=n, mean=mean, scatter=_add_products(self.scatter, spread))

    def slide(self, rows: Floats, leaving: Floats) -> Self:
        """With some rows (b, d) joined, then others (c, d) removed, which had joined with weight 1.

        O((b + c) d^2). Rounding remains: 1e-16 of the largest S so far, per row that is removed.
        """
        if not len(leaving):
            return self.join(rows)
        n, mean, gained = self.count, self.mean, rows
        if len(rows):
            weight, mean, gained = _compute_moment_update(self, rows, None)
            n += weight
        rest = n - len(leaving)
        if rest <= 0.0:
            return type(self).init(len(mean))
        steps = leaving - mean
        step = steps.mean(axis=0)
        lost = np.concatenate([steps - step, np.sqrt(len(leaving) * n / rest) * step[None]])
        scatter = _add_products(self.scatter, np.concatenate([gained, lost]), len(lost))
        return replace(self, count=rest, mean=mean - len(leaving) / rest * step, scatter=scatter)

    def forget(self, factor: float) -> Self:
        """Every row counts ``factor`` times as much as before."""
        return replace(self, count=factor * self.count, scatter=factor * self.scatter)

    def merge(self, other: Self) -> Self:
        """Of both sets of rows; commutative and associative up to rounding."""
        if not self.count or not other.count:
            return self if self.count else other
        n = self.count + other.count
        share = other.count / n
        step = other.mean - self.mean
        return replace(
            self,
            count=n,
            mean=self.mean + share * step,
            scatter=self.scatter + other.scatter + self.count * share * np.outer(step, step),
        )


@dataclass(frozen=True, slots=True, eq=False)
class OneSided:
    """Count, mean and leading axes of rows: S ~ V diag(s^2) V^T, of which only V is kept."""

    count: float  # n, the sum of the weights
    mean: Annotated[Floats, "d"]
    values: Annotated[Floats, "r"]  # s, positive, descending
    axes: Annotated[Floats, "d r"]  # V, orthonormal columns
    tail: float  # what was cut off, as a sum of squares: with the sum of s^2, the exact trace of S
    rank: int  # the most columns to keep

    @classmethod
    def init(cls, n_features: int, rank: int) -> Self:
        """No rows."""
        none = np.zeros((n_features, 0))
        return cls(0.0, np.zeros(n_features), np.zeros(0), none, 0.0, min(rank, n_features))

    @property
    def total(self) -> float:
        """The trace of S, with what was cut off."""
        return float(self.values @ self.values + self.tail)

    def join(self, rows: Floats, weights: Floats | None = None) -> Self:
        """With these rows (b, d) too, each counting once or as much as its weight.

        The best r axes of what is kept and the rows. O(d (r + b)^2).

        Differs: 1. Ross et al. orthogonalise once; here it is twice, and directions of rounding
        are dropped. 2. What is cut off is summed up.
        """
        if not len(rows):
            return self
        weight, mean, spread = _compute_moment_update(self, rows, weights)
        return self._append(spread, replace(self, count=self.count + weight, mean=mean))

    def forget(self, factor: float) -> Self:
        """Every row counts ``factor`` times as much as before."""
        return replace(
            self,
            count=factor * self.count,
            values=np.sqrt(factor) * self.values,
            tail=factor * self.tail,
        )

    def merge(self, other: Self) -> Self:
        """Of both sets of rows, except what either has cut off."""
        if not self.count or not other.count:
            return self if self.count else other
        n = self.count + other.count
        share = other.count / n
        step = other.mean - self.mean
        rows = other.values[:, None] * other.axes.T
        rows = np.concatenate([rows, np.sqrt(self.count * share) * step[None]])
        base = replace(self, count=n, mean=self.mean + share * step, tail=self.tail + other.tail)
        return self._append(rows, base)

    def _append(self, rows: Floats, base: Self) -> Self:
        """``base`` with the axes of this state and of centred rows."""
        scale = max(self.values[:1].max(initial=0.0), float(np.linalg.norm(rows)))
        if scale == 0.0:
            return base
        r = len(self.values)
        inside = rows @ self.axes  # (b, r)
        outside = rows.T - self.axes @ inside.T  # (d, b)
        remainder = self.axes.T @ outside
        outside -= self.axes @ remainder
        inside += remainder.T
        basis = _build_basis(outside, self.axes, scale)
        core = np.zeros((r + len(rows), r + basis.shape[1]))
        core[:r, :r] = np.diag(self.values)
        core[r:, :r] = inside
        core[r:, r:] = outside.T @ basis
        _, values, turn = np.linalg.svd(core, full_matrices=False)
        n_kept = min(self.rank, int(np.count_nonzero(values > ROUNDING * values[0])))
        axes = self.axes @ turn[:n_kept, :r].T + basis @ turn[:n_kept, r:].T
        tail = base.tail + float(values[n_kept:] @ values[n_kept:])
        return replace(base, values=values[:n_kept].copy(), axes=axes, tail=tail)


def _compute_moment_update(
    state: Moments | OneSided, rows: Floats, weights: Floats | None
) -> tuple[float, Floats, Floats]:
    """Weight of the rows, the mean with them, and rows (b + 1, d) whose squares S grows by."""
    # without a mean relative to the first row: a constant feature has a scatter of exactly 0
    base = state.mean if state.count else rows[0]
    steps = rows - base
    if weights is None:
        weight = float(len(rows))
        step = steps.sum(axis=0) / weight
        spread = steps - step
    else:
        weight = float(weights.sum())
        step = weights @ steps / weight if weight else np.zeros_like(base)
        spread = np.sqrt(weights)[:, None] * (steps - step)
    n = state.count + weight
    share = weight / n if n else 0.0
    spread = np.concatenate([spread, np.sqrt(state.count * share) * step[None]])
    return weight, base + share * step, spread


def _add_products(scatter: Floats, rows: Floats, lost: int = 0) -> Floats:
    """S + rows^T rows, a new array, where the last ``lost`` of the rows count negative.

    BLAS adds in place, for half the time of a sum of two arrays.
    """
    signed = rows
    if lost:
        signed = rows.copy()
        signed[-lost:] *= -1.0
    total: Floats = dgemm(
        1.0, rows.T, signed.T, beta=1.0, c=scatter.copy().T, trans_b=True, overwrite_c=True
    ).T
    return total


def _build_basis(block: Floats, axes: Floats, scale: float) -> Floats:
    """Orthonormal basis of a block (d, b) orthogonal to ``axes`` (d, r), without rounding."""
    basis, triangle = np.linalg.qr(block)
    turn, sizes, _ = np.linalg.svd(triangle)
    basis = basis @ turn[:, : len(sizes)][:, sizes > ROUNDING * scale]
    # rounding leaves a little of the axes in a small direction
    basis -= axes @ (axes.T @ basis)
    return np.linalg.qr(basis)[0]


PrincipalState = Moments | OneSided | TwoSided


# --------------------------------------------------------------------------------------------- view


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalView:
    """Principal axes of a state."""

    # Unit rows, by descending variance; rows of zeros where there is no variance.
    components: Annotated[Floats, "k d"]
    mean: Annotated[Floats, "d"]
    explained_variance: Annotated[Floats, "k"]  # theta / (n - 1); 0 where n is at most 1
    explained_variance_ratio: Annotated[Floats, "k"]  # shares of the total variance, in [0, 1]
    singular_values: Annotated[Floats, "k"]  # s
    total_variance: float  # of all features together, exact whatever was cut off
    # max ||S v - theta v|| / theta_1 over the components, measured; None where S is not stored.
    residual: float | None
    tail: float  # share of the total variance whose directions are not stored, in [0, 1]
    cut: tuple[Count, ...]  # components without variance
    count: float  # n


def compute_axes(
    state: PrincipalState, k: int, reference: Floats | None = None, rows: Floats | None = None
) -> PrincipalView:
    """The leading k axes of a state.

    Parameters
    ----------
    k
        Components; those beyond the features, or without variance, are zeros.
    reference
        Shape (d, m), what `compute_reference` gave earlier: axes keep the signs that they have
        there, and those whose eigenvalues are within 1e-3 of each other are rotated among
        themselves to where they were. None: the largest loading of each is positive.
    rows
        Shape (b, d), centred: what has joined since ``reference`` was computed. Beyond 128 features
        they update its axes, to a residual of 1e-3 at most. None: the axes are solved, to 1e-5.

    Returns
    -------
    Pure. Moments: O(d^3) up to 128 features; beyond, O(d^2 (k + 3 b)) with rows, and without them
    some O(d^2 k) and d^3 / 3 for the proof that no axis is missing.
    One-sided: O(d k (k + m)).

    Notes
    -----
    Directions count as without variance where s is below 1e-12 s_1; of moments, where theta is
    below 4 max(d, 100) eps theta_1, as squares are not known better.
    """
    values, vectors = _find_leading(state, k, reference, rows)
    # columns that are rotated among themselves keep their eigenvalues: exact ones, in order
    vectors = _align(values, vectors, reference)
    n_found = len(values)
    d, total = len(state.mean), state.total
    theta, components = np.zeros(k), np.zeros((k, d))
    theta[:n_found], components[:n_found] = values, vectors.T + 0.0  # -0.0 becomes 0.0
    residual = None
    if isinstance(state, Moments):
        residual = 0.0
        if n_found:
            product = _multiply(state.scatter, vectors)
            # squares of S itself could overflow
            left = (product - vectors * values) / values[0]
            residual = float(np.linalg.norm(left, axis=0).max())
    divisor = state.count - 1.0
    has_variance = divisor > 0.0
    tail = 0.0 if isinstance(state, Moments) else state.tail
    return PrincipalView(
        components=components,
        explained_variance=theta / divisor if has_variance else np.zeros(k),
        explained_variance_ratio=theta / total if total > 0.0 else np.zeros(k),
        singular_values=np.sqrt(theta),
        mean=state.mean.copy(),
        count=state.count,
        total_variance=total / divisor if has_variance else 0.0,
        residual=residual,
        tail=tail / total if total > 0.0 else 0.0,
        cut=tuple(range(n_found, k)),
    )


def compute_reference(state: PrincipalState, k: int, earlier: Floats | None = None) -> Floats:
    """Axes (d, m) that later views start from and are aligned to; aligned to ``earlier``."""
    values, vectors = _find_leading(state, k, earlier, guards=GUARDS)
    return _align(values, vectors, earlier)


def track_axes(state: PrincipalState, k: int, reference: Floats) -> Floats:
    """The axes (d, m) after a chunk, approximately: one product instead of a solution, aligned.

    Of moments these are the Nystrom pairs of the reference: without directions outside of it.
    """
    if not isinstance(state, Moments):
        values, vectors = _find_leading(state, k, reference, guards=GUARDS)
    else:
        # Y (Q^T Y)^+ Y^T with Y = S Q: one product does the work of about two Rayleigh-Ritz steps
        product = _multiply(state.scatter, reference)
        theta, mix = descending_eigh(reference.T @ product)
        keep = theta > NO_VARIANCE * max(float(theta[0]), TINY)
        factor = product @ (mix[:, keep] / np.sqrt(theta[keep]))
        values, turn = descending_eigh(factor.T @ factor)
        keep = values > NO_VARIANCE * values[:1].max(initial=0.0)
        values, vectors = values[keep], factor @ (turn[:, keep] / np.sqrt(values[keep]))
    return _align(values, vectors, reference)


def _find_leading(
    state: PrincipalState, k: int, start: Floats | None, rows: Floats | None = None, guards: int = 0
) -> tuple[Floats, Floats]:
    """Eigenvalues and eigenvectors of S, k or fewer; up to ``guards`` more, less accurate."""
    if not isinstance(state, Moments):
        s = state.values
        n_found = min(k + guards, int(np.count_nonzero(s > NO_VARIANCE * s.max(initial=0.0))))
        return s[:n_found] ** 2, state.axes[:, :n_found]
    d = len(state.mean)
    if d <= SMALL:
        values, vectors = descending_eigh(state.scatter)
    elif start is not None and (pairs := _iterate(state.scatter, k, start, rows)):
        values, vectors = pairs
    else:
        values, vectors = largest_pairs(state.scatter, min(k + GUARDS, d))
        values, vectors = values[::-1], vectors[:, ::-1]
    least = 4.0 * max(d, 100) * EPS * max(values[0], 0.0)
    n_found = min(k + guards, int(np.count_nonzero(values > least)))
    return values[:n_found], vectors[:, :n_found]


def _iterate(
    scatter: Floats, k: int, block: Floats, rows: Floats | None
) -> tuple[Floats, Floats] | None:
    """The leading pairs of S from earlier ones, by Rayleigh-Ritz on them and what they lack.

    They lack ``rows``, which have joined since; without rows their residuals. A round adds these
    directions and their products with S, and keeps k + `GUARDS` columns. With rows k residuals are
    at most `UPDATED`; without, `SOLVED`, and no larger eigenvalue is missing. None: it failed.
    """
    further = _multiply(scatter, block[:, :k]) if rows is None else rows.T
    tolerance = SOLVED if rows is None else UPDATED
    for _ in range(ROUNDS if k + GUARDS <= len(scatter) // 4 else 0):
        powers: list[Floats] = []
        while len(powers) < POWERS:
            further = _multiply(scatter, powers[-1]) if powers else further
            further = further - block @ (block.T @ further)
            powers.append(further / np.maximum(np.abs(further).max(axis=0), TINY))
        new = _build_basis(np.concatenate(powers, axis=1), block, 1.0)
        basis = np.concatenate([block, new], axis=1)
        product = _multiply(scatter, basis)
        values, turn = descending_eigh(basis.T @ product)
        values, turn = values[: k + GUARDS], turn[:, : k + GUARDS]
        block, product = basis @ turn, product @ turn[:, :k]
        scale = max(values[0], TINY)
        further = (product - block[:, :k] * values[:k]) / scale
        # eigenvalues that are rounding have no relatively small residual
        least = np.maximum(tolerance * values[:k] / scale, 4.0 * len(scatter) * EPS)
        rest = np.linalg.norm(further, axis=0) > least
        if not rest.any():
            is_solved = rows is not None or _is_complete(scatter, values[:k], block[:, :k])
            return (values, block) if is_solved else None
        further = further[:, rest]
    return None


def _is_complete(scatter: Floats, values: Floats, vectors: Floats) -> bool:
    """Whether no eigenvalue of S beside these is larger than the last: a proof. O(d^3 / 3).

    x I - (S - V theta V^T) has a Cholesky factor only where all of its eigenvalues are positive.
    """
    scale = max(values[0], scatter.diagonal().max())
    x = values[-1] + max(SOLVED * values[-1], 4.0 * len(scatter) * EPS * scale)
    rest = (vectors * values) @ vectors.T - scatter
    rest.flat[:: len(rest) + 1] += x
    return bool(dpotrf(rest.T, lower=True, overwrite_a=True)[1] == 0)


def _multiply(scatter: Floats, block: Floats) -> Floats:
    """S times a block, by S^T = S: two thirds of the time, with few long rows."""
    return (block.T @ scatter).T


def _align(values: Floats, vectors: Floats, reference: Floats | None) -> Floats:
    """Eigenvectors nearest to the reference, by signs and by rotations in clusters."""
    if not len(values):
        return vectors
    if reference is None or not reference.shape[1]:
        return vectors * choose_signs(vectors)
    overlap = vectors.T @ reference  # (k, m)
    best_overlap = overlap[np.arange(len(overlap)), np.abs(overlap).argmax(axis=1)]
    signs = np.where(best_overlap < 0, -1.0, 1.0)
    if np.abs(best_overlap).min() < LEAST_OVERLAP:
        signs = np.where(np.abs(best_overlap) < LEAST_OVERLAP, choose_signs(vectors), signs)
    aligned = vectors * signs
    if (values[:-1] - values[1:] > NEAR * values[1:]).all():
        return aligned
    start = 0
    while start < len(values):
        stop = start + 1
        while stop < len(values) and values[start] - values[stop] <= NEAR * values[stop]:
            stop += 1
        if 1 < stop - start <= reference.shape[1]:
            rows = overlap[start:stop]
            # the columns of the reference that match these axes, in their order there
            weight = np.einsum("ij,ij->j", rows, rows)
            matches = np.sort(np.argsort(-weight, kind="stable")[: stop - start])
            left, _, right = np.linalg.svd(rows[:, matches])
            aligned[:, start:stop] = vectors[:, start:stop] @ (left @ right)
        start = stop
    return aligned


# -------------------------------------------------------------------------------------- coordinates


def compute_whitening(principal: PrincipalView) -> Floats:
    """Factors that give each coordinate variance 1, (k,); 0 where it has none."""
    deviations = np.sqrt(principal.explained_variance)
    return np.divide(1.0, deviations, out=np.zeros(len(deviations)), where=deviations > 0)


def transform(principal: PrincipalView, points: Floats, whiten: bool = False) -> Floats:
    """Coordinates (n, k) of points (n, d), each row by itself. O(n d k)."""
    coordinates: Floats = (points - principal.mean) @ principal.components.T
    return coordinates * compute_whitening(principal) if whiten else coordinates


def inverse_transform(
    principal: PrincipalView, coordinates: Floats, whiten: bool = False
) -> Floats:
    """The points (n, d) in the span of the axes that have these coordinates (n, k)."""
    if whiten:
        coordinates = coordinates * np.sqrt(principal.explained_variance)
    return coordinates @ principal.components + principal.mean
