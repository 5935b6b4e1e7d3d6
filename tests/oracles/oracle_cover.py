"""Merging covers in the slowest clear way: lists, loops, one distance at a time.

Nothing of the package is imported. A landmark is ``(point, mass, key, stale)``, a tuple each.
"""

from __future__ import annotations

import math

__all__ = ["covering_radius", "faded", "merge", "squared_distance", "union"]

HEIRS = 8
LEAST, HALVINGS = 2.0**-1022, 40
ENOUGH = 0.995


def squared_distance(left, right):
    """By differences, added up in order."""
    total = 0.0
    for a, b in zip(left, right, strict=True):
        total += (a - b) * (a - b)
    return total


def faded(landmarks, age, half_life):
    """Masses after so much more time."""
    factor = 1.0 if half_life is None else 2.0 ** (-age / half_life)
    return [(point, mass * factor, key, stale) for point, mass, key, stale in landmarks]


def union(sets):
    """All landmarks in order; of equal points one, the first key, all the mass."""
    every = sorted(
        (tuple(x + 0.0 for x in point), key, mass, stale)
        for landmarks in sets
        for point, mass, key, stale in landmarks
    )
    places = {}
    for point, key, mass, stale in every:
        places.setdefault(point, []).append((key, mass, stale))
    return [
        (point, math.fsum(mass for _, mass, _ in found), found[0][0], all(s for *_, s in found))
        for point, found in places.items()
    ]


def merge(sets, size):
    """The net of the union: what stays, with masses, and the squared radius."""
    every = union(sets)
    if len(every) <= size:
        return every, 0.0
    order = sorted(range(len(every)), key=lambda i: (every[i][3], -every[i][1], i))

    def kept_at(radius2):
        kept = []
        for i in order:
            if all(squared_distance(every[i][0], every[j][0]) > radius2 for j in kept):
                kept.append(i)
        return kept

    low = LEAST
    high = max(squared_distance(every[order[0]][0], b[0]) for b in every)
    kept = order[:1]
    for _ in range(HALVINGS):
        middle = math.sqrt(low) * math.sqrt(high)
        found = kept_at(middle)
        if len(found) > size:
            low = middle
            continue
        kept, high = found, middle
        if len(found) >= ENOUGH * size:
            break
    masses = {i: every[i][1] for i in kept}
    for i in range(len(every)):
        if i in masses.keys() & set(kept):
            continue
        near = sorted((squared_distance(every[i][0], every[j][0]), j) for j in sorted(kept))
        near = near[:HEIRS]
        weights = [
            math.exp(-(d2 - near[0][0]) / high) if high > 0 else float(at == 0)
            for at, (d2, _) in enumerate(near)
        ]
        for (_, j), weight in zip(near, weights, strict=True):
            masses[j] += every[i][1] * weight / sum(weights)
    return [(every[i][0], masses[i], every[i][2], every[i][3]) for i in sorted(kept)], high


def covering_radius(every, kept):
    """How far the farthest landmark is from the nearest that stayed."""
    return math.sqrt(max(min(squared_distance(p, q) for q in kept) for p in every))
