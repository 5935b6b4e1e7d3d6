"""Kernel weights with a width of their own for every point: the self-tuning kernel.

Symbols: d_ij = distances as the kernel sees them, k = ``n_neighbors``, c = ``width``,
r_i = the distance to the k-th nearest other point that is not a duplicate ("reach"),
s_i = the width of point i, W_ij = exp(-d_ij^2 / (c s_i s_j)), W_ii = 1.

s_i is r_i, but never less than a tenth of the median reach, and raised until point i has weights of
k / 2 in all to the others (of a quarter of them, where they are fewer than 2 k). Without the first
guard, tight groups would fall off as parts of their own; without the second, outliers would. A
width is computed when its slot is filled, and frozen: weights between points that stay never
change. A slot whose reach has become more than 1.5 times as large since, or less than 1 / 1.5 of
it, is filled again, with the same point.

Source: Zelnik-Manor & Perona (2004), Self-tuning spectral clustering. Differs: k is 15 and not 7,
duplicates are not counted, the two guards, and c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.geometry.kernel import gaussian
from streamembed.geometry.lists import NeighborLists
from streamembed.numeric.arrays import Array, Floats, Ints, pad

# c of exp(-d2 / (c s_i s_j)): below, points lose their neighbours; above, all weights are 1.
WIDTHS = 1e-3, 1e6
# Of the median reach: no width is less.
LEAST_WIDTH = 0.1
# A slot is filled again where its reach has changed by a larger factor.
DRIFTED = 1.5
# Slots filled again with one chunk, at most: each costs as much as an event.
MOST_REFILLED = 25
# The running median takes this share of every chunk's own.
MEDIAN_SHARE = 0.01
# Rows of distances at a time.
TILE = 256
# Halvings of the logarithm of a width that is raised, from a factor of 2: to 1e-6.
HALVINGS = 20
# No width is raised beyond: c times it must not leave the doubles.
LARGEST_WIDTH = 1e300


@dataclass(frozen=True, slots=True)
class WidthRule:
    """How widths are chosen: ``n_neighbors`` is k, ``width`` is c."""

    n_neighbors: int
    width: float


@dataclass(frozen=True, slots=True, eq=False)
class LocalWidths:
    """The widths of the slots."""

    # r when the slot was filled, or the least width of then where that was more.
    bases: Annotated[Floats, "slots"]
    widths: Annotated[Floats, "slots"]  # s, positive, of the kernel
    # Of the reaches, kept running: the unit of the least width. 0 before any was positive.
    median: float

    @classmethod
    def empty(cls) -> LocalWidths:
        """Those of no slot."""
        return cls(np.zeros(0), np.zeros(0), 0.0)

    @property
    def least(self) -> float:
        """No width is less; 0 before any two points differed."""
        return LEAST_WIDTH * self.median

    @property
    def typical(self) -> float:
        """The median width."""
        return float(np.median(self.widths))


def fill_widths(
    scales: LocalWidths,
    slots: Ints,
    lists: NeighborLists,
    read_squares: Callable[[Ints], Floats],
    rule: WidthRule,
) -> LocalWidths:
    """The scales after ``slots`` were filled, or filled again.

    Parameters
    ----------
    scales
        Of the slots before.
    slots
        Shape (b,), distinct; those from n on are new.
    lists
        Of all n slots afterwards: the k nearest that differ.
    read_squares
        slots -> their squared distances to all slots afterwards, shape (., n). Only slots whose
        neighbours do not weigh enough are asked for. O(n) memory.
    """
    n, reaches = len(lists.near), lists.reaches[slots]
    bases, widths = pad(scales.bases, n), pad(scales.widths, n)
    median = _update_median(scales.median, reaches, len(slots) == n)
    bases[slots] = np.maximum(reaches, LEAST_WIDTH * median)
    widths[slots] = bases[slots] if median > 0.0 else 1.0
    near = weigh(lists.d2[slots], widths[slots], widths[lists.near[slots]], rule.width)
    lacking = slots[near.sum(axis=1) < required_weight(rule, n - 1)]
    for start in range(0, len(lacking), TILE):
        tile = lacking[start : start + TILE]
        widths[tile] = raise_widths(widths[tile], read_squares(tile), widths, rule, tile)
    return LocalWidths(bases, widths, median)


def _update_median(median: float, reaches: Floats, is_everything: bool) -> float:
    positive = np.sort(reaches[reaches > 0.0])  # `np.median` takes ten times as long on few
    if not len(positive):
        return median
    chunk_median = 0.5 * float(positive[(len(positive) - 1) // 2] + positive[len(positive) // 2])
    if is_everything or median == 0.0:
        return chunk_median
    return (1.0 - MEDIAN_SHARE) * median + MEDIAN_SHARE * chunk_median


def raise_widths(
    row_widths: Floats, d2: Floats, widths: Floats, rule: WidthRule, slots: Ints | None = None
) -> Floats:
    """Widths of rows, raised where their weights to others are less than `required_weight` in all.

    Parameters
    ----------
    row_widths
        s of the rows, shape (b,).
    d2, widths
        Squared distances to the points of a support, shape (b, n), and s of these, shape (n,).
    slots
        Which of these points every row is, for none weighs itself; None for new points.
    """
    counts_itself = slots is not None
    least = required_weight(rule, len(widths) - counts_itself) + counts_itself

    def find_lacking(rows: Ints, width: Floats) -> Floats:
        weights = weigh(d2[rows], width, widths, rule.width)
        if slots is not None:
            weights[np.arange(len(rows)), slots[rows]] = 1.0
        is_lacking: Floats = weights.sum(axis=1) < least
        return is_lacking

    lacking_rows = np.flatnonzero(find_lacking(np.arange(len(row_widths)), row_widths))
    if not len(lacking_rows):
        return row_widths
    result = row_widths.copy()
    lacking_rows = lacking_rows[np.isfinite(d2[lacking_rows]).sum(axis=1) >= least]
    low = high = row_widths[lacking_rows]
    is_lacking = np.ones(len(lacking_rows), dtype=bool)
    while is_lacking.any():
        high = np.where(is_lacking, np.minimum(high, 0.5 * LARGEST_WIDTH) * 2.0, high)
        is_lacking[is_lacking] = (high[is_lacking] < LARGEST_WIDTH) & find_lacking(
            lacking_rows[is_lacking], high[is_lacking]
        )
        low = np.where(is_lacking, high, low)
    for _ in range(HALVINGS):
        middle = np.sqrt(low) * np.sqrt(high)
        is_less = find_lacking(lacking_rows, middle)
        low, high = np.where(is_less, middle, low), np.where(is_less, high, middle)
    result[lacking_rows] = high
    return result


def required_weight(rule: WidthRule, n_others: int) -> float:
    """The least sum of a point's weights to ``n_others``: k / 2, or a quarter of few."""
    return min(0.5 * rule.n_neighbors, 0.25 * n_others)


