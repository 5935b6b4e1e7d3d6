"""Explanation of an alarm: its onset, features and events, and a sentence."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from streamembed.drift import regions
from streamembed.drift.alarm import Alarm, Explanation
from streamembed.drift.change_tests import LEVEL, FeatureTests, ReferenceSample
from streamembed.drift.label_tests import explain_labels
from streamembed.drift.monitor_state import (
    CalibratedReference,
    Events,
    MonitorState,
    are_vectors,
)
from streamembed.drift.running_statistics import MEMORIES
from streamembed.numeric.arrays import Array, Floats

N_STRONGEST = 10
LARGEST_RUN_LENGTH = 1e3  # times ``ert``: a reference cannot show more
LARGEST_SHIFT = 1e30  # deviations: their squares are finite
MAX_ONSET_CHUNKS = 128  # chunks that are searched for the onset
MOST_OUTLIERS = 0.03  # of the events since the onset
REVISIONS = (50, 200)  # events behind an alarm, at which it is explained again
CHANNEL_SENTENCES = {
    "coverage": "Events fall where the reference has few",
    "coordinates": "Events move within the map of the reference",
    "features": "Means of features shift",
    "components": "Events are distributed otherwise than in the reference",
    "spread": "The distribution of features is wider or narrower than in the reference",
    "labels": "The relation between labels and features changes",
    "pairs": "The correlation of a pair of features changes",
}


@dataclass(frozen=True, slots=True, eq=False)
class Trigger:
    """What raised an alarm: the channel, the events since the onset, and what each contributes."""

    channel: str
    memory: int
    log_run_length: float
    since: Events
    contributions: Floats
    carriers: int = 0  # how few events carry it, see `influence.count_carriers`; 0 for many


def find_trigger(state: MonitorState, logs: Floats, means: Floats, carriers: int) -> Trigger:
    """The trigger of an event channel, or of features that were constant.

    Parameters
    ----------
    logs
        Log run lengths at the alarm, see `CalibratedReference.compute_log_run_lengths`.
    means
        Exponential means of all memories at the alarm, shape (w, p).
    """
    assert state.watching is not None
    reference, chunk = state.watching.reference, state.watching.chunk_size
    index = int(logs.argmax())
    recent = state.list_watched(MAX_ONSET_CHUNKS * chunk)
    if index == len(logs) - 1:
        changed = reference.find_changed_constants(recent).sum(axis=1).astype(np.float64)
        chunks = changed.reshape(-1, chunk).any(axis=1)[::-1]
        count = chunk * int(np.argmin(np.append(chunks, False)))
        return Trigger("features", chunk, logs[index], recent[-count:], changed[-count:])
    w, _, part = reference.groups.locate(index)
    channel = reference.groups.names[reference.groups.slices.index(part)]
    null, scores = reference.calibration.null, reference.compute_scores(recent)
    z = null.whiten_chunks(scores, chunk)[:, part]
    count = estimate_onset(z, chunk / len(reference.ordered)) * chunk
    scores = np.clip(scores[-count:, part], null.low[part], null.high[part])
    contributions = (scores - null.mean[part]) @ (null.whitening[part, part] @ means[w, part])
    memory = MEMORIES[w] * chunk
    return Trigger(channel, memory, logs[index], recent[-count:], contributions, carriers)


def find_pair_trigger(
    reference: CalibratedReference, stretch: Events, log_run_length: float
) -> Trigger:
    """The trigger of the channel of pairs, in the stretch that was searched."""
    coverage = reference.map.compute_scores(reference.deseasonalise(stretch))[:, 0]
    return Trigger("pairs", 0, log_run_length, stretch, -coverage)


def explain(state: MonitorState, trigger: Trigger) -> Alarm:
    """The alarm; where few events carry it, and nothing else explains it, they are outliers."""
    assert state.watching is not None
    reference, began = state.watching.reference, state.watching.began
    since, first = trigger.since, int(trigger.since.positions[0])
    ert = state.settings.ert
    most = np.log(LARGEST_RUN_LENGTH * ert)
    run_length = float(np.exp(min(trigger.log_run_length, most)))
    alarm = Alarm(
        kind="alarm",
        number=state.next_alarm_number,
        position=state.position,
        onset=first,
        reference=reference.number,
        sentence="",
        channel=trigger.channel,
        memory=trigger.memory,
        run_length=run_length,
        events=list_strongest_events(trigger.contributions, since.ids, first),
        carriers=trigger.carriers,
    )
    tests = _test_features(state, reference, alarm, began)
    alarm = _apply_tests(state, alarm, tests, began)
    is_vector = alarm.channel == "features" and are_vectors(state.features)
    what = CHANNEL_SENTENCES["components" if is_vector else alarm.channel]
    often = "less than once in" if trigger.log_run_length >= most else "once in"
    text = (
        f"{alarm.sentence} {what}. Without drift such a value is "
        f"expected {often} {run_length:,.0f} events (you asked for one false alarm in {ert:,.0f})."
    )
    if not reference.dependence.is_modelled:
        text += " Events are autocorrelated: this may be a false alarm; see the monitor's notes."
    return replace(alarm, sentence=text)


def explain_again(state: MonitorState, alarm: Alarm, reference: CalibratedReference) -> Alarm:
    """The alarm explained from more events, against the reference that was left.

    Where these name nothing, the explanation before stays.
    """
    began = int(reference.events.positions[-1]) + 1
    tests = _test_features(state, reference, alarm, began)
    alarm = replace(alarm, kind="explained", revision=alarm.revision + 1)
    if not tests.explanation.kind and alarm.explanation is not None and alarm.explanation.kind:
        return alarm
    return _apply_tests(state, alarm, tests)


def _apply_tests(state: MonitorState, alarm: Alarm, tests: FeatureTests, began: int = -1) -> Alarm:
    """The alarm with what the tests show, and its first sentence."""
    order = np.lexsort((-np.abs(tests.shifts), tests.p))
    features = tuple((state.names[j], float(tests.shifts[j]), float(tests.p[j])) for j in order)
    alarm = replace(alarm, explanation=tests.explanation, features=features)
    return replace(alarm, sentence=_write_change(alarm, tests, began))


def _write_change(alarm: Alarm, tests: FeatureTests, began: int) -> str:
    """What has changed, since when, from how many events, and what else has."""
    explanation = tests.explanation
    since = f"around event {alarm.onset:,}"
    if alarm.onset == began:
        since = f"at event {began:,}, when monitoring began, or before"
    when = f"{since} (detected at {alarm.position:,}"
    ids = [str(key) for key, _, _ in alarm.events]
    if explanation.kind == "outliers":
        ids = ids[: explanation.events]
        return (
            f"{len(ids)} outliers {when}); nothing else has changed: open the events: "
            f"{', '.join(ids)}."
        )
    if not explanation.kind:
        yet = "" if alarm.revision == len(REVISIONS) else " yet"
        return (
            f"The stream changed {when}), but no single feature, pair, group or common change can "
            f"be named{yet}: open the events: {', '.join(ids)}."
        )
    window = f"{explanation.events:,} events"
    if explanation.events > tests.since:
        window = f"the last {window}, {tests.since:,} of them since then"
    text = f"{describe(explanation)} {when}; estimated from {window})."
    if explanation.kind == "all":
        clearest = ", ".join(f"'{name}'" for name, _, _ in alarm.features[:3])
        return f"{text} The clearest are {clearest}."
    if explanation.members:
        shares = f"{explanation.before:.1%} of the reference and {explanation.after:.1%} of these"
        what = "It is" if explanation.kind == "repeated event" else "Its clearest part is"
        typical = ", ".join(f"'{key}'" for key in explanation.exemplars)
        return f"{text} {what} {shares}. Most typical: {typical}."
    return text + _count_others(tests)


def _test_features(
    state: MonitorState, reference: CalibratedReference, alarm: Alarm, began: int
) -> FeatureTests:
    """Test the features of the last events, none from before the monitoring began; and labels.

    Labels explain an alarm of their channel where they are clearer than the features. Where a few
    of the strongest events carry it, and nothing is left without them and behind it, they are
    outliers.
    """
    watched, sample = state.list_since(began), _build_sample(reference)

    def test(recent: Events) -> FeatureTests:
        since = int((recent.positions >= alarm.onset).sum())
        points = _scale(reference, reference.deseasonalise(recent))
        tests = sample.explain(state.names, points, since)
        if are_vectors(state.features):
            own = regions.explain(reference, recent, since)
            tests = replace(tests, explanation=own)
        elif tests.explanation.kind == "value":
            j, old = state.names.index(tests.explanation.names[0]), reference.events.points[0]
            before, after = float(old[j]), float(recent.points[-1, j])
            explanation = replace(tests.explanation, before=before, after=after)
            tests = replace(tests, explanation=explanation)
        if alarm.channel != "labels":
            return tests
        by_label = explain_labels(
            state.names,
            state.known,
            (sample.points, reference.events.labels),
            (points[len(points) - since :], recent.labels[len(points) - since :]),
            reference.dependence.integrated,
        )
        if by_label is None or (tests.explanation.kind and tests.explanation.p <= by_label.p):
            return tests
        return replace(tests, explanation=by_label)

    least, shares = alarm.carriers, [share for _, _, share in alarm.events]
    most = min(len(shares), int(MOST_OUTLIERS * (watched.positions >= alarm.onset).sum()))
    if 0 < least < len(shares):  # behind the last of them contributions drop
        least += int(np.diff(shares)[least - 1 :].argmin())
    whole, behind = test(watched), watched[watched.positions >= alarm.position]
    # Of few values none is far out, and those of a group lie together.
    is_one = whole.explanation.kind in ("rate", "repeated event", "region", "new region")
    if not 0 < least <= most or is_one:
        return whole
    if len(behind) and test(behind).explanation.kind:  # no alarm has selected these
        return whole
    for count in range(least, most + 1):
        numbers = [number for _, number, _ in alarm.events[:count]]
        tests = test(watched[~np.isin(watched.positions, numbers)])
        if not tests.explanation.kind:
            return replace(tests, explanation=Explanation("outliers", (), 0.0, 0.0, 1.0, count))
    return whole


@lru_cache(maxsize=4)
def _build_sample(reference: CalibratedReference) -> ReferenceSample:
    """What tests need of a reference; an alarm is explained three times."""
    return ReferenceSample(_scale(reference, reference.deseasonalise(reference.events)))


def _scale(reference: CalibratedReference, points: Floats) -> Floats:
    """Features in deviations of the map."""
    return np.clip(reference.map.features.apply(points), -LARGEST_SHIFT, LARGEST_SHIFT)


def describe(explanation: Explanation) -> str:
    """What has changed, as the beginning of a sentence."""
    before, after = explanation.before, explanation.after
    label = f"label '{explanation.labels[0]}'" if explanation.labels else ""
    name = " and ".join(f"'{one}'" for one in explanation.names)
    match explanation.kind:
        case "constant" | "value":
            return _describe_constants(explanation)
        case "mean":
            return f"Mean of {name} shifted by {after:+.2g} sd"
        case "spread":
            return f"Spread of {name} changed by a factor of {after:.2g}"
        case "rate":
            which = "the higher value" if before else "a new value"
            return f"Rate of {which} of {name} changed from {before:.2g} to {after:.2g}"
        case "pair":
            digits = 2 if abs(after - before) >= 0.01 else 4
            change = f"{before:+.{digits}f} to {after:+.{digits}f}"
            return f"Correlation of {name} changed from {change}"
        case "label share":
            return f"Share of {label} changed from {before:.2g} to {after:.2g}"
        case "label mean":
            return f"Mean of {name} shifted by {after:+.2g} sd for {label}"
        case "region":
            return "A group of events became more frequent"
        case "new region":
            return "A new group of events appeared"
        case "repeated event":
            return f"One event came {len(explanation.members):,} times"
        case "encoder":
            return "All groups of events moved, as if another encoder made the vectors,"
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
    if explanation.kind == "value":
        values = "" if several else f", {explanation.before:.10g} to {explanation.after:.10g}"
        words = f"changed from one constant value to another{values}"
    elif explanation.before:
        words = "became constant"
    else:
        words = "were constant and began to vary" if several else "was constant and began to vary"
    if several:
        return f"{len(explanation.names)} features, '{name}' among them, {words}"
    return f"'{name}' {words}"


def estimate_onset(z: Floats, share: float) -> int:
    """Chunks since the change, by the maximum of the likelihood ratio, of whitened z, shape (c, p).

    The variance of the difference includes that of the mean of the calibration events, of which a
    chunk has the ``share``.
    """
    sums = np.cumsum(z[::-1], axis=0)
    lengths = np.arange(1, len(z) + 1)
    variances = lengths * (1.0 + share * lengths)
    return int(((sums**2).sum(axis=1) / variances).argmax()) + 1


def list_strongest_events(
    contributions: Floats, ids: Array, first: int
) -> tuple[tuple[int | str, int, float], ...]:
    """Id, number in the stream and contribution of the ten largest; ``first`` numbers the first."""
    order = np.argsort(-contributions, kind="stable")[:N_STRONGEST]
    keys = ids.tolist()
    return tuple((keys[i], first + int(i), float(contributions[i])) for i in order)
