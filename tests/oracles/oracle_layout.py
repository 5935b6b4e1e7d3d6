"""The energy whose gradient the forces of a picture are."""

from __future__ import annotations

import numpy as np

from streamembed.layout.forces import Links, weigh
from streamembed.numeric.arrays import Floats


def compute_energy(links: Links, places: Floats, rho: float, gamma: float) -> float:
    """F of `docs/algorithms/live-map.md`. O(n^2)."""
    n = len(links)
    own = places[:, None] - places[links.near]
    back = places[links.slots] - places[np.repeat(np.arange(n), np.diff(links.starts))]
    pulled = float((links.weights * np.log1p((own**2).sum(axis=-1))).sum())
    pulled += float(links.back @ np.log1p((back**2).sum(axis=-1)))
    pushed = float((weigh(places, places, np.float64) - 1.0).sum())
    return 0.5 * (rho * pulled + gamma * pushed)
