"""The monitor on streams with and without a change: ``python -m scenarios.benchmarks.drift``.

Run lengths without drift against what was asked for; delays behind a change beside river's
detectors and a kernel two-sample test.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from river import drift, naive_bayes

import streamembed as se
from scenarios import drift_streams
from scenarios.benchmarks import drift_regions, drift_returns
from scenarios.drift_streams import CHANGES, DEPENDENT, NULLS, Draw, StreamChange
from streamembed.numeric.arrays import Floats, Ints

N_REFERENCE = 1000
BEFORE, AFTER = 500, 2000
FIRST_SEED = 3000  # of the null streams

ALL = ["nulls", "returns", "regions", "cost", "table"]
# The table of the guide.
LABELS = "labels change sides"
TABLE = {
    "mean of one feature by 1 sd": CHANGES["mean 1"],
    "sd of one feature x 1.5": CHANGES["sd x1.5, one axis"],
    "correlation of a pair .8 to -.8": CHANGES["correlation .8 to -.8"],
    "new cluster, 10 % of the events": CHANGES["new cluster, 10 %"],
    "rate of a rare value .02 to .08": StreamChange(
        drift_streams.rare(0.02), drift_streams.rare(0.08)
    ),
}
Detector = Callable[[Floats, Floats], Iterable[int]]


def first_alarm(
    stream: Floats, ert: float, seed: int, n_reference: int = N_REFERENCE, **parameters: Any
) -> int:
    """Events until the monitor alarms, those of its reference not counted; -1 for never."""
    monitor = se.Monitor(ert=ert, n_reference=n_reference, policy="stop", seed=seed, **parameters)
    for start in range(0, len(stream), 1000):
        for alarm in monitor.learn(stream[start : start + 1000]):
            return alarm.position - n_reference
    return -1


def find_false_alarm(
    draw: Draw, ert: float, seed: int, n_reference: int, length: int, **parameters: Any
) -> int:
    """The first false alarm of one stream."""
    rng = np.random.default_rng([seed, 11])
    return first_alarm(draw(rng, n_reference + length), ert, seed, n_reference, **parameters)


def run_length(first_alarms: list[int], length: int, ert: float) -> tuple[float, float]:
    """Events watched for one alarm, and the share of streams that alarm before half of ``ert``."""
    watched = sum(length if position < 0 else position for position in first_alarms)
    alarms = sum(position >= 0 for position in first_alarms)
    early = float(np.mean([0 <= position < ert / 2 for position in first_alarms]))
    return (watched / alarms if alarms else np.inf), early


def by_river(make: Callable[[int], Any]) -> Detector:
    """One of river's detectors on every feature."""

    def detect(reference: Floats, stream: Floats) -> Iterable[int]:
        detectors = [make(stream.shape[1]) for _ in range(stream.shape[1])]
        for row in reference[-N_REFERENCE:]:
            for one, value in zip(detectors, row, strict=True):
                one.update(float(value))
        for t, row in enumerate(stream):
            hit = False
            for one, value in zip(detectors, row, strict=True):
                one.update(float(value))
                hit |= bool(one.drift_detected)
            if hit:
                yield t + 1

    return detect


def by_kernel(reference: Floats, stream: Floats) -> Iterable[int]:
    """An online kernel two-sample test: MMD of the last 50 events against the reference.

    Its threshold is the largest value of so many windows of the reference as come in 10,000 events,
    the first half against the second.
    """
    mean, sd = reference.mean(axis=0), reference.std(axis=0)
    sd = np.where(sd > 0, sd, 1.0)
    rng = np.random.default_rng(0)
    first, second = (reference[:N_REFERENCE:2] - mean) / sd, (reference[1::2] - mean) / sd
    spread = np.median(np.linalg.norm(first[:200] - first[200:400], axis=1))
    directions = rng.standard_normal((first.shape[1], 200)) / spread
    phases = rng.uniform(0, 2 * np.pi, 200)

    def features(points: Floats) -> Floats:
        cosines: Floats = np.cos(points @ directions + phases)
        return cosines

    center = features(first).mean(axis=0)
    pool = features(second)
    draws = [pool[rng.integers(len(pool), size=50)].mean(axis=0) for _ in range(1000)]
    line = max(float(((draw_mean - center) ** 2).sum()) for draw_mean in draws)
    stream_features = features((stream - mean) / sd)
    sums = np.cumsum(np.concatenate([np.zeros((1, 200)), stream_features]), axis=0)
    windows = (sums[50:] - sums[:-50]) / 50
    return (np.flatnonzero(((windows - center) ** 2).sum(axis=1) > line) + 50).tolist()


