"""A sample of every class of a stream, and partners for new points drawn from it.

Symbols: N = classes; k = capacity, points remembered a class; d = features.

Pairs are what metrics learn from, and labels are what streams have. Each labelled point is given a
partner of its own class and one of another, from points that came before it: O(N k d) memory stands
for all pairs of the stream. Everything random comes from the generator that is handed in, which the
caller makes of (seed, position).

Source: Vitter (1985), Random sampling with a reservoir, ACM TOMS 11(1), algorithm R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Bools, Floats, Ints

__all__ = ["Partners", "Reservoirs", "init", "merge", "renumber", "sample", "update"]


@dataclass(frozen=True, slots=True, eq=False)
class Reservoirs:
    """Points of every class seen.

    Attributes
    ----------
    capacity : int
        k, at least 1.
    recent : bool
        False: each point of a class ever seen is as likely to be remembered as any other. True: the
        last k are, for streams that drift.
    samples : tuple of (m_c, d)
        m_c <= k points of class c, in no order that means anything.
    seen : (N,)
        Points that came, of each class.
    """

    capacity: int
    recent: bool
    samples: tuple[Annotated[Floats, "* d"], ...]
    seen: Annotated[Ints, "N"]

    @staticmethod
    def __unpack__(found: Reservoirs) -> Reservoirs:
        """Those of a file, where there can be such: ValueError otherwise."""
        sizes = np.array([len(points) for points in found.samples], dtype=np.int64)
        if (
            sizes.shape != found.seen.shape
            or (sizes > np.minimum(found.seen, found.capacity)).any()
        ):
            raise ValueError(f"{sizes} points remembered of {found.seen}")
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """Pairs of new points with remembered ones, in the order of the new points.

    Attributes
    ----------
    differences : (m, d)
        New point minus partner.
    similar : (m,)
        Whether both are of one class.
    owners : (m,)
        Index of the new point, ascending.
    """

    differences: Floats
    similar: Bools
    owners: Ints


def init(capacity: int, recent: bool = False) -> Reservoirs:
    """Nothing seen yet."""
    return Reservoirs(capacity, recent, (), np.zeros(0, dtype=np.int64))


def update(
    reservoirs: Reservoirs, points: Floats, classes: Ints, generator: np.random.Generator
) -> tuple[Reservoirs, Partners]:
    """The reservoirs after these points, and up to two partners for each: one alike, one not.

    Parameters
    ----------
    points, classes
        Shapes (n, d) and (n,), indices from 0. Point i may be paired with point j < i.
    generator
        Made by the caller of (seed, position); 4 n numbers are drawn, whatever the classes.

    Returns
    -------
    New reservoirs, the old ones untouched; and the pairs. A similar partner is uniform among the
    remembered of its class; a dissimilar one is of a class drawn by how many points of it came.
    The first point of a class has no similar partner, the first class no dissimilar one. O(n (d +
    N)), and O(k d) for each class that a point is of.

    Examples
    --------
    >>> import numpy as np
    >>> points, classes = np.array([[0.0], [1.0], [5.0]]), np.array([0, 0, 1])
    >>> after, pairs = update(init(10), points, classes, np.random.default_rng(0))
    >>> pairs.similar.tolist(), pairs.owners.tolist(), after.seen.tolist()
    ([True, False], [1, 2], [2, 1])
    """
    n, d = points.shape
    n_classes = max(len(reservoirs.seen), int(classes.max(initial=-1)) + 1)
    seen = np.zeros(n_classes, dtype=np.int64)
    seen[: len(reservoirs.seen)] = reservoirs.seen
    grown: dict[int, list[Floats]] = {
        c: list(reservoirs.samples[c]) if c < len(reservoirs.samples) else []
        for c in np.unique(classes).tolist()
    }
    kept = [grown.get(c, sample) for c, sample in enumerate(reservoirs.samples)]
    kept += [grown.get(c, []) for c in range(len(kept), n_classes)]
    differences: list[Floats] = []
    similar: list[bool] = []
    owners: list[int] = []
    for i, (c, drawn) in enumerate(zip(classes.tolist(), generator.random((n, 4)), strict=True)):
        own, point = grown[c], points[i]
        if own:
            differences.append(point - own[int(drawn[0] * len(own))])
            similar.append(True)
            owners.append(i)
        others = np.cumsum(seen)
        others[c:] -= seen[c]
        if others[-1] > 0:
            other = kept[int(np.searchsorted(others, drawn[1] * others[-1], side="right"))]
            differences.append(point - other[int(drawn[2] * len(other))])
            similar.append(False)
            owners.append(i)
        _admit(own, point, int(seen[c]), reservoirs, float(drawn[3]))
        seen[c] += 1
    samples = tuple(
        np.array(part).reshape(-1, d) if c in grown or isinstance(part, list) else part
        for c, part in enumerate(kept)
    )
    pairs = Partners(
        np.array(differences).reshape(-1, d),
        np.array(similar, dtype=bool),
        np.array(owners, dtype=np.int64),
    )
    return Reservoirs(reservoirs.capacity, reservoirs.recent, samples, seen), pairs


def _admit(own: list[Floats], point: Floats, seen: int, settings: Reservoirs, drawn: float) -> None:
    """Remember a point, in the place of another where there is no room, or not."""
    if len(own) < settings.capacity:
        own.append(point)
        return
    place = seen % settings.capacity if settings.recent else int(drawn * (seen + 1))
    if place < settings.capacity:
        own[place] = point


def sample(reservoirs: Reservoirs, most: int) -> tuple[Floats, Ints]:
    """Up to ``most`` remembered points and their classes, as many of each class as there are.

    Shapes (m, d) and (m,). Where there are more classes than that, only the first have a point.
    """
    held = [(c, part) for c, part in enumerate(reservoirs.samples) if len(part)][:most]
    if not held:
        return np.zeros((0, 0)), np.zeros(0, dtype=np.int64)
    each = most // len(held)
    return (
        np.concatenate([part[:each] for _, part in held]),
        np.concatenate([np.full(len(part[:each]), c, dtype=np.int64) for c, part in held]),
    )


def merge(left: Reservoirs, right: Reservoirs, generator: np.random.Generator) -> Reservoirs:
    """One sample of both streams, which ran side by side; class c of one is class c of the other.

    Where both hold more than there is room for, points are taken from either side in proportion to
    how many points of the class it saw.
    """
    n_classes = max(len(left.seen), len(right.seen))
    seen = np.zeros(n_classes, dtype=np.int64)
    seen[: len(left.seen)] += left.seen
    seen[: len(right.seen)] += right.seen
    samples: list[Floats] = []
    for c in range(n_classes):
        one, two = (
            part.samples[c] if c < len(part.samples) else np.zeros((0, 0)) for part in (left, right)
        )
        if not len(one) or not len(two):
            samples.append(one if len(one) else two)
            continue
        room = min(left.capacity, len(one) + len(two))
        share = right.seen[c] / seen[c]
        from_two = min(max(round(share * room), room - len(one)), len(two))
        chosen = [
            part[np.sort(generator.choice(len(part), count, replace=False))]
            for part, count in ((one, room - from_two), (two, from_two))
        ]
        samples.append(np.concatenate(chosen))
    return Reservoirs(left.capacity, left.recent, tuple(samples), seen)


def renumber(reservoirs: Reservoirs, indices: Ints, n_classes: int) -> Reservoirs:
    """The same with class c at ``indices[c]``, among ``n_classes``."""
    samples = [np.zeros((0, 0))] * n_classes
    seen = np.zeros(n_classes, dtype=np.int64)
    for c, sample_of_c in enumerate(reservoirs.samples):
        samples[indices[c]] = sample_of_c
        seen[indices[c]] = reservoirs.seen[c]
    return Reservoirs(reservoirs.capacity, reservoirs.recent, tuple(samples), seen)
