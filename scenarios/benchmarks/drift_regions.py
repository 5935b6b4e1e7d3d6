"""What alarms of a monitor on vectors name: a group, one value, another encoder, or nothing.

Streams of sentence embeddings, digits and word vectors: 2,000 events, and as many again, or more,
behind a change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import cache

import numpy as np
import pyarrow.parquet as pq

import streamembed as se
from scenarios import drift_streams
from scenarios.streams import find_file
from streamembed.numeric.arrays import Array, Bools, Floats

SETS = ("minilm_topics", "usps", "mnist_10k", "glove_100d_10k")
BEFORE, AFTER = 2000, 4000
REPEATS, EARLY = 300, 300  # equal events, and the first of those among a reference
FIRST_SEED = 11000
GROUP = 1000  # word vectors of a group: the nearest to one of them
DEVIATIONS = 2.0  # to which an encoder rounds: of sentences, one digit
# What must be named, and in how many of twenty.
BARS = {
    "group from 10 to 30 %": (("region", "new region"), 17),
    "new group of 12 %": (("region", "new region"), 15),
    "rotated encoder": (("encoder",), 18),
    "rounded encoder": (("encoder",), 18),
    "300 equal events": (("repeated event",), 20),
    "300 equal events in a reference": (("repeated event",), 20),
    "300 equal events behind an alarm": (("repeated event",), 20),
    "no drift": (("region", "new region", "repeated event", "encoder"), 0),
}
SHORT = [what for what in BARS if "group" in what or "encoder" in what]  # the first alarm decides


@cache
def load(name: str) -> tuple[Floats, Array]:
    """Vectors and their topics or classes; none of words."""
    if name != "minilm_topics":
        points, labels, _ = drift_streams.table(name)
        return points, labels
    topics = np.array(pq.read_table(find_file(name))["topic"].to_pylist())
    return drift_streams.load_sentences()[0], np.unique(topics, return_inverse=True)[1]


def choose_group(name: str, rng: np.random.Generator) -> Bools:
    """Which rows are of a topic or class that is drawn."""
    points, labels = load(name)
    if name.startswith("glove"):
        d2 = ((points - points[rng.integers(len(points))]) ** 2).sum(axis=1)
        is_near: Bools = d2 <= np.sort(d2)[GROUP - 1]
        return is_near
    is_same: Bools = labels == labels[rng.integers(len(labels))]
    return is_same


def draw(
    name: str, rng: np.random.Generator, own: Bools, n: int, share: float
) -> tuple[Floats, Bools]:
    """So many events, each of the group with that probability, and which are."""
    points, _ = load(name)
    is_own, rows = rng.random(n) < share, np.empty(n, dtype=np.int64)
    is_sentence = name == "minilm_topics"
    for side in (True, False):
        pool, count = np.flatnonzero(own == side), int((is_own == side).sum())
        rows[is_own == side] = rng.choice(pool, count, replace=is_sentence or count > len(pool))
    drawn = points[rows]
    if is_sentence:
        near, weight = drift_streams.load_sentences()[1], rng.uniform(0, 0.5, (n, 1))
        drawn = (1 - weight) * drawn + weight * points[near[rows, rng.integers(5, size=n)]]
        drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    return drawn, is_own


def make_stream(what: str, name: str, seed: int) -> tuple[Floats, Bools, int]:
    """The stream, which events must be named, and the first that is changed."""
    rng = np.random.default_rng([seed, 31])
    own = choose_group(name, rng)
    usual = float(own.mean())
    then, now = {
        "group from 10 to 30 %": (0.1, 0.3),
        "new group of 12 %": (0.0, 0.12),
        "300 equal events behind an alarm": (0.1, 0.9),
    }.get(what, (usual, usual))
    first, last = draw(name, rng, own, BEFORE, then), draw(name, rng, own, AFTER, now)
    points, is_own = (np.concatenate(parts) for parts in zip(first, last, strict=True))
    at = BEFORE
    if what == "rotated encoder":
        points[at:] @= np.linalg.qr(rng.standard_normal((points.shape[1],) * 2))[0]
    if what == "rounded encoder":
        step = DEVIATIONS * points.std()
        points[at:] = np.round(points[at:] / step) * step
    if what.startswith("300"):
        behind = 150 if what.endswith("alarm") else 0
        at = EARLY if what.endswith("reference") else BEFORE + behind
        points[at : at + REPEATS] = points[at]
        is_own = (np.arange(len(points)) >= at) & (np.arange(len(points)) < at + REPEATS)
    return points, is_own, at


def name_change(task: tuple[str, str, int]) -> tuple[str, float, int]:
    """Kind of what is named 200 events behind the first alarm; purity of its members; delay.

    Of equal events, of any alarm: the first may be of another change.
    """
    what, name, seed = task
    points, is_own, at = make_stream(what, name, seed)
    monitor = se.Monitor(seed=seed)
    for start in range(0, len(points), 250):
        monitor.learn(points[start : start + 250])
        behind = [alarm for alarm in monitor.alarms if alarm.position > at]
        if behind and what in SHORT and monitor.position > behind[0].position + 250:
            break
    wanted = BARS[what][0]
    kinds = []
    for alarm in monitor.alarms:
        explanation = alarm.explanation
        if explanation is None or (alarm.position <= at and what != "no drift"):
            continue
        members = np.array(explanation.members, dtype=np.int64)
        purity = float(is_own[members].mean()) if len(members) else 0.0
        kinds.append((explanation.kind, purity, alarm.position - at))
    named = [found for found in kinds if found[0] in wanted]
    if named and (what.startswith("300") or what == "no drift"):
        return named[0]
    return kinds[0] if kinds else ("no alarm", 0.0, 0)


def measure_regions(streams: int, pool: ProcessPoolExecutor, sets: Iterable[str] = SETS) -> None:
    """A row for each change and set: what is named, and in how many streams as it must be."""
    count: Callable[[list[bool]], int] = sum
    for what, (kinds, bar) in BARS.items():
        total, hits = 0, 0
        for name in sets:
            tasks = [(what, name, FIRST_SEED + i) for i in range(streams)]
            found = list(pool.map(name_change, tasks))
            is_group = "group" in what
            own = count([k in kinds and (p >= 0.8 or not is_group) for k, p, _ in found])
            raised = count([k != "no alarm" for k, _, _ in found])
            total, hits = total + streams, hits + own
            cells = ", ".join(f"{k or '-'} {p:.2f} {delay}" for k, p, delay in found)
            print(f"{what} | {name} | {own} of {raised} alarmed of {streams} | {cells}", flush=True)
        asked = f"{bar} of 20" if bar else "at most 1 of 40"
        print(f"{what} | all | {hits} of {total} | asked {asked}", flush=True)
