"""The update of a monitor: from a state and some events to the next state and its records.

Chunks, searches of pairs, stages of a candidate and explanations come at positions of the stream:
the bits do not depend on how it is cut into calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift import pair_channel, running_statistics
from streamembed.drift.alarm import Alarm
from streamembed.drift.candidate import (
    MIN_BLOCKS,
    MIN_RETURN_REFERENCE,
    find_change,
    has_returned,
    next_stage,
)
from streamembed.drift.explanation import (
    REVISIONS,
    Trigger,
    explain,
    explain_again,
    find_constant_trigger,
    find_event_trigger,
    find_pair_trigger,
)
from streamembed.drift.influence import find_carriers
from streamembed.drift.monitor_state import (
    OTHER_SHARE,
    CalibratedReference,
    Collecting,
    Events,
    MonitorSettings,
    MonitorState,
    Watching,
    build_reference,
    fit_season,
    measure_dependence,
)
from streamembed.drift.monitor_timeline import ALL_CHANNELS, SCORE_UNITS, build_rows
from streamembed.drift.running_statistics import FORMS, MEMORIES, RunningMeans
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import PendingParts

N_RECENT = 500  # events that are kept for explanations, or half of a longer reference
MOST_SCORED = 1000  # events at once: a kernel row each
MAX_RECORDS = 1000  # that the state keeps
PAIRS = ALL_CHANNELS.index("pairs")

Step = tuple[MonitorState, list[Alarm]]


def advance(
    state: MonitorState, events: Events, settings: MonitorSettings
) -> tuple[MonitorState, list[Alarm]]:
    """The state after some events of the stream, checked, and the records that they bring."""
    records: list[Alarm] = []
    remaining = events
    while True:
        waiting = state.waiting.count
        first = state.position - waiting
        if state.phase == "stopped":
            return replace(state, position=state.position + len(remaining)), records
        if state.position + len(remaining) < state.due:
            return wait(state, remaining), records
        step = state.due - first
        limit = _count_to_boundary(state, first)
        count = min((waiting + len(remaining)) // step * step, limit)
        block = remaining[: count - waiting]
        if waiting:
            block = Events.joined((state.waiting.joined(), block))
        if state.watching is not None:
            state, new = _watch(state, state.watching, first, block, settings)
        else:
            state, new = _collect(state, block, settings)
        remaining = remaining[state.position - first - waiting :]
        state = with_due(state)
        records += new


def wait(state: MonitorState, events: Events) -> MonitorState:
    """The state after events with which there is nothing to do yet."""
    if not len(events):
        return state
    return replace(
        state,
        waiting=state.waiting.followed_by(events),
        position=state.position + len(events),
    )


def with_due(state: MonitorState) -> MonitorState:
    """The state with the position at which there is something to do next."""
    if state.phase == "stopped":
        return state
    first = state.position - state.waiting.count
    if state.watching is not None:
        return replace(state, due=first + state.watching.reference.chunk)
    return replace(state, due=first + _count_to_boundary(state, first))


def _count_to_boundary(state: MonitorState, first: int) -> int:
    """Events from ``first`` on to the next thing to do; whole chunks where a reference watches."""
    watching = state.watching
    collecting = state.collecting if watching is None else watching.growing
    left = [] if collecting is None else [collecting.target - len(collecting)]
    alarm = _find_alarm_to_explain(state)
    if alarm is not None:
        left.append(alarm.position + REVISIONS[alarm.revision] - first)
    if watching is None:
        return max(min(left), 1)
    chunk, interval = watching.reference.chunk, watching.reference.interval
    left += [MOST_SCORED, interval - (first - watching.began) % interval]
    return chunk * min(max(-(-n // chunk), 1) for n in left)


def _find_alarm_to_explain(state: MonitorState) -> Alarm | None:
    """The last alarm, where it is to be explained again; not from events beyond a cut."""
    for record in reversed(state.records):
        if record is state.alarm:
            is_due = record.revision < len(REVISIONS)
            return record if is_due and state.find_reference(record.reference) else None
        if record.kind == "cut":
            return None
    return None


def _join_events(first: Events | None, second: Events) -> Events:
    return second if first is None or not len(first) else Events.joined((first, second))


def _count_recent(reference: CalibratedReference | None) -> int:
    """Events that are looked back at."""
    if reference is None:
        return N_RECENT
    return max(N_RECENT, len(reference.events) // 2, reference.chunk)


def _keep_recent(state: MonitorState, block: Events) -> Events:
    recent = _join_events(state.recent, block)
    return recent[max(0, len(recent) - _count_recent(state.reference)) :]


def _collect(state: MonitorState, block: Events, settings: MonitorSettings) -> Step:
    """Collect events of a reference; see what they are at a stage, or explain the last alarm."""
    own = state.collecting
    assert own is not None
    state = replace(
        state,
        position=state.position - state.waiting.count + len(block),
        waiting=PendingParts(),
        collecting=replace(own, events=_join_events(own.events, block)),
        recent=_keep_recent(state, block),
    )
    return _pass_boundaries(state, settings)


def _pass_boundaries(state: MonitorState, settings: MonitorSettings) -> Step:
    """Explain the last alarm again, and settle what the candidate is, if it is time."""
    records: list[Alarm] = []
    alarm = _find_alarm_to_explain(state)
    if alarm is not None and state.position >= alarm.position + REVISIONS[alarm.revision]:
        left = state.find_reference(alarm.reference)
        assert left is not None
        state = add_record(state, explain_again(state, alarm, left), records)
    watching = state.watching
    candidate = state.collecting if watching is None else watching.growing
    if candidate is not None and len(candidate) >= candidate.target:
        assert candidate.events is not None
        state = _settle(state, candidate.events, settings, records)
    return state, records


def add_record(state: MonitorState, record: Alarm, records: list[Alarm]) -> MonitorState:
    """The state with one record more, which is appended to ``records``, too."""
    records.append(record)
    return replace(state, records=(*state.records, record)[-MAX_RECORDS:])


def add_event(
    state: MonitorState,
    kind: str,
    onset: int,
    reference: int,
    sentence: str,
    records: list[Alarm],
) -> MonitorState:
    """The state with a record that is no alarm."""
    record = Alarm(kind, state.next_number - 1, state.position, onset, reference, sentence)
    return add_record(state, record, records)


def _settle(
    state: MonitorState, candidate: Events, settings: MonitorSettings, records: list[Alarm]
) -> MonitorState:
    """Make a reference of the candidate, or cut it, or return to one that was left, or go on."""
    left, n, is_first = state.reference, len(candidate), state.phase == "collecting"
    previous = None if left is None else left.season
    dependence = measure_dependence(candidate, settings, left)
    target = next_stage(n, dependence.block, settings.n_reference)
    season = fit_season(candidate, settings.period, previous)
    points = candidate.points
    if season is not None:
        points = season.remove(points, candidate.positions)
    if state.watching is None:
        usual = 1 if left is None else left.dependence.block
        at = find_change(points, (settings.seed, state.position, 3), usual)
        if is_first:
            dependence = replace(
                dependence, changed_at=-1 if at < 0 else int(candidate.positions[at])
            )
        elif at >= 0:
            return _cut(state, candidate, at, settings, records)
        elif n < min(MIN_BLOCKS * dependence.block, settings.n_reference):
            return replace(state, collecting=Collecting(candidate, target))
    returned = None if is_first else _find_return(state, candidate, settings)
    if returned is not None:
        return _return_to(state, returned, candidate, settings, records)
    growing = None if n >= settings.n_reference else Collecting(candidate, target)
    if state.watching is not None and growing is not None:  # no more than a look at returns
        return replace(state, watching=replace(state.watching, growing=growing))
    # a provisional one, made again, keeps its number
    number = state.numbered if state.watching is None else state.watching.reference.number
    reference = build_reference(candidate, settings, number, dependence, previous)
    state = replace(state, numbered=max(state.numbered, number + 1))
    return start_watching(state, reference, growing)


def _cut(
    state: MonitorState,
    candidate: Events,
    split: int,
    settings: MonitorSettings,
    records: list[Alarm],
) -> MonitorState:
    """Leave out events before a change among those of a candidate, and say so."""
    rest = candidate[split:]
    at, first = int(rest.positions[0]), int(candidate.positions[0])
    sentence = (
        f"The stream changed again around event {at:,}, while the events since {first:,} were "
        "collected: the next reference leaves out those before."
    )
    state = add_event(state, "cut", at, -1, sentence, records)
    return replace(state, collecting=_collect_from(rest, settings))


def _collect_from(events: Events, settings: MonitorSettings) -> Collecting:
    first = next_stage(0, 1, settings.n_reference)
    return Collecting(events, max(first, len(events) + 1))


def _find_return(
    state: MonitorState, candidate: Events, settings: MonitorSettings
) -> CalibratedReference | None:
    """The reference that was left and that the events behind the alarm are like.

    Not that which the alarm left, if the stream had just returned to it, or if events do not show
    the change.
    """
    least = min(MIN_RETURN_REFERENCE, settings.n_reference)
    alarm = state.alarm
    assert alarm is not None
    kinds = "returned", "recovered"
    back = next((r for r in reversed(state.records) if r.kind in kinds), None)
    is_barred = alarm.channel == "pairs" or (
        back is not None
        and back.reference == alarm.reference
        and 0 <= alarm.position - back.position <= settings.n_reference
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


def _return_to(
    state: MonitorState,
    reference: CalibratedReference,
    candidate: Events,
    settings: MonitorSettings,
    records: list[Alarm],
) -> MonitorState:
    """Watch against a reference that was left."""
    is_home = settings.policy == "hold" and reference is state.home
    onset = int(candidate.positions[0])
    kind, name = ("recovered", "home") if is_home else ("returned", f"reference {reference.number}")
    sentence = (
        f"The stream is like {name} again since about event {onset:,} (detected at "
        f"{state.position:,}; estimated from {state.position - onset:,} events)."
    )
    state = add_event(state, kind, onset, reference.number, sentence, records)
    return start_watching(state, reference)


def start_watching(
    state: MonitorState, reference: CalibratedReference, growing: Collecting | None = None
) -> MonitorState:
    """The state of a monitor that compares with this reference from now on."""
    timeline = state.timeline
    if state.position and state.watching is None:
        timeline = timeline.append(build_rows(np.array([state.position]), state.phase))
    running = running_statistics.init_means(reference.calibration.null.mean.size)
    is_home = state.home is None or reference is state.home
    return replace(
        state,
        collecting=None,
        watching=Watching(reference, is_home, running, state.position, growing),
        home=None if is_home else state.home,
        left=None if reference is state.left else state.left,
        timeline=timeline,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ScoredChunks:
    """Scored chunks, up to the first that raises an alarm."""

    running: RunningMeans  # after these chunks
    means: Floats  # (3, p): the exponential means after the last
    logs: Floats  # (c, f): of the run length of each statistic
    constant_logs: Floats  # (c,): see `CalibratedReference.compute_constant_run_lengths`
    anomalies: Ints  # (c,): sums of the anomaly scores of their events, in millionths
    carriers: int | None  # of the alarm of the last chunk, see `find_carriers`; None: there is none

    def __len__(self) -> int:
        return len(self.logs)


def _watch(
    state: MonitorState, watching: Watching, first: int, block: Events, settings: MonitorSettings
) -> Step:
    """Score whole chunks up to a boundary, or the next alarm."""
    reference, growing = watching.reference, watching.growing
    chunks = _score(state, reference, watching.running, block)
    chunk, count = reference.chunk, len(chunks)
    block = block[: count * chunk]
    position = first + count * chunk
    if growing is not None:
        growing = replace(growing, events=_join_events(growing.events, block))
    state = replace(
        state,
        position=position,
        waiting=PendingParts(),
        recent=_keep_recent(state, block),
        watching=replace(watching, running=chunks.running, growing=growing),
    )
    table = _tabulate_channels(chunks, reference)
    trigger = _find_trigger(chunks, state)
    is_search = pair_channel.is_searched(len(state.names)) and growing is None
    if is_search and (position - watching.began) % reference.interval == 0:
        trigger = _search_pairs(state, reference, table[-1], settings) or trigger
    ends = first + chunk * np.arange(1, count + 1)
    rows = build_rows(ends, "watching", table, chunks.anomalies, chunk)
    state = replace(state, timeline=state.timeline.append(rows))
    if trigger is None:
        return _pass_boundaries(state, settings)
    alarm = explain(state, settings, trigger)
    return _apply_alarm(state, watching, alarm, settings), [alarm]


def _score(
    state: MonitorState, reference: CalibratedReference, running: RunningMeans, block: Events
) -> _ScoredChunks:
    chunk, threshold = reference.chunk, reference.calibration.threshold
    scores = reference.compute_scores(block)
    z = reference.calibration.null.whiten_chunks(scores, chunk)
    anomalies = np.rint(SCORE_UNITS * reference.rank_coverage(scores[:, 0])).astype(np.int64)
    anomalies = anomalies.reshape(-1, chunk).sum(axis=1)
    after, means, variances = running_statistics.update_means(running, z)
    statistics = running_statistics.compute_statistics(means, variances, reference.groups)
    logs = reference.calibration.log_run_lengths(statistics)
    constant_logs = reference.compute_constant_run_lengths(block)
    n, carriers = len(logs), None
    hits = np.flatnonzero(np.maximum(logs.max(axis=1), constant_logs) > threshold).tolist()
    if hits:
        before = reference.compute_scores(state.list_watched() if state.recent else block[:0])
        scores = np.concatenate([before, scores])
    for hit in hits:
        stop, own = len(before) + (hit + 1) * chunk, 0
        if constant_logs[hit] <= threshold:
            start = max(0, stop - _count_recent(reference) // chunk * chunk)
            own = find_carriers(reference, scores[start:stop], means[hit], variances[hit])
        if own != 1:
            n, carriers = hit + 1, own
            after, _, _ = running_statistics.update_means(running, z[:n])
            break
    rows = logs[:n], constant_logs[:n], anomalies[:n]
    return _ScoredChunks(after, means[n - 1], *rows, carriers)


def _find_trigger(chunks: _ScoredChunks, state: MonitorState) -> Trigger | None:
    if chunks.carriers is None:
        return None
    logs, constant_log = chunks.logs[-1], float(chunks.constant_logs[-1])
    index = int(logs.argmax())
    if constant_log > logs[index]:
        return find_constant_trigger(state, constant_log)
    return find_event_trigger(state, index, float(logs[index]), chunks.means, chunks.carriers)


def _search_pairs(
    state: MonitorState, reference: CalibratedReference, row: Floats, settings: MonitorSettings
) -> Trigger | None:
    """Search the last stretch for a pair; its run length goes into this row of the timeline."""
    stretch = reference.prepare(state.list_watched(reference.interval))
    log = pair_channel.search(reference, stretch)
    if log is None:
        return None
    row[:, PAIRS] = log, 0
    log += float(np.log(OTHER_SHARE))
    return find_pair_trigger(state, log) if log >= np.log(settings.ert) else None


def _tabulate_channels(chunks: _ScoredChunks, reference: CalibratedReference) -> Floats:
    """Log run length and memory of each chunk and channel, shape (c, 2, 6)."""
    table = np.full((len(chunks), 2, len(ALL_CHANNELS)), np.nan)
    places = [ALL_CHANNELS.index(name) for name in reference.groups.names]
    own = chunks.logs.reshape(len(chunks), -1, len(places))
    table[:, 0, places] = own.max(axis=1)
    table[:, 1, places] = reference.chunk * np.repeat(MEMORIES, len(FORMS))[own.argmax(axis=1)]
    # constant features count as features where their value is the stronger
    column = ALL_CHANNELS.index("features")
    stronger = chunks.constant_logs > np.fmax(table[:, 0, column], 0.0)
    table[stronger, 0, column] = chunks.constant_logs[stronger]
    table[stronger, 1, column] = reference.chunk
    return table


def _apply_alarm(
    state: MonitorState, watching: Watching, alarm: Alarm, settings: MonitorSettings
) -> MonitorState:
    """Leave the reference, and collect the events since the onset."""
    reference, recent = watching.reference, state.recent
    assert recent is not None
    state = replace(
        state,
        records=(*state.records, alarm)[-MAX_RECORDS:],
        watching=None,
        home=reference if watching.is_home else state.home,
        left=state.left if watching.is_home else reference,
    )
    if settings.policy == "stop":
        return state
    since = max(alarm.onset, watching.began)
    candidate = recent[int(np.searchsorted(recent.positions, since)) :]
    return replace(state, collecting=_collect_from(candidate, settings))
