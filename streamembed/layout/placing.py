"""Places of new points: the best of their neighbours' places and the mean of these.

The best has the least energy, computed exactly. The mean alone may lie between two islands, and a
point that starts there stays there (docs/decisions.md).
"""

from __future__ import annotations

import numpy as np

from streamembed.layout import forces
from streamembed.layout.forces import Links
from streamembed.layout.relaxation import DAMPING, LEAST_MAJORISER, LONGEST_STEP, shorten
from streamembed.numeric.arrays import Floats, Ints

# Steps of a point that is not in the support, while all others stay.
STEPS = 15
# Places that are tried, those with the largest weights: a point may have thousands of neighbours.
CANDIDATES = 64
# Two points in one place would never separate: one is moved by this.
NUDGE = 1e-3
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))

Candidate = tuple[Floats, Floats]


def place_newcomers(
    links: Links, places: Floats, slots: Ints, arrivals: Ints, rho: float, gamma: float
) -> Floats:
    """The places, shape (n, 2), with those of ``slots`` chosen one by one, the oldest first.

    Parameters
    ----------
    arrivals
        Arrival positions of all slots, shape (n,).
    """
    n, count = len(places), len(places) - len(slots)
    is_placed, placed = np.ones(n, dtype=bool), np.empty((n, 2))
    is_placed[slots] = False
    placed[:count] = places[is_placed]
    places = places.copy()
    for slot in slots[np.argsort(arrivals[slots])].tolist():
        entries = slice(links.starts[slot], links.starts[slot + 1])
        others, weights = links.slots[entries], links.weights[entries]
        linked = is_placed[others] & (weights > 0.0)
        others, weights = others[linked], weights[linked]
        candidate = _choose_least_energy(places[others], weights, placed[:count], rho, gamma)
        places[slot] = placed[count] = _nudge(candidate, placed[:count], int(arrivals[slot]))
        is_placed[slot], count = True, count + 1
    return places


def _choose_least_energy(
    neighbor_places: Floats, weights: Floats, placed: Floats, rho: float, gamma: float
) -> Candidate:
    """The best of some places and their mean for a point that these attract; and that mean."""
    if not len(neighbor_places):  # an island of its own: points that it attracts will come
        middle: Floats = placed.sum(axis=0) / max(len(placed), 1)
        return middle, middle
    mean, nearest = neighbor_places.sum(axis=0)[None] / len(neighbor_places), neighbor_places
    if len(neighbor_places) > CANDIDATES:
        nearest = neighbor_places[np.argsort(-weights, kind="stable")[:CANDIDATES]]
    candidates = np.concatenate([mean, nearest])
    (x, y), (u, v) = candidates.T, neighbor_places.T
    d2 = (x[:, None] - u) ** 2 + (y[:, None] - v) ** 2
    own = rho * (np.log1p(d2) @ weights) + gamma * forces.sum_weights(placed, candidates)
    return candidates[np.argmin(own)], candidates[0]


def _nudge(candidate: Candidate, placed: Floats, arrival: int) -> Floats:
    """A place where no other point is: a little nearer to the mean, or anywhere beside it."""
    place, mean = candidate
    if _is_taken(place, placed):
        offset = mean - place
        place = place + NUDGE * offset / max(float(np.sqrt(offset @ offset)), NUDGE)
        if _is_taken(place, placed):
            angle = GOLDEN_ANGLE * arrival
            place = place + NUDGE * np.array([np.cos(angle), np.sin(angle)])
    return place


def _is_taken(place: Floats, placed: Floats) -> bool:
    same_x = np.flatnonzero(placed[:, 0] == place[0])
    return bool((placed[same_x, 1] == place[1]).any())


def place_outside(places: Floats, near: Ints, p: Floats, rho: float, gamma: float) -> Floats:
    """Places of points outside of the support, which do not affect each other, shape (m, 2).

    Parameters
    ----------
    places
        Shape (n, 2), of the support; they stay.
    near, p
        Shape (m, K): neighbours in the support, nearest first, and their affinities
        (`forces.compute_affinities`), 0 where there are fewer.
    """
    neighbor_places, is_neighbor = places[near], p > 0.0
    mean = (neighbor_places * is_neighbor[:, :, None]).sum(axis=1)
    mean /= np.maximum(np.count_nonzero(is_neighbor, axis=1), 1)[:, None]
    candidates = np.concatenate([mean[:, None], neighbor_places[:, :CANDIDATES]], axis=1)
    d2 = ((candidates[:, :, None] - neighbor_places[:, None]) ** 2).sum(axis=-1)
    own_energy = rho * (np.log1p(d2) * p[:, None]).sum(axis=-1)
    own_energy += gamma * forces.sum_weights(places, candidates.reshape(-1, 2)).reshape(
        own_energy.shape
    )
    own_energy[:, 1:][~is_neighbor[:, :CANDIDATES]] = np.inf
    at: Floats = candidates[np.arange(len(near)), np.argmin(own_energy, axis=1)]
    for _ in range(STEPS):
        offsets = neighbor_places - at[:, None]
        pull = p / (1.0 + (offsets**2).sum(axis=-1))
        force = rho * (pull[:, :, None] * offsets).sum(axis=1)
        force += gamma * forces.repel(places, at)
        step = DAMPING * force / (rho * pull.sum(axis=1) + LEAST_MAJORISER * rho)[:, None]
        at = at + shorten(step, LONGEST_STEP)
    return at
