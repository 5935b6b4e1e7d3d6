"""Why there is an alarm: since when, in which component, feature and events; in words."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import smirnov

from streamembed.drift import geometry_channel
from streamembed.drift.alarm import Alarm
from streamembed.drift.geometry_channel import Shape
from streamembed.drift.monitor_state import Events, Watched
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import MEMORIES
from streamembed.numeric.arrays import Array, Floats

__all__ = ["Seen", "component_names", "of_constants", "of_events", "of_geometry", "onset", "table"]

LEVEL = 0.05  # of tests that are corrected for their number
LOUDEST = 10
LARGEST_LOG = 709.0
LARGEST_SIZE = 1e6  # deviations that a mean can move by
LONGEST = 128  # chunks that an onset is looked for in
LOW = 0.03  # of the reference's coverage
CHANNEL_WORDS = {
    "coverage": "events fall where the reference has little mass",
    "coordinates": "events move within the reference's map, most along {name}",
    "features": "means of features move",
    "spread": "{name} is spread {more} than in the reference",
    "labels": "labels go with other features than in the reference",
    "spectrum": "the shape of the data is another (their spectrum)",
    "metric": "neighbours differ in other directions (their metric)",
}


@dataclass(frozen=True, slots=True)
class Change:
    """A feature, before and since.

    Attributes
    ----------
    name : str
    moved : float
        Of its mean, in deviations of the reference; 0 of one that never varied.
    width : float
        Deviation by that of the reference; 1 of one that never varied.
    p : float
    woken : str
        What one that never varied does now; empty for the others.
    """

    name: str
    moved: float
    width: float
    p: float
    woken: str = ""

    def __str__(self) -> str:
        if self.width == 0:
            return f"'{self.name}' is constant now"
        if self.woken:
            return f"'{self.name}' {self.woken}"
        if abs(self.moved) >= 0.1:
            return f"'{self.name}' moved by {self.moved:+.2g} sd"
        if self.width > 1.1 or self.width < 1 / 1.1:
            return f"'{self.name}' is {self.width:.2g} times as wide"
        return f"'{self.name}' has another shape"


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
    ert : float
        What was asked for.
    is_dependent : bool
        Whether the reference has the note on autocorrelation.
    """

    position: int
    began: int
    recurring: bool
    names: tuple[str, ...]
    recent: Events | None
    ert: float
    is_dependent: bool


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
    components = ranked(names, v**2)
    loud = int(np.argmax(v**2))
    words = CHANNEL_WORDS[channel].format(
        name=names[loud].removeprefix("spread of "), more="wider" if v[loud] > 0 else "narrower"
    )
    told = channel, memory, log_run_length, words
    return _alarm(seen, against, told, since, components, contributions, scores[:, 0])


def of_constants(seen: Seen, against: Watched, log_run_length: float) -> Alarm:
    """The alarm of features that never changed in the reference, and do now."""
    assert seen.recent is not None
    constant = np.flatnonzero(against.constant)
    value = against.events.points[0, constant]
    others = seen.recent.points[:, constant] != value
    chunks = others.any(axis=1).reshape(-1, CHUNK).any(axis=1)[::-1]
    count = CHUNK * int(np.argmin(np.append(chunks, False)))
    since = seen.recent[len(seen.recent) - min(count, seen.position - seen.began) :]
    others = others[len(others) - len(since) :]
    components = ranked([seen.names[j] for j in constant], others.sum(axis=0).astype(np.float64))
    told = "features", CHUNK, log_run_length, "features change that never did"
    coverage = against.map.scores(since.points)[:, 0]
    contributions = others.sum(axis=1).astype(np.float64)
    return _alarm(seen, against, told, since, components, contributions, coverage)


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
    channel = geometry_channel.CHANNELS[which]
    told = channel, 0, log_run_length, CHANNEL_WORDS[channel]
    return _alarm(seen, against, told, since, components, -coverage, coverage)


