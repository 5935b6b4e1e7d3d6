"""The monitor behind its first alarm: renewals, returns and home."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import pyarrow.compute as pc

import streamembed as se
from scenarios import drift_streams
from streamembed.numeric.arrays import Floats

D = 6
ERT = 10_000.0


def match_alarms(alarms: list[int], changes: list[int], within: int) -> tuple[int, list[int], int]:
    """Changes with an alarm before the next, the delays, and the alarms that no change explains."""
    delays, extra = [], len(alarms)
    for change, after in zip(changes, [*changes[1:], changes[-1] + within], strict=True):
        own = [at for at in alarms if change < at <= after]
        if own:
            delays.append(own[0] - change)
            extra -= 1
    return len(delays), delays, extra


def draw_renewed(rng: np.random.Generator, all_of_them: bool) -> tuple[Floats, list[int]]:
    """Five clusters, all or one of them in another place every 3,000 events."""
    centers = 4 * rng.standard_normal((5, 8))
    parts = []
    for _ in range(30):
        own = rng.integers(5, size=3000)
        parts.append(centers[own] + rng.standard_normal((3000, 8)))
        chosen = slice(None) if all_of_them else int(rng.integers(5))
        centers[chosen] = 4 * rng.standard_normal(centers[chosen].shape)
    return np.concatenate(parts), list(range(3000, 90_000, 3000))


def segments(rng: np.random.Generator) -> tuple[Floats, list[int]]:
    """Points of ten of fifteen classes, others for every segment."""
    points, classes, _ = drift_streams.table("interchanging_rbf")
    parts = []
    for start in range(0, 120_000, 3000):
        own = np.isin(classes[start : start + 3000], rng.choice(15, 10, replace=False))
        parts.append(points[start : start + 3000][own])
    return np.concatenate(parts), np.cumsum([len(part) for part in parts[:-1]]).tolist()


def watch(stream: Floats, seed: int, **parameters: Any) -> se.Monitor:
    """A monitor that has seen the stream."""
    monitor = se.Monitor(seed=seed, **parameters)
    monitor.learn(stream)
    return monitor


def count_kinds(monitor: se.Monitor, kind: str) -> int:
    """Records of a kind."""
    return sum(record.kind == kind for record in monitor.records)


def count_watched(monitor: se.Monitor) -> int:
    """Events that were compared with a reference, by the timeline."""
    rows = monitor.timeline().filter(pc.field("kind").is_null())
    at, states = np.unique(rows["position"].to_numpy(), return_index=True)
    watching = np.array(rows["state"].take(states).to_pylist()) == "watching"
    return int(np.diff(at, prepend=0)[watching].sum())


def regimes(rng: np.random.Generator, changes: Sequence[Floats], lengths: Sequence[int]) -> Floats:
    """Gaussian events whose mean is another for each regime."""
    parts = [rng.standard_normal((n, D)) + by for by, n in zip(changes, lengths, strict=True)]
    return np.concatenate(parts)


def _renew(seed: int) -> tuple[int, int, int, int]:
    """Alarms, events watched, returns and cuts of a stream of independent events."""
    stream = np.random.default_rng([seed, 21]).standard_normal((20_000, 3))
    monitor = watch(stream, seed, ert=5_000)
    counts = [count_kinds(monitor, kind) for kind in ("alarm", "returned", "cut")]
    return counts[0], count_watched(monitor), counts[1], counts[2]


def _hold(seed: int) -> tuple[list[bool], bool, int]:
    """Whether each of three changes was detected, whether it recovered, and extra alarms."""
    axes = np.eye(D)
    means = [np.zeros(D), axes[1], axes[1] + 8 * axes[4], np.zeros(D)]
    stream = regimes(np.random.default_rng([seed, 22]), means, [2000] * 4)
    monitor = watch(stream, seed, ert=ERT, policy="hold")
    at, changes = [alarm.position for alarm in monitor.alarms], [2000, 4000, 6000]
    hits = [any(change < a <= change + 100 for a in at) for change in changes]
    recovered = any(r.kind == "recovered" and 6000 < r.position <= 6600 for r in monitor.records)
    return hits, recovered, len(at) - sum(hits)


def _leave_often(seed: int) -> int:
    """Of six excursions of 600 events, 600 apart, those after which it recovered."""
    rng = np.random.default_rng([seed, 25])
    means = [np.zeros(D)]
    for axis in rng.integers(D, size=6):
        means += [2.5 * np.eye(D)[axis], np.zeros(D)]
    monitor = watch(regimes(rng, means, [1500, *[600] * 12]), seed, ert=ERT, policy="hold")
    recovered = [record.position for record in monitor.records if record.kind == "recovered"]
    return sum(any(end < at <= end + 600 for at in recovered) for end in range(2100, 9300, 1200))


def _return(seed: int) -> tuple[int, int]:
    """Returns to the right reference, of three, and extra alarms; away and back twice."""
    away = 1.5 * np.eye(D)[0]
    means = [np.zeros(D), away, np.zeros(D), away, np.zeros(D)]
    changes = [3000, 5000, 7000, 9000]
    stream = regimes(np.random.default_rng([seed, 23]), means, [3000, *[2000] * 4])
    monitor = watch(stream, seed, ert=ERT)
    _, _, extra = match_alarms([a.position for a in monitor.alarms], changes, 2000)
    right = 0
    for before, change in itertools.pairwise(changes):
        left = next((a.reference for a in monitor.alarms if a.position > before), None)
        right += any(
            record.kind == "returned" and record.reference == left
            for record in monitor.records
            if change < record.position <= change + 2000
        )
    return right, extra


def _order(seed: int) -> tuple[list[int], int, int]:
    """Delays of the changes that are detected, extra alarms and cuts: recordings of 100 events."""
    rng = np.random.default_rng([seed, 24])
    means = np.zeros((4, D))
    means[1:, :3] = 1.5 * np.eye(3)
    serial, parts = drift_streams.serial(0.6, D), []
    for mean in means[rng.permutation(4)]:
        parts += [serial(rng, 100) + mean + 0.2 * rng.standard_normal(D) for _ in range(20)]
    monitor = watch(np.concatenate(parts), seed, ert=ERT)
    at = [alarm.position for alarm in monitor.alarms]
    _, delays, extra = match_alarms(at, [2000, 4000, 6000], 2000)
    return delays, extra, count_kinds(monitor, "cut")


def measure_chains(pool: ProcessPoolExecutor) -> None:
    """What follows the first alarm; seeds from 500 on."""
    renewed = np.array(list(pool.map(_renew, range(500, 564))))
    alarms, watched, returns, cuts = renewed.sum(axis=0).tolist()
    ratio = watched / 5_000 / max(alarms, 1)
    error = ratio / np.sqrt(max(alarms, 1))
    cells = f"{returns} returns, {cuts} cuts | {ratio:.2f} ± {error:.2f} of what was asked"
    print(
        f"independent, 64 streams | {alarms} of {watched / 5_000:.1f} alarms, {cells}", flush=True
    )
    held = list(pool.map(_hold, range(500, 524)))
    hits = np.sum([hit for hit, _, _ in held], axis=0).tolist()
    recovered, extra = sum(one[1] for one in held), sum(one[2] for one in held)
    cells = f"{recovered} recovered within 600 | {extra} of {24 * 0.8:.1f} extra"
    print(f"hold, 24 streams | alarms within 100 events {hits}, {cells}", flush=True)
    often = sum(pool.map(_leave_often, range(500, 520)))
    print(f"hold, 20 streams of six excursions | {often} of 120 recovered within 600", flush=True)
    right, extra = np.array(list(pool.map(_return, range(500, 520)))).sum(axis=0).tolist()
    print(f"away and back, 20 streams | {right} of 60 returns | {extra} of 22 extra", flush=True)
    orders = list(pool.map(_order, range(500, 532)))
    delays = np.concatenate([one[0] for one in orders])
    cells = f"{(delays <= 150).sum()} within 150 events (median {np.median(delays):.0f})"
    extra, cuts = sum(one[1] for one in orders), sum(one[2] for one in orders)
    cells += f", {len(delays)} before the next | {extra} of 25.6 extra, {cuts} cuts"
    print(f"recordings, 32 orders | {cells}, of 96", flush=True)


def measure_renewal(pool: ProcessPoolExecutor) -> None:
    """Changes that follow one another: caught, delays, alarms without a change."""
    streams = {
        "all clusters redrawn": draw_renewed(np.random.default_rng(0), True),
        "one cluster moves": draw_renewed(np.random.default_rng(1), False),
        "ten of fifteen classes": segments(np.random.default_rng(2)),
    }
    for name, (stream, changes) in streams.items():
        monitor = se.Monitor(ert=20_000)
        monitor.learn(stream)
        hits, late, extra = match_alarms([a.position for a in monitor.alarms], changes, 3000)
        ends = [f"{np.quantile(late, q):.0f}" for q in (0.5, 0.9)]
        cells = f"{hits} of {len(changes)} | {ends[0]} / {ends[1]} | {extra}"
        print(f"{name} | {cells}", flush=True)
    measure_chains(pool)
