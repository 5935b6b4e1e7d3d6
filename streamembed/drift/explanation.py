"""Explanation of an alarm: its onset, components, features and events, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from scipy.special import smirnov

from streamembed.drift import geometry_channel
from streamembed.drift.alarm import Alarm
from streamembed.drift.geometry_channel import Shape
from streamembed.drift.monitor_state import (
    CalibratedReference,
    Events,
    MonitorSettings,
    MonitorState,
)
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import MEMORIES
from streamembed.numeric.arrays import Array, Floats

SIGNIFICANCE = 0.05  # of tests that are corrected for their number
N_STRONGEST = 10
LARGEST_LOG = 709.0
LARGEST_SHIFT = 1e6  # deviations; the bound of a shift
MAX_ONSET_CHUNKS = 128  # chunks that are searched for the onset
LOW_COVERAGE = 0.03  # of the reference's coverage
CHANNEL_SENTENCES = {
    "coverage": "events fall where the reference has little mass",
    "coordinates": "events shift within the reference's map, most along {name}",
    "features": "feature means shift",
    "spread": "the distribution of {name} is {more} than in the reference",
    "labels": "the relation between labels and features has changed",
    "spectrum": "the shape of the data has changed (spectrum)",
    "metric": "the directions in which neighbours differ have changed (metric)",
}


@dataclass(frozen=True, slots=True)
class FeatureChange:
    """The change of a feature since the onset.

    Attributes
    ----------
    shift : float
        Of the mean, in standard deviations of the reference; 0 if constant in the reference.
    width_ratio : float
        Standard deviation over that of the reference; 1 if constant in the reference.
    constancy : str
        What a feature that was constant in the reference does now; empty for the others.
    """

    name: str
    shift: float
    width_ratio: float
    p: float
    constancy: str = ""

    def __str__(self) -> str:
        if self.width_ratio == 0:
            return f"'{self.name}' is now constant"
        if self.constancy:
            return f"'{self.name}' {self.constancy}"
        if abs(self.shift) >= 0.1:
            return f"'{self.name}' shifted by {self.shift:+.2g} sd"
        if self.width_ratio > 1.1 or self.width_ratio < 1 / 1.1:
            return f"'{self.name}' is {self.width_ratio:.2g} times as wide"
        return f"'{self.name}' has a different distribution"


def explain_events(
    state: MonitorState, settings: MonitorSettings, index: int, log_run_length: float, means: Floats
) -> Alarm:
    """Build the alarm of an event channel.

    Parameters
    ----------
    index
        Of the strongest statistic.
    means
        Exponential means of all memories at the alarm, shape (3, p).
    """
    assert state.recent is not None
    assert state.watched is not None
    reference = state.watched
    channel, memory, _ = reference.groups.labels[index]
    part = reference.groups.slices[reference.groups.names.index(channel)]
    v = means[[w * CHUNK for w in MEMORIES].index(memory), part]
    recent = state.recent[max(0, len(state.recent) - MAX_ONSET_CHUNKS * CHUNK) :]
    scores = reference.compute_scores(recent)
    null = reference.calibration.null
    chunks = estimate_onset(null.whiten_chunks(scores)[:, part], len(reference.ordered))
    count = min(chunks * CHUNK, state.position - state.began)
    since, scores = recent[len(recent) - count :], scores[len(recent) - count :]
    clipped = np.clip(scores[:, part], null.low[part], null.high[part])
    contributions = (clipped - null.mean[part]) @ (null.whitening[part, part] @ v)
    names = [name for name, _ in list_components(state.names, reference)][part]
    components = rank_shares(names, v**2)
    strongest = int(np.argmax(v**2))
    words = CHANNEL_SENTENCES[channel].format(
        name=_to_words(names[strongest].removeprefix("spread of "), state.names),
        more="wider" if v[strongest] > 0 else "narrower",
    )
    summary = channel, memory, log_run_length, words
    return _build_alarm(state, settings, summary, since, components, contributions, scores[:, 0])


def _to_words(name: str, features: tuple[str, ...]) -> str:
    """The name of a score in a sentence: "component 0"; that of a feature stays as it is."""
    return name if name in features else name.replace("_", " ")


def explain_constants(
    state: MonitorState, settings: MonitorSettings, log_run_length: float
) -> Alarm:
    """Build the alarm of features that are constant in the reference and vary now."""
    assert state.recent is not None
    assert state.watched is not None
    reference = state.watched
    constant = np.flatnonzero(reference.constant)
    value = reference.events.points[0, constant]
    others = state.recent.points[:, constant] != value
    chunks = others.any(axis=1).reshape(-1, CHUNK).any(axis=1)[::-1]
    count = CHUNK * int(np.argmin(np.append(chunks, False)))
    since = state.recent[len(state.recent) - min(count, state.position - state.began) :]
    others = others[len(others) - len(since) :]
    components = rank_shares(
        [state.names[j] for j in constant], others.sum(axis=0).astype(np.float64)
    )
    summary = "features", CHUNK, log_run_length, "features that were constant now vary"
    coverage = reference.map.compute_scores(since.points)[:, 0]
    contributions = others.sum(axis=1).astype(np.float64)
    return _build_alarm(state, settings, summary, since, components, contributions, coverage)


def explain_geometry(
    state: MonitorState, settings: MonitorSettings, index: int, log_run_length: float, now: Shape
) -> Alarm:
    """Build the alarm of a snapshot channel; the change lies in the last two stretches."""
    assert state.recent is not None
    assert state.watched is not None
    assert state.watched.geometry is not None
    reference, own = state.watched, state.watched.geometry.own
    count = min(2 * reference.period, state.position - state.began, len(state.recent))
    since = state.recent[len(state.recent) - count :]
    if index == 0:
        shares = np.abs(now.logs - own.logs)
        components = rank_shares([f"eigenvalue_{k}" for k in range(len(shares))], shares)
    else:
        values, vectors = np.linalg.eig(np.linalg.solve(own.scatter, now.scatter))
        leading = vectors[:, np.abs(np.log(np.maximum(np.abs(values), 1e-12))).argmax()]
        names = list(state.names)
        if reference.map.axes is not None:
            names = [f"feature_axis_{k}" for k in range(len(leading))]
        components = rank_shares(names, np.abs(leading) ** 2)
    coverage = reference.map.compute_scores(since.points)[:, 0]
    channel = geometry_channel.CHANNELS[index]
    summary = channel, 0, log_run_length, CHANNEL_SENTENCES[channel]
    return _build_alarm(state, settings, summary, since, components, -coverage, coverage)


def _build_alarm(
    state: MonitorState,
    settings: MonitorSettings,
    summary: tuple[str, int, float, str],
    since: Events,
    components: tuple[tuple[str, float], ...],
    contributions: Floats,
    coverage: Floats,
) -> Alarm:
    channel, memory, log_run_length, words = summary
    assert state.watched is not None
    reference, first = state.watched, state.position - len(since)
    features = list_feature_changes(state.names, reference.events.points, since.points)
    outside = float((coverage < np.quantile(reference.ordered[:, 0], LOW_COVERAGE)).mean())
    run_length = float(np.exp(min(log_run_length, LARGEST_LOG)))
    return Alarm(
        position=state.position,
        onset=first,
        channel=channel,
        memory=memory,
        run_length=run_length,
        components=components,
        features=tuple((change.name, change.shift, change.p) for change in features),
        events=list_strongest_events(contributions, since.ids, first),
        sentence=write_sentence(state, settings, first, words, run_length, features, outside),
    )


def list_components(
    features: tuple[str, ...], reference: CalibratedReference
) -> list[tuple[str, str]]:
    """Name and channel of every score."""
    components: list[tuple[str, str]] = []
    axes = reference.map.axes
    own = list(features) if axes is None else [f"feature_axis_{k}" for k in range(axes.shape[1])]
    k = reference.map.psi.shape[1]
    plain = ["coverage", *(f"component_{i}" for i in range(k)), *own]
    for channel, size in zip(reference.groups.names, reference.groups.sizes, strict=True):
        names = {
            "coverage": plain[:1],
            "coordinates": plain[1 : 1 + k],
            "features": plain[1 + k :],
            "spread": [f"spread of {name}" for name in plain],
        }.get(channel, [f"label_score_{i}" for i in range(size)])
        components += [(name, channel) for name in names]
    return components


def estimate_onset(z: Floats, n: int) -> int:
    """Chunks since the change, by the maximum of the likelihood ratio, of whitened z, shape (c, p).

    The variance of the difference includes that of the mean of the ``n`` calibration events.
    """
    sums = np.cumsum(z[::-1], axis=0)
    lengths = np.arange(1, len(z) + 1)
    variances = lengths * (1.0 + CHUNK * lengths / n)
    return int(((sums**2).sum(axis=1) / variances).argmax()) + 1


def rank_shares(names: list[str], shares: Floats) -> tuple[tuple[str, float], ...]:
    """Names with their share of the whole, largest first."""
    total = float(shares.sum()) or 1.0
    order = np.argsort(-shares, kind="stable")
    return tuple((names[i], float(shares[i] / total)) for i in order)


def compare_samples(before: Floats, since: Floats) -> tuple[Floats, Floats]:
    """Kolmogorov-Smirnov distance and p of every column, corrected for their number.

    p is twice the one-sided one of a sample of n m / (n + m) events, which is a little too large;
    the correction is that of Benjamini & Hochberg (1995).
    """
    statistics = np.array(
        [_compute_ks_distance(a, b) for a, b in zip(before.T, since.T, strict=True)]
    )
    n, m = len(before), len(since)
    p = np.minimum(1.0, 2.0 * smirnov(max(1, round(n * m / (n + m))), statistics))
    order = np.argsort(-p, kind="stable")
    steps = p[order] * len(p) / np.arange(len(p), 0, -1)
    corrected = np.empty_like(p)
    corrected[order] = np.minimum.accumulate(steps)
    return statistics, corrected


def _compute_ks_distance(a: Array, b: Array) -> float:
    a, b, both = np.sort(a), np.sort(b), np.concatenate([a, b])
    shares = [sample.searchsorted(both, "right") / len(sample) for sample in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


def list_feature_changes(
    names: tuple[str, ...], before: Floats, since: Floats
) -> list[FeatureChange]:
    """Changes of all features, most changed first."""
    statistics, p = compare_samples(before, since)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        varies, varied = (before != before[0]).any(axis=0), (since != since[0]).any(axis=0)
        sd, now = before.std(axis=0), np.where(varied, since.std(axis=0), 0.0)
        differences = since.mean(axis=0) - before.mean(axis=0)
        safe = np.where(varies & (sd > 0), sd, 1.0)
        shifts = np.clip(differences / safe, -LARGEST_SHIFT, LARGEST_SHIFT)
        shifts, width_ratios = np.where(varies, shifts, 0.0), np.where(varies, now / safe, 1.0)
    words = ["", "was constant and now varies", "is constant at a different value"]
    constancy = np.where(varies, 0, np.where(varied, 1, np.where(since[0] == before[0], 0, 2)))
    order = np.argsort(-statistics, kind="stable")
    return [
        FeatureChange(
            names[j],
            float(shifts[j]),
            float(width_ratios[j]),
            float(p[j]),
            words[int(constancy[j])],
        )
        for j in order
    ]


def list_strongest_events(
    contributions: Floats, ids: Array, first: int
) -> tuple[tuple[int | str, int, float], ...]:
    """Id, number in the stream and contribution of the ten largest; ``first`` numbers the first."""
    order = np.argsort(-contributions, kind="stable")[:N_STRONGEST]
    keys = ids.tolist()
    return tuple((keys[i], first + int(i), float(contributions[i])) for i in order)


def tabulate_components(
    names: list[str], channels: list[str], before: Floats, since: Floats, shares: Floats
) -> pa.Table:
    """Compare every component and feature with the reference, with a verdict; by share."""
    statistics, p = compare_samples(before, since)
    then, now = before.mean(axis=0), since.mean(axis=0)
    sd, width_ratios = before.std(axis=0), since.std(axis=0)
    verdicts = []
    for j in range(len(names)):
        scale = sd[j] if (before[:, j] != before[0, j]).any() and sd[j] > 0 else 1.0
        if p[j] > SIGNIFICANCE:
            verdicts.append("as in the reference")
            continue
        shifts = (now[j] - then[j]) / scale
        if abs(shifts) >= 0.1:
            verdicts.append(f"{'higher' if shifts > 0 else 'lower'} by {abs(shifts):.2g} sd")
        elif width_ratios[j] > 1.1 * sd[j]:
            verdicts.append(f"wider, {width_ratios[j] / scale:.2g} times")
        elif width_ratios[j] < sd[j] / 1.1:
            verdicts.append(f"narrower, {width_ratios[j] / scale:.2g} times")
        else:
            verdicts.append("different distribution")
    order = np.argsort(-shares - 1e-9 * statistics, kind="stable")
    columns = {
        "name": names,
        "channel": channels,
        "reference_mean": then,
        "reference_sd": sd,
        "now_mean": now,
        "now_sd": width_ratios,
        "ks": statistics,
        "p_adjusted": p,
        "share": shares,
        "verdict": verdicts,
    }
    return pa.table(columns).take(pa.array(order))


def write_sentence(
    state: MonitorState,
    settings: MonitorSettings,
    first: int,
    words: str,
    run_length: float,
    features: list[FeatureChange],
    outside: float,
) -> str:
    """Write the sentence of an alarm.

    Parameters
    ----------
    first
        The onset.
    words
        What its channel shows.
    outside
        Share of the events since the onset that are below the reference's 3 % coverage.
    """
    rare = f"{run_length:,.0f}" if run_length < 1e7 else f"{run_length:.0e}"
    often = "expected once in " + ("more than 1e+15" if run_length > 1e15 else rare)
    requested = f"requested: one false alarm in {settings.ert:,.0f}"
    parts = [f"{words} ({often} events without drift; {requested})"]
    significant = [change for change in features if change.p <= SIGNIFICANCE]
    if len(constant_now := [change for change in significant if change.width_ratio == 0]) > 1:
        parts.append(
            f"{len(constant_now)} features are now constant, including '{constant_now[0].name}'"
        )
    else:
        parts.append(str(significant[0]) if significant else "no single feature")
    count = state.position - first
    if outside > 2 * LOW_COVERAGE:
        parts.append(
            f"{outside:.0%} of the {count:,} events are below the reference's 3 % coverage quantile"
        )
    since = f"Since about event {first:,} (alarm at {state.position:,})"
    if first == state.began:
        since = (
            f"Since event {first:,} or earlier, when monitoring began (alarm at {state.position:,})"
        )
    text = f"{since}: {'; '.join(parts)}."
    if state.watched is not None and state.watched.dependence.is_noted:
        text += " Events are autocorrelated: this may be a false alarm; see the monitor's notes."
    elif state.recurring and settings.is_immediate(state.position, state.began):
        text += (
            " The previous alarm also came soon after its reference: the stream may keep changing."
        )
    return text
