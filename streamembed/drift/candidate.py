"""The events behind an alarm, on their way to a reference: when they are enough, and what they are.

At 200 events, or a period, there is a provisional reference; it is made again of ``n_reference``.
At either, and at 500, the events are compared with the references that were left; before the first
they are searched for a change among themselves.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from streamembed.drift import dependence, running_statistics
from streamembed.drift.monitor_state import CalibratedReference, Events
from streamembed.numeric.arrays import Floats

FIRST_STAGES = (200, 500)  # events; then n_reference
MIN_BLOCKS = 100  # of a provisional reference
# Of an alarm's run length: a stream that stays below it has returned to a reference.
RETURN_SHARE = 0.3
RETURN_EVENTS = 300  # the last ones, that must be like a reference
MIN_RETURN_EVENTS = 100
MIN_RETURN_REFERENCE = 500  # events of a reference that a stream can return to
SCAN_PERMUTATIONS = 199  # either statistic above all of them: p is at most .01
# Of the dependence's blocks, and its integrated times, of which means are permuted.
SCAN_BLOCK, SCAN_TIMES = 3, 2
SCAN_EDGE = 0.1
SCAN_ROWS = 200  # at most
MIN_ROWS, MIN_SCANNED = 20, 100


def next_stage_size(n: int, least: int, n_reference: int) -> int:
    """How many events a candidate of n has at its next stage; so many at least."""
    target = next((stage for stage in FIRST_STAGES if stage > n), n_reference)
    return max(min(max(target, least), n_reference), n + 1)


def find_change(points: Floats, seed: tuple[int, ...], block: int = 1) -> int | None:
    """First event after a change among these, shape (n, d); None where none is significant.

    The split of means of blocks of ranks and squared ranks whose sides differ most, over all
    features or in one of them, against permutations of the blocks. How long these are comes of the
    dependence of what both sides of the best split leave: a change is no dependence. Fewer than
    twenty such blocks show no change: their dependence looks like one.

    Parameters
    ----------
    block
        Events of a block at least, as a longer sample of the stream has shown.
    """
    n = len(points)
    varying = points[:, (points != points[0]).any(axis=0)]
    if n < MIN_SCANNED or not varying.shape[1]:
        return None
    at = _find_split(_average_ranks(varying, max(SCAN_BLOCK, n // SCAN_ROWS)))[0]
    at *= max(SCAN_BLOCK, n // SCAN_ROWS)
    sides = [side - side.mean(axis=0) for side in (varying[:at], varying[at:])]
    serial = dependence.measure(np.concatenate(sides))
    block = max(block, serial.block)
    length = max(SCAN_BLOCK * block, math.ceil(SCAN_TIMES * serial.integrated), n // SCAN_ROWS)
    if n < MIN_ROWS * length:
        return None
    rows = _average_ranks(varying, length)
    at, *observed = _find_split(rows)
    rng = np.random.default_rng(seed)
    for _ in range(SCAN_PERMUTATIONS):
        _, *own = _find_split(rng.permutation(rows))
        observed = [x if x > y else -np.inf for x, y in zip(observed, own, strict=True)]
        if max(observed) == -np.inf:
            return None
    return at * length


def _average_ranks(points: Floats, length: int) -> Floats:
    """Standardised means of ranks and squared ranks of so many events, shape (m, 2 d)."""
    m = len(points) // length
    u = scipy.stats.rankdata(points[: m * length], axis=0) / (m * length) - 0.5
    rows = np.concatenate([u, u**2], axis=1).reshape(m, length, -1).mean(axis=1)
    rows -= rows.mean(axis=0)
    scaled: Floats = rows / np.maximum(rows.std(axis=0), 1e-12)
    return scaled


def _find_split(rows: Floats) -> tuple[int, float, float]:
    """Where the sides differ most, over all columns; how much, and how much in one of them."""
    m = len(rows)
    edge = max(2, round(SCAN_EDGE * m))
    splits = np.arange(edge, m - edge + 1)
    scale = (splits * (m - splits) / m)[:, None]
    q = np.cumsum(rows, axis=0)[splits - 1] ** 2 / scale
    total, largest = q.sum(axis=1), q.max(axis=1)
    at = total / total.max() + largest / largest.max()
    return int(splits[at.argmax()]), float(total.max()), float(largest.max())


def has_returned(events: Events, reference: CalibratedReference, delay: int) -> bool:
    """Whether the last of these events are like a reference.

    Parameters
    ----------
    events
        Behind the alarm, not those that raised it: an alarm selects them.
    delay
        Events that must be there at least: so many it took to see the change, since the onset or in
        the memory that showed it.
    """
    chunk = reference.chunk_size
    count = min(max(RETURN_EVENTS, delay), len(events)) // chunk * chunk
    if count < max(MIN_RETURN_EVENTS, delay // chunk * chunk):
        return False
    last = events[len(events) - count :]
    z = reference.whiten_chunks(last)
    running = running_statistics.init_means(reference.groups.count, z.shape[1])
    _, means, variances = running_statistics.update_means(running, z)
    statistics = running_statistics.compute_statistics(means, variances, reference.groups)
    highest = reference.compute_log_run_lengths(last, statistics).max()
    return bool(highest < reference.calibration.threshold + np.log(RETURN_SHARE))
