"""The update of a monitor: from a state and some events to the next state.

Chunks, searches of pairs, stages of a candidate and explanations come at positions of the stream:
the bits do not depend on how it is cut into calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift import dependence, pair_channel, regions, running_statistics
from streamembed.drift.alarm import Alarm
from streamembed.drift.candidate import (
    MIN_BLOCKS,
    MIN_RETURN_REFERENCE,
    find_change,
    has_returned,
    next_stage_size,
)
from streamembed.drift.explanation import (
    REVISIONS,
    explain,
    explain_again,
    find_pair_trigger,
    find_trigger,
)
from streamembed.drift.influence import count_carriers
from streamembed.drift.monitor_state import (
    OTHER_SHARE,
    CalibratedReference,
    Candidate,
    Events,
    MonitorState,
    Watching,
    are_vectors,
    build_reference,
    fit_season,
    remove_season,
)
from streamembed.drift.monitor_timeline import ALL_CHANNELS, SCORE_UNITS, build_rows
from streamembed.drift.running_statistics import FORMS, MEMORIES, RunningMeans
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import PendingParts

N_RECENT = 500  # events that are kept for explanations, or half of a longer reference
N_VECTORS = 1000  # where they are vectors
MOST_SCORED = 1000  # events at once: a kernel row each
PAIRS = ALL_CHANNELS.index("pairs")


def advance(state: MonitorState, events: Events) -> MonitorState:
    """The state after some events of the stream, checked."""
    while state.phase != "stopped":
        first, before = state.n_processed, state.position
        step = find_due(state) - first
        if before + len(events) < first + step:
            return add_waiting(state, events)
        count = (before + len(events) - first) // step * step
        block = events[: min(count, _count_to_boundary(state)) - state.waiting.count]
        block = Events.joined((*state.waiting.parts, block))
        if state.watching is not None:
            state = _watch(state, state.watching, block)
        else:
            state = _settle_what_is_due(_append(state, block))
        events = events[state.position - before :]
    return replace(state, position=state.position + len(events))


def add_waiting(state: MonitorState, events: Events) -> MonitorState:
    """The state after events with which there is nothing to do yet."""
    if not len(events):
        return state
    position = state.position + len(events)
    if state.phase == "stopped":
        return replace(state, position=position)
    return replace(state, waiting=state.waiting.followed_by(events), position=position)


def find_due(state: MonitorState) -> int:
    """The position at which there is something to do next."""
    watching = state.watching
    ahead = _count_to_boundary(state) if watching is None else watching.chunk_size
    return state.n_processed + ahead


def _count_to_boundary(state: MonitorState) -> int:
    """Events to the next thing to do; whole chunks where a reference watches."""
    left, watching = [], state.watching
    if state.candidate is not None:
        left.append(state.candidate.due - state.n_processed)
    alarm = _find_alarm_to_explain(state)
    if alarm is not None:
        left.append(alarm.position + REVISIONS[alarm.revision] - state.n_processed)
    if watching is None:
        return max(min(left), 1)
    interval = watching.reference.pair_search_interval
    left += [MOST_SCORED, interval - (state.n_processed - watching.began) % interval]
    return watching.chunk_size * min(max(-(-n // watching.chunk_size), 1) for n in left)


def _find_alarm_to_explain(state: MonitorState) -> Alarm | None:
    """The last alarm, where it is to be explained again; not from events beyond a cut."""
    for record in reversed(state.records):
        if record is state.alarm:
            is_due = record.revision < len(REVISIONS)
            return record if is_due and state.find_reference(record.reference) else None
        if record.kind == "cut":
            return None
    return None


def _count_recent(reference: CalibratedReference | None) -> int:
    """Events that are looked back at."""
    if reference is None:
        return N_RECENT
    least = N_RECENT if reference.map.components is None else N_VECTORS
    return max(least, len(reference.events) // 2, reference.chunk_size)


def _append(state: MonitorState, block: Events) -> MonitorState:
    """The state with these events, of which the first ones waited, among the last ones."""
    position, count = state.n_processed + len(block), _count_recent(state.reference)
    if state.candidate is not None:
        count = max(count, position - state.candidate.since)
    recent = block if state.recent is None else Events.joined((state.recent, block))
    recent = recent[max(0, len(recent) - count) :]
    return replace(state, position=position, waiting=PendingParts(), recent=recent)


def _settle_what_is_due(state: MonitorState) -> MonitorState:
    """Explain the last alarm again, and settle what the candidate is, if it is time."""
    alarm = _find_alarm_to_explain(state)
    if alarm is not None and state.position >= alarm.position + REVISIONS[alarm.revision]:
        left = state.find_reference(alarm.reference)
        assert left is not None
        state = add_record(state, explain_again(state, alarm, left))
    if state.candidate is not None and state.position >= state.candidate.due:
        state = _decide_candidate(state, state.candidate)
    return state


def add_record(state: MonitorState, record: Alarm) -> MonitorState:
    """The state with one record more."""
    return replace(state, records=(*state.records, record))


def add_event(
    state: MonitorState, kind: str, onset: int, reference: int, sentence: str
) -> MonitorState:
    """The state with a record that is no alarm."""
    number = state.next_alarm_number - 1
    return add_record(state, Alarm(kind, number, state.position, onset, reference, sentence))


def _decide_candidate(state: MonitorState, candidate: Candidate) -> MonitorState:
    """Make a reference of the candidate, or cut it, or return to one that was left, or go on."""
    whole, settings, left = state.list_since(candidate.since), state.settings, state.reference
    events, n = whole, len(whole)
    if are_vectors(state.features):
        events, is_burst = regions.split_copies(whole, n >= settings.n_reference)
        if is_burst and not _has_repeat_alarm(state, candidate.since):
            alarm = regions.report_copies(whole, state.position, state.next_alarm_number)
            state = add_record(state, alarm)
    if len(events) < min(regions.MIN_LEFT, n):
        due = candidate.since + next_stage_size(n, settings.period or 0, settings.n_reference)
        return replace(state, candidate=replace(candidate, due=due))
    usual, previous = (1, None) if left is None else (left.dependence.block, left.season)
    season = fit_season(events, settings.period, previous)
    points, is_first = remove_season(events, season), not state.numbered
    serial = dependence.measure(points, usual, settings.n_reference)
    least = min(max(MIN_BLOCKS * serial.block, settings.period or 0), settings.n_reference)
    due = candidate.since + next_stage_size(n, least, settings.n_reference)
    later = replace(state, candidate=replace(candidate, due=due))
    if state.watching is None:
        at = find_change(points, (settings.seed, state.position, 3), usual)
        if at is not None and is_first:
            serial = replace(serial, changed_at=int(events.positions[at]))
        elif at is not None:
            return _restart_at_change(state, int(events.positions[at]), candidate.since)
        elif not is_first and n < least:
            return later
    returned = None if is_first else _find_return(state, events)
    if returned is not None:
        return _return_to(state, returned, candidate.since)
    if state.watching is not None and n < settings.n_reference:  # no more than a look at returns
        return later
    # a provisional one, made again, keeps its number
    number = state.numbered if state.watching is None else state.watching.reference.number
    reference = build_reference(events, settings, number, season, serial, state.features)
    after = replace(state, numbered=max(state.numbered, number + 1))
    return start_watching(after, reference, later.candidate if n < settings.n_reference else None)


def _has_repeat_alarm(state: MonitorState, since: int) -> bool:
    """Whether an alarm has named a repeated event since that one."""
    later = (record.explanation for record in state.records if record.position > since)
    return any(one is not None and one.kind == "repeated event" for one in later)


def _restart_at_change(state: MonitorState, at: int, first: int) -> MonitorState:
    """Leave out events before a change among those of a candidate, and say so."""
    sentence = (
        f"The stream changed again around event {at:,}, while the events since {first:,} were "
        "collected: the next reference leaves out those before."
    )
    state = add_event(state, "cut", at, -1, sentence)
    return _collect_since(state, at)


def _collect_since(state: MonitorState, since: int) -> MonitorState:
    """The state with a candidate of the events since one of them."""
    due = max(since + next_stage_size(0, 0, state.settings.n_reference), state.position + 1)
    return replace(state, candidate=Candidate(since, due))


def _find_return(state: MonitorState, candidate: Events) -> CalibratedReference | None:
    """The reference that was left and that the events behind the alarm are like.

    Not that which the alarm left, if the stream had just returned to it, or if events do not show
    the change.
    """
    least = min(MIN_RETURN_REFERENCE, state.settings.n_reference)
    alarm = state.alarm
    assert alarm is not None
    kinds = "returned", "recovered"
    back = next((r for r in reversed(state.records) if r.kind in kinds), None)
    is_barred = alarm.channel == "pairs" or (
        back is not None
        and back.reference == alarm.reference
        and 0 <= alarm.position - back.position <= state.settings.n_reference
    )
    behind = candidate[int(np.searchsorted(candidate.positions, alarm.position)) :]
    delay = max(alarm.position - alarm.onset, alarm.memory)
    for reference in (state.left, state.home):
        if reference is None or (is_barred and reference.number == alarm.reference):
            continue
        is_whole = reference is state.home or len(reference.events) >= least
        if is_whole and has_returned(behind, reference, delay):
            return reference
    return None


def _return_to(state: MonitorState, reference: CalibratedReference, onset: int) -> MonitorState:
    """Watch against a reference that was left."""
    is_home = state.settings.policy == "hold" and reference is state.home
    kind, name = ("recovered", "home") if is_home else ("returned", f"reference {reference.number}")
    sentence = (
        f"The stream is like {name} again since about event {onset:,} (detected at "
        f"{state.position:,}; estimated from {state.position - onset:,} events)."
    )
    return start_watching(add_event(state, kind, onset, reference.number, sentence), reference)


def start_watching(
    state: MonitorState, reference: CalibratedReference, candidate: Candidate | None = None
) -> MonitorState:
    """The state of a monitor that compares with this reference from now on."""
    timeline = state.timeline
    if state.position and state.watching is None:
        timeline = timeline.append(build_rows(np.array([state.position]), state.phase))
    size = reference.calibration.null.mean.size
    running = running_statistics.init_means(reference.groups.count, size)
    is_home = state.home is None or reference is state.home
    return replace(
        state,
        candidate=candidate,
        watching=Watching(reference, is_home, running, state.position),
        home=None if is_home else state.home,
        left=None if reference is state.left else state.left,
        timeline=timeline,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ScoredChunks:
    """Scored chunks, up to the first that raises an alarm."""

    running: RunningMeans  # after these chunks
    means: Floats  # (w, p): the exponential means after the last
    logs: Floats  # (c, f + 1): see `CalibratedReference.compute_log_run_lengths`
    anomalies: Ints  # (c,): sums of the anomaly scores of their events, in millionths
    # Of the alarm of the last chunk, see `count_carriers`; None: there is none.
    carriers: int | None

    def __len__(self) -> int:
        return len(self.logs)


def _watch(state: MonitorState, watching: Watching, block: Events) -> MonitorState:
    """Score whole chunks up to a boundary, or the next alarm."""
    reference, chunk = watching.reference, watching.chunk_size
    chunks = _score(state, watching, block)
    ends = state.n_processed + chunk * np.arange(1, len(chunks) + 1)
    state = replace(state, watching=replace(watching, running=chunks.running))
    state = _append(state, block[: len(chunks) * chunk])
    table = _tabulate_channels(chunks, reference)
    trigger = None
    if chunks.carriers is not None:
        trigger = find_trigger(state, chunks.logs[-1], chunks.means, chunks.carriers)
    is_search = pair_channel.is_searched(len(state.names)) and state.candidate is None
    if is_search and (state.position - watching.began) % reference.pair_search_interval == 0:
        stretch = state.list_watched(reference.pair_search_interval)
        log = pair_channel.search(reference, reference.deseasonalise(stretch))
        if log is not None:
            table[-1, :, PAIRS] = log, 0
            log += float(np.log(OTHER_SHARE))
            if log >= np.log(state.settings.ert):
                trigger = find_pair_trigger(reference, stretch, log)
    rows = build_rows(ends, "watching", table, chunks.anomalies, chunk)
    state = replace(state, timeline=state.timeline.append(rows))
    if trigger is None:
        return _settle_what_is_due(state)
    return _leave(add_record(state, explain(state, trigger)), watching)


def _score(state: MonitorState, watching: Watching, block: Events) -> _ScoredChunks:
    reference, running, chunk = watching.reference, watching.running, watching.chunk_size
    scores = reference.compute_scores(block)
    z = reference.calibration.null.whiten_chunks(scores, chunk)
    anomalies = np.rint(SCORE_UNITS * reference.score_anomalies(scores[:, 0])).astype(np.int64)
    anomalies = anomalies.reshape(-1, chunk).sum(axis=1)
    after, means, variances = running_statistics.update_means(running, z)
    statistics = running_statistics.compute_statistics(means, variances, reference.groups)
    logs = reference.compute_log_run_lengths(block, statistics)
    n, carriers, most = len(logs), None, _count_recent(reference)
    hits = np.flatnonzero(logs.max(axis=1) > reference.calibration.threshold).tolist()
    if hits:
        before = block[:0] if state.recent is None else state.list_watched(most)
        scores = np.concatenate([reference.compute_scores(before), scores])
    for hit in hits:
        stop, own = len(before) + (hit + 1) * chunk, 0
        if logs[hit, -1] <= reference.calibration.threshold:
            start = max(0, stop - most // chunk * chunk)
            own = count_carriers(reference, scores[start:stop], means[hit], variances[hit])
        if own != 1:
            n, carriers = hit + 1, own
            after, _, _ = running_statistics.update_means(running, z[:n])
            break
    return _ScoredChunks(after, means[n - 1], logs[:n], anomalies[:n], carriers)


def _tabulate_channels(chunks: _ScoredChunks, reference: CalibratedReference) -> Floats:
    """Log run length and memory of each chunk and channel, shape (c, 2, 6)."""
    table = np.full((len(chunks), 2, len(ALL_CHANNELS)), np.nan)
    places = [ALL_CHANNELS.index(name) for name in reference.groups.names]
    own = chunks.logs[:, :-1].reshape(len(chunks), -1, len(places))
    table[:, 0, places] = own.max(axis=1)
    table[:, 1, places] = reference.chunk_size * np.repeat(MEMORIES, len(FORMS))[own.argmax(axis=1)]
    # constant features count as features where their value is the stronger
    constant_logs, column = chunks.logs[:, -1], ALL_CHANNELS.index("features")
    stronger = constant_logs > np.fmax(table[:, 0, column], 0.0)
    table[stronger, 0, column] = constant_logs[stronger]
    table[stronger, 1, column] = reference.chunk_size
    return table


def _leave(state: MonitorState, watching: Watching) -> MonitorState:
    """Leave the reference after an alarm, and collect the events since the onset."""
    state = replace(
        state,
        candidate=None,
        watching=None,
        home=watching.reference if watching.is_home else state.home,
        left=state.left if watching.is_home else watching.reference,
    )
    if state.settings.policy == "stop":
        return state
    return _collect_since(state, max(state.records[-1].onset, watching.began))
