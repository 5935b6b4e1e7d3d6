"""The energy whose gradient the forces of a picture are."""

from __future__ import annotations

import numpy as np

from streamembed.layout.forces import Links, weigh
from streamembed.numeric.arrays import Floats


def compute_energy(links: Links, places: Floats, rho: float, gamma: float) -> float:
    """F of `docs/algorithms/live-map.md`. O(n^2)."""
    rows = np.repeat(np.arange(len(links)), np.diff(links.starts))
    steps = places[links.slots] - places[rows]
    pulled = float(links.weights @ np.log1p((steps**2).sum(axis=-1)))
    pushed = float((weigh(places, places, np.float64) - 1.0).sum())
    return 0.5 * (rho * pulled + gamma * pushed)
