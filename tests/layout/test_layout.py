"""A picture that is followed: against its oracle, its own earlier self, and mutants."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

import streamembed as se
from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.pairwise import PointDistances
from streamembed.layout import forces, layout, measures, relaxation
from streamembed.layout.forces import Links
from streamembed.layout.layout import Layout
from streamembed.layout.placing import place_newcomers
from streamembed.numeric.arrays import Floats, Ints
from tests.oracles.oracle_layout import compute_energy

N, C, K, RHO = 200, 10, 15, 1.5


def clusters(n: int, seed: int = 0, dimensions: int = 8) -> tuple[Floats, Ints]:
    """Five clusters in a cube, and which each point is of."""
    rng = np.random.default_rng(seed)
    centres = 3.0 * rng.standard_normal((5, dimensions))
    labels = rng.integers(0, 5, n)
    return centres[labels] + rng.standard_normal((n, dimensions)), labels


class Window:
    """Points in slots, their lists, and a picture that follows them."""

    def __init__(self, points: Floats, n: int = N) -> None:
        self.stream, self.n, self.position = points, n, n
        self.points, self.births = points[:n].copy(), np.arange(n)
        self.lists = NeighborLists.build(PointDistances(self.points), self.births, K)
        self.picture = layout.init(self.lists, True, self.points[:, :2], self.births, RHO)

    def push(self, c: int = C) -> tuple[Layout, Ints, Ints]:
        """One chunk; the picture before it, the chunk's slots, and the rows that changed."""
        events = np.arange(self.position, self.position + c)
        slots, before, earlier = events % self.n, self.lists, self.picture
        self.points[slots], self.births[slots] = self.stream[events], events
        self.lists = before.replace(slots, PointDistances(self.points), self.births)
        positions = self.position, self.position + c
        self.position += c
        self.picture = layout.update(
            earlier, before, self.lists, slots, self.births, positions, RHO
        )
        return earlier, slots, self.lists.find_changed(before, slots)


def kept_of(window: Window) -> float:
    return float(measures.measure_kept(window.picture.places, window.lists.nearest[0], None).mean())


