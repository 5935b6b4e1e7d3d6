"""Why there is an alarm: since when, in which component, feature and events; in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.stats import false_discovery_control, ks_2samp

from streamembed.monitoring import geometry
from streamembed.monitoring.alarm import Alarm
from streamembed.monitoring.geometry import Shape
from streamembed.monitoring.reference import CHUNK
from streamembed.monitoring.running import MEMORIES
from streamembed.monitoring.watch import Events, Watched
from streamembed.numeric.arrays import Array, Floats

__all__ = ["Seen", "component_names", "of_events", "of_geometry", "onset", "table"]

LEVEL = 0.05  # of tests that are corrected for their number
LOUDEST = 10
LONGEST = 128  # chunks that an onset is looked for in
LOW = 0.03  # of the reference's coverage
CHANNEL_WORDS = {
    "coverage": "events fall where the reference has little mass",
    "coordinates": "events move within the reference's map",
    "features": "the mean of the features moves",
    "spread": "scores lie farther from the middle of the reference's, or closer to it",
    "labels": "labels go with other features than in the reference",
    "spectrum": "the shape of the data is another (their spectrum)",
    "metric": "neighbours differ in other directions (their metric)",
}


@dataclass(frozen=True, slots=True, eq=False)
class Seen:
    """What was there when the alarm was raised.

    Attributes
    ----------
    position : int
        Events of the stream.
    began : int
        Event with which the watching began.
    recurring : bool
        Whether the last alarm came as soon as its reference was there, too.
    names : tuple of str
        The features.
    recent : Events or None
        The last events, whole chunks.
    """

    position: int
    began: int
    recurring: bool
    names: tuple[str, ...]
    recent: Events | None


def of_events(
    seen: Seen, against: Watched, which: int, log_run_length: float, means: Floats
) -> Alarm:
    """The alarm of an event channel.

    Parameters
    ----------
    which
        Number of the loudest statistic.
    means
        The exponential means of all memories when it was raised, shape (3, p).
    """
    assert seen.recent is not None
    channel, memory, _ = against.groups.labels[which]
    part = against.groups.slices[against.groups.names.index(channel)]
    v = means[[w * CHUNK for w in MEMORIES].index(memory), part]
    recent = seen.recent[max(0, len(seen.recent) - LONGEST * CHUNK) :]
    scores = against.scores(recent)
    null = against.calibration.null
    chunks = onset(null.whitened(scores)[:, part], len(against.ordered))
    count = min(chunks * CHUNK, seen.position - seen.began)
    since, scores = recent[len(recent) - count :], scores[len(recent) - count :]
    clipped = np.clip(scores[:, part], null.low[part], null.high[part])
    contributions = (clipped - null.mean[part]) @ (null.whitening[part, part] @ v)
    names = [name for name, _ in component_names(seen.names, against)][part]
    return _alarm(
        seen,
        against,
        (channel, memory, log_run_length),
        since,
        ranked(names, v**2),
        contributions,
        scores[:, 0],
    )


def of_geometry(
    seen: Seen, against: Watched, which: int, log_run_length: float, now: Shape
) -> Alarm:
    """The alarm of a snapshot channel; the change lies in the last two stretches."""
    assert seen.recent is not None
    assert against.geometry is not None
    own = against.geometry.own
    count = min(2 * against.period, seen.position - seen.began, len(seen.recent))
    since = seen.recent[len(seen.recent) - count :]
    if which == 0:
        shares = np.abs(now.logs - own.logs)
        components = ranked([f"eigenvalue {k + 1}" for k in range(len(shares))], shares)
    else:
        values, vectors = np.linalg.eig(np.linalg.solve(own.scatter, now.scatter))
        leading = vectors[:, np.abs(np.log(np.maximum(np.abs(values), 1e-12))).argmax()]
        is_plain = against.map.axes is None
        names = list(seen.names) if is_plain else [f"axis {k + 1}" for k in range(len(leading))]
        components = ranked(names, np.abs(leading) ** 2)
    coverage = against.map.scores(since.points)[:, 0]
    told = geometry.CHANNELS[which], 0, log_run_length
    return _alarm(seen, against, told, since, components, -coverage, coverage)


def _alarm(
    seen: Seen,
    against: Watched,
    told: tuple[str, int, float],
    since: Events,
    components: tuple[tuple[str, float], ...],
    contributions: Floats,
    coverage: Floats,
) -> Alarm:
    channel, memory, log_run_length = told
    first = seen.position - len(since)
    features = changed(seen.names, against.events.points, since.points)
    outside = float((coverage < np.quantile(against.ordered[:, 0], LOW)).mean())
    with np.errstate(over="ignore"):
        run_length = float(np.exp(log_run_length))
    words = sentence(seen.position, first, channel, run_length, features, outside, seen.recurring)
    return Alarm(
        seen.position,
        first,
        channel,
        memory,
        run_length,
        components,
        features,
        loudest(contributions, since.ids, first),
        words,
    )


def component_names(features: tuple[str, ...], against: Watched) -> list[tuple[str, str]]:
    """Name and channel of every score."""
    found: list[tuple[str, str]] = []
    axes = against.map.axes
    own = list(features) if axes is None else [f"axis {k + 1}" for k in range(axes.shape[1])]
    k = against.map.psi.shape[1]
    plain = ["coverage", *(f"coordinate {i + 1}" for i in range(k)), *own]
    for channel, size in zip(against.groups.names, against.groups.sizes, strict=True):
        names = {
            "coverage": plain[:1],
            "coordinates": plain[1 : 1 + k],
            "features": plain[1 + k :],
            "spread": [f"spread of {name}" for name in plain],
        }.get(channel, [f"label score {i + 1}" for i in range(size)])
        found += [(name, channel) for name in names]
    return found


def onset(z: Floats, n: int) -> int:
    """Chunks of z, shape (c, p), whitened, since the change: where the likelihood ratio is most.

    Their mean is off by what that of the ``n`` events that calibrated is off, too.
    """
    sums = np.cumsum(z[::-1], axis=0)
    lengths = np.arange(1, len(z) + 1)
    variances = lengths * (1.0 + CHUNK * lengths / n)
    return int(((sums**2).sum(axis=1) / variances).argmax()) + 1


def ranked(names: list[str], shares: Floats) -> tuple[tuple[str, float], ...]:
    """Names with their share of the whole, largest first."""
    total = float(shares.sum()) or 1.0
    order = np.argsort(-shares, kind="stable")
    return tuple((names[i], float(shares[i] / total)) for i in order)


def compared(before: Floats, since: Floats) -> tuple[Floats, Floats]:
    """Kolmogorov-Smirnov distance and corrected p of every column."""
    found = [ks_2samp(before[:, j], since[:, j], method="asymp") for j in range(before.shape[1])]
    statistics = np.array([float(one.statistic) for one in found])
    p = np.array([min(max(float(one.pvalue), 0.0), 1.0) for one in found])
    return statistics, np.asarray(false_discovery_control(p, method="bh"))


def changed(
    names: tuple[str, ...], before: Floats, since: Floats
) -> tuple[tuple[str, float, float], ...]:
    """Features, most changed first, with how far the mean moved in deviations, and p."""
    statistics, p = compared(before, since)
    with np.errstate(over="ignore"):
        sd = before.std(axis=0)
        moved = (since.mean(axis=0) - before.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    order = np.argsort(-statistics, kind="stable")
    return tuple((names[j], float(moved[j]), float(p[j])) for j in order)


def loudest(
    contributions: Floats, ids: Array, first: int
) -> tuple[tuple[int | str, int, float], ...]:
    """Id, number in the stream and contribution of the ten largest; ``first`` is the first's."""
    order = np.argsort(-contributions, kind="stable")[:LOUDEST]
    keys = ids.tolist()
    return tuple((keys[i], first + int(i), float(contributions[i])) for i in order)


