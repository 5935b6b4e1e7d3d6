"""Random directions that look for what a factor does not know, and what their silence proves.

A small residual shows that published columns are eigenvectors; it does not show that the leading
ones were found. Let C be what is left of a symmetric operator when all that is known has been
taken out of it, and mu an eigenvalue of C with the unit eigenvector u. For a block X of p standard
normal columns, u^T X is a standard normal vector of length p, whatever u is, and

    ||C^q X|| >= ||u^T C^q X|| = mu^q ||u^T X||.

The length of a normal p-vector is below `small_ball(p)` with probability `MISS` only, so that

    mu <= (||C^q X|| / small_ball(p))^(1/q)     but for a chance of `MISS`.

Powers sharpen the bound, Chebyshev polynomials faster than powers. Random signs in the place of
normal numbers would not do: they are orthogonal to a difference of two points half of the time.

Source: Kuczynski & Wozniakowski (1992), "Estimating the largest eigenvalue by the power and Lanczos
algorithms with a random start", for one vector. Differs: a block, whose chance to be near
orthogonal to u falls with the p-th power.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import gamma

from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh

__all__ = [
    "MISS",
    "Silence",
    "count",
    "first",
    "listen",
    "reach",
    "sharpen",
    "small_ball",
    "starts",
]

# Probes: seven up to the first number of points, five beyond, where two more make the next product
# dearer by a fifth. With the degrees both make a product of 8 columns, which costs what one of 4
# does. After two products the bound is two to three times the truth; three probes would leave it
# at eight times (docs/decisions/0010).
SMALL, MANY, FEW = 1000, 7, 5
# Chance that an eigenvalue that the factor does not know is larger than a bound says.
MISS = 3e-4
# Further products at most, each of as many columns: in that many the bound comes down to 2 % above
# what is left of the operator, and a factor that leaves more than that must learn it first.
PHASES, STEPS = 4, 6
# Of the squared length of what is missed, and of that beside a probe's own: below it, directions
# are known to fewer than half of the digits, or are rounding altogether.
FAINT = 1e-7


def count(n: int) -> int:
    """How many probes there are among n points."""
    return MANY if n <= SMALL else FEW


def starts(n: int, seed: int, position: int) -> Floats:
    """Standard normal columns, shape (n, p), a pure function of seed and stream position."""
    generator = np.random.default_rng((seed, position, n))
    return generator.standard_normal((n, count(n)), dtype=np.float32).astype(np.float64)


# Directions with less than this outside what is known are rounding of it.
INSIDE = 1e-6


def small_ball(p: int, chance: float = MISS) -> float:
    """A length that a standard normal vector of ``p`` entries falls below with at most ``chance``.

    From P(length < r) <= r^p / (2^(p/2) Gamma(p/2 + 1)): the density is at most (2 pi)^(-p/2).

    Examples
    --------
    >>> round(small_ball(5), 3), round(small_ball(7), 3)
    (0.355, 0.63)
    """
    volume = 2.0 ** (p / 2) * float(gamma(p / 2 + 1))
    return float((chance * volume) ** (1.0 / p))


@dataclass(frozen=True, slots=True, eq=False)
class Silence:
    """What the probes have heard of the unknown part C.

    Attributes
    ----------
    directions : (n, p)
        Orthonormal: C X, orthogonal to what is known. What was lost, if anything, is in their span.
    mix : (p, p)
        C X = directions @ mix.
    image : (n, p)
        C @ directions, once `listen` was given it.
    heard : float
        The largest Rayleigh quotient of C in the span of the directions: it has an eigenvalue as
        large.
    bound : float
        No eigenvalue of C is larger, but for a chance of `MISS`.
    shortest : float
        What the length of u^T X falls below with that chance.
    """

    directions: Floats
    mix: Floats
    image: Floats
    heard: float
    bound: float
    shortest: float


def first(missed: Floats, strength: float, known: Floats | None = None) -> Silence:
    """The directions of ``missed`` = C X, shape (n, p); C's norm is taken for 1 at most.

    Parameters
    ----------
    strength
        1 for standard normal X; for other normal columns the least standard deviation of u^T X.
    known
        Orthonormal columns that the directions must be orthogonal to. What is missed is so up to
        rounding; where it is little more than rounding, its directions are made so again.
    """
    gram = missed.T @ missed
    values, turn = descending_eigh(gram)
    shortest = strength * small_ball(missed.shape[1])
    if values[-1] > FAINT * max(values[0], FAINT * len(missed)):
        roots = np.sqrt(values)
        return Silence(missed @ (turn / roots), roots[:, None] * turn.T, missed, 0.0, 1.0, shortest)
    directions, mix = np.linalg.qr(missed)
    if known is not None:
        # of points in the same place, what is missed may be rounding within what is known
        known = np.linalg.qr(known)[0]  # in float32 they are orthonormal to 1e-6
        beyond = directions - known @ (known.T @ directions)
        left, sizes, right = np.linalg.svd(beyond, full_matrices=False)
        real = sizes > INSIDE
        if not real.any():
            nothing = np.zeros((len(missed), 1)), np.zeros((1, missed.shape[1]))
            return Silence(*nothing, missed, 0.0, 1.0, shortest)
        directions = left[:, real] - known @ (known.T @ left[:, real])
        directions, again = np.linalg.qr(directions)
        mix = again @ (sizes[real, None] * right[real]) @ mix
    return Silence(directions, mix, missed, 0.0, 1.0, shortest)


def reach(missed: Floats) -> float:
    """No eigenvalue of C is larger, but for a chance of `MISS`, by ``missed`` = C X alone.

    X is standard normal, shape (n, p). Where it is small, what `first` and `listen` say is dearer.
    """
    largest = float(descending_eigh(missed.T @ missed)[0][0].clip(0.0))
    return float(np.sqrt(largest)) / small_ball(missed.shape[1])


def listen(silence: Silence, image: Floats) -> Silence:
    """The same after a second product: ``image`` = C @ directions, shape (n, p)."""
    twice = image @ silence.mix  # C^2 X
    squared = float(np.sqrt(descending_eigh(twice.T @ twice)[0][0].clip(0.0)))
    bound = min(1.0, float(np.sqrt(squared / silence.shortest)))
    heard = float(descending_eigh(silence.directions.T @ image)[0][0])
    return replace(silence, image=image, heard=max(heard, 0.0), bound=bound)


def sharpen(
    silence: Silence,
    apply: Callable[[Floats], Floats],
    level: float,
) -> Silence:
    """Go on until the bound falls to ``level``, something above it is heard, or no step is left.

    Parameters
    ----------
    apply
        V -> C V, for V of shape (n, p).
    level
        What the bound is wanted below, positive.

    Notes
    -----
    T_j((2 C - b - a) / (b - a)) C^2 X, with [a, b] the Ritz values heard so far: inside that
    interval T_j stays at 1, at ``level`` it grows like the cosh. The bound holds whatever a and b
    are; they are taken anew, and the polynomials multiplied, every `STEPS` products.
    """
    if silence.bound <= level or silence.heard > level:
        return silence
    block, heard = silence.image @ silence.mix, silence.heard  # C^2 X
    reached = silence.shortest * level**2  # what an eigenvalue of ``level`` would have made of it
    for _ in range(PHASES):
        basis, last = np.linalg.qr(block)
        image = apply(basis)
        values = descending_eigh(basis.T @ image)[0]
        heard = max(heard, float(values[0]))
        if heard > level:
            break
        low, high = min(float(values[-1]), 0.0), min(max(heard, 0.5 * level), 0.98 * level)
        center, half = 0.5 * (high + low), 0.5 * (high - low)
        growth = float(np.arccosh((level - center) / half))
        before, block = block, ((image - center * basis) / half) @ last
        for step in range(1, STEPS + 1):
            largest = float(descending_eigh(block.T @ block)[0][0].clip(0.0))
            if np.sqrt(largest) <= reached * np.cosh(step * growth):
                return replace(silence, heard=heard, bound=level)
            if step < STEPS:
                following = (2.0 / half) * (apply(block) - center * block) - before
                before, block = block, following
        reached *= float(np.cosh(STEPS * growth))
    return replace(silence, directions=np.linalg.qr(block)[0], heard=heard)
