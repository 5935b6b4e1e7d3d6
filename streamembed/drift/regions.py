"""What has changed in a stream of vectors: a group of events, a repeated value, or the encoder.

Features of vectors mean nothing one by one: an alarm names events. Groups are of two kinds: the
nearest events of reference and stream around a centre, in all dimensions, and the farthest along
the direction that separates the stream from the reference (topics of sentences lie apart, but are
not compact). Fisher's exact test of their shares decides, by Bonferroni over each kind. A centre is
the mean of the ten events nearest to one of those since the onset: around single ones groups of
many dimensions are half as often of one kind.

Symbols: n = events of the reference, m = those since the onset.
"""

from __future__ import annotations

import numpy as np
import scipy
from scipy import linalg

from streamembed.drift.alarm import Alarm, Explanation
from streamembed.drift.change_tests import LEVEL, compute_rate_p
from streamembed.drift.monitor_state import CalibratedReference, Events
from streamembed.numeric.arrays import Bools, Floats, Ints

CHANNEL = "repeated"  # of an alarm while a reference is collected
FARTHEST = 1e6  # standard deviations: squares are finite
MOST_CENTRES = 128
N_NEAREST = 10  # events of which a centre is the mean
SMALLEST, LARGEST_SHARE = 10, 1 / 3  # events of a group
RIDGE = 10.0  # of the mean variance: 3 and 30 name fewer groups rightly
# Of a group's events since the onset the inner half is named, for others lie at its edge: of the
# half four in five were of the kind that grew in 28 of 32 streams, of all of them in 23.
CORE = 0.5
MOST_OF_NEW = 0.01  # of the reference
N_EXEMPLARS = 3
WINDOW = 500  # events at least of the second look for a group: an onset is often estimated late
ROUNDING = 1e-6  # of a value: vectors of float32, divided by their length
MOST_REPEATED = 0.02  # of the events, of one value
EVEN_LEVEL = 0.001  # of Kolmogorov's test that copies lie evenly among the events
MIN_LEFT = 100  # events of a reference without the copies
# Three quarters of the events score higher than so many of the reference; than 42 % at most where
# the share of a group has changed (186 streams), than 93 % where the encoder has.
BEYOND = 0.9
QUARTILES, SCALED = (0.25, 0.75), 1.5  # both must be so many times as large, or as small


def explain(reference: CalibratedReference, recent: Events, since: int) -> Explanation:
    """What the last events show, of which ``since`` are behind the onset."""
    since = max(since, 1)
    last, serial = recent[len(recent) - since :], reference.dependence
    time = serial.integrated if serial.block > 1 else 1.0
    windows = sorted({since, min(max(since, WINDOW), len(recent))})
    if found := _explain_repeats(reference.events, last, time):
        return found
    old, new = (_scale(reference, events) for events in (reference.events, recent))
    for window in windows:  # the first is that of the events since the onset
        scores = score_novelty(old, new[-window:])
        if window == since:
            found = _explain_encoder((old, reference.events), (new[-since:], last), scores)
        level = LEVEL / len(windows)
        found = found or _explain_groups(old, new[-window:], scores, last, level, time)
        if found:
            return found
    return Explanation("", (), 0.0, 0.0, 1.0, since)


def _scale(reference: CalibratedReference, events: Events) -> Floats:
    """Vectors in deviations that all features share, so that distances are as the caller's."""
    features = reference.map.features
    unit = features.scale.max() * np.sqrt(np.mean((features.scale / features.scale.max()) ** 2))
    scaled: Floats = (reference.deseasonalise(events) - features.center) / unit
    return np.clip(scaled, -FARTHEST, FARTHEST)


def _label_distinct_rows(points: Floats) -> Ints:
    """A number for each different row; rows that rounding alone tells apart share one."""
    order = np.einsum("ij,j->i", points, np.cos(np.arange(points.shape[1]))).argsort(kind="stable")
    rows = points[order]
    is_other = (np.abs(np.diff(rows, axis=0)) > ROUNDING * np.abs(rows[1:])).any(axis=1)
    values = np.empty(len(points), dtype=np.int64)
    values[order] = np.cumsum(np.append(False, is_other))
    return values


def _explain_repeats(reference: Events, since: Events, time: float) -> Explanation | None:
    """One value, more often than in the reference."""
    n, m = len(reference), len(since)
    values = _label_distinct_rows(np.concatenate([reference.points, since.points]))
    old, new = (np.bincount(own, minlength=values.max() + 1) for own in (values[:n], values[n:]))
    best = int((new / m - old / n).argmax())
    b, a = int(old[best]), int(new[best])
    p = m * float(compute_rate_p(np.array(b), n, np.array(a), m, np.array(time)))
    if a <= max(MOST_REPEATED * m, 1) or p > LEVEL:
        return None
    members = tuple(since.ids[values[n:] == best].tolist())
    return Explanation(
        "repeated event", (), b / n, a / m, p, m, members=members, exemplars=members[:N_EXEMPLARS]
    )


def _explain_encoder(
    old: tuple[Floats, Events], new: tuple[Floats, Events], scores: Floats
) -> Explanation | None:
    """Nearly all events are on one side of the reference, or scaled, or of other resolution."""
    n = len(old[1])
    compared = [(scores[:n], scores[n:])]
    before = _measure_from_centre(*old)
    compared += zip(before, _measure_from_centre(*new), strict=True)
    for is_size, (own, other) in enumerate(compared):
        factors = np.quantile(other, QUARTILES) / np.maximum(np.quantile(own, QUARTILES), 1e-12)
        has_moved = (own < np.quantile(other, 0.25)).mean() >= BEYOND
        if is_size:
            has_moved = factors.min() > SCALED or factors.max() < 1 / SCALED
        p = len(compared) * float(scipy.stats.mannwhitneyu(other, own, method="asymptotic").pvalue)
        if has_moved and p <= LEVEL:
            return Explanation("encoder", (), 0.0, 1.0, p, len(new[1]))
    return None


