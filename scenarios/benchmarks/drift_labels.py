"""Which labels an alarm of the channel of labels names."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import streamembed as se

N = 1500  # events before the change, and after it
CHANGES: dict[str, set[str]] = {
    "two change places": {"1", "2"},
    "half of one is another": {"0", "3"},
    "a feature of one moves by 1 sd": {"1"},
    "half of one is new": {"0", "4"},
    "one comes more often": {"0", "1", "2", "3"},
}


def _name(task: tuple[str, int]) -> tuple[str, list[str]]:
    """Channel of the first alarm, and whether each of its explanations is right."""
    change, seed = task
    rng = np.random.default_rng([seed, 55])
    centers, parts = 2.0 * np.eye(4), []
    for is_after in (False, True):
        more = is_after and change == "one comes more often"
        labels = rng.choice(4, N, p=[0.4, 0.2, 0.2, 0.2] if more else None)
        points = centers[labels] + rng.standard_normal((N, 4))
        half = is_after & (labels == 0) & (rng.random(N) < 0.5)
        if change == "half of one is another":
            labels[half] = 3
        elif change == "half of one is new":
            labels[half] = 4
        elif is_after and change == "two change places":
            labels = np.array([0, 2, 1, 3])[labels]
        elif is_after and change == "a feature of one moves by 1 sd":
            points[labels == 1, 2] += 1.0
        parts.append((points, labels))
    monitor = se.Monitor(labels=True, seed=seed)
    for points, labels in parts:
        monitor.learn(points, y=labels.tolist())
    alarm = next((a for a in monitor.alarms if a.position > N), None)
    if alarm is None:
        return "none", []
    verdicts = []
    for record in monitor.records:
        if record.number == alarm.number and record.explanation is not None:
            named = set(record.explanation.labels)
            right = named & CHANGES[change]
            verdict = "right" if named == right else "partly" if right else "wrong"
            verdicts.append(verdict if named else "nothing")
    return alarm.channel, verdicts


def measure_labels(streams: int, pool: ProcessPoolExecutor) -> None:
    """Alarms of the channel, and what they name at the alarm, after 50 and after 200 events."""
    for change in CHANGES:
        outcomes = list(pool.map(_name, [(change, seed) for seed in range(streams)]))
        channels = Counter(channel for channel, _ in outcomes)
        cells = []
        for revision in range(3):
            counts = Counter(
                verdicts[revision]
                for channel, verdicts in outcomes
                if channel == "labels" and len(verdicts) > revision
            )
            cells.append("/".join(str(counts[w]) for w in ("right", "partly", "wrong", "nothing")))
        row = f"{channels['labels']} of labels, {channels['none']} none | {' · '.join(cells)}"
        print(f"labels, {change} | {row}", flush=True)
