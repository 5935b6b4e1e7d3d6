"""The energy whose gradient the forces of a picture are."""

from __future__ import annotations

import numpy as np

from streamembed.layout.forces import Links, sum_weights
from streamembed.numeric.arrays import Floats


def compute_energy(links: Links, places: Floats, rho: float, gamma: float) -> float:
    """F of `docs/algorithms/live-map.md`. O(n^2)."""
    rows = np.repeat(np.arange(len(links)), np.diff(links.starts))
    steps = places[links.slots] - places[rows]
    pulled = float(links.weights @ np.log1p((steps**2).sum(axis=-1)))
    pushed = float((sum_weights(places, places, np.float64) - 1.0).sum())
    return 0.5 * (rho * pulled + gamma * pushed)


def spread_slowly(
    a: Floats, places: Floats, velocity: Floats, rho: float, gamma: float, left: int, steps: int
) -> tuple[Floats, Floats, float]:
    """All points at once, 200 steps with momentum and 50 damped ones, by a dense A in float64."""
    for remaining in range(left, left - steps, -1):
        offsets = places[None] - places[:, None]
        w = 1.0 / (1.0 + (offsets**2).sum(axis=-1))
        if remaining % 10 == 0:
            gamma = len(places) / max(w.sum() - len(places), 1.0)
        h = rho * (a * w).sum(axis=1)
        force = rho * np.einsum("ij,ijk->ik", a * w, offsets)
        force -= gamma * np.einsum("ij,ijk->ik", w**2, offsets)
        if remaining > 50:
            velocity, longest = 0.8 * velocity + 4.0 / rho * force, 5.0
        else:
            velocity = np.zeros_like(velocity) if remaining == 50 else velocity
            velocity, longest = 0.5 * velocity + 0.5 * force / (h + 0.05 * rho)[:, None], 0.3
        lengths = np.sqrt((velocity**2).sum(axis=1, keepdims=True))
        velocity = velocity / np.maximum(lengths / longest, 1.0)
        places = places + velocity
    return places, velocity, gamma