def table(
    names: list[str], channels: list[str], before: Floats, since: Floats, shares: Floats
) -> pa.Table:
    """Every component and feature, then and now, with a verdict in words; by share."""
    statistics, p = compared(before, since)
    then, now = before.mean(axis=0), since.mean(axis=0)
    sd, width = before.std(axis=0), since.std(axis=0)
    verdicts = []
    for j in range(len(names)):
        scale = sd[j] or 1.0
        if p[j] > LEVEL:
            verdicts.append("as in the reference")
            continue
        moved = (now[j] - then[j]) / scale
        if abs(moved) >= 0.1:
            verdicts.append(f"{'higher' if moved > 0 else 'lower'} by {abs(moved):.2g} sd")
        elif width[j] > 1.1 * sd[j]:
            verdicts.append(f"wider, {width[j] / scale:.2g} times")
        elif width[j] < sd[j] / 1.1:
            verdicts.append(f"narrower, {width[j] / scale:.2g} times")
        else:
            verdicts.append("another shape")
    order = np.argsort(-shares - 1e-9 * statistics, kind="stable")
    columns = {
        "name": names,
        "channel": channels,
        "reference_mean": then,
        "reference_sd": sd,
        "now_mean": now,
        "now_sd": width,
        "ks": statistics,
        "p_adjusted": p,
        "share": shares,
        "verdict": verdicts,
    }
    return pa.table(columns).take(pa.array(order))


def sentence(
    position: int,
    since: int,
    channel: str,
    run_length: float,
    features: tuple[tuple[str, float, float], ...],
    outside: float,
    recurring: bool,
) -> str:
    """The alarm in words; ``outside`` is the share of events below the reference's 3 % coverage."""
    rare = f"once in {run_length:,.0f}" if run_length < 1e7 else f"once in {run_length:.0e}"
    if run_length > 1e15:
        rare = "less than once in 1e+15"
    parts = [f"{CHANNEL_WORDS[channel]} ({rare} events without drift)"]
    sure = [one for one in features if one[2] <= LEVEL]
    if sure:
        name, moved, _ = sure[0]
        parts.append(
            f"'{name}' moved by {moved:+.2g} sd"
            if abs(moved) >= 0.1
            else f"'{name}' is spread otherwise"
        )
    else:
        parts.append("no feature alone")
    if outside > 0.06:
        parts.append(f"{outside:.0%} of events since then lie below the reference's 3 % coverage")
    text = f"Since about event {since:,} (alarm at {position:,}): {'; '.join(parts)}."
    if recurring:
        text += " This is not a stationary stream: alarms recur with every reference."
    return text
