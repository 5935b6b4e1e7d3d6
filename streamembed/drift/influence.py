"""The events that an alarm stands on: more than one, or there is no alarm.

The line itself would be too strict: an event of twenty that are all a little high carries a part,
and run lengths were twice what was asked for. It is the line for an event that carries more than
all others together: where values are rare, a stream without any of them is not far below it.
"""

from __future__ import annotations

import numpy as np

from streamembed.drift.monitor_state import CalibratedReference
from streamembed.drift.running_statistics import MEMORIES, compute_statistics
from streamembed.numeric.arrays import Floats

MOST_CARRIERS = 16
USUAL_SHARE = 0.03  # of an alarm's run length: without its outliers a stream stays below it
LARGEST_REST = 0.5  # of the mean of an alarm: an event without which less is left is most of it


def count_carriers(
    reference: CalibratedReference, scores: Floats, means: Floats, variances: Floats
) -> int:
    """How few events carry an alarm; it stands where that is not one.

    Events are taken out, the most influential first. One that is taken out counts as one of the
    mean of the reference: for exponential means that is exact.

    Parameters
    ----------
    scores
        Of the last events, whole chunks, shape (n, p).
    means, variances
        The exponential means of all memories after them, shape (w, p), and (w,).

    Returns
    -------
    Without so many all statistics are far below the line; 0 where these are more than sixteen. 1
    where one event carries more than the others, and all are below the line without it.
    """
    calibration, chunk = reference.calibration, reference.chunk_size
    null, groups = calibration.null, reference.groups
    logs = calibration.log_run_lengths(compute_statistics(means, variances, groups))
    w, form, part = groups.locate(int(logs.argmax()))
    clipped = np.clip(scores[::-1], null.low, null.high)
    shares = np.matmul((clipped - null.mean)[:, None, :], null.whitening)[:, 0, :] / chunk
    a = 2.0 / (np.array(MEMORIES[: groups.count]) + 1)[:, None]
    weights = a * (1 - a) ** (np.arange(len(scores)) // chunk)
    measure = np.sum if form == "norm" else np.max
    left = measure((means[w, part] - weights[w, :, None] * shares[:, part]) ** 2, axis=1)
    order = np.argsort(left, kind="stable")[:MOST_CARRIERS]
    removed = np.cumsum(weights[:, order, None] * shares[order], axis=1)
    rest = np.moveaxis(means[:, None] - removed, 0, 1)
    variances = np.broadcast_to(variances, rest.shape[:2])
    logs = calibration.log_run_lengths(compute_statistics(rest, variances, groups)).max(axis=1)
    is_most = left.min() < LARGEST_REST**2 * measure(means[w, part] ** 2)
    if is_most and logs[0] <= calibration.threshold:
        return 1
    usual = np.flatnonzero(logs <= calibration.threshold + np.log(USUAL_SHARE))
    return int(usual[0]) + 1 if len(usual) else 0
