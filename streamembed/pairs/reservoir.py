"""A sample of every class of a stream, and partners for new points drawn from it.

Symbols: N = classes; k = capacity, points remembered a class; d = features.

Metrics learn from pairs, and streams have labels. Each labelled point gets a partner of its own
class and one of another, from points that came before it: O(N k d) memory stands for all pairs of
the stream. Everything random comes from the generator that the caller makes of (seed, position).

Source: Vitter (1985), Random sampling with a reservoir, ACM TOMS 11(1), algorithm R.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np

from streamembed.numeric.arrays import Bools, Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Reservoirs:
    """Points of every observed class."""

    capacity: int  # k, at least 1
    # False: every point of a class is equally likely to be remembered. True: the last k are, for
    # streams that drift.
    recent: bool
    samples: tuple[Annotated[Floats, "* d"], ...]  # m_c <= k points of class c, in arbitrary order
    seen: Annotated[Ints, "N"]  # points that came, of each class

    @staticmethod
    def __unpack__(loaded: Reservoirs) -> Reservoirs:
        """The reservoirs of a file; ValueError where a stream cannot have such."""
        sizes = np.array([len(points) for points in loaded.samples], dtype=np.int64)
        if (
            sizes.shape != loaded.seen.shape
            or (sizes > np.minimum(loaded.seen, loaded.capacity)).any()
        ):
            raise ValueError(f"{sizes} points remembered of {loaded.seen}")
        return loaded


@dataclass(frozen=True, slots=True, eq=False)
class Partners:
    """Pairs of new points with remembered ones, in the order of the new points."""

    differences: Floats  # (m, d): new point minus partner
    similar: Bools  # (m,): whether both are of one class
    owners: Ints  # (m,): index of the new point, ascending


def init(capacity: int, recent: bool = False) -> Reservoirs:
    """The reservoirs before any point."""
    return Reservoirs(capacity, recent, (), np.zeros(0, dtype=np.int64))


def update(
    reservoirs: Reservoirs, points: Floats, classes: Ints, generator: np.random.Generator
) -> tuple[Reservoirs, Partners]:
    """The reservoirs after these points, and up to two partners for each: one similar, one not.

    Parameters
    ----------
    points, classes
        Shapes (n, d) and (n,), indices from 0. Point i may be paired with point j < i.
    generator
        Made by the caller of (seed, position); 4 n numbers are drawn, whatever the classes.

    Returns
    -------
    New reservoirs, the old ones untouched; and the pairs. A similar partner is uniform among the
    remembered of its class; a dissimilar one is of a class drawn in proportion to its points.
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
    counts = np.zeros(n_classes, dtype=np.int64)
    counts[: len(reservoirs.seen)] = reservoirs.seen
    writable: dict[int, list[Floats]] = {
        c: list(reservoirs.samples[c]) if c < len(reservoirs.samples) else []
        for c in np.unique(classes).tolist()
    }
    samples_of = [writable.get(c, sample) for c, sample in enumerate(reservoirs.samples)]
    samples_of += [writable.get(c, []) for c in range(len(samples_of), n_classes)]
    differences: list[Floats] = []
    similar: list[bool] = []
    owners: list[int] = []
    for i, (c, uniforms) in enumerate(zip(classes.tolist(), generator.random((n, 4)), strict=True)):
        same_class, point = writable[c], points[i]
        if same_class:
            differences.append(point - same_class[int(uniforms[0] * len(same_class))])
            similar.append(True)
            owners.append(i)
        cumulative = np.cumsum(counts)
        cumulative[c:] -= counts[c]
        if cumulative[-1] > 0:
            other_class = samples_of[
                int(np.searchsorted(cumulative, uniforms[1] * cumulative[-1], side="right"))
            ]
            differences.append(point - other_class[int(uniforms[2] * len(other_class))])
            similar.append(False)
            owners.append(i)
        _insert(same_class, point, int(counts[c]), reservoirs, float(uniforms[3]))
        counts[c] += 1
    samples = tuple(
        np.array(part).reshape(-1, d) if c in writable or isinstance(part, list) else part
        for c, part in enumerate(samples_of)
    )
    pairs = Partners(
        np.array(differences).reshape(-1, d),
        np.array(similar, dtype=bool),
        np.array(owners, dtype=np.int64),
    )
    return Reservoirs(reservoirs.capacity, reservoirs.recent, samples, counts), pairs


def _insert(
    sample: list[Floats], point: Floats, count: int, settings: Reservoirs, uniform: float
) -> None:
    """Remember a point, or not; a full sample loses another one for it."""
    if len(sample) < settings.capacity:
        sample.append(point)
        return
    index = count % settings.capacity if settings.recent else int(uniform * (count + 1))
    if index < settings.capacity:
        sample[index] = point


def sample(reservoirs: Reservoirs, n_samples: int) -> tuple[Floats, Ints]:
    """Up to ``n_samples`` remembered points and their classes, as many of each class as there are.

    Shapes (m, d) and (m,). Where there are more classes than that, only the first have a point.
    """
    nonempty = [(c, part) for c, part in enumerate(reservoirs.samples) if len(part)][:n_samples]
    if not nonempty:
        return np.zeros((0, 0)), np.zeros(0, dtype=np.int64)
    per_class = n_samples // len(nonempty)
    return (
        np.concatenate([part[:per_class] for _, part in nonempty]),
        np.concatenate([np.full(len(part[:per_class]), c, dtype=np.int64) for c, part in nonempty]),
    )


def merge(left: Reservoirs, right: Reservoirs, generator: np.random.Generator) -> Reservoirs:
    """One sample of both streams, which ran side by side; class c of one is class c of the other.

    Where both together exceed the capacity, each side gives points in proportion to how many points
    of the class it saw.
    """
    n_classes = max(len(left.seen), len(right.seen))
    counts = np.zeros(n_classes, dtype=np.int64)
    counts[: len(left.seen)] += left.seen
    counts[: len(right.seen)] += right.seen
    samples: list[Floats] = []
    for c in range(n_classes):
        from_left, from_right = (
            part.samples[c] if c < len(part.samples) else np.zeros((0, 0)) for part in (left, right)
        )
        if not len(from_left) or not len(from_right):
            samples.append(from_left if len(from_left) else from_right)
            continue
        size = min(left.capacity, len(from_left) + len(from_right))
        share = right.seen[c] / counts[c]
        n_right = min(max(round(share * size), size - len(from_left)), len(from_right))
        chosen = [
            part[np.sort(generator.choice(len(part), count, replace=False))]
            for part, count in ((from_left, size - n_right), (from_right, n_right))
        ]
        samples.append(np.concatenate(chosen))
    return Reservoirs(left.capacity, left.recent, tuple(samples), counts)


def renumber(reservoirs: Reservoirs, indices: Ints, n_classes: int) -> Reservoirs:
    """The same with class c at ``indices[c]``, among ``n_classes``."""
    samples = [np.zeros((0, 0))] * n_classes
    counts = np.zeros(n_classes, dtype=np.int64)
    for c, sample_of_c in enumerate(reservoirs.samples):
        samples[indices[c]] = sample_of_c
        counts[indices[c]] = reservoirs.seen[c]
    return Reservoirs(reservoirs.capacity, reservoirs.recent, tuple(samples), counts)
