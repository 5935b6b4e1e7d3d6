"""Pairs, split halves, the neighbour graph: restated slowly, importing nothing of the package."""

from __future__ import annotations

import math
import warnings

import numpy as np
import scipy.linalg


class PairBook:
    """Every pair in a dictionary by its two arrivals; thresholds are handed in or exact."""

    def __init__(self, buffer: int, decay: float, seed: int, by_mass: bool = False) -> None:
        self.buffer, self.decay, self.seed, self.by_mass = buffer, decay, seed, by_mass
        self.seen: list[tuple[float, float]] = []  # squared distance in the embedding, weight
        self.pairs: dict[tuple[int, int], dict] = {}  # insertion order is age
        self.counts = dict.fromkeys(
            (
                "kept",
                "undecided",
                "duplicates",
                "degenerate",
                "evicted",
                "flipped",
                "faded",
                "gone",
            ),
            0,
        )

    def draw(self, masses: list[float], count: int, position: int) -> list[tuple[int, int]]:
        """Two different members of a list for every candidate."""
        rng = np.random.default_rng((self.seed, position))
        n = len(masses)
        if not self.by_mass:
            firsts = rng.integers(0, n, count).tolist()
            seconds = rng.integers(0, n - 1, count).tolist()
            return [
                (i, [k for k in range(n) if k != i][j])
                for i, j in zip(firsts, seconds, strict=True)
            ]
        drawn = []
        firsts, seconds = rng.random((2, count)).tolist()
        for u, v in zip(firsts, seconds, strict=True):
            i = _where(u * sum(masses), masses, range(n))
            others = [k for k in range(n) if k != i]
            drawn.append((i, _where(v * sum(masses[k] for k in others), masses, others)))
        return drawn

    def percentile(self, p: float) -> float:
        """The smallest distance that at least a share p of the weight does not exceed."""
        total, running = sum(weight for _, weight in self.seen), 0.0
        for value, weight in sorted(self.seen):
            running += weight
            if running >= p * total:
                return value
        return self.seen[-1][0]

    def observe(self, coordinates, points, arrivals, masses, position, count) -> None:
        """Draw, and remember all squared distances; `judge` comes next."""
        order = sorted(range(len(arrivals)), key=lambda slot: arrivals[slot])
        self.seen = [(value, weight * self.decay) for value, weight in self.seen]
        self.drawn = []
        largest = max(float(sum(x * x for x in row)) for row in coordinates.tolist())
        for i, j in self.draw([float(masses[slot]) for slot in order], count, position):
            a, b = order[min(i, j)], order[max(i, j)]
            difference = points[a] - points[b]
            d2 = float(((coordinates[a] - coordinates[b]) ** 2).sum())
            if d2 <= 1e-24 * largest or not difference.any():
                self.counts["degenerate"] += 1
                continue
            self.seen.append((d2, 1.0))
            self.drawn.append(((int(arrivals[a]), int(arrivals[b])), difference, d2))

    def judge(self, low: float, high: float) -> None:
        """Keep what lies beyond the thresholds, the newest half a buffer of each kind."""
        known = set(self.pairs)
        for ends, difference, d2 in self.drawn:
            if ends in known:
                self.counts["duplicates"] += 1
                continue
            known.add(ends)
            if low < d2 < high or not low < high:
                self.counts["undecided"] += 1
                continue
            self.counts["kept"] += 1
            self.pairs[ends] = {"similar": d2 <= low, "d2": d2, "difference": difference}
        self.limit()

    def limit(self) -> None:
        for kind in (True, False):
            of_kind = [ends for ends, pair in self.pairs.items() if pair["similar"] is kind]
            for ends in of_kind[: max(0, len(of_kind) - self.buffer // 2)]:
                del self.pairs[ends]
                self.counts["evicted"] += 1

    def rejudge(self, coordinates, arrivals, low: float, high: float) -> None:
        """Every pair again, one by one."""
        slot_of = {int(arrival): slot for slot, arrival in enumerate(arrivals)}
        largest = max(float(sum(x * x for x in row)) for row in coordinates.tolist())
        for ends in list(self.pairs):
            pair = self.pairs[ends]
            if ends[0] not in slot_of or ends[1] not in slot_of:
                self.counts["gone"] += 1
                del self.pairs[ends]
                continue
            apart = coordinates[slot_of[ends[0]]] - coordinates[slot_of[ends[1]]]
            d2 = float((apart**2).sum())
            if low < d2 < high or not low < high or d2 <= 1e-24 * largest:
                self.counts["faded"] += 1
                del self.pairs[ends]
                continue
            self.counts["flipped"] += (d2 <= low) is not pair["similar"]
            pair.update(similar=d2 <= low, d2=d2)


def _where(target: float, masses: list[float], members) -> int:
    """The member in whose stretch of the masses, laid end to end, the target falls."""
    running = 0.0
    for member in members:
        running += masses[member]
        if target < running:
            return member
    return list(members)[-1]


def trace_free_log(matrix: np.ndarray) -> np.ndarray:
    """log A less its trace, by Schur decomposition."""
    with warnings.catch_warnings():  # its own check of itself is stricter than ours
        warnings.simplefilter("ignore", RuntimeWarning)
        log = scipy.linalg.logm(matrix).real
    return log - np.trace(log) / len(log) * np.eye(len(log))


def shrunk(matrix: np.ndarray, first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, float]:
    """exp(s L) by Pade approximation, and s."""
    one, other = trace_free_log(first), trace_free_log(second)
    length = math.sqrt(float((one * one).sum()) * float((other * other).sum()))
    s = max(0.0, float((one * other).sum()) / length) if length > 1e-18 else 0.0
    return scipy.linalg.expm(s * trace_free_log(matrix)), s


def first_half(position: int, seed: int) -> bool:
    """splitmix64 of position // 2, in whole numbers, turned over for odd positions."""
    whole = 2**64
    z = (position // 2 + seed * 0x9E3779B97F4A7C15) % whole
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % whole
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % whole
    return ((z ^ (z >> 31)) & 1) == position % 2


def neighbour_map(
    points: np.ndarray, count: int, neighbours: int = 20, scaling_neighbour: int = 7
) -> tuple[np.ndarray, np.ndarray]:
    """psi and eigenvalues of the walk on the self-tuning neighbour graph, all dense."""
    n = len(points)
    d = np.array([[math.dist(a, b) for b in points] for a in points])
    weights = np.zeros((n, n))
    own = [sorted(row)[min(scaling_neighbour, n - 1)] for row in d.tolist()]
    for i in range(n):
        near = [j for j in np.argsort(d[i], kind="stable").tolist() if j != i][:neighbours]
        for j in near:
            weights[i, j] = weights[j, i] = math.exp(-(d[i, j] ** 2) / (own[i] * own[j]))
    degrees = weights.sum(axis=1)
    values, vectors = scipy.linalg.eigh(np.diag(degrees) - weights, np.diag(degrees))
    psi = vectors[:, 1 : count + 1] * math.sqrt(degrees.sum())
    return psi, 1.0 - values[1 : count + 1]
