"""Where a point that is new belongs: of its neighbours' places, and their mean, the best.

Best is where its own part of F is least, which is looked up exactly. The mean alone may lie between
two islands, and a point that starts there stays there (docs/decisions/0017).
"""

from __future__ import annotations

import numpy as np

from streamembed.layout import forces
from streamembed.layout.forces import Links
from streamembed.layout.relaxation import DAMPING, LEAST_MAJORISER, LONGEST_STEP, shorten
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["place_newcomers", "place_outside"]

# Steps of a point from outside while all others stay where they are.
STEPS = 15
# Places that are tried, of those linked most: who is near to thousands is tried among a few.
CANDIDATES = 64
# Two points in one place would never part.
APART = 1e-3
GOLDEN_ANGLE = np.pi * (3.0 - np.sqrt(5.0))

Candidate = tuple[Floats, Floats]


def place_newcomers(
    links: Links, places: Floats, slots: Ints, births: Ints, rho: float, gamma: float
) -> Floats:
    """The places, shape (n, 2), with those of ``slots`` found one by one, the oldest first.

    Parameters
    ----------
    births
        Of all slots, shape (n,).
    """
    n, count = len(places), len(places) - len(slots)
    here, known = np.ones(n, dtype=bool), np.empty((n, 2))
    here[slots] = False
    known[:count] = places[here]
    places = places.copy()
    for slot in slots[np.argsort(births[slots])].tolist():
        listed = slice(links.starts[slot], links.starts[slot + 1])
        others = np.concatenate([links.near[slot], links.slots[listed]])
        weights = np.concatenate([links.weights[slot], links.back[listed]])
        linked = here[others] & (weights > 0.0)
        others, weights = others[linked], weights[linked]
        found = _best(places[others], weights, known[:count], rho, gamma)
        places[slot] = known[count] = _apart(found, known[:count], int(births[slot]))
        here[slot], count = True, count + 1
    return places


def _best(around: Floats, weights: Floats, known: Floats, rho: float, gamma: float) -> Candidate:
    """Of some places and their mean, the best for a point linked with these; and that mean."""
    if not len(around):  # an island of its own: it will be pulled to whom it is linked with
        middle: Floats = known.sum(axis=0) / max(len(known), 1)
        return middle, middle
    mean, nearest = around.sum(axis=0)[None] / len(around), around
    if len(around) > CANDIDATES:
        nearest = around[np.argsort(-weights, kind="stable")[:CANDIDATES]]
    candidates = np.concatenate([mean, nearest])
    (x, y), (u, v) = candidates.T, around.T
    d2 = (x[:, None] - u) ** 2 + (y[:, None] - v) ** 2
    own = rho * (np.log1p(d2) @ weights) + gamma * forces.weigh(known, candidates)
    return candidates[np.argmin(own)], candidates[0]


def _apart(found: Candidate, known: Floats, birth: int) -> Floats:
    """Not just where another is: a little nearer to the mean, or anywhere beside it."""
    place, mean = found
    if _is_taken(place, known):
        aside = mean - place
        place = place + APART * aside / max(float(np.sqrt(aside @ aside)), APART)
        if _is_taken(place, known):
            angle = GOLDEN_ANGLE * birth
            place = place + APART * np.array([np.cos(angle), np.sin(angle)])
    return place


def _is_taken(place: Floats, known: Floats) -> bool:
    near = np.flatnonzero(known[:, 0] == place[0])
    return bool((known[near, 1] == place[1]).any())


def place_outside(places: Floats, near: Ints, p: Floats, rho: float, gamma: float) -> Floats:
    """Places of points that nobody will see, each by itself, shape (m, 2).

    Parameters
    ----------
    places
        Shape (n, 2), of the support; they stay.
    near, p
        Shape (m, K): neighbours in the support, nearest first, and their `forces.affinities`, 0
        where there are fewer.
    """
    around, there = places[near], p > 0.0
    mean = (around * there[:, :, None]).sum(axis=1)
    mean /= np.maximum(np.count_nonzero(there, axis=1), 1)[:, None]
    candidates = np.concatenate([mean[:, None], around[:, :CANDIDATES]], axis=1)
    d2 = ((candidates[:, :, None] - around[:, None]) ** 2).sum(axis=-1)
    own = rho * (np.log1p(d2) * p[:, None]).sum(axis=-1)
    own += gamma * forces.weigh(places, candidates.reshape(-1, 2)).reshape(own.shape)
    own[:, 1:][~there[:, :CANDIDATES]] = np.inf
    at: Floats = candidates[np.arange(len(near)), np.argmin(own, axis=1)]
    for _ in range(STEPS):
        between = around - at[:, None]
        pull = p / (1.0 + (between**2).sum(axis=-1))
        force = rho * (pull[:, :, None] * between).sum(axis=1)
        force += gamma * forces.repel(places, at)
        step = DAMPING * force / (rho * pull.sum(axis=1) + LEAST_MAJORISER * rho)[:, None]
        at = at + shorten(step, LONGEST_STEP)
    return at