def _alarm(
    seen: Seen,
    against: Watched,
    told: tuple[str, int, float, str],
    since: Events,
    components: tuple[tuple[str, float], ...],
    contributions: Floats,
    coverage: Floats,
) -> Alarm:
    channel, memory, log_run_length, words = told
    first = seen.position - len(since)
    features = changed(seen.names, against.events.points, since.points)
    outside = float((coverage < np.quantile(against.ordered[:, 0], LOW)).mean())
    run_length = float(np.exp(min(log_run_length, LARGEST_LOG)))
    return Alarm(
        seen.position,
        first,
        channel,
        memory,
        run_length,
        components,
        tuple((one.name, one.moved, one.p) for one in features),
        loudest(contributions, since.ids, first),
        sentence(seen, first, words, run_length, features, outside),
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
    """Kolmogorov-Smirnov distance and p of every column, corrected for their number.

    p is twice the one-sided one of a sample of n m / (n + m) events, which is a little too large;
    the correction is that of Benjamini & Hochberg (1995).
    """
    statistics = np.array([_apart(a, b) for a, b in zip(before.T, since.T, strict=True)])
    n, m = len(before), len(since)
    p = np.minimum(1.0, 2.0 * smirnov(max(1, round(n * m / (n + m))), statistics))
    order = np.argsort(-p, kind="stable")
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum.accumulate(steps)
    return statistics, corrected


def _apart(a: Array, b: Array) -> float:
    """Largest distance of two empirical distribution functions."""
    a, b, both = np.sort(a), np.sort(b), np.concatenate([a, b])
    shares = [one.searchsorted(both, "right") / len(one) for one in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def changed(names: tuple[str, ...], before: Floats, since: Floats) -> list[Change]:
    """Features, most changed first."""
    statistics, p = compared(before, since)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        varies, varied = (before != before[0]).any(axis=0), (since != since[0]).any(axis=0)
        sd, now = before.std(axis=0), np.where(varied, since.std(axis=0), 0.0)
        gone = since.mean(axis=0) - before.mean(axis=0)
        safe = np.where(varies & (sd > 0), sd, 1.0)
        moved = np.clip(gone / safe, -LARGEST_SIZE, LARGEST_SIZE)
        moved, width = np.where(varies, moved, 0.0), np.where(varies, now / safe, 1.0)
    words = ["", "was constant and is not now", "is constant at another value"]
    woken = np.where(varies, 0, np.where(varied, 1, np.where(since[0] == before[0], 0, 2)))
    order = np.argsort(-statistics, kind="stable")
    return [
        Change(names[j], float(moved[j]), float(width[j]), float(p[j]), words[int(woken[j])])
        for j in order
    ]


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
        scale = sd[j] if (before[:, j] != before[0, j]).any() and sd[j] > 0 else 1.0
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
    seen: Seen,
    first: int,
    words: str,
    run_length: float,
    features: list[Change],
    outside: float,
) -> str:
    """The alarm in words.

    Parameters
    ----------
    first
        The onset.
    words
        What its channel sees.
    outside
        Share of the events since then that are below the reference's 3 % coverage.
    """
    rare = f"{run_length:,.0f}" if run_length < 1e7 else f"{run_length:.0e}"
    often = "once in " + ("more than 1e+15" if run_length > 1e15 else rare)
    asked = f"asked: one false alarm in {seen.ert:,.0f}"
    parts = [f"{words} (alone {often} events without drift; {asked})"]
    sure = [one for one in features if one.p <= LEVEL]
    if len(still := [one for one in sure if one.width == 0]) > 1:
        parts.append(f"{len(still)} features are constant now, '{still[0].name}' among them")
    else:
        parts.append(str(sure[0]) if sure else "no feature alone")
    count = seen.position - first
    if outside > 2 * LOW:
        parts.append(
            f"{outside:.0%} of the {count:,} events lie below the reference's 3 % coverage"
        )
    since = f"Since about event {first:,} (alarm at {seen.position:,})"
    if first == seen.began:
        since = (
            f"Since event {first:,} at the latest, where the watching began (alarm at "
            f"{seen.position:,})"
        )
    text = f"{since}: {'; '.join(parts)}."
    if seen.is_dependent:
        text += " Events are autocorrelated: this may be a false alarm, see the monitor's notes."
    elif seen.recurring:
        text += (
            " The alarm before it also came soon after its reference: the stream may keep changing."
        )
    return text
