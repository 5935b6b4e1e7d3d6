"""Steps by which places come to rest: of some rows in the field of the others, or of all.

A step is bounded by the attraction's majoriser h, the weighted degree. All rows of a step move at
once (Jacobi), so that the order of the slots plays no part.

Symbols: rho, gamma = strengths of attraction and repulsion; f = forces; h = rho sum_j A_ij w_ij.
"""

from __future__ import annotations

import numpy as np

from streamembed.layout import forces
from streamembed.layout.forces import Links
from streamembed.numeric.arrays import Floats, Ints

# A step is f / (h + this share of rho): that of a point whose neighbours are all far stays bounded.
LEAST_MAJORISER = 0.05
DAMPING = 0.5
# Steps of the rows whose neighbours changed, and how hard, beside h, each is held where it was.
STEPS, ANCHOR = 4, 2.0
LONGEST_STEP, LONGEST_DISPLACEMENT = 1.0, 0.3
# Of a layout from scratch: steps that gather neighbours, and their attraction, ...
GATHERING, GATHERED = 100, 12.0
# ... steps that spread them out, the last of which bring them to rest.
SPREADING_STEPS, RESTING = 250, 50
GATHERING_MOMENTUM, SPREADING_MOMENTUM = 0.5, 0.8
RATE, LONGEST_STRIDE = 4.0, 5.0
# Steps between two computations of Z.
STEPS_PER_GAMMA = 10
# Rows of a displacement, or of a computation of Z: so that they cost O(n).
ROWS_PER_STEP = 2000
START = 1e-2


def find_forces(
    links: Links, places: Floats, at: Floats, rho: float, gamma: float
) -> tuple[Floats, Floats]:
    """Forces (m, 2) on the rows of ``links``, which are ``at``, and the pull of links, (m,)."""
    force, strength = forces.attract(links, places, at)
    force *= rho
    force += gamma * forces.repel(places, at)
    return force, rho * strength


def relax(
    links: Links, places: Floats, rows: Ints, newcomers: Ints, rho: float, gamma: float
) -> Floats:
    """The places once some rows have come to rest near where they are, and ``newcomers`` anywhere.

    Parameters
    ----------
    rows
        Ascending; ``newcomers`` are among them.
    """
    places, old_places, links = places.copy(), places[rows], links.take(rows)
    anchor = np.where(np.isin(rows, newcomers), 0.0, ANCHOR)
    velocity = np.zeros_like(old_places)
    for _ in range(STEPS):
        at = places[rows]
        force, h = find_forces(links, places, at, rho, gamma)
        force += (anchor * h)[:, None] * (old_places - at)
        velocity *= DAMPING
        velocity += DAMPING * force / (h * (1.0 + anchor) + LEAST_MAJORISER * rho)[:, None]
        shorten(velocity, LONGEST_STEP)
        places[rows] = at + velocity
    return places


def displace_all(
    links: Links, places: Floats, displacement: Floats, rows: Ints, rho: float, gamma: float
) -> tuple[Floats, Floats]:
    """Places and displacements, both (n, 2), after one damped step of the rows."""
    force, h = find_forces(links.take(rows), places, places[rows], rho, gamma)
    step = DAMPING * displacement[rows] + DAMPING * force / (h + LEAST_MAJORISER * rho)[:, None]
    shorten(step, LONGEST_DISPLACEMENT)
    places, displacement = places.copy(), displacement.copy()
    displacement[rows] = step
    places[rows] += step
    return places, displacement


def relax_from_scratch(links: Links, start: Floats, rho: float) -> tuple[Floats, float]:
    """Places from scratch, shape (n, 2), and their gamma. O(n^2), 350 times.

    Parameters
    ----------
    start
        Shape (n, 2): ranks of the points, of variance 1.
    """
    places, velocity, gamma = START * start, np.zeros_like(start), 0.0
    for step in range(GATHERING):
        if step % STEPS_PER_GAMMA == 0:
            gamma = _compute_gamma(places)
        velocity = _accelerate(links, places, velocity, GATHERED, gamma, GATHERING_MOMENTUM)
        places = places + velocity
    return spread_out(links, places, rho)


def spread_out(links: Links, places: Floats, rho: float) -> tuple[Floats, float]:
    """Places after all have come to rest together with Z, and gamma. O(n^2), 250 times."""
    velocity = np.zeros_like(places)
    places, _, gamma = spread(links, places, velocity, rho, 0.0, SPREADING_STEPS, SPREADING_STEPS)
    return places, gamma


def spread(
    links: Links,
    places: Floats,
    velocity: Floats,
    rho: float,
    gamma: float,
    steps_left: int,
    steps: int,
) -> tuple[Floats, Floats, float]:
    """Places, velocities and gamma after some of the steps by which all come to rest together.

    They move apart with momentum, and then take damped steps; Z is computed now and then. All move
    at once: forces that are not returned by their partners would drive the whole apart.

    Parameters
    ----------
    places, velocity
        Shape (n, 2).
    steps_left, steps
        Of `SPREADING_STEPS`, those that remain, and how many of them to take.
    """
    rows = np.arange(len(places))
    for remaining in range(steps_left, steps_left - steps, -1):
        if remaining % STEPS_PER_GAMMA == 0:
            gamma = _compute_gamma(places)
        if remaining > RESTING:
            velocity = _accelerate(links, places, velocity, rho, gamma, SPREADING_MOMENTUM)
            places = places + velocity
            continue
        if remaining == RESTING:
            velocity = np.zeros_like(places)
        places, velocity = displace_all(links, places, velocity, rows, rho, gamma)
    return places, velocity, gamma


def count_due_steps(n: int, positions: tuple[int, int]) -> int:
    """Of `SPREADING_STEPS`, those due between two positions: all in half as many events as points.

    Growing supports come to rest before they have doubled. A chunk of ten takes steps of 5,000 rows
    in all, or one, where about 1,200 relax and 2,000 are displaced: at most some ten times as much
    up to 25,000 points.
    """
    begin, end = (position * 2 * SPREADING_STEPS // n for position in positions)
    return end - begin


def select_displaced_rows(n: int, number: int) -> Ints:
    """The rows of one displacement: all, or of many every ``n_turns``-th, in turn."""
    n_turns = -(-n // ROWS_PER_STEP)
    return np.arange(number % n_turns, n, n_turns)


def _accelerate(
    links: Links, places: Floats, velocity: Floats, rho: float, gamma: float, momentum: float
) -> Floats:
    """The next velocities of all points."""
    force, _ = find_forces(links, places, places, rho, gamma)
    return shorten(momentum * velocity + (RATE / rho) * force, LONGEST_STRIDE)


def _compute_gamma(places: Floats) -> float:
    """gamma = n / Z, of t-SNE, by some rows of many; of a few points that are far apart, less."""
    rows = select_displaced_rows(len(places), 0)
    z = float((forces.sum_weights(places, places[rows]) - 1.0).sum()) / (len(rows) / len(places))
    return len(places) / max(z, 1.0)


def shorten(steps: Floats, longest: float) -> Floats:
    """Steps, shape (m, 2), cut to the ``longest``; in place, and returned."""
    lengths = np.sqrt(steps[:, 0] * steps[:, 0] + steps[:, 1] * steps[:, 1])
    steps /= np.maximum(lengths / longest, 1.0)[:, None]
    return steps