ADWIN: Any = drift.ADWIN  # it has no types
OTHERS: dict[str, Detector] = {
    "ADWIN": by_river(lambda _: ADWIN()),
    "PageHinkley": by_river(lambda _: drift.PageHinkley()),
    "KSWIN": by_river(lambda d: drift.KSWIN(alpha=0.005 / d, seed=0)),
    "online MMD": by_kernel,
}


def measure_other_detector(name: str, change: StreamChange, seed: int) -> tuple[int, int]:
    """Delay of another detector, -1 for none; and its alarms in the events before the change."""
    rng = np.random.default_rng([seed, 12])
    before, after = change.before(rng, N_REFERENCE + BEFORE), change.after(rng, AFTER)
    stream = np.concatenate([before[N_REFERENCE:], after])
    early = 0
    for at in OTHERS[name](before[:N_REFERENCE], stream):
        if at > BEFORE:
            return at - BEFORE, early
        early += 1
    return -1, early


def _null(task: tuple[str, float, int, int]) -> int:
    name, ert, seed, n_reference = task
    draw, period = {**NULLS, **DEPENDENT}[name], 400 if "named" in name else None
    return find_false_alarm(draw, ert, seed, n_reference, 3 * int(ert), period=period)


def _format_delay(delay: float) -> str:
    return f"over {AFTER:,}" if delay > AFTER else f"{delay:.0f}"


def measure_run_lengths(
    names: Iterable[str], streams: int, ert: float, n_reference: int, pool: ProcessPoolExecutor
) -> None:
    """Run length over what was asked for, with its standard error, of each null stream."""
    for name in names:
        tasks = [(name, ert, FIRST_SEED + i, n_reference) for i in range(streams)]
        first_alarms = list(pool.map(_null, tasks))
        mean, early = run_length(first_alarms, 3 * int(ert), ert)
        error = mean / ert / max(sum(at >= 0 for at in first_alarms), 1) ** 0.5
        print(f"{name} | {mean / ert:.2f} ± {error:.2f} | {early:.2f} by half", flush=True)


def draw_labels(rng: np.random.Generator, n: int, flip: float) -> tuple[Floats, Ints]:
    """Two classes that share their features; ``flip`` is the share that has the other label."""
    labels = rng.integers(2, size=n)
    points = drift_streams.gaussian(rng, n) + 2.0 * labels[:, None] * np.eye(drift_streams.D)[0]
    return points, np.where(rng.random(n) < flip, 1 - labels, labels)


def _compare_on_labels(detector: str, seed: int) -> tuple[int, int]:
    """Delay and early alarms where labels change sides; detectors of numbers watch the errors of a
    naive Bayes classifier."""
    rng = np.random.default_rng([seed, 17])
    first, last = draw_labels(rng, N_REFERENCE + BEFORE, 0.0), draw_labels(rng, AFTER, 1.0)
    points, labels = (np.concatenate(parts) for parts in zip(first, last, strict=True))
    if detector == "monitor":
        monitor = se.Monitor(labels=True, seed=seed)
        hits = [a.position for a in monitor.learn(points, y=labels.tolist())]
        return _split_hits([hit - N_REFERENCE for hit in hits])
    if detector == "online MMD":
        watched = np.column_stack([points, points * labels[:, None]])
    else:
        model: Any = naive_bayes.GaussianNB  # it has no types
        model, errors = model(), []
        for x, y in zip(points.tolist(), labels.tolist(), strict=True):
            row = dict(enumerate(x))
            errors.append(float(model.predict_one(row) != y))
            model.learn_one(row, y)
        watched = np.array(errors)[:, None]
    return _split_hits(OTHERS[detector](watched[:N_REFERENCE], watched[N_REFERENCE:]))