def _measure_from_centre(points: Floats, events: Events) -> tuple[Floats, Floats]:
    """Squared distances from the centre of the reference, and different values of a vector."""
    count = 1.0 + (np.diff(np.sort(events.points, axis=1), axis=1) != 0).sum(axis=1)
    return np.einsum("ij,ij->i", points, points), count


def _thin(points: Floats, most: int) -> Floats:
    """Some of them, evenly, where they are more."""
    return points[np.linspace(0, len(points) - 1, min(len(points), most)).astype(np.int64)]


def _measure_d2(rows: Floats, points: Floats) -> Floats:
    """Squared distances, 0 where rounding makes them negative."""
    d2: Floats = np.einsum("ij,ij->i", rows, rows)[:, None] - 2.0 * (rows @ points.T)
    d2 += np.einsum("ij,ij->i", points, points)
    np.maximum(d2, 0.0, out=d2)
    return d2


def _explain_groups(
    old: Floats, new: Floats, scores: Floats, since: Events, level: float, time: float
) -> Explanation | None:
    """The smallest clear group of the clearest kind of events; ``since`` ends with new."""
    n, m, points = len(old), len(new), np.concatenate([old, new])
    steps = int(2 * np.log2(max(LARGEST_SHARE * len(points) / SMALLEST, 1))) + 1
    sizes = (SMALLEST * 2 ** (np.arange(steps) / 2)).astype(np.int64)
    firsts = _measure_d2(_thin(new, MOST_CENTRES), points)
    centres = points[np.argsort(firsts, axis=1, kind="stable")[:, :N_NEAREST]].mean(axis=1)
    distances = np.vstack([_measure_d2(centres, points), -scores])
    near = np.argsort(distances, axis=1, kind="stable")[:, : sizes[-1]]
    a = np.cumsum(near >= n, axis=1, dtype=np.int64)[:, sizes - 1]
    b = sizes - a
    # that whose neighbours make the centre is one of those since the onset: not counted
    p = compute_rate_p(b, n, np.maximum(a - 1, 0), m - 1, np.full(a.shape, time))
    p = np.where(a * n > b * m, p, 1.0) * 2 * steps
    p[:-1] *= len(centres)
    i = int(p.min(axis=1).argmin())
    j = int((p[i] <= level).argmax())
    group = near[i, : sizes[j]] - len(points) + len(since)
    group = group[group >= 0]
    if p[i, j] > level or not len(group):
        return None
    before, after = float(b[i, j] / n), float(a[i, j] / m)
    core = group[: int(np.ceil(CORE * len(group)))]
    return Explanation(
        "new region" if before <= MOST_OF_NEW else "region",
        (),
        before,
        after,
        LEVEL / level * float(p[i, j]),
        m,
        members=tuple(since.ids[np.sort(core)].tolist()),
        exemplars=tuple(since.ids[group[:N_EXEMPLARS]].tolist()),
    )


def score_novelty(old: Floats, new: Floats) -> Floats:
    """How much events are as the new ones: ridge regression on being new, each event left out."""
    n, m, points = len(old), len(new), np.concatenate([old, new])
    points -= points.mean(axis=0)
    target = np.repeat([-m / (n + m), n / (n + m)], [n, m])
    covariance = points.T @ points
    penalty = RIDGE * np.trace(covariance) / len(covariance) or 1.0  # of equal points
    covariance.flat[:: len(covariance) + 1] += penalty
    smoother = linalg.solve(covariance, points.T, assume_a="pos")
    leverage = np.einsum("ij,ji->i", points, smoother) + 1 / (n + m)
    scores: Floats = (points @ (smoother @ target) - leverage * target) / (1 - leverage)
    return scores


def find_copies(points: Floats) -> Bools:
    """Which rows repeat the commonest one, the first left out; none if they are 2 % at most."""
    values = _label_distinct_rows(points)
    is_same: Bools = values == np.bincount(values).argmax()
    if is_same.sum() <= max(MOST_REPEATED * len(points), 1):
        return np.zeros(len(points), dtype=np.bool_)
    is_same[is_same.argmax()] = False
    return is_same


def split_copies(events: Events, is_whole: bool) -> tuple[Events, bool]:
    """Events of a candidate without the copies of one value, and whether these are a burst.

    Copies that lie evenly among the others are the usual state of the stream. A whole reference
    keeps them, and those without which it is too small.
    """
    is_copy = find_copies(events.points)
    places = (np.flatnonzero(is_copy) + 0.5) / len(events)
    if not len(places):
        return events, False
    is_burst = bool(scipy.stats.kstest(places, "uniform").pvalue <= EVEN_LEVEL)
    kept = events[~is_copy]
    if is_whole and not (is_burst and len(kept) >= MIN_LEFT):
        return events, is_burst
    return kept, is_burst


def report_copies(events: Events, position: int, number: int) -> Alarm:
    """The alarm of a burst of copies while events are collected."""
    copies, n = events[find_copies(events.points)], len(events)
    members, m, onset = tuple(copies.ids.tolist()), len(copies) + 1, int(copies.positions[0])
    sentence = (
        f"One event came {m:,} times around event {onset:,} (detected at {position:,}), among the "
        f"{n:,} that are to be a reference, which leaves copies out. It is '{members[0]}'."
    )
    explanation = Explanation(
        "repeated event", (), 1 / n, m / n, 0.0, n, members=members, exemplars=members[:N_EXEMPLARS]
    )
    return Alarm("alarm", number, position, onset, -1, sentence, CHANNEL, explanation=explanation)
