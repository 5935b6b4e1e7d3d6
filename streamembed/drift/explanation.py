"""Explanation of an alarm: its onset, components, features and events, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from scipy.special import smirnov

from streamembed.drift import geometry_channel
from streamembed.drift.alarm import Alarm, Explanation
from streamembed.drift.change_tests import LEVEL, FeatureTests, ReferenceSample
from streamembed.drift.geometry_channel import Shape
from streamembed.drift.label_tests import explain_labels
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
REVISIONS = (50, 200)  # events behind an alarm, at which it is explained again
CHANNEL_SENTENCES = {
    "coverage": "events fall where the reference has little mass",
    "coordinates": "events shift within the reference's map, most along {name}",
    "features": "feature means shift",
    "spread": "the distribution of {name} is {more} than in the reference",
    "labels": "the relation between labels and features has changed",
    "spectrum": "the shape of the data has changed (spectrum)",
    "metric": "the directions in which neighbours differ have changed (metric)",
    "pairs": "the correlation of a pair of features has changed (pairs)",
}


@dataclass(frozen=True, slots=True)
class _Summary:
    """What raised an alarm."""

    channel: str
    memory: int
    log_run_length: float
    words: str


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
    chunk = reference.chunk
    count = min(len(state.recent), state.position - state.began) // chunk
    count = min(count, MAX_ONSET_CHUNKS) * chunk
    recent = state.recent[len(state.recent) - count :]
    scores = reference.compute_scores(recent)
    null = reference.calibration.null
    z = null.whiten_chunks(scores, chunk)[:, part]
    count = estimate_onset(z, reference.rows, chunk // reference.dependence.block) * chunk
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
    summary = _Summary(channel, memory // CHUNK * chunk, log_run_length, words)
    return _build_alarm(state, settings, summary, since, components, contributions)


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
    count = min(len(state.recent), state.position - state.began) // reference.chunk
    recent = state.recent[len(state.recent) - count * reference.chunk :]
    others = recent.points[:, constant] != value
    chunks = others.any(axis=1).reshape(-1, reference.chunk).any(axis=1)[::-1]
    count = reference.chunk * int(np.argmin(np.append(chunks, False)))
    since, others = recent[len(recent) - count :], others[len(others) - count :]
    components = rank_shares(
        [state.names[j] for j in constant], others.sum(axis=0).astype(np.float64)
    )
    words = "features that were constant now vary"
    summary = _Summary("features", reference.chunk, log_run_length, words)
    contributions = others.sum(axis=1).astype(np.float64)
    return _build_alarm(state, settings, summary, since, components, contributions)


def explain_geometry(
    state: MonitorState, settings: MonitorSettings, index: int, log_run_length: float, now: Shape
) -> Alarm:
    """Build the alarm of a snapshot channel; the change lies in the last two stretches."""
    assert state.recent is not None
    assert state.watched is not None
    assert state.watched.geometry is not None
    reference, own = state.watched, state.watched.geometry.own
    count = min(2 * reference.interval, state.position - state.began, len(state.recent))
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
    coverage = reference.map.compute_scores(reference.prepare(since))[:, 0]
    channel = geometry_channel.CHANNELS[index]
    summary = _Summary(channel, 0, log_run_length, CHANNEL_SENTENCES[channel])
    return _build_alarm(state, settings, summary, since, components, -coverage)


def explain_pairs(
    state: MonitorState, settings: MonitorSettings, log_run_length: float, z: Floats
) -> Alarm:
    """Build the alarm of the channel of pairs; ``z`` of each pair, shape (d, d)."""
    assert state.recent is not None
    assert state.watched is not None
    reference = state.watched
    count = min(reference.interval, state.position - state.began, len(state.recent))
    since = state.recent[len(state.recent) - count :]
    first, second = np.triu_indices(len(z), 1)
    largest = np.argsort(-np.abs(z[first, second]), kind="stable")[:N_STRONGEST]
    names = [f"{state.names[first[i]]} and {state.names[second[i]]}" for i in largest]
    components = rank_shares(names, z[first, second][largest] ** 2)
    coverage = reference.map.compute_scores(reference.prepare(since))[:, 0]
    summary = _Summary("pairs", 0, log_run_length, CHANNEL_SENTENCES["pairs"])
    return _build_alarm(state, settings, summary, since, components, -coverage)


def _build_alarm(
    state: MonitorState,
    settings: MonitorSettings,
    summary: _Summary,
    since: Events,
    components: tuple[tuple[str, float], ...],
    contributions: Floats,
) -> Alarm:
    assert state.watched is not None
    first = int(since.positions[0])
    tests = _test_features(state, state.watched, first, state.began, summary.channel)
    run_length = float(np.exp(min(summary.log_run_length, LARGEST_LOG)))
    alarm = Alarm(
        kind="alarm",
        number=state.alarmed,
        position=state.position,
        onset=first,
        reference=state.watched.number,
        sentence="",
        channel=summary.channel,
        memory=summary.memory,
        run_length=run_length,
        explanation=tests.explanation,
        components=components,
        features=_list_features(state.names, tests),
        events=list_strongest_events(contributions, since.ids, first),
    )
    outside = _measure_outside(state.watched, since)
    text = _write_start(alarm, state.began, summary.words, settings.ert)
    text += f"; {describe(tests.explanation)}{_count_others(tests)}{outside}."
    if not state.watched.dependence.is_modelled:
        text += " Events are autocorrelated: this may be a false alarm; see the monitor's notes."
    elif state.recurring and settings.is_immediate(state.position, state.began):
        text += (
            " The previous alarm also came soon after its reference: the stream may keep changing."
        )
    return replace(alarm, sentence=text)


def explain_again(state: MonitorState, alarm: Alarm, reference: CalibratedReference) -> Alarm:
    """The alarm explained from more events, against the reference that was left."""
    assert state.recent is not None
    began = int(reference.events.positions[-1]) + 1
    tests = _test_features(state, reference, alarm.onset, began, alarm.channel)
    text = (
        f"Since about event {alarm.onset:,} (alarm at {alarm.position:,}, explained again at "
        f"{state.position:,}): {describe(tests.explanation)}{_count_others(tests)}."
    )
    return replace(
        alarm,
        kind="explained",
        revision=alarm.revision + 1,
        explanation=tests.explanation,
        features=_list_features(state.names, tests),
        sentence=text,
    )


def _test_features(
    state: MonitorState, reference: CalibratedReference, onset: int, began: int, channel: str
) -> FeatureTests:
    """Test the features of the last events, none from before the monitoring began; and labels.

    Labels explain an alarm of their channel where they are clearer than the features.
    """
    assert state.recent is not None
    recent = state.recent[int(np.searchsorted(state.recent.positions, began)) :]
    since = int((recent.positions >= onset).sum())
    before = _scale(reference, reference.prepare(reference.events))
    points = _scale(reference, reference.prepare(recent))
    tests = ReferenceSample(before).explain(state.names, points, since)
    if channel != "labels":
        return tests
    own = explain_labels(
        state.names,
        state.known,
        (before, reference.events.labels),
        (points[len(points) - since :], recent.labels[len(points) - since :]),
        reference.dependence.integrated,
    )
    if own is None or (tests.explanation.kind and tests.explanation.p <= own.p):
        return tests
    return replace(tests, explanation=own)


def _scale(reference: CalibratedReference, points: Floats) -> Floats:
    """Features in deviations of the map, clipped; those of two values or one stay as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (points - reference.map.mean) / reference.map.sd
    return np.clip(np.nan_to_num(scaled), -LARGEST_SHIFT, LARGEST_SHIFT)


