"""Whether the monitor recognises the reference that a stream returns to."""

from __future__ import annotations

import itertools
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import streamembed as se

D = 6
LENGTHS = [3000, 2000, 2000, 2000, 2000]
CHANGES = np.cumsum(LENGTHS[:-1]).tolist()


def _return(seed: int) -> tuple[int, int]:
    """Returns to the right reference, of three, and extra alarms; away and back twice."""
    rng = np.random.default_rng([seed, 23])
    parts = [rng.standard_normal((n, D)) for n in LENGTHS]
    for part in parts[1::2]:
        part[:, 0] += 1.5
    monitor = se.Monitor(seed=seed, ert=10_000)
    monitor.learn(np.concatenate(parts))
    at = [alarm.position for alarm in monitor.alarms]
    caught = sum(any(change < a <= change + 2000 for a in at) for change in CHANGES)
    right = 0
    for before, change in itertools.pairwise(CHANGES):
        left = next((a.reference for a in monitor.alarms if a.position > before), None)
        right += any(
            record.kind == "returned" and record.reference == left
            for record in monitor.records
            if change < record.position <= change + 2000
        )
    return right, len(at) - caught


def measure_returns(pool: ProcessPoolExecutor) -> None:
    """Returns that were found, and alarms that no change explains; seeds from 500 on."""
    right, extra = np.array(list(pool.map(_return, range(500, 520)))).sum(axis=0).tolist()
    print(f"away and back, 20 streams | {right} of 60 returns | {extra} of 22 extra", flush=True)
