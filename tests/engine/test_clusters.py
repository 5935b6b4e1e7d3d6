"""Ids of clusters: against an oracle of sets, under the laws of ids, and in pictures of blobs."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streamembed as se
from streamembed.engine.clusters import (
    Clusters,
    follow_clusters,
    number_by_points,
)
from streamembed.errors import InputError, ParameterError
from streamembed.numeric.arrays import Array, Floats, Ints

# ---------------------------------------------------------------------- the oracle

PATIENCE = 3  # pictures until a change counts


@dataclass
class Oracle:
    """The rules of `Picture.clusters` in sets of points, with all assignments tried."""

    points: set[int] = field(default_factory=set)
    members: dict[int, set[int]] = field(default_factory=dict)
    candidates: list[tuple[set[int], int]] = field(default_factory=list)
    missing: dict[int, int] = field(default_factory=dict)
    n_ids: int = 0

    def majority(self, label_of: dict[int, int], points: set[int]) -> int:
        """The label of at least half of the points, the least of two; else -1."""
        labels = [label_of.get(point, -1) for point in points]
        counts = {label: labels.count(label) for label in sorted(set(labels)) if label >= 0}
        best = max(counts, key=lambda label: counts[label], default=-1)
        return best if best >= 0 and 2 * counts[best] >= len(points) else -1

    def assign(self, groups: list[set[int]], shared: set[int]) -> list[int]:
        """Row of each group: most shared points, then the oldest rows, then the oldest groups."""
        rows = [*(self.members[label] for label in sorted(self.members))]
        rows += [points for points, _ in self.candidates]
        rows = [row & shared for row in rows]
        best, best_value = [-1] * len(groups), (0, 0, 0)
        for chosen in permutations([*range(len(rows)), *[-1] * len(groups)], len(groups)):
            value, fits = (0, 0, 0), True
            for column, (row, group) in enumerate(zip(chosen, groups, strict=True)):
                if row < 0:
                    continue
                both = len(rows[row] & group)
                fits &= both > 0 and 2 * both >= min(len(rows[row]), len(group & shared))
                rank = len(rows) - row
                ranks = rank * (len(groups) - column)
                value = (value[0] + both, value[1] + rank, value[2] + ranks)
            if fits and value > best_value:
                best, best_value = [*chosen], value
        return best

    def step(self, groups: list[set[int]], points: set[int], passed: int) -> set[tuple[Any, ...]]:
        """The next picture; returns kind, id and other of its events."""
        shared = self.points & points
        known = sorted(self.members)
        before = {p: label for label, row in self.members.items() for p in row & shared}
        rows = self.assign(groups, shared)
        name = [known[row] if 0 <= row < len(known) else None for row in rows]
        age = [
            self.candidates[row - len(known)][1] + passed if row >= len(known) else 1
            for row in rows
        ]
        missing = {k: self.missing.get(k, 0) + passed for k in known if k not in name}
        missing = {k: c for k, c in missing.items() if c < PATIENCE and k in before.values()}
        lasting = {p: k for p, k in before.items() if k in name or k in missing}
        label: dict[int, int] = {}
        for group, of in zip(groups, name, strict=True):
            origin = self.majority(lasting, group & shared)
            label |= {p: lasting.get(p, origin) if of is None else of for p in group}
        label |= {p: k for p, k in before.items() if k in missing}
        origins, candidates = {}, []
        for group, of, seen in zip(groups, name, age, strict=True):
            if of is None and seen >= PATIENCE:
                origins[self.n_ids] = self.majority(before, group & shared)
                label |= dict.fromkeys(group, self.n_ids)
                self.n_ids += 1
            elif of is None:
                candidates.append((group, seen))
        ended = [k for k in known if k not in label.values()]
        events: set[tuple[Any, ...]] = set()
        for k in ended:
            into = self.majority(label, self.members[k] & shared)
            events.add(("death", k, None) if into < 0 else ("merge", k, into))
        for k, origin in origins.items():
            alive = origin in label.values() and origin >= 0
            events.add(("split", k, origin) if alive else ("birth", k, None))
        self.points, self.candidates = points, candidates
        self.missing = {k: c for k, c in missing.items() if k not in ended}
        self.members = {}
        for p, k in label.items():
            if k >= 0:
                self.members.setdefault(k, set()).add(p)
        return events


def draw_stream(seed: int) -> list[tuple[Ints, Array, int]]:
    """Groups, ids and positions of pictures of a window, where groups split, join and flicker.

    Points have one of six kinds; a picture's groups are unions of kinds, some are noise.
    """
    rng = np.random.default_rng(seed)
    kinds = rng.integers(0, 6, 400)
    group_of_kind = rng.integers(-1, 3, 6)
    pictures, position = [], int(rng.integers(8, 30))
    window = int(rng.integers(8, 40))
    for _ in range(int(rng.integers(3, 14))):
        ids = np.arange(max(0, position - window), position)
        if rng.random() < 0.5:
            group_of_kind[rng.integers(6)] = rng.integers(-1, 3)
        groups = group_of_kind[kinds[ids]]
        groups[rng.random(len(ids)) < 0.05] = -1
        pictures.append((groups, ids, position))
        position += int(rng.choice([0, 1, 3, 8, 25], p=[0.1, 0.3, 0.3, 0.2, 0.1]))
    return pictures


def chain(
    pictures: list[tuple[Ints, Array, int]], earlier: Clusters | None = None
) -> list[Clusters]:
    """The clusters of every picture."""
    chained = []
    for groups, ids, position in pictures:
        earlier = follow_clusters(groups, ids, position, earlier)
        chained.append(earlier)
    return chained


SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
@settings(max_examples=150, deadline=None)
def test_every_picture_is_as_the_oracle_has_it(seed: int) -> None:
    """Members, events, candidates and what is missing, after every picture."""
    pictures, oracle, last = draw_stream(seed), Oracle(), -1
    for (groups, ids, position), clusters in zip(pictures, chain(pictures), strict=True):
        numbered = number_by_points(groups)
        sets = [{*ids[numbered == k].tolist()} for k in range(numbered.max(initial=-1) + 1)]
        points = {*ids.tolist()}
        if last < 0:
            oracle.members, oracle.points, oracle.n_ids = dict(enumerate(sets)), points, len(sets)
            events: set[tuple[Any, ...]] = {("birth", k, None) for k in range(len(sets))}
        else:
            events = oracle.step(sets, points, int(position > last))
        last = position
        members = {k: {*ids[clusters.labels == k].tolist()} for k in clusters.sizes}
        assert members == oracle.members
        assert {(each.kind, each.cluster, each.other) for each in clusters.events} == events
        assert len(clusters.events) == len(events)
        waiting = [
            ({*ids[clusters.pending.unnamed == k].tolist()}, age)
            for k, age in enumerate(clusters.pending.ages)
        ]
        assert waiting == oracle.candidates
        assert dict(clusters.pending.missing) == oracle.missing
        assert clusters.n_ids == oracle.n_ids


@given(SEEDS, st.data())
@settings(max_examples=60, deadline=None)
def test_a_chain_in_two_halves_is_the_whole(seed: int, data: st.DataObject) -> None:
    """Through pickle, after any picture, with text for ids as with numbers."""
    pictures = draw_stream(seed)
    if data.draw(st.booleans()):
        pictures = [(groups, ids.astype(str), position) for groups, ids, position in pictures]
    whole = chain(pictures)
    cut = data.draw(st.integers(1, len(pictures)))
    half = pickle.loads(pickle.dumps(whole[cut - 1]))
    assert half == whole[cut - 1]
    assert not half.labels.flags.writeable
    assert chain(pictures[cut:], half) == whole[cut:]


# ---------------------------------------------------------------------- changes, one by one

IDS = np.arange(40)
WHOLE = np.repeat([0, 1], 20)  # two groups of twenty


# ---------------------------------------------------------------------- pictures

BLOBS = 8.0 * np.random.default_rng(5).standard_normal((5, 6))


def blobs(kinds: Any, seed: int) -> Floats:
    """A point around the centre of each kind."""
    kinds = np.asarray(kinds)
    return BLOBS[kinds] + np.random.default_rng(seed).standard_normal((len(kinds), 6))


def draw_engine() -> se.Engine:
    """An engine of a picture and little else, with as many components as islands."""
    return se.Engine("laplacian_eigenmaps", n_components=5, tolerance=None, picture=True, size=300)


def picture_of(engine: se.Engine) -> se.Picture:
    picture = engine.snapshot().picture
    assert picture is not None
    return picture


@pytest.fixture(scope="module")
def stream() -> tuple[Ints, list[se.Picture]]:
    """Kinds of 1,400 events, and pictures of a window of 300, from 150 on.

    After 600, kind 3 appears and kind 0 leaves.
    """
    rng = np.random.default_rng(0)
    kinds = np.concatenate([rng.integers(0, 3, 600), rng.integers(1, 4, 800)])
    engine = draw_engine()
    X, pictures = blobs(kinds, 1), []
    for start in range(0, len(X), 50):
        engine.learn(X[start : start + 50])
        if start >= 100:
            pictures.append(picture_of(engine))
    return kinds, pictures


def follow_pictures(pictures: list[se.Picture], earlier: Clusters | None = None) -> list[Clusters]:
    chained = []
    for picture in pictures:
        earlier = picture.clusters(earlier)
        chained.append(earlier)
    return chained


def test_blobs_keep_their_ids_across_epochs(stream: tuple[Ints, list[se.Picture]]) -> None:
    """Each kind has an id, 0 loses it and 3 gets one after 600, and no id changes its kind."""
    kinds, pictures = stream
    assert len({picture.epoch for picture in pictures}) > 1
    chained = follow_pictures(pictures)
    kind_of: dict[int, int] = {}
    for clusters in chained:
        for label in clusters.sizes:
            of, counts = np.unique(
                kinds[clusters.ids[clusters.labels == label]], return_counts=True
            )
            assert counts.max() >= 0.95 * counts.sum()
            assert kind_of.setdefault(label, int(of[counts.argmax()])) == of[counts.argmax()]
    assert sorted(kind_of[label] for label in chained[0].sizes) == [0, 1, 2]
    events = [event for clusters in chained[1:] for event in clusters.events]
    assert all(event.position > 600 for event in events)
    assert [kind_of[event.cluster] for event in events if event.kind == "birth"] == [3]
    ended = {kind_of[event.cluster] for event in events if event.kind in ("death", "merge")}
    assert ended == {0}
    # as it leaves it may fall apart; the others stay whole
    assert {kind_of[event.cluster] for event in events if event.kind == "split"} <= {0}
    assert sorted(kind_of[label] for label in chained[-1].sizes) == [1, 2, 3]


def test_pictures_chain_as_values(stream: tuple[Ints, list[se.Picture]]) -> None:
    """Twice the same; half of the chain through pickle; from a saved snapshot as well."""
    _, pictures = stream
    whole = follow_pictures(pictures[:8])
    assert whole == follow_pictures(pictures[:8])
    half = pickle.loads(pickle.dumps(whole[3]))
    assert whole[4:] == follow_pictures(pictures[4:8], half)
    assert pickle.loads(pickle.dumps(pictures[4])).clusters(half) == whole[4]
    assert pictures[4].clusters(whole[4]).events == ()


def test_a_value_that_does_not_change(stream: tuple[Ints, list[se.Picture]]) -> None:
    """Read-only, a copy is itself, and the words say what it is."""
    first = stream[1][0].clusters()
    assert copy.deepcopy(first) is first
    with pytest.raises(FrozenInstanceError):
        first.position = 3  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        first.labels[0] = 3
    assert repr(first) == "<Clusters at 150: 3 clusters, 0 of 150 points noise, 3 events>"
    assert first != stream[1][1].clusters()
    assert first != "clusters"
    table = first.to_arrow()
    assert table.column_names == ["id", "cluster"]
    np.testing.assert_array_equal(table["cluster"], first.labels)


def test_what_cannot_be_chained(stream: tuple[Ints, list[se.Picture]]) -> None:
    """Errors name the argument, what it was and what it must be."""
    _, pictures = stream
    early, late = pictures[0], pictures[3]
    with pytest.raises(InputError, match=r"earlier is a Picture; it must be what clusters\(\)"):
        late.clusters(early)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="earlier is at position 300 and this picture at 150"):
        early.clusters(late.clusters())
    other = follow_clusters(WHOLE, IDS.astype(str), 40, None)
    with pytest.raises(InputError, match="earlier has ids of another kind"):
        early.clusters(other)
    for wrong in (1, 2.5, "5", True):
        with pytest.raises(ParameterError, match="min_cluster_size"):
            early.clusters(min_cluster_size=wrong)  # type: ignore[arg-type]


def draw_rows(kind: str) -> tuple[Floats, Ints]:
    """Rows of which some repeat, and a label of what is to be one cluster at most."""
    rng = np.random.default_rng(0)
    if kind == "idle":
        idle = rng.random(1500) < 0.85
        return np.where(idle[:, None], 0.0, rng.normal(size=(1500, 4)) + 3.0), idle.astype(int)
    values = rng.permutation(500) % (2 if kind == "two values" else 9)
    return np.column_stack([values % 3, values // 3]).astype(float), values + 1


@pytest.mark.filterwarnings("ignore::streamembed.errors.DegenerateMapWarning")
@pytest.mark.parametrize("by_distances", [False, True], ids=["points", "distances"])
@pytest.mark.parametrize("kind", ["idle", "two values", "nine values"])
def test_equal_rows_are_in_one_cluster(kind: str, by_distances: bool) -> None:
    """However many they are, however they are drawn, and from a file: one site, one cluster."""
    rows, sites = draw_rows(kind)
    if by_distances:
        rows, sites = rows[:150], sites[:150]
        engine = se.Engine(picture=True, memory="all", warm_up=150)
        d = np.linalg.norm(rows[:, None] - rows, axis=2)
        engine.learn_distances([d[i, : i + 1] for i in range(150)])
    else:
        engine = se.Engine(picture=True, size=500)
        engine.learn(rows)
    snapshot = engine.snapshot()
    picture, loaded = snapshot.picture, pickle.loads(pickle.dumps(snapshot)).picture
    assert picture is not None
    clusters = picture.clusters()
    sites = sites[clusters.ids.astype(int)]
    repeated = [clusters.labels[sites == site] for site in np.unique(sites[sites > 0])]
    assert all(len(np.unique(labels)) == 1 for labels in repeated)
    assert len({int(labels[0]) for labels in repeated}) == len(repeated)
    assert min(int(labels[0]) for labels in repeated) >= 0
    assert loaded.clusters() == clusters


def test_a_relaid_picture_keeps_the_ids(stream: tuple[Ints, list[se.Picture]]) -> None:
    """At the same position with other places, nothing counts as another picture."""
    kinds = np.random.default_rng(3).integers(0, 3, 400)
    engine = draw_engine()
    engine.learn(blobs(kinds, 4))
    before = picture_of(engine).clusters()
    engine.relayout()
    after = picture_of(engine).clusters(before)
    assert after.events == ()
    both = (before.labels >= 0) & (after.labels >= 0)
    assert both.mean() > 0.9
    np.testing.assert_array_equal(after.labels[both], before.labels[both])