def describe(explanation: Explanation) -> str:
    """The explanation in words."""
    if explanation.kind == "constant":
        return _describe_constants(explanation)
    if not explanation.kind:
        return "no single feature, pair or common change can be named yet"
    name = "' and '".join(explanation.names)
    if explanation.kind == "mean":
        words = f"'{name}' shifted by {explanation.after:+.2g} sd"
    elif explanation.kind == "spread":
        words = f"'{name}' is {explanation.after:.2g} times as wide"
    elif explanation.kind == "rate":
        words = (
            f"'{name}' has its higher value in {explanation.after:.2g} of the events "
            f"({explanation.before:.2g} in the reference)"
        )
    elif explanation.kind == "pair":
        before, after = explanation.before, explanation.after
        digits = 2 if abs(after - before) >= 0.01 else 4
        change = f"{before:+.{digits}f} to {after:+.{digits}f}"
        words = f"the correlation of '{name}' went from {change}"
    elif explanation.kind == "label share":
        words = (
            f"label '{explanation.labels[0]}' has {explanation.after:.2g} of the events "
            f"({explanation.before:.2g} in the reference)"
        )
    elif explanation.kind == "label mean":
        words = (
            f"'{name}' shifted by {explanation.after:+.2g} sd for label '{explanation.labels[0]}'"
        )
    elif explanation.before:
        words = f"most features are {explanation.after:.2g} times as wide, in the median"
    else:
        words = f"most features shifted, by {explanation.after:.2g} sd in the median"
    return f"{words} (as far as {explanation.events:,} events tell)"


