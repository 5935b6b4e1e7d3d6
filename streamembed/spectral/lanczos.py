"""A bound on the largest eigenvalue of a deflated sparse operator, from one random vector.

Symbols: C = the deflated operator, symmetric (n, n), mu, u = an eigenvalue and its unit
eigenvector, x = a standard normal vector, v_j = Lanczos vectors, pi_j = polynomials with v_j =
pi_j(C) x.

Whatever u is, u^T x is a standard normal number, so that |u^T x| < r only with the chance
r sqrt(2 / pi). With r for the chance `MISS`, a unit vector v_j = pi_j(C) x gives

    1 = ||v_j|| >= |u^T v_j| = |pi_j(mu)| |u^T x| >= |pi_j(mu)| r,

so that no eigenvalue lies where pi_j is larger than 1 / r. Above its roots, which are Ritz values
of C, pi_j grows without end. The event |u^T x| < r does not depend on the polynomial, so that this
may come of x itself; and pi_j is the best of its degree, but for a constant. The recurrence holds
to rounding whether or not the v_j have stayed orthogonal, and nothing else is asked of them.

Source: Kuczynski & Wozniakowski (1992), "Estimating the largest eigenvalue by the power and Lanczos
algorithms with a random start". Differs: their bound is for the Chebyshev polynomial, before the
run; this one is for the polynomials that the run gave, and comes to a given level in about half as
many products.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.numeric.arrays import Floats
from streamembed.spectral.probes import MISS

# r: |u^T x| is smaller with a chance of MISS at most, the density being at most 1 / sqrt(2 pi).
SHORTEST = MISS * np.sqrt(np.pi / 2.0)
# Of pi_j: what rounding may have added to it, far more than its n eps / r.
SLACK = 1.01
# A Krylov space is at its end where its next vector is rounding; longer ones are exact.
NEGLIGIBLE = 1e-13
# Bisections of the interval from the last Ritz value to 1: a thousandth of it is enough.
HALVES = 10


def bound_largest(
    apply: Callable[[Floats], Floats], start: Floats, level: float, max_products: int
) -> float:
    """A bound that no eigenvalue of C exceeds, but for a chance of `probes.MISS`.

    Parameters
    ----------
    apply
        v -> C v, for v of shape (n,); ||C|| at most 1.
    start
        x, shape (n,); without its part in the null space of C, where that is known.
    level
        The bound to reach; the search stops there.
    max_products
        Products of C at most.

    Returns
    -------
    ``level`` where it was reached; above it where the products did not suffice, or where C has an
    eigenvalue above ``level``; at most 1.

    Examples
    --------
    >>> import numpy as np
    >>> values = np.linspace(0.0, 0.5, 100)
    >>> x = np.random.default_rng(0).standard_normal(100)
    >>> bound_largest(lambda v: values * v, x, 0.6, 40)
    0.6
    >>> bound_largest(lambda v: values * v, x, 0.4, 40) >= 0.5
    True
    """
    length = float(np.linalg.norm(start))
    if length == 0.0 or level >= 1.0:  # C is 0, or no eigenvalue can be larger
        return min(level, 1.0)
    # pi_(j-1)(level), pi_j(level): the first is 1 / ||x||
    last_value, value = 0.0, 1.0 / length
    previous, current, beta = np.zeros_like(start), start / length, 0.0
    diagonal, off_diagonal = [], []
    for _ in range(max_products):
        following = apply(current)
        following -= beta * previous
        alpha = float(current @ following)
        following -= alpha * current
        length_after = float(np.linalg.norm(following))
        diagonal.append(alpha)
        off_diagonal.append(max(length_after, NEGLIGIBLE))
        last_value, value = value, ((level - alpha) * value - beta * last_value) / off_diagonal[-1]
        if value * SHORTEST >= SLACK:
            return level
        # a root, a Ritz value, is above; or the Krylov space is at its end
        if value <= 0.0 or length_after <= NEGLIGIBLE:
            break
        previous, current, beta = current, following / length_after, length_after
    return max(level, _find_least_excluded(np.array(diagonal), np.array(off_diagonal), length))


def _find_least_excluded(diagonal: Floats, off_diagonal: Floats, length: float) -> float:
    """The least value at and above which the last polynomial is large enough; at most 1."""
    low, high = 0.0, 1.0
    if not _is_excluded(high, diagonal, off_diagonal, length):
        return 1.0
    for _ in range(HALVES):
        middle = 0.5 * (low + high)
        if _is_excluded(middle, diagonal, off_diagonal, length):
            high = middle
        else:
            low = middle
    return high


def _is_excluded(value: float, diagonal: Floats, off_diagonal: Floats, length: float) -> bool:
    """True where some polynomial proves that nothing is at ``value`` or above."""
    last_value, current, beta = 0.0, 1.0 / length, 0.0
    for alpha, off in zip(diagonal, off_diagonal, strict=True):
        last_value, current = current, ((value - alpha) * current - beta * last_value) / off
        if current <= 0.0:
            return False
        if current * SHORTEST >= SLACK:
            return True
        beta = off
    return False