def weigh(
    d2: Floats, row_widths: Floats, widths: Floats, width: float, dtype: npt.DTypeLike = np.float64
) -> Array:
    """exp(-d2 / (c s_i s_j)), shape (b, n), for row widths (b,) and column widths (n,) or (b, n).

    Divided by one width after the other: that of an outlier, squared, would leave the doubles.
    """
    with np.errstate(over="ignore", under="ignore"):
        exponents = d2 / (width * row_widths)[:, None]
        exponents /= widths
    return gaussian(exponents.astype(dtype, copy=False), 1.0)


def find_drifted(scales: LocalWidths, reaches: Floats, filled: Ints, limit: int) -> Ints:
    """Slots whose reach or least width has drifted, at most ``limit``, the most drifted first.

    Parameters
    ----------
    reaches
        r of all slots now, shape (n,).
    filled
        Slots that are filled anyway: none of these is among the result.
    """
    tiny = float(np.finfo(np.float64).tiny)  # no two points differed: widths are 1
    previous = np.maximum(pad(scales.bases, len(reaches)), tiny)
    current = np.maximum(reaches, max(scales.least, tiny))
    with np.errstate(over="ignore"):
        ratio = np.maximum(current / previous, previous / current)
    ratio[filled] = 0.0
    drifted = np.flatnonzero(ratio > DRIFTED)
    return drifted[np.argsort(-ratio[drifted], kind="stable")[: min(limit, MOST_REFILLED)]]
