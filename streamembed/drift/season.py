"""A season of known period: a regression on sines and cosines, whose residuals are watched."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Floats, Ints

HARMONICS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Season:
    """Coefficients of the sines and cosines of the first three harmonics, by feature."""

    period: int
    coefficients: Annotated[Floats, "6 d"]

    def remove(self, points: Floats, positions: Ints) -> Floats:
        """Events less their season; ``positions`` are their numbers in the stream.

        One product at a time: the bits do not depend on the number of events.
        """
        residuals = points.copy()
        for wave, own in zip(
            _compute_waves(positions, self.period), self.coefficients, strict=True
        ):
            residuals -= wave[:, None] * own
        return residuals


def fit(points: Floats, positions: Ints, period: int) -> Season:
    """Fit a season to the events of a reference, by least squares."""
    waves = _compute_waves(positions, period)
    design = np.stack([np.ones(len(points)), *waves], axis=1)
    coefficients = np.linalg.lstsq(design, points, rcond=1e-9)[0][1:]
    coefficients[:, (points == points[0]).all(axis=0)] = 0.0
    return Season(period, np.ascontiguousarray(coefficients))


def _compute_waves(positions: Ints, period: int) -> list[Floats]:
    phases = 2 * np.pi * (positions % period) / period
    return [f(j * phases) for j in range(1, HARMONICS + 1) for f in (np.sin, np.cos)]
