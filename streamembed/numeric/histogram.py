"""Quantiles of a stream of values without keeping it: a histogram whose buckets grow with values.

The bucket of a value is the leading bits of its double: the exponent and 6 bits of the mantissa, so
that doublings have 64 buckets each. Buckets cover all non-negative doubles, ascend with the values,
and only those that occur are stored. Counts are whole numbers of 2^-20: sums of them are exact to
the last bit, however a stream was cut.

Source: docs/algorithms/pairs.md; Masson, Rim & Lee (2019), DDSketch, Proc. VLDB 12(12), sections
2.1 and 2.3. Differs: 1. buckets are linear within a doubling, so that no logarithm is taken, whose
last bit depends on the machine. 2. Buckets are never collapsed: all doubles make 131 thousand, real
data a few hundred. 3. Counts are fixed-point, for `decay`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Floats, Ints

# Bits of a double that are left out: 52 of its mantissa, but for 6.
DROPPED = 46
# A quantile is the middle of its bucket, whose width is a 64th of its least value at most.
RELATIVE_ERROR = 2.0**-7
# Counts are multiples of 2^-20: a weight of 1 fades out after 132 decays by 0.9, and 2^43 events
# fit into 63 bits.
UNIT = 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """How much weight fell into which bucket. Memory O(buckets met)."""

    buckets: Annotated[Ints, "m", "ascending"]
    counts: Annotated[Ints, "m", "positive"]  # weight in each, in units of 2^-20


def init() -> Histogram:
    """The histogram of nothing."""
    return Histogram(np.zeros(0, np.int64), np.zeros(0, np.int64))


def update(histogram: Histogram, values: Floats) -> Histogram:
    """The histogram with these values (n,) in it too, finite and not negative, each counting 1.

    Returns
    -------
    The same bits in whatever order, and in however many calls, the values come. O((n + m) log).

    Examples
    --------
    >>> h = update(init(), np.array([0.0, 1.0, 2.0, 4.0]))
    >>> count(h), quantile(h, 0.25)
    (4.0, 0.0)
    >>> abs(quantile(h, 1.0) / 4.0 - 1.0) <= RELATIVE_ERROR
    True
    """
    new = np.abs(values).view(np.int64) >> DROPPED  # -0.0 becomes 0.0
    buckets, inverse = np.unique(np.concatenate([histogram.buckets, new]), return_inverse=True)
    counts = np.zeros(len(buckets), dtype=np.int64)
    np.add.at(counts, inverse, np.append(histogram.counts, np.full(len(new), UNIT)))
    return Histogram(buckets, counts)


def decay(histogram: Histogram, factor: float) -> Histogram:
    """The histogram with everything so far counting ``factor``, in [0, 1], times as much; O(m).

    Counts are rounded down to 2^-20, so that every factor below 1 ends at nothing: to the nearest,
    4 units times 0.9 would stay 4 for ever.
    """
    counts = np.floor(histogram.counts * factor).astype(np.int64)
    is_positive = counts > 0
    return Histogram(histogram.buckets[is_positive], counts[is_positive])


def count(histogram: Histogram) -> float:
    """Total weight; the number of values where nothing was decayed."""
    return int(histogram.counts.sum()) / UNIT


def quantile(histogram: Histogram, p: float) -> float:
    """The smallest value that at least the share ``p``, in [0, 1], of the weight does not exceed.

    Returns
    -------
    Within `RELATIVE_ERROR` of that value; 0 where it is 0, or below 1e-309. O(m). NaN of an empty
    histogram.
    """
    if not len(histogram.counts):
        return float("nan")
    reached = np.cumsum(histogram.counts)
    # p * total may round above the total
    index = min(int(np.searchsorted(reached, p * reached[-1])), len(reached) - 1)
    bucket = histogram.buckets[index]
    middle = (bucket << DROPPED) + (1 << (DROPPED - 1)) if bucket else 0
    return float(np.int64(middle).view(np.float64))