def test_following_keeps_as_many_neighbours_as_starting_over() -> None:
    """Three turnovers: within .04 of a picture from scratch, which is what a refit would be."""
    points, _ = clusters(4 * N)
    window = Window(points)
    for _ in range(3 * N // C):
        window.push()
    fresh = layout.init(window.lists, True, window.points[:, :2], window.births, RHO)
    cold = float(measures.measure_kept(fresh.places, window.lists.nearest[0], None).mean())
    assert kept_of(window) > cold - 0.04
    assert cold > 0.4


def test_points_keep_still() -> None:
    """A chunk moves them .005 of the radius, a picture from scratch .1 and more."""
    points, _ = clusters(2 * N, dimensions=3)
    window = Window(points)
    for _ in range(N // C // 2):
        window.push()

    def laid_out() -> Floats:
        return layout.init(window.lists, True, window.points[:, :2], window.births, RHO).places

    live, fresh = [], []
    for _ in range(5):
        scratch, radius = laid_out(), measures.compute_radius(window.picture.places)
        _, slots, _ = window.push()
        live.append(window.picture.moved.mean() / radius)
        stayed = np.setdiff1d(np.arange(N), slots)
        # even when it is turned onto the one before
        steps = (measures.align(laid_out(), scratch, stayed) - scratch)[stayed]
        fresh.append(np.sqrt((steps**2).sum(axis=1)).mean() / radius)
    assert max(live) < 0.01
    assert min(fresh) > 0.1


def test_energy_falls_with_nearly_every_chunk() -> None:
    """Below what it was when the newcomers had been placed, in 95 of 100."""
    points, _ = clusters(2 * N + 1000)
    window, falls = Window(points), []
    for _ in range(100):
        earlier, slots, _ = window.push()
        near, d2 = window.lists.nearest
        links = Links.of(near, forces.compute_affinities(d2))
        placed = place_newcomers(
            links, earlier.places, slots, window.births, RHO, window.picture.gamma
        )
        energies = [
            compute_energy(links, places, RHO, window.picture.gamma)
            for places in (placed, window.picture.places)
        ]
        falls.append(energies[1] <= energies[0])
    assert np.mean(falls) >= 0.95


def test_an_island_of_thirty_gets_a_place_of_its_own() -> None:
    """At once: their nearest in the picture are their own, and after ten chunks it has a size."""
    points, _ = clusters(2 * N)
    rng = np.random.default_rng(1)
    points[N : N + 30] = 40.0 + rng.standard_normal((30, points.shape[1]))
    window = Window(points)
    for chunk in range(13):
        window.push()
        if chunk < 2:
            continue
        own = np.isin(window.births, np.arange(N, N + 30))
        near = cKDTree(window.picture.places).query(window.picture.places[own], 6)[1][:, 1:]
        assert own[near].mean() == 1.0
    radius = measures.compute_radius(window.picture.places[own])
    assert radius > 0.02 * measures.compute_radius(window.picture.places)


def test_kept_by_brute_force() -> None:
    """Counted again in the data and in the picture, duplicates included."""
    points, _ = clusters(120)
    points[60:70] = points[60]
    engine = se.Engine(picture=True, size=120, scaling=None)
    engine.learn(points)
    picture = engine.snapshot().picture
    assert picture is not None
    for i in range(120):
        apart = np.sqrt(((points - points[i]) ** 2).sum(axis=1))
        twins = set(np.flatnonzero(apart == 0).tolist()) - {i}
        others = [j for j in np.argsort(apart, kind="stable").tolist() if j not in twins | {i}]
        there = np.sqrt(((picture.coordinates - picture.coordinates[i]) ** 2).sum(axis=1))
        there[i] = np.inf
        seen = set(np.argsort(there, kind="stable")[:K].tolist())
        true = len(seen & (set(others[:K]) | twins)) / K
        assert picture.kept[i] == pytest.approx(true, abs=0.5 / K if twins else 1e-12)


@pytest.mark.parametrize("columns", [1, 3, 40])
def test_equal_points_have_equal_labels(columns: int) -> None:
    """And others have not: in whole numbers, with zeros of both signs, and without any pair."""
    rng = np.random.default_rng(columns)
    for points in (rng.integers(-1, 2, (200, columns)) * 1.0, rng.standard_normal((50, columns))):
        points[10:20], points[30] = points[5], -points[31] * 0.0
        found = measures.label_duplicates(points)
        equal = (points[:, None] == points).all(axis=2)
        np.testing.assert_array_equal(found[:, None] == found, equal)


def test_balance_is_how_far_a_point_would_go() -> None:
    """By its own force and its own links, point by point."""
    window = Window(clusters(2 * N)[0])
    window.push()
    near, d2 = window.lists.nearest
    links, places = Links.of(near, forces.compute_affinities(d2)), window.picture.places
    found = measures.measure_balance(links, places, RHO, window.picture.gamma)
    for i in range(0, N, 17):
        row = np.array([i])
        force, h = relaxation.find_forces(
            links.take(row), places, places[row], RHO, window.picture.gamma
        )
        far = np.hypot(*force[0]) / (h[0] + relaxation.LEAST_MAJORISER * RHO)
        assert found[i] == pytest.approx(far, rel=1e-12)
    assert np.median(found) < 0.05


def test_a_point_of_the_support_is_placed_where_it_is() -> None:
    """Left out and placed again from outside, and as one that is there."""
    engine = se.Engine(picture=True, size=300)
    points, _ = clusters(300)
    engine.learn(points)
    picture = engine.snapshot().picture
    assert picture is not None
    steps = picture.transform(points) - picture.coordinates
    far = np.sqrt((steps**2).sum(axis=1)) / picture.radius
    assert np.median(far) < 0.05


def test_newcomers_take_the_best_of_their_neighbours_places() -> None:
    """No candidate has less energy, and who has no neighbour yet begins in the middle."""
    window = Window(clusters(2 * N)[0])
    near, d2 = window.lists.nearest
    links, places = Links.of(near, forces.compute_affinities(d2)), window.picture.places
    gamma, slot = window.picture.gamma, np.array([7])
    found = place_newcomers(links, places, slot, window.births, RHO, gamma)[7]
    a = np.zeros(N)
    entries = slice(links.starts[7], links.starts[8])
    np.add.at(a, links.slots[entries], links.weights[entries])
    others = np.delete(np.arange(N), 7)

    def own(at: Floats) -> float:
        d2 = ((places[others] - at) ** 2).sum(axis=1)
        return float(RHO * a[others] @ np.log1p(d2) + gamma * (1.0 / (1.0 + d2)).sum())

    linked = places[np.flatnonzero(a > 0)]
    best = min(own(at) for at in linked)
    assert own(found) <= best * (1.0 + 1e-5)
