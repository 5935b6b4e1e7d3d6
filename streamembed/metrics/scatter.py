"""Moments of every class of a stream: mergeable, and their exact consequences.

Symbols, for class c of N: n_c = mass, the number of points; m_c = mean; M_c = sum of
(x - m_c)(x - m_c)^T, the scatter; C_c = M_c / n_c, the population covariance.

Everything that a Mahalanobis metric can learn from labels alone is a function of these: the within
and between scatter of FENN, the directions of discriminant analysis, and the sums over all similar
and all dissimilar pairs, which need no pairs. Classes are indices 0 .. N-1 here; the caller maps
labels to indices, and keeps the map.

Source: docs/algorithms/discriminant.md; Chan, Golub & LeVeque (1983), The American Statistician
37(3), 242-247; Phillips, Metric Learning, section 17.2; Inaba et al. (2019), section 3.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import symmetrise
from streamembed.numeric.moments import ROUNDING

# A class of fewer points has no covariance of its own: one point has C_c = 0 and would lower
# the mean of the covariances.
LEAST_MASS = 2.0


@dataclass(frozen=True, slots=True, eq=False)
class ClassMoments:
    """Mass, mean and scatter of every class seen; class index first. Memory O(N d^2)."""

    masses: Annotated[Floats, "N"]  # n_c; 0: a class not seen yet
    # The first point of the stream; 0 before. Points are taken relative to it, as their differences
    # are exact: a feature like the seconds since 1970 keeps its digits.
    origin: Annotated[Floats, "d"]
    shifts: Annotated[Floats, "N d"]  # m_c - origin
    scatters: Annotated[Floats, "N d d"]  # M_c, in squared units

    @property
    def means(self) -> Floats:
        """m_c, in the units of the points, (N, d); `shifts` have more digits."""
        return self.origin + self.shifts

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.origin)

    @property
    def n_classes(self) -> int:
        """N, unseen classes below the largest index included."""
        return len(self.masses)


def init(n_features: int) -> ClassMoments:
    """The moments before any point: no class yet, points of ``n_features`` features to come."""
    return _create_empty(np.zeros(n_features), 0)


def update(moments: ClassMoments, points: Floats, classes: Ints) -> ClassMoments:
    """The moments after these points too, as if all had come at once.

    Parameters
    ----------
    points
        Shape (n, d), finite; n = 0 is fine.
    classes
        Shape (n,), indices from 0; larger ones than before add new classes.

    Returns
    -------
    New moments; the old ones are untouched. O(n d^2 + N d^2), the last term being the copy.

    Source: Chan, Golub & LeVeque (1983), eq. 2.1. Differs: the textbook sum of x x^T minus
    n m m^T loses 1e-7 to 1e-3 of the covariance at an offset of 1e6; and sums of differences
    from a first point leave a constant feature a scatter of exactly 0.

    Examples
    --------
    >>> import numpy as np
    >>> moments = update(init(1), np.array([[1.0], [3.0], [7.0]]), np.array([0, 0, 1]))
    >>> moments.masses.tolist(), moments.scatters[0].tolist()
    ([2.0, 1.0], [[2.0]])
    """
    if len(points) == 0:
        return moments
    if not moments.masses.any():
        moments = _create_empty(points[0].copy(), moments.n_classes)
    updated = _copy(moments, max(moments.n_classes, int(classes.max()) + 1))
    order = np.argsort(classes, kind="stable")
    present, starts = np.unique(classes[order], return_index=True)
    for index, members in zip(present, np.split(order, starts[1:]), strict=True):
        rows = points[members] - updated.origin
        shift = rows[0] + (rows - rows[0]).mean(axis=0)
        deviations = rows - shift
        _absorb(updated, int(index), float(len(rows)), shift, deviations.T @ deviations)
    return updated


def merge(left: ClassMoments, right: ClassMoments) -> ClassMoments:
    """The moments of two streams together; class c of one is class c of the other.

    Commutative and associative up to rounding (1e-12). `renumber` brings classes into a common
    order first. O(N d^2).
    """
    if not left.masses.any():
        left = _create_empty(right.origin, left.n_classes)
    merged = _copy(left, max(left.n_classes, right.n_classes))
    step = right.origin - left.origin
    for index in np.flatnonzero(right.masses > 0):
        _absorb(
            merged,
            int(index),
            float(right.masses[index]),
            right.shifts[index] + step,
            right.scatters[index],
        )
    return merged


def renumber(moments: ClassMoments, indices: Ints, n_classes: int) -> ClassMoments:
    """The same moments with class c at ``indices[c]``, among ``n_classes``; O(N d^2).

    Two streams with labels in different orders can be merged after this.
    """
    renumbered = _create_empty(moments.origin.copy(), n_classes)
    renumbered.masses[indices] = moments.masses
    renumbered.shifts[indices] = moments.shifts
    renumbered.scatters[indices] = moments.scatters
    return renumbered


def _create_empty(origin: Floats, n_classes: int) -> ClassMoments:
    """The moments of ``n_classes`` without points."""
    n, d = n_classes, len(origin)
    return ClassMoments(np.zeros(n), origin, np.zeros((n, d)), np.zeros((n, d, d)))


def _copy(moments: ClassMoments, n_classes: int) -> ClassMoments:
    """A writable copy with ``n_classes``."""
    copy, n_old = _create_empty(moments.origin.copy(), n_classes), moments.n_classes
    copy.masses[:n_old] = moments.masses
    copy.shifts[:n_old] = moments.shifts
    copy.scatters[:n_old] = moments.scatters
    return copy


def _absorb(target: ClassMoments, index: int, mass: float, shift: Floats, scatter: Floats) -> None:
    """Add one class's moments to a copy, in place.

    n = a + b;  m = m_a + (b / n) h;  M = M_a + M_b + (a b / n) h h^T;  h = m_b - m_a
    """
    before = target.masses[index]
    if before == 0:
        target.masses[index] = mass
        target.shifts[index] = shift
        target.scatters[index] = scatter
        return
    total = before + mass
    step = shift - target.shifts[index]
    target.masses[index] = total
    target.shifts[index] += (mass / total) * step
    target.scatters[index] += scatter
    target.scatters[index] += np.outer((before * mass / total) * step, step)


def drop_rounding(moments: ClassMoments) -> ClassMoments:
    """The moments with exactly 0 where a scatter, or a step between all means, is rounding.

    Whether a feature varies decides what a metric does with it, and must not depend on
    whether streams were merged. O(N d^2).
    """
    is_observed = moments.masses > 0
    largest = np.abs(moments.means[is_observed]).max(axis=0, initial=0.0)
    noise = ROUNDING * np.maximum(largest, np.abs(moments.origin))
    squares = np.einsum("cjj->cj", moments.scatters)  # (N, d)
    is_constant = squares <= moments.masses[:, None] * noise**2
    scatters = moments.scatters
    if is_constant[is_observed].any():
        scatters = np.where(is_constant[:, :, None] | is_constant[:, None, :], 0.0, scatters)
    shifts = moments.shifts
    steps = np.abs(shifts - shifts[is_observed][:1]) if is_observed.any() else shifts
    is_equal = (steps[is_observed] <= noise).all(axis=0)
    if is_equal.any():
        shifts = np.where(is_equal, 0.0, shifts)
    return ClassMoments(moments.masses, moments.origin, shifts, scatters)


@dataclass(frozen=True, slots=True, eq=False)
class Scatters:
    """Within and between scatter, every class counting the same."""

    # (d, d): X_S, the mean of the population covariances of the classes; without a class that
    # counts, the covariance of all points.
    within: Floats
    # (N, d): (m_c - mean of the means) / sqrt(N - 1), a row for each class that counts.
    offsets: Floats
    n_classes: int  # N, the classes that count: those with a mass of at least 2
    n_thin: int  # classes seen, but with a mass below 2: left out of everything above

    @property
    def between(self) -> Floats:
        """The sample covariance of the class means: C_m N / (N - 1), C_m dividing by N."""
        return self.offsets.T @ self.offsets

    @property
    def dissimilar(self) -> Floats:
        """X_D = within + between, the mean over pairs of different classes, halved."""
        return self.within + self.between


def compute_scatters(moments: ClassMoments) -> Scatters:
    """Within and between scatter of the classes that have at least two points.

    X_S = (1/N) sum_c C_c and X_D = X_S + N / (N - 1) C_m, C_m being the population covariance of
    the N class means, are exactly half the means over similar pairs and over dissimilar pairs,
    every class and every pair of classes counting the same.

    Returns
    -------
    With one class, ``between`` is 0. With none, because every point is alone in its class, within
    is the covariance of all points together. Pure; O(N d^2).

    Source: Inaba et al. (2019), eq. (5), (6) and section 3.2. Differs: 1. n of their n / (n - 1)
    is the number of classes, not of points (with points the identity is off by 31 % on iris).
    2. Their sums run over ordered pairs and are twice X_S and X_D; the factor cancels. 3. Thin
    classes are left out.
    """
    moments = drop_rounding(moments)
    counts = moments.masses >= LEAST_MASS
    n = int(np.count_nonzero(counts))
    n_thin = int(np.count_nonzero(moments.masses > 0)) - n
    d = moments.n_features
    if n == 0:
        spread = compute_weighted_offsets(moments)
        total = moments.scatters.sum(axis=0) + spread.T @ spread
        mass = float(moments.masses.sum())
        return Scatters(symmetrise(total) / (mass or 1.0), np.zeros((0, d)), 0, n_thin)
    weights = np.where(counts, 1.0 / (n * np.where(counts, moments.masses, 1.0)), 0.0)
    within = symmetrise(np.tensordot(weights, moments.scatters, axes=1))
    # from the first mean: the mean of equal numbers is not always that number
    steps = moments.shifts[counts] - moments.shifts[counts][0]
    offsets = steps - steps.mean(axis=0)
    return Scatters(within, offsets / np.sqrt(max(n - 1, 1)), n, n_thin)


def sum_all_pairs(moments: ClassMoments) -> tuple[Floats, Floats, float, float]:
    """Sums of (x - y)(x - y)^T over all similar and over all dissimilar pairs, without pairs.

    Returns
    -------
    close, far, n_close, n_far
        Shapes (d, d), and how many pairs; every unordered pair once.

    Notes
    -----
    close = sum_c n_c M_c;  far = n M - close, M being the scatter of all points; written as
    sum_c (n - n_c) M_c + n sum_c n_c (m_c - m)(m_c - m)^T, which subtracts nothing. O(N d^2).

    Examples
    --------
    >>> import numpy as np
    >>> moments = update(init(1), np.array([[0.0], [1.0], [3.0]]), np.array([0, 0, 1]))
    >>> [float(np.sum(part)) for part in sum_all_pairs(moments)]
    [1.0, 13.0, 1.0, 2.0]
    """
    moments = drop_rounding(moments)
    masses = moments.masses
    total = float(masses.sum())
    close = np.tensordot(masses, moments.scatters, axes=1)
    spread = compute_weighted_offsets(moments)
    far = np.tensordot(total - masses, moments.scatters, axes=1) + total * (spread.T @ spread)
    n_close = 0.5 * float(np.sum(masses**2 - masses))
    n_far = 0.5 * (total**2 - float(np.sum(masses**2)))
    return symmetrise(close), symmetrise(far), n_close, n_far


def compute_weighted_offsets(moments: ClassMoments) -> Floats:
    """sqrt(n_c) (m_c - m) for every class seen: its Gram matrix is the sum over points between."""
    is_observed = moments.masses > 0
    masses, shifts = moments.masses[is_observed], moments.shifts[is_observed]
    if len(shifts) == 0:
        return shifts
    steps = shifts - shifts[0]
    centred: Floats = steps - (masses / masses.sum()) @ steps
    return np.sqrt(masses)[:, None] * centred
