"""Leading pairs of a whole operator by a block that a Chebyshev polynomial filters.

The last resort for supports too large to decompose. A block finds every copy of a multiple
eigenvalue, as a disconnected graph has them; a single Lanczos vector finds one of each.

Source: Zhou & Saad (2007), "A Chebyshev-Davidson algorithm for large symmetric eigenproblems", for
the scaled three-term recurrence.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh

# Products of one filter: long enough to pay for the Rayleigh-Ritz step after it.
DEGREE = 10
# Filters at most: 120 products part eigenvalues that are 1 % apart by 1e-10.
FILTERS = 12
# Share of the first eigenvalue that is damped at most: 2 % below it a filter parts by a factor 9.
WIDEST = 0.98
# And at least, where the block reaches eigenvalues that are rounding.
LEAST = 1e-3


def leading_pairs(
    apply: Callable[[Floats], Floats],
    start: Floats,
    count: int,
    accuracy: float,
    floor: float = 0.0,
    least: float = 0.0,
) -> tuple[Floats, Floats, Floats]:
    """The leading pairs of a symmetric operator, from a block that is near them.

    Parameters
    ----------
    apply
        V -> S V, for V of shape (n, m).
    start
        Shape (n, w), w > count: as good a guess as there is, and random columns.
    count
        How many pairs must be exact.
    accuracy
        Largest residual norm of those, relative to the first eigenvalue.
    floor
        Eigenvalues up to this, of either sign, are rounding of the operator.
    least
        No eigenvalue is below this, or below the least of the block.

    Returns
    -------
    values, vectors, image
        Shapes (w,), (n, w), (n, w): Ritz pairs, descending, and S @ vectors. As exact as the
        filters made them: the caller measures. O(n^2 w) a product.
    """
    basis = np.linalg.qr(start)[0]
    for attempt in range(FILTERS + 1):
        image = apply(basis)
        values, mix = descending_eigh(basis.T @ image)
        vectors, image = basis @ mix, image @ mix
        errors = image[:, :count] - vectors[:, :count] * values[:count]
        worst = float(np.linalg.norm(errors, axis=0).max(initial=0.0))
        first = float(values[0])
        if first <= floor or worst <= accuracy * first or attempt == FILTERS:
            break
        # unwanted eigenvalues lie below the block's last value, and above its least eigenvalue
        basis = np.linalg.qr(_filter(apply, vectors, image, values, max(floor, -least)))[0]
    return values, vectors, image


def _filter(
    apply: Callable[[Floats], Floats], vectors: Floats, image: Floats, values: Floats, floor: float
) -> Floats:
    """T_DEGREE((2 S - b - a) / (b - a)) V / T_DEGREE(at the first value), column by column safe."""
    # a block inside one cluster still has to part from what lies below it
    first, last = float(values[0]), float(values[-1])
    low, high = min(last, -floor), min(max(last, LEAST * first), WIDEST * first)
    center, half = 0.5 * (high + low), 0.5 * (high - low)
    sigma = half / (first - center)
    scale = sigma
    previous, current = vectors, (image - center * vectors) * (sigma / half)
    for _ in range(DEGREE - 1):
        next_scale = 1.0 / (2.0 / scale - sigma)
        following_block = (apply(current) - center * current) * (2.0 * next_scale / half) - (
            sigma * next_scale
        ) * previous
        previous, current, sigma = current, following_block, next_scale
    return current
