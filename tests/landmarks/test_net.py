"""The net of several covers against its slow restatement, and what is proven of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.landmarks import net
from streamembed.landmarks.net import Landmarks
from tests.oracles import oracle_cover

KINDS = ("normal", "lattice", "heavy")


def landmarks_of(kind: str, n: int, d: int, partition: int, seed: int) -> Landmarks:
    """Distinct landmarks of one partition, with masses over ten decades."""
    rng = np.random.default_rng((seed, partition))
    points = rng.standard_normal((n, d))
    if kind == "lattice":  # ties of distances, and points that other partitions have, too
        points = np.unique(rng.integers(-3, 4, (n, d)).astype(np.float64), axis=0)
    if kind == "heavy":
        points = rng.standard_cauchy((n, d))
    n = len(points)
    masses = 10.0 ** rng.uniform(-5, 5, n)
    keys = np.column_stack([np.full(n, partition), rng.permutation(10 * n)[:n]])
    return Landmarks(points, masses, keys.astype(np.int64), rng.random(n) < 0.1)


def as_list(found: Landmarks) -> list[Any]:
    parts = found.points.tolist(), found.masses.tolist(), found.keys.tolist(), found.stale.tolist()
    return [(tuple(p), m, tuple(k), s) for p, m, k, s in zip(*parts, strict=True)]


cases = {
    "kind": st.sampled_from(KINDS),
    "counts": st.lists(st.integers(1, 30), min_size=1, max_size=4),
    "d": st.integers(1, 4),
    "size": st.integers(1, 40),
    "seed": st.integers(0, 10**6),
}


def parts_of(kind: str, counts: list[int], d: int, seed: int) -> list[Landmarks]:
    return [landmarks_of(kind, n, d, part, seed) for part, n in enumerate(counts)]


@settings(max_examples=60, deadline=None)
@given(**cases)
def test_the_net_is_the_rule(kind: str, counts: list[int], d: int, size: int, seed: int) -> None:
    """The same landmarks stay as in the slow restatement, with the same masses and radius.

    Masses to 1e-9: sums of exponentials, added up in another order.
    """
    parts = parts_of(kind, counts, d, seed)
    every = net.union(parts)
    slow = oracle_cover.union([as_list(part) for part in parts])
    assert as_list(every) == slow
    found = net.thin(every, every.points, size)
    expected, radius2 = oracle_cover.merge([as_list(part) for part in parts], size)
    assert [tuple(point) for point in every.points[found.indices].tolist()] == [
        point for point, *_ in expected
    ]
    np.testing.assert_allclose(found.masses, [mass for _, mass, *_ in expected], rtol=1e-9)
    assert found.radius == math.sqrt(radius2)


@settings(max_examples=40, deadline=None)
@given(order=st.permutations(range(4)), **cases)
def test_order_leaves_no_trace(
    order: list[int], kind: str, counts: list[int], d: int, size: int, seed: int
) -> None:
    """Whatever order parts come in, to the bit."""
    parts = parts_of(kind, counts, d, seed)
    other = [parts[i] for i in order if i < len(parts)]
    one, two = net.union(parts), net.union(other)
    for name in ("points", "masses", "keys", "stale"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    first, second = net.thin(one, one.points, size), net.thin(two, two.points, size)
    assert first.masses.tobytes() == second.masses.tobytes()


def test_rows_on_demand_are_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all distances at once would take too much memory."""
    every = net.union([landmarks_of("normal", 300, 5, part, 7) for part in range(3)])
    held = net.thin(every, every.points, 200)
    for rows in (0, 10, 300):
        monkeypatch.setattr(net, "MAX_STORED", rows * len(every))
        asked = net.thin(every, every.points, 200)
        assert held.masses.tobytes() == asked.masses.tobytes()
        assert held.indices.tolist() == asked.indices.tolist()


@pytest.mark.parametrize("away", [1e3, 1e6, 1e12, 1e100])
def test_one_far_landmark_takes_one_place(away: float) -> None:
    """However far it is, the others keep theirs."""
    every = net.union([landmarks_of("normal", 300, 2, part, 1) for part in range(2)])
    points = every.points.copy()
    points[0] *= away / np.abs(points[0]).max()
    found = net.thin(every, points, 100)
    assert 99 <= len(found.indices) <= 100
    plain = net.thin(every, every.points, 100)
    assert found.radius < 1.2 * plain.radius


def test_of_many_the_net_has_nearly_as_many_as_may_stay() -> None:
    """And landmarks that are to stay do, where they are apart."""
    every = net.union([landmarks_of("normal", 400, 3, part, 1) for part in range(4)])
    found = net.thin(every, every.points, 300)
    assert 0.995 * 300 <= len(found.indices) <= 300
    first = np.zeros(len(every), dtype=bool)
    first[found.indices] = True
    again = net.thin(every, every.points, 300, first)
    assert set(found.indices) == set(again.indices)
    moved = net.union([landmarks_of("normal", 400, 3, part, 1) for part in range(3)])
    known = np.isin(moved.keys[:, 0] * 10**6 + moved.keys[:, 1], _packed(every, found.indices))
    held = net.thin(moved, moved.points, 300, known)
    plain = net.thin(moved, moved.points, 300)
    assert known[held.indices].sum() > known[plain.indices].sum()


def _packed(every: Landmarks, index: np.ndarray) -> np.ndarray:
    return every.keys[index, 0] * 10**6 + every.keys[index, 1]


def test_stale_ones_leave_first() -> None:
    """However heavy, where there is another within the radius."""
    points = np.array([[0.0], [0.1], [5.0]])
    keys = np.array([[0, 0], [0, 1], [0, 2]])
    heavy = Landmarks(points, np.array([9.0, 1.0, 1.0]), keys, np.array([True, False, False]))
    assert net.thin(heavy, points, 2).indices.tolist() == [1, 2]
