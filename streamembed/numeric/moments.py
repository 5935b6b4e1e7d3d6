"""Mean and deviation of every feature of a stream, each over the values that are present.

They replace missing values and divide features. Mergeable; a constant feature
has a deviation of exactly 0.

Source: Chan, Golub & LeVeque (1983), The American Statistician 37(3), 242-247, a feature at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Bools, Floats

# A deviation of this many last bits of a feature is rounding: merged streams have different
# origins, and 0.1 + 0.2 is not 0.3.
ROUNDING = 8 * np.finfo(np.float64).eps


@dataclass(frozen=True, slots=True, eq=False)
class FeatureMoments:
    """Of each feature: how many values came, their mean, and the sum of squared deviations."""

    counts: Annotated[Floats, "d"]
    means: Annotated[Floats, "d"]
    squares: Annotated[Floats, "d"]

    @property
    def deviations(self) -> Floats:
        """Population deviations (d,)."""
        return np.sqrt(self.squares / np.maximum(self.counts, 1.0))

    @property
    def varies(self) -> Bools:
        """Which features vary by more than rounding, (d,)."""
        return self.deviations > ROUNDING * np.abs(self.means)

    @property
    def scale(self) -> Floats:
        """Population deviations (d,); 1 for a feature that does not vary."""
        return np.where(self.varies, self.deviations, 1.0)

    def fill_gaps(self, values: Floats) -> Floats:
        """The values (n, d) with the mean in the place of every NaN; 0 before any value."""
        return np.where(np.isnan(values), self.means, values)


def drop_rounding(differences: Floats, points: Floats) -> Floats:
    """Differences (n, d) of these points (n, d) from others, 0 where they are rounding."""
    return np.where(np.abs(differences) <= ROUNDING * np.abs(points), 0.0, differences)


def init(n_features: int) -> FeatureMoments:
    """The moments of no rows."""
    return FeatureMoments(np.zeros(n_features), np.zeros(n_features), np.zeros(n_features))


def update(spread: FeatureMoments, values: Floats) -> FeatureMoments:
    """With these rows (n, d) too, NaN where a value is missing. O(n d)."""
    is_present = ~np.isnan(values)
    counts = is_present.sum(axis=0).astype(np.float64)
    if not counts.any():
        return spread
    start = np.take_along_axis(values, np.argmax(is_present, axis=0)[None], axis=0)[0]
    start = np.where(counts > 0, start, 0.0)
    steps = np.where(is_present, values - start, 0.0)
    steps -= steps.sum(axis=0) / np.maximum(counts, 1.0)
    means = start + np.where(is_present, values - start, 0.0).sum(axis=0) / np.maximum(counts, 1.0)
    squares = np.where(is_present, steps**2, 0.0).sum(axis=0)
    return merge(spread, FeatureMoments(counts, means, squares))


def merge(left: FeatureMoments, right: FeatureMoments) -> FeatureMoments:
    """Of both streams; commutative and associative up to rounding."""
    counts = left.counts + right.counts
    share = right.counts / np.maximum(counts, 1.0)
    step = np.where((left.counts > 0) & (right.counts > 0), right.means - left.means, 0.0)
    base = np.where(left.counts > 0, left.means, right.means)
    return FeatureMoments(
        counts, base + share * step, left.squares + right.squares + left.counts * share * step**2
    )
