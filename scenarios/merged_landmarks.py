"""merged-landmarks: eight partitions of a stream, merged, against one cover and batch maps."""

from __future__ import annotations

import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

import streamembed as se
from scenarios.audit import BatchMap, batch_map
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import FEATURES, drifting_rings, still_rings, swiss_roll
from streamembed.landmarks import covering
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.landmark_set import LandmarkSet, from_covering
from streamembed.numeric.arrays import Floats, Ints

K, PARTITIONS, CHUNK = 8, 8, 256
BANDWIDTH = 0.7
HELD_OUT = 1000
UNIFORM_DRAWS = 5


@dataclass(frozen=True)
class MergeSizes:
    """Events of a stream, landmarks, points of a batch map, and how many of these."""

    events: int
    landmarks: int
    batch: int
    batches: int


FULL = MergeSizes(80_000, 500, 3000, 5)
QUICK = MergeSizes(24_000, 300, 2000, 5)


def run(full: bool) -> Outcome:
    """Rings, a roll, and rings that drift: dealt out at random, by place or time, and unevenly."""
    sizes = FULL if full else QUICK
    figures: dict[str, float] = {}
    for name, stream in (("rings", still_rings), ("swiss", swiss_roll)):
        n = sizes.events
        points = stream(n + sizes.batches * sizes.batch + HELD_OUT, 0)
        batches = np.split(points[n:-HELD_OUT], sizes.batches)
        draws = [
            points[np.random.default_rng(draw).choice(n, sizes.landmarks, replace=False)]
            for draw in range(UNIFORM_DRAWS)
        ]
        figures.update(_figures(name, points[:n], None, batches, draws, points[-HELD_OUT:], sizes))
    figures.update(_drifting(sizes))
    figures.update(_costs())
    costs = timings() if full else {}
    notes = [
        f"{PARTITIONS} partitions: shuffled; by region (of drift: by time); by Zipf rates; each "
        "merged flat and by a tree of pairs, the worst of the six counts",
        "ratio: eigenvalue error over the larger of one cover's and a second batch map's",
        "own count: partitions at Zipf rates that fade each by its own events, over the clock",
    ]
    if costs:
        notes.append(
            f"1,000 landmarks in 16 dimensions: a cover learns {costs['cover']:,.0f} events a CPU "
            f"second and an engine {costs['engine']:,.0f}; four sets are merged in "
            f"{costs['merge']:.2f} CPU seconds and {costs['megabytes']:.0f} MB"
        )
    ratios = {"cover over engine": costs["cover"] / costs["engine"]} if costs else {}
    return Outcome(figures, ratios, notes)


