"""Explanation of an alarm: its onset, components, features and events, and a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from streamembed.drift.alarm import Alarm, Explanation
from streamembed.drift.change_tests import LEVEL, FeatureTests, ReferenceSample
from streamembed.drift.label_tests import explain_labels
from streamembed.drift.monitor_state import (
    CalibratedReference,
    Events,
    MonitorSettings,
    MonitorState,
)
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import MEMORIES
from streamembed.numeric.arrays import Array, Floats, Ints

N_STRONGEST = 10
LARGEST_RUN_LENGTH = 1e3  # times ``ert``: a reference cannot show more
LARGEST_SHIFT = 1e6  # deviations; the bound of a shift
MAX_ONSET_CHUNKS = 128  # chunks that are searched for the onset
LOW_COVERAGE = 0.03  # of the reference's coverage
MOST_OUTLIERS = 0.03  # of the events since the onset
REVISIONS = (50, 200)  # events behind an alarm, at which it is explained again
CHANNEL_SENTENCES = {
    "coverage": "Events fall where the reference has few",
    "coordinates": "Events move within the map of the reference, most along {name}",
    "features": "Means of features shift",
    "spread": "The distribution of {name} is {more} than in the reference",
    "labels": "The relation between labels and features changes",
    "pairs": "The correlation of a pair of features changes",
    "constant": "Features that were constant vary",
}


@dataclass(frozen=True, slots=True)
class _Summary:
    """What raised an alarm."""

    channel: str
    memory: int
    log_run_length: float
    words: str


def explain_events(
    state: MonitorState,
    settings: MonitorSettings,
    index: int,
    log_run_length: float,
    means: Floats,
    carriers: int,
) -> Alarm:
    """Build the alarm of an event channel.

    Parameters
    ----------
    index
        Of the strongest statistic.
    means
        Exponential means of all memories at the alarm, shape (3, p).
    carriers
        How few events carry it; see `influence.find_carriers`.
    """
    assert state.recent is not None
    assert state.watching is not None
    reference, began = state.watching.reference, state.watching.began
    channel, memory, _ = reference.groups.labels[index]
    part = reference.groups.slices[reference.groups.names.index(channel)]
    v = means[[w * CHUNK for w in MEMORIES].index(memory), part]
    chunk = reference.chunk
    count = min(len(state.recent), state.position - began) // chunk
    count = min(count, MAX_ONSET_CHUNKS) * chunk
    recent = state.recent[len(state.recent) - count :]
    scores = reference.compute_scores(recent)
    null = reference.calibration.null
    z = null.whiten_chunks(scores, chunk)[:, part]
    count = estimate_onset(z, reference.rows, chunk // reference.dependence.block) * chunk
    since, scores = recent[len(recent) - count :], scores[len(recent) - count :]
    clipped = np.clip(scores[:, part], null.low[part], null.high[part])
    contributions = (clipped - null.mean[part]) @ (null.whitening[part, part] @ v)
    names = _list_components(state.names, reference)[part]
    components = rank_shares(names, v**2)
    strongest = int(np.argmax(v**2))
    words = CHANNEL_SENTENCES[channel].format(
        name=_to_words(names[strongest].removeprefix("spread of "), state.names),
        more="wider" if v[strongest] > 0 else "narrower",
    )
    summary = _Summary(channel, memory // CHUNK * chunk, log_run_length, words)
    return _build_alarm(state, settings, summary, since, components, contributions, carriers)


def _to_words(name: str, features: tuple[str, ...]) -> str:
    """The name of a score in a sentence: "component 0"; that of a feature stays as it is."""
    return name if name in features else name.replace("_", " ")


def explain_constants(
    state: MonitorState, settings: MonitorSettings, log_run_length: float
) -> Alarm:
    """Build the alarm of features that are constant in the reference and vary now."""
    assert state.recent is not None
    assert state.watching is not None
    reference, began = state.watching.reference, state.watching.began
    constant = np.flatnonzero(reference.constant)
    value = reference.events.points[0, constant]
    count = min(len(state.recent), state.position - began) // reference.chunk
    recent = state.recent[len(state.recent) - count * reference.chunk :]
    others = recent.points[:, constant] != value
    chunks = others.any(axis=1).reshape(-1, reference.chunk).any(axis=1)[::-1]
    count = reference.chunk * int(np.argmin(np.append(chunks, False)))
    since, others = recent[len(recent) - count :], others[len(others) - count :]
    components = rank_shares(
        [state.names[j] for j in constant], others.sum(axis=0).astype(np.float64)
    )
    words = CHANNEL_SENTENCES["constant"]
    summary = _Summary("features", reference.chunk, log_run_length, words)
    contributions = others.sum(axis=1).astype(np.float64)
    return _build_alarm(state, settings, summary, since, components, contributions)


def explain_pairs(
    state: MonitorState, settings: MonitorSettings, log_run_length: float, pairs: Ints, z: Floats
) -> Alarm:
    """Build the alarm of the channel of pairs: features, (2, q), and ``z`` of each pair."""
    assert state.recent is not None
    assert state.watching is not None
    reference, began = state.watching.reference, state.watching.began
    count = min(reference.interval, state.position - began, len(state.recent))
    since = state.recent[len(state.recent) - count :]
    largest = np.argsort(-np.abs(z), kind="stable")[:N_STRONGEST]
    names = [f"{state.names[i]} and {state.names[j]}" for i, j in pairs[:, largest].T]
    components = rank_shares(names, z[largest] ** 2)
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
    carriers: int = 0,
) -> Alarm:
    """The alarm; where few events carry it, and nothing else explains it, they are outliers."""
    assert state.watching is not None
    reference, first = state.watching.reference, int(since.positions[0])
    began, events = state.watching.began, list_strongest_events(contributions, since.ids, first)
    tests = _test_features(state, reference, first, began, summary.channel)
    most = min(len(events), int(MOST_OUTLIERS * len(since)))
    for count in range(carriers, most + 1) if carriers else ():
        left_out = [number for _, number, _ in events[:count]]
        others = _test_features(state, reference, first, began, summary.channel, left_out)
        if not others.explanation.kind:
            own = Explanation("outliers", (), 0.0, 0.0, 1.0, count)
            tests = replace(others, explanation=own)
            break
    largest = LARGEST_RUN_LENGTH * settings.ert
    run_length = float(np.exp(min(summary.log_run_length, np.log(largest))))
    alarm = Alarm(
        kind="alarm",
        number=state.next_number,
        position=state.position,
        onset=first,
        reference=reference.number,
        sentence="",
        channel=summary.channel,
        memory=summary.memory,
        run_length=run_length,
        explanation=tests.explanation,
        components=components,
        features=_list_features(state.names, tests),
        events=events,
    )
    often = "less than once in" if summary.log_run_length >= np.log(largest) else "once in"
    text = _write_change(alarm, tests, began)
    text += (
        f" {summary.words}: without drift such a value comes {often} {run_length:,.0f} events (one "
        f"false alarm in {settings.ert:,.0f} was asked for)."
    )
    text += _measure_outside(reference, since)
    if not reference.dependence.is_modelled:
        text += " Events are autocorrelated: this may be a false alarm; see the monitor's notes."
    return replace(alarm, sentence=text)


def explain_again(state: MonitorState, alarm: Alarm, reference: CalibratedReference) -> Alarm:
    """The alarm explained from more events, against the reference that was left."""
    began = int(reference.events.positions[-1]) + 1
    own = alarm.explanation
    is_few = own is not None and own.kind == "outliers"
    left_out = [number for _, number, _ in alarm.events[: own.events]] if own and is_few else []
    tests = _test_features(state, reference, alarm.onset, began, alarm.channel, left_out)
    if own is not None and is_few and not tests.explanation.kind:
        tests = replace(tests, explanation=own)
    return replace(
        alarm,
        kind="explained",
        revision=alarm.revision + 1,
        explanation=tests.explanation,
        features=_list_features(state.names, tests),
        sentence=_write_change(alarm, tests),
    )


def _write_change(alarm: Alarm, tests: FeatureTests, began: int = -1) -> str:
    """What has changed, since when, from how many events, and what else has."""
    explanation, ids = tests.explanation, ", ".join(str(key) for key, _, _ in alarm.events)
    since = f"around event {alarm.onset:,}"
    if alarm.onset == began:
        since = f"at event {began:,}, when monitoring began, or before"
    when = f"{since} (detected at {alarm.position:,}"
    if explanation.kind == "outliers":
        ids = ", ".join(str(key) for key, _, _ in alarm.events[: explanation.events])
        return (
            f"{explanation.events} outliers {when}); nothing else has changed: open the events: "
            f"{ids}."
        )
    if not explanation.kind:
        return (
            f"The stream changed {when}), but no single feature, pair or common change can be "
            f"named yet: open the events: {ids}."
        )
    text = f"{describe(explanation)} {when}; estimated from {explanation.events:,} events)."
    return text + _count_others(tests)


def _test_features(
    state: MonitorState,
    reference: CalibratedReference,
    onset: int,
    began: int,
    channel: str,
    left_out: Sequence[int] = (),
) -> FeatureTests:
    """Test the features of the last events, none from before the monitoring began; and labels.

    Labels explain an alarm of their channel where they are clearer than the features.
    """
    assert state.recent is not None
    recent = state.recent[int(np.searchsorted(state.recent.positions, began)) :]
    recent = recent[~np.isin(recent.positions, left_out)]
    since = int((recent.positions >= onset).sum())
    sample = _sample(reference)
    points = _scale(reference, reference.prepare(recent))
    tests = sample.explain(state.names, points, since)
    if channel != "labels":
        return tests
    own = explain_labels(
        state.names,
        state.known,
        (sample.points, reference.events.labels),
        (points[len(points) - since :], recent.labels[len(points) - since :]),
        reference.dependence.integrated,
    )
    if own is None or (tests.explanation.kind and tests.explanation.p <= own.p):
        return tests
    return replace(tests, explanation=own)


@lru_cache(maxsize=4)
def _sample(reference: CalibratedReference) -> ReferenceSample:
    """What tests need of a reference; an alarm is explained three times."""
    return ReferenceSample(_scale(reference, reference.prepare(reference.events)))


def _scale(reference: CalibratedReference, points: Floats) -> Floats:
    """Features in deviations of the map, clipped; those of two values or one stay as they are."""
    with np.errstate(over="ignore", invalid="ignore"):
        scaled = (points - reference.map.mean) / reference.map.sd
    return np.clip(np.nan_to_num(scaled), -LARGEST_SHIFT, LARGEST_SHIFT)


def describe(explanation: Explanation) -> str:
    """What has changed, as the beginning of a sentence."""
    before, after = explanation.before, explanation.after
    label = f"label '{explanation.labels[0]}'" if explanation.labels else ""
    name = " and ".join(f"'{one}'" for one in explanation.names)
    match explanation.kind:
        case "constant":
            return _describe_constants(explanation)
        case "mean":
            return f"Mean of {name} shifted by {after:+.2g} sd"
        case "spread":
            return f"Spread of {name} changed by a factor of {after:.2g}"
        case "rate":
            return f"Rate of the higher value of {name} changed from {before:.2g} to {after:.2g}"
        case "pair":
            digits = 2 if abs(after - before) >= 0.01 else 4
            change = f"{before:+.{digits}f} to {after:+.{digits}f}"
            return f"Correlation of {name} changed from {change}"
        case "label share":
            return f"Share of {label} changed from {before:.2g} to {after:.2g}"
        case "label mean":
            return f"Mean of {name} shifted by {after:+.2g} sd for {label}"
    if before:
        return f"Spreads of most features changed by a factor of {after:.2g} in the median"
    return f"Means of most features shifted, by {after:.2g} sd in the median"


def _count_others(tests: FeatureTests) -> str:
    """How many features, or labels, have changed beside the one that is named."""
    explanation, what = tests.explanation, "feature"
    others = int((tests.p <= LEVEL).sum()) - 1
    if explanation.labels:
        others, what = len(explanation.labels) - 1, "label"
    elif explanation.kind not in ("mean", "spread", "rate"):
        return ""
    return f" {others} other {what}{'' if others == 1 else 's'} changed, too." if others > 0 else ""


def _describe_constants(explanation: Explanation) -> str:
    name, several = explanation.names[0], len(explanation.names) > 1
    if explanation.before:
        words = "became constant"
    elif explanation.after:
        words = "were constant and began to vary" if several else "was constant and began to vary"
    else:
        words = "changed from one constant value to another"
    if several:
        return f"{len(explanation.names)} features, '{name}' among them, {words}"
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
        f" {outside:.0%} of the {len(since):,} events since lie where {LOW_COVERAGE:.0%} of the "
        "reference did."
    )


def _list_components(features: tuple[str, ...], reference: CalibratedReference) -> list[str]:
    """Name of every score."""
    axes, k = reference.map.axes, reference.map.psi.shape[1]
    own = list(features) if axes is None else [f"feature_axis_{j}" for j in range(axes.shape[1])]
    plain = ["coverage", *(f"component_{i}" for i in range(k)), *own]
    names = [*plain, *(f"spread of {name}" for name in plain)]
    several = sum(reference.groups.sizes) - len(names)
    return names + [f"label_score_{i}" for i in range(several)]


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


def list_strongest_events(
    contributions: Floats, ids: Array, first: int
) -> tuple[tuple[int | str, int, float], ...]:
    """Id, number in the stream and contribution of the ten largest; ``first`` numbers the first."""
    order = np.argsort(-contributions, kind="stable")[:N_STRONGEST]
    keys = ids.tolist()
    return tuple((keys[i], first + int(i), float(contributions[i])) for i in order)
