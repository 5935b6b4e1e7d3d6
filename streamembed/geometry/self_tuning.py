"""Kernel weights with a width of their own for every point: the self-tuning kernel.

Symbols: d_ij = distances as the kernel sees them, k = ``n_neighbors``, c = ``width``,
r_i = the distance to the k-th nearest other point that is not a duplicate ("reach"),
s_i = the width of point i, W_ij = exp(-d_ij^2 / (c s_i s_j)), W_ii = 1.

s_i is r_i, but never less than a tenth of the median reach, and raised until point i has weights of
k / 2 in all to the others (of a quarter of them, where they are fewer than 2 k). Without the first
guard, tight groups would fall off as parts of their own; without the second, outliers would. A
width is settled when its slot is filled and frozen: weights between points that stay never change,
and bordering is exact. A slot whose reach has drifted by a half since is filled again, with the
point that it holds (`drifted`).

Source: Zelnik-Manor & Perona (2004), Self-tuning spectral clustering. Differs: k is 15 and not 7,
duplicates are not counted, the two guards, and c (docs/decisions/0012 measures each).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.geometry.kernel import gaussian
from streamembed.numeric.arrays import Array, Floats, Ints

__all__ = ["Rule", "Scales", "drifted", "enough", "place", "raised", "weigh"]

# Of the median reach: no width is less.
LEAST_WIDTH = 0.1
# A reach r that has become more than DRIFTED r, or less than r / DRIFTED.
DRIFTED = 1.5
# Slots filled again with one chunk, at most: each costs as much as an event.
MOST_AGAIN = 25
# The running median takes this share of every chunk's own.
MEDIAN_SHARE = 0.01
# Rows of distances at a time.
TILE = 256
# Halvings of the logarithm of a width that is raised, from a factor of 2: to 1e-6.
HALVINGS = 20
# No width is raised beyond: c times it must not leave the doubles.
LARGEST_WIDTH = 1e300


@dataclass(frozen=True, slots=True)
class Rule:
    """How widths are chosen: ``n_neighbors`` is k, ``width`` is c."""

    n_neighbors: int
    width: float


@dataclass(frozen=True, slots=True, eq=False)
class Scales:
    """The widths of the slots.

    Attributes
    ----------
    reaches : (n,)
        r when the slot was filled: what drift is measured against. 0 where no other point differs.
    widths : (n,)
        s, positive: what the kernel uses.
    median : float
        Of the reaches, kept running: the unit of the least width. 0 before any was positive.
    """

    reaches: Annotated[Floats, "n"]
    widths: Annotated[Floats, "n"]
    median: float

    @classmethod
    def empty(cls) -> Scales:
        """Those of no slot."""
        return cls(np.zeros(0), np.zeros(0), 0.0)

    @property
    def typical(self) -> float:
        """The median width."""
        return float(np.median(self.widths))


def place(
    scales: Scales,
    slots: Ints,
    reaches: Floats,
    rows: Callable[[Ints], Floats],
    n: int,
    rule: Rule,
) -> Scales:
    """The scales after ``slots`` were filled, or filled again.

    Parameters
    ----------
    scales
        Of the slots before.
    slots
        Shape (b,), distinct; those from n on are new.
    reaches
        r of these, shape (b,).
    rows
        slots -> their squared distances to all slots in use afterwards, shape (., n). O(n) memory.
    n
        Slots in use afterwards.
    """
    old = len(scales.widths)
    after, widths = np.zeros(n), np.ones(n)
    after[:old], widths[:old] = scales.reaches, scales.widths
    after[slots] = reaches
    median = _running_median(scales.median, reaches, len(slots) == n)
    widths[slots] = np.maximum(reaches, LEAST_WIDTH * median) if median > 0.0 else 1.0
    for start in range(0, len(slots), TILE):
        tile = slots[start : start + TILE]
        widths[tile] = raised(widths[tile], rows(tile), widths, rule, tile)
    return Scales(after, widths, median)


def _running_median(median: float, reaches: Floats, all_of_them: bool) -> float:
    positive = reaches[reaches > 0.0]
    if not len(positive):
        return median
    own = float(np.median(positive))
    if all_of_them or median == 0.0:
        return own
    return (1.0 - MEDIAN_SHARE) * median + MEDIAN_SHARE * own


def raised(
    own: Floats, d2: Floats, widths: Floats, rule: Rule, slots: Ints | None = None
) -> Floats:
    """Widths of rows, raised where their weights to others are less than `enough` in all.

    Parameters
    ----------
    own
        s of the rows, shape (b,).
    d2, widths
        Squared distances to the points of a support, shape (b, n), and s of these, shape (n,).
    slots
        Which of these points every row is, for none weighs itself; None for new points.
    """
    itself = slots is not None
    least = enough(rule, len(widths) - itself) + itself

    def lacking(chosen: Ints, width: Floats) -> Floats:
        weights = weigh(d2[chosen], width, widths, rule.width)
        if slots is not None:
            weights[np.arange(len(chosen)), slots[chosen]] = 1.0
        short: Floats = weights.sum(axis=1) < least
        return short

    bad = np.flatnonzero(lacking(np.arange(len(own)), own))
    if not len(bad):
        return own
    result = own.copy()
    reachable = np.isfinite(d2[bad]).sum(axis=1) >= least
    bad = bad[reachable]
    low = high = own[bad]
    short = np.ones(len(bad), dtype=bool)
    while short.any():
        high = np.where(short, np.minimum(high, 0.5 * LARGEST_WIDTH) * 2.0, high)
        short[short] = (high[short] < LARGEST_WIDTH) & lacking(bad[short], high[short])
        low = np.where(short, high, low)
    for _ in range(HALVINGS):
        middle = np.sqrt(low) * np.sqrt(high)
        less = lacking(bad, middle)
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    result[bad] = high
    return result


def enough(rule: Rule, others: int) -> float:
    """What a point's weights to so many others are at least: k / 2, or a quarter of few."""
    return min(0.5 * rule.n_neighbors, 0.25 * others)


def weigh(
    d2: Floats, own: Floats, widths: Floats, width: float, dtype: npt.DTypeLike = np.float64
) -> Array:
    """exp(-d2 / (c s_i s_j)), shape (b, n), for rows of width ``own`` (b,) and columns ``widths``.

    Divided by one width after the other: that of an outlier, squared, would leave the doubles.
    """
    with np.errstate(over="ignore", under="ignore"):
        exponents = d2 / (width * own)[:, None]
        exponents /= widths
    return gaussian(exponents.astype(dtype, copy=False), 1.0)


def drifted(scales: Scales, reaches: Floats, filled: Ints, most: int) -> Ints:
    """Slots to be filled again, the most drifted first, at most ``most``.

    Parameters
    ----------
    reaches
        r of every slot now, shape (n,); below the least width it does not matter.
    filled
        Slots that have just been filled anyhow.
    """
    least = LEAST_WIDTH * scales.median
    if least == 0.0:  # no two points differed: all widths are 1
        least = float(np.finfo(np.float64).tiny)
    now, was = np.maximum(reaches, least), np.full(len(reaches), least)
    was[: len(scales.reaches)] = np.maximum(scales.reaches, least)
    with np.errstate(over="ignore"):
        ratio = np.maximum(now / was, was / now)
    ratio[filled] = 1.0
    far = np.flatnonzero(ratio > DRIFTED)
    return far[np.argsort(-ratio[far], kind="stable")][: max(0, min(most, MOST_AGAIN))]