def _split_hits(hits: Iterable[int]) -> tuple[int, int]:
    early = 0
    for at in hits:
        if at > BEFORE:
            return at - BEFORE, early
        early += 1
    return -1, early


def _compare(task: tuple[str, str, int]) -> tuple[int, int]:
    detector, name, seed = task
    if name == LABELS:
        return _compare_on_labels(detector, seed)
    if detector != "monitor":
        return measure_other_detector(detector, TABLE[name], seed)
    rng = np.random.default_rng([seed, 12])
    change = TABLE[name]
    stream = np.concatenate([change.before(rng, N_REFERENCE + BEFORE), change.after(rng, AFTER)])
    monitor = se.Monitor(seed=seed)
    return _split_hits([a.position - N_REFERENCE for a in monitor.learn(stream)])


def compare_detectors(streams: int, pool: ProcessPoolExecutor) -> None:
    """The table of the guide: median delay, how many are detected, false alarms in 10,000 events.

    KSWIN takes milliseconds an event: it has a tenth of the streams.
    """
    names = (*OTHERS, "monitor")
    print("| change | " + " | ".join(names) + " |\n|---|" + "---:|" * len(names))
    for name in (*TABLE, LABELS):
        cells = [name]
        for detector in names:
            count = max(2, streams // 10) if detector == "KSWIN" else streams
            tasks = [(detector, name, seed) for seed in range(count)]
            outcomes = np.array(list(pool.map(_compare, tasks)))
            late = np.where(outcomes[:, 0] < 0, AFTER + 1, outcomes[:, 0])
            caught = np.count_nonzero(late <= AFTER)
            share = "" if caught == count else f" ({caught} of {count})"
            early = 10_000 * outcomes[:, 1].mean() / BEFORE
            cells.append(f"{_format_delay(float(np.median(late)))}{share}; {early:.0f}")
        print("| " + " | ".join(cells) + " |", flush=True)


def measure_cost() -> None:
    """Milliseconds for 1,000 events, for a reference, and bytes."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((21_000, 16))
    monitor = se.Monitor(ert=math.inf)  # no alarm, and no other reference
    began = time.process_time()
    monitor.learn(points[:1000])
    reference = time.process_time() - began
    began = time.process_time()
    monitor.learn(points[1000:])
    spent = (time.process_time() - began) / 20
    reference_model = monitor._get_reference()
    began = time.process_time()
    for start in range(1000, 21_000, 500):
        reference_model.map.compute_scores(points[start : start + 500])
    plain = (time.process_time() - began) / 20
    whole = len(monitor.to_bytes())
    recent = monitor._state.recent
    assert recent is not None
    recent_bytes = sum(a.nbytes for a in (recent.points, recent.ids, recent.labels))
    print(
        f"a reference {reference:.2f} s; 1,000 events {1e3 * spent:.1f} ms, of which "
        f"{1e3 * plain:.1f} are kernel rows, coordinates and features; state {whole:,} bytes, of "
        f"which {recent_bytes:,} are the last events, most of the others the reference"
    )


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", default=ALL, choices=ALL, metavar="WHAT")
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--null-streams", type=int, default=60)
    asked = parser.parse_args()
    began = time.monotonic()
    with ProcessPoolExecutor(2) as pool:
        if "nulls" in asked.what:
            measure_run_lengths(NULLS, asked.null_streams, 2000, N_REFERENCE, pool)
        if "returns" in asked.what:
            drift_returns.measure_returns(pool)
        if "regions" in asked.what:
            drift_regions.measure_regions(max(asked.streams // 4, 1), pool)
        if "cost" in asked.what:
            measure_cost()
        if "table" in asked.what:
            compare_detectors(asked.streams, pool)
    print(f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