def _drifting(sizes: MergeSizes) -> dict[str, float]:
    """Rings that slide by two radii in all; the reference is drawn as masses fade."""
    n, half_life = sizes.events, sizes.events / 40
    points = drifting_rings(n + HELD_OUT, 0, window=n // 4)

    def drawn(seed: int, count: int) -> Floats:
        ages = np.random.default_rng(seed).exponential(half_life / np.log(2.0), 2 * count)
        fresh = np.flatnonzero(ages < n)[:count]
        rows: Floats = points[n - 1 - ages[fresh].astype(np.int64)]
        return rows

    batches = [drawn(seed, sizes.batch) for seed in range(sizes.batches)]
    draws = [drawn(10 + draw, sizes.landmarks) for draw in range(UNIFORM_DRAWS)]
    return _figures("drift", points[:n], half_life, batches, draws, points[n:], sizes)


def deal_partitions(points: Floats, by_time: bool) -> Iterator[tuple[str, list[Ints]]]:
    """Three ways in which the events of a stream may fall into partitions: rows of each."""
    n, rng = len(points), np.random.default_rng(1)
    every = np.arange(n)
    shuffled = rng.integers(PARTITIONS, size=n)
    if by_time:
        place = every
    else:  # along the direction in which they vary most
        _, _, axes = np.linalg.svd(points[:2000] - points[:2000].mean(axis=0), full_matrices=False)
        place = np.argsort(np.argsort(points @ axes[0]))
    rates = 1.0 / np.arange(1, PARTITIONS + 1)
    zipf = rng.choice(PARTITIONS, size=n, p=rates / rates.sum())
    for name, which in (
        ("shuffled", shuffled),
        ("regions", place * PARTITIONS // n),
        ("zipf", zipf),
    ):
        yield name, [every[which == part] for part in range(PARTITIONS)]


def learn_partition(
    points: Floats, rows: Ints, partition: int, size: int, half_life: float | None, own: bool
) -> LandmarkSet:
    """A partition's cover of some rows; masses fade by the rows' places in the stream."""
    names = tuple(f"x{j}" for j in range(FEATURES))
    agreement = MergeSettings(names, True, (1.0,) * FEATURES, BANDWIDTH, half_life, "event_time")
    cover_state = covering.init(FEATURES)
    times = np.arange(len(rows)) if own else rows
    for start in range(0, len(rows), CHUNK):
        members = slice(start, start + CHUNK)
        cover_state = covering.update(
            cover_state,
            points[rows[members]],
            agreement.scaling(),
            size,
            half_life,
            times[members].astype(np.float64),
        )
    merged_set = from_covering(cover_state, agreement, partition, size)
    return replace(merged_set, time=float(len(points))) if own else merged_set


def _merge_tree(sets: Sequence[LandmarkSet]) -> LandmarkSet:
    """By pairs, level by level."""
    level = list(sets)
    while len(level) > 1:
        level = [se.merge(level[start : start + 2]) for start in range(0, len(level), 2)]
    return level[0]


def _figures(
    name: str,
    points: Floats,
    half_life: float | None,
    batches: list[Floats],
    draws: list[Floats],
    held_out: Floats,
    sizes: MergeSizes,
) -> dict[str, float]:
    maps = [_map(rows) for rows in batches]
    values = np.array([each.eigenvalues for each in maps])
    truth, functions = values.mean(axis=0), maps[0].extended(held_out)
    count = 4 + int(np.argmax(truth[3:-1] - truth[4:]))  # up to the widest gap

    def error(eigenvalues: Floats) -> float:
        return float(np.abs(eigenvalues - truth).max())

    def judged(merged_set: LandmarkSet) -> tuple[float, float]:
        snapshot = _snapshot(merged_set)
        return error(snapshot.eigenvalues), _sine(
            functions, snapshot.transform(held_out) / snapshot.eigenvalues, count
        )

    share = len(batches) / (len(batches) - 1)  # each against the mean of the others
    second = float(np.median([error(one.eigenvalues) * share for one in maps[1:]]))
    every = np.arange(len(points))
    one, one_functions = judged(
        learn_partition(points, every, 0, sizes.landmarks, half_life, False)
    )
    merged, angles, own = [], [], 0.0
    for way, rows in deal_partitions(points, by_time=half_life is not None):
        sets = [
            learn_partition(points, members, part, sizes.landmarks, half_life, False)
            for part, members in enumerate(rows)
        ]
        for merged_set in (se.merge(sets), _merge_tree(sets)):
            value, angle = judged(merged_set)
            merged.append(value)
            angles.append(angle)
        if way == "zipf" and half_life is not None:
            sets = [
                learn_partition(points, members, part, sizes.landmarks, half_life, True)
                for part, members in enumerate(rows)
            ]
            own = judged(se.merge(sets))[0] / merged[-2]
    bar = max(one, second)
    uniform = float(np.median([error(_map(rows).eigenvalues) for rows in draws]))
    figures = {
        f"{name}_one_cover": one,
        f"{name}_second_batch": second,
        f"{name}_merged": max(merged),
        f"{name}_ratio": max(merged) / bar,
        f"{name}_uniform_ratio": uniform / bar,
        f"{name}_functions": max(angles),
        f"{name}_one_functions": one_functions,
    }
    if own:
        figures[f"{name}_own_count"] = own
    return figures


def _snapshot(merged_set: LandmarkSet) -> se.Snapshot:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", se.errors.ResolutionWarning)
        return se.Engine.of_landmarks(merged_set, n_components=K, kernel="gaussian").snapshot()


def _map(points: Floats) -> BatchMap:
    return batch_map(points, np.ones(len(points)), BANDWIDTH, K)


def _sine(left: Floats, right: Floats, count: int) -> float:
    """Of the largest angle between the leading eigenfunctions, as columns on the same points."""
    ours, theirs = np.linalg.qr(left[:, :count])[0], np.linalg.qr(right[:, :count])[0]
    return float(np.linalg.norm(theirs - ours @ (ours.T @ theirs), 2))


def _costs() -> dict[str, float]:
    """What a set takes on the wire, of what the page says that it may take."""
    merged_set = learn_partition(still_rings(2000, 0), np.arange(2000), 0, 200, None, False)
    expected_bytes = len(merged_set) * (8 * FEATURES + 24) + 2048 + 22 * FEATURES
    return {"bytes_of_a_set": len(merged_set.to_bytes()) / expected_bytes}


def timings(size: int = 1000, events: int = 30_000) -> dict[str, float]:
    """Events a CPU second of a cover and an engine; CPU seconds and MB of a merge of four."""

    def seconds(work: Callable[[], object]) -> float:
        start = time.process_time()
        work()
        return time.process_time() - start

    points = still_rings(events, 0)
    engine = se.Engine(
        n_components=K,
        memory="landmarks",
        size=size,
        scaling=None,
        kernel="gaussian",
        bandwidth=BANDWIDTH,
        chunk_size=CHUNK,
    )
    every = np.arange(events)
    own = seconds(lambda: learn_partition(points, every, 0, size, None, False))
    whole = seconds(lambda: engine.learn(points))
    sets = [learn_partition(points, every[part::4], part, size, None, False) for part in range(4)]
    merge = seconds(lambda: se.merge(sets))
    tracemalloc.start()
    se.merge(sets)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "cover": events / own,
        "engine": events / whole,
        "merge": merge,
        "megabytes": peak / 1e6,
    }


_RATIO = Expected(0.0, 2.5, "of the larger error of one cover and of a second batch map")

SCENARIO = Scenario(
    id="merged-landmarks",
    says="eight partitions of a stream, each in its own landmarks, merged into one map",
    run=run,
    expected={
        **{f"{name}_ratio": _RATIO for name in ("rings", "swiss", "drift")},
        "swiss_uniform_ratio": Expected(2.5, np.inf, "as many uniform events miss that bar"),
        "drift_own_count": Expected(5.0, np.inf, "without a shared clock masses do not add up"),
        "bytes_of_a_set": Expected(0.0, 1.0, "n (8 d + 24) bytes, and 2 kB + 22 d"),
    },
)