def _count_others(tests: FeatureTests) -> str:
    """How many features, or labels, have changed beside the one that is named."""
    explanation, what = tests.explanation, "feature"
    others = int((tests.p <= LEVEL).sum()) - 1
    if explanation.labels:
        others, what = len(explanation.labels) - 1, "label"
    elif explanation.kind not in ("mean", "spread", "rate"):
        return ""
    if others < 1:
        return ""
    return f"; {others} other {what}{' has' if others == 1 else 's have'} changed, too"


def _describe_constants(explanation: Explanation) -> str:
    name, several = explanation.names[0], len(explanation.names) > 1
    if explanation.before:
        words = "are now constant" if several else "is now constant"
    elif explanation.after:
        words = "were constant and now vary" if several else "was constant and now varies"
    else:
        words = (
            "are constant at different values" if several else "is constant at a different value"
        )
    if several:
        return f"{len(explanation.names)} features {words}, including '{name}'"
    return f"'{name}' {words}"


def _list_features(
    names: tuple[str, ...], tests: FeatureTests
) -> tuple[tuple[str, float, float], ...]:
    order = np.lexsort((-np.abs(tests.shifts), tests.p))
    return tuple((names[j], float(tests.shifts[j]), float(tests.p[j])) for j in order)


def _measure_outside(reference: CalibratedReference, since: Events) -> str:
    """How many of the events are below the reference's 3 % coverage, where these are many."""
    coverage = reference.map.compute_scores(reference.prepare(since))[:, 0]
    outside = float((coverage < np.quantile(reference.ordered[:, 0], LOW_COVERAGE)).mean())
    if outside <= 2 * LOW_COVERAGE:
        return ""
    return (
        f"; {outside:.0%} of the {len(since):,} events are below the reference's 3 % coverage "
        "quantile"
    )


def _write_start(alarm: Alarm, began: int, words: str, ert: float) -> str:
    """Since when, what the channel shows, and how rare that is."""
    rare = f"{alarm.run_length:,.0f}" if alarm.run_length < 1e7 else f"{alarm.run_length:.0e}"
    often = "expected once in " + ("more than 1e+15" if alarm.run_length > 1e15 else rare)
    since = f"Since about event {alarm.onset:,} (alarm at {alarm.position:,})"
    if alarm.onset == began:
        since = (
            f"Since event {began:,} or earlier, when monitoring began (alarm at {alarm.position:,})"
        )
    requested = f"requested: one false alarm in {ert:,.0f}"
    return f"{since}: {words} ({often} events without drift; {requested})"


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


def estimate_onset(z: Floats, n: int, rows: int = CHUNK) -> int:
    """Chunks since the change, by the maximum of the likelihood ratio, of whitened z, shape (c, p).

    The variance of the difference includes that of the mean of the ``n`` calibration events, or
    means of blocks, of which a chunk has ``rows``.
    """
    sums = np.cumsum(z[::-1], axis=0)
    lengths = np.arange(1, len(z) + 1)
    variances = lengths * (1.0 + rows * lengths / n)
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
