"""Random directions that bound the eigenvalues which a block or a trial space lacks.

A small residual shows that published columns are eigenvectors; it does not show that the leading
ones were found. Let C be a symmetric operator after deflation of all known directions,
and mu an eigenvalue of C with the unit eigenvector u. For a block X of p standard
normal columns, u^T X is a standard normal vector of length p, whatever u is, and

    ||C^q X|| >= ||u^T C^q X|| = mu^q ||u^T X||.

A normal p-vector is shorter than `bound_normal_length(p)` with probability `MISS` only, so that

    mu <= (||C^q X|| / bound_normal_length(p))^(1/q)     but for a chance of `MISS`.

`streamembed.spectral.lanczos` sharpens the bound by more products. Random signs in the place of
normal numbers would not do: they are orthogonal to a difference of two points half of the time.

Source: Kuczynski & Wozniakowski (1992), "Estimating the largest eigenvalue by the power and Lanczos
algorithms with a random start", for one vector. Differs: a block, whose chance to be near
orthogonal to u falls with the p-th power.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh

# Chance that an eigenvalue that is not known is larger than its bound.
MISS = 3e-4
# Of the squared length of a residual, and of that beside a probe's own: below it, directions
# are known to fewer than half of the digits, or are rounding altogether.
FAINT = 1e-7


# Directions with less than this outside of the known basis are its rounding.
INSIDE = 1e-6


def bound_normal_length(p: int, chance: float = MISS) -> float:
    """A length that a standard normal vector of ``p`` entries falls below with at most ``chance``.

    From P(length < r) <= r^p / (2^(p/2) Gamma(p/2 + 1)): the density is at most (2 pi)^(-p/2).

    Examples
    --------
    >>> round(bound_normal_length(5), 3), round(bound_normal_length(7), 3)
    (0.355, 0.63)
    """
    volume = 2.0 ** (p / 2) * float(scipy.special.gamma(p / 2 + 1))
    return float((chance * volume) ** (1.0 / p))


@dataclass(frozen=True, slots=True, eq=False)
class ResidualBound:
    """A bound on the eigenvalues of C, and its probes."""

    # (n, p): orthonormal: C X, orthogonal to the known basis. A lost direction is in their span.
    directions: Floats
    mix: Floats  # (p, p): C X = directions @ mix
    image: Floats  # (n, p): C X; C @ directions, once `estimate_bound` was given it
    # The largest Rayleigh quotient of C in the span of the directions: it has an eigenvalue as
    # large.
    estimate: float
    bound: float  # no eigenvalue of C is larger, but for a chance of `MISS`
    least_length: float  # the length of u^T X is smaller with that chance


def find_directions(
    residual: Floats, strength: float, basis: Floats | None = None
) -> ResidualBound:
    """The directions of ``residual`` = C X, shape (n, p); C's norm is taken for 1 at most.

    Parameters
    ----------
    strength
        1 for standard normal X; for other normal columns the least standard deviation of u^T X.
    basis
        Orthonormal columns that the directions must be orthogonal to. The residual is so up to
        rounding; where it is little more than rounding, its directions are orthogonalised again.
    """
    values, turn = descending_eigh(residual.T @ residual)
    least_length = strength * bound_normal_length(residual.shape[1])
    if values[-1] > FAINT * max(values[0], FAINT * len(residual)):
        roots = np.sqrt(values)
        return ResidualBound(
            residual @ (turn / roots), roots[:, None] * turn.T, residual, 0.0, 1.0, least_length
        )
    directions, mix = np.linalg.qr(residual)
    if basis is not None:
        # of equal points, the residual may be rounding within the known basis
        basis = np.linalg.qr(basis)[0]  # in float32 they are orthonormal to 1e-6
        outside = directions - basis @ (basis.T @ directions)
        # by its Gram matrix: `numpy.linalg.svd` fails now and then where most sizes are 1
        squares, turn = descending_eigh(outside.T @ outside)
        is_real = squares > INSIDE**2
        if not is_real.any():
            empty = np.zeros((len(residual), 1)), np.zeros((1, residual.shape[1]))
            return ResidualBound(*empty, residual, 0.0, 1.0, least_length)
        sizes, turn = np.sqrt(squares[is_real]), turn[:, is_real]
        left_vectors = outside @ (turn / sizes)
        directions, mix_again = np.linalg.qr(left_vectors - basis @ (basis.T @ left_vectors))
        mix = mix_again @ (sizes[:, None] * turn.T) @ mix
    return ResidualBound(directions, mix, residual, 0.0, 1.0, least_length)


def estimate_bound(residual_bound: ResidualBound, image: Floats) -> ResidualBound:
    """The same after a second product: ``image`` = C @ directions, shape (n, p)."""
    image2 = image @ residual_bound.mix  # C^2 X
    norm2 = float(np.sqrt(descending_eigh(image2.T @ image2)[0][0].clip(0.0)))
    bound = min(1.0, float(np.sqrt(norm2 / residual_bound.least_length)))
    estimate = float(descending_eigh(residual_bound.directions.T @ image)[0][0])
    return replace(residual_bound, image=image, estimate=max(estimate, 0.0), bound=bound)
