"""The update of a monitor: from a state and some events to the next state and its records.

Chunks, comparisons of the geometry, stages of a candidate and explanations come at positions of the
stream: the bits do not depend on how it is cut into calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift import geometry_channel, pair_channel, running_statistics
from streamembed.drift.alarm import Alarm
from streamembed.drift.candidate import (
    MAX_REMADE,
    MAX_REMEMBERED,
    MIN_BLOCKS,
    MIN_REMEMBERED,
    find_change,
    has_returned,
    is_enough,
    next_stage,
)
from streamembed.drift.explanation import (
    REVISIONS,
    explain_again,
    explain_constants,
    explain_events,
    explain_geometry,
    explain_pairs,
)
from streamembed.drift.monitor_state import (
    EVENT_CHANNEL_SHARE,
    CalibratedReference,
    Events,
    MonitorSettings,
    MonitorState,
    build_reference,
    fit_season,
    measure_dependence,
)
from streamembed.drift.monitor_timeline import ALL_CHANNELS, SCORE_UNITS, ChunkRows
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import RunningMeans
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.chunks import PendingParts

N_RECENT = 500  # events that are kept for explanations, or half of a longer reference
MAX_RECORDS = 1000  # that the state keeps
PAIRS = ALL_CHANNELS.index("pairs")
FIRST_GEOMETRY = ALL_CHANNELS.index(geometry_channel.CHANNELS[0])

# By chunk and channel: log run lengths, statistics, memories.
ChannelTable = tuple[Floats, Floats, Ints]
Step = tuple[MonitorState, list[Alarm]]


def advance(
    state: MonitorState, events: Events, settings: MonitorSettings
) -> tuple[MonitorState, tuple[Alarm, ...]]:
    """The state after some events of the stream, checked, and the records that they bring."""
    records: list[Alarm] = []
    remaining = events
    while True:
        waiting = state.waiting.count
        first = state.position - waiting
        if state.phase == "stopped":
            return replace(state, position=state.position + len(remaining)), tuple(records)
        if state.position + len(remaining) < state.due:
            return wait(state, remaining), tuple(records)
        limit = _count_to_boundary(state, first, settings)
        step = state.due - first
        count = min((waiting + len(remaining)) // step * step, limit)
        block = remaining[: count - waiting]
        if waiting:
            block = Events.joined((state.waiting.joined(), block))
        if state.phase == "watching":
            state, new = _watch(state, first, block, settings)
        else:
            state, new = _collect(state, block, settings)
        remaining = remaining[state.position - first - waiting :]
        state = with_due(state, settings)
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


def with_due(state: MonitorState, settings: MonitorSettings) -> MonitorState:
    """The state with the position at which there is something to do next."""
    if state.phase == "stopped":
        return state
    first = state.position - state.waiting.count
    if state.phase == "watching" and state.watched is not None:
        return replace(state, due=first + state.watched.chunk)
    return replace(state, due=first + _count_to_boundary(state, first, settings))


def _count_to_boundary(state: MonitorState, first: int, settings: MonitorSettings) -> int:
    """Events from ``first`` on to the next thing to do; whole chunks where a reference watches."""
    collected = 0 if state.candidate is None else len(state.candidate)
    left = [state.target - collected] if state.target else []
    if state.phase == "collecting":
        return (state.target or settings.n_reference) - collected
    if state.revision >= 0:
        alarm = _find_last_alarm(state)
        left.append(alarm.position + REVISIONS[state.revision] - first)
    if state.phase == "relearning":
        return max(min(left), 1)
    reference = state.watched
    assert reference is not None
    interval = reference.interval
    chunks = (interval - (first - state.began) % interval) // reference.chunk
    return reference.chunk * min([chunks, *(max(-(-n // reference.chunk), 1) for n in left)])


def _find_last_alarm(state: MonitorState) -> Alarm:
    """The last alarm, as it was explained last."""
    return next(r for r in reversed(state.records) if r.kind in ("alarm", "explained"))


def _join_events(first: Events | None, second: Events) -> Events:
    return second if first is None or not len(first) else Events.joined((first, second))


def _keep_recent(state: MonitorState, block: Events) -> Events:
    recent = _join_events(state.recent, block)
    most = N_RECENT if state.watched is None else max(N_RECENT, len(state.watched.events) // 2)
    return recent[max(0, len(recent) - most) :]


def _collect(state: MonitorState, block: Events, settings: MonitorSettings) -> Step:
    """Collect events of a reference; see what they are at a stage, or explain the last alarm."""
    state = replace(
        state,
        position=state.position - state.waiting.count + len(block),
        waiting=PendingParts(),
        candidate=_join_events(state.candidate, block),
        recent=_keep_recent(state, block),
    )
    return _pass_boundaries(state, settings)


def _pass_boundaries(state: MonitorState, settings: MonitorSettings) -> Step:
    """Explain the last alarm again, and settle what the candidate is, if it is time."""
    records: list[Alarm] = []
    if state.revision >= 0:
        alarm = _find_last_alarm(state)
        if state.position >= alarm.position + REVISIONS[state.revision]:
            left = next(r for r in state.remembered if r.number == alarm.reference)
            explained = explain_again(state, alarm, left)
            last = state.revision + 1 == len(REVISIONS)
            state = _add_record(state, explained, records)
            state = replace(state, revision=-1 if last else state.revision + 1)
    if state.candidate is not None and len(state.candidate) >= (
        state.target or settings.n_reference
    ):
        state = _settle(state, settings, records)
    return state, records


def _add_record(state: MonitorState, record: Alarm, records: list[Alarm]) -> MonitorState:
    records.append(record)
    return replace(state, records=(*state.records, record)[-MAX_RECORDS:])


def add_event(
    state: MonitorState, kind: str, onset: int, reference: int, sentence: str
) -> tuple[MonitorState, Alarm]:
    """The state with a record that is no alarm, and the record."""
    record = Alarm(kind, state.alarmed - 1, state.position, onset, reference, sentence)
    return _add_record(state, record, []), record


def _settle(state: MonitorState, settings: MonitorSettings, records: list[Alarm]) -> MonitorState:
    """Make a reference of the candidate, or cut it, or return to one that was left, or go on."""
    candidate = state.candidate
    assert candidate is not None
    left = state.remembered[-1] if state.remembered else None
    previous = None if left is None else left.season
    dependence = measure_dependence(candidate, settings, left)
    n, is_first = len(candidate), state.phase == "collecting"
    is_whole = is_enough(n, dependence, settings.n_reference)
    target = 0 if is_whole else next_stage(n, dependence.block, settings.n_reference)
    if is_first and not is_whole:
        return replace(state, target=target)
    season = fit_season(candidate, settings.period, previous)
    points = candidate.points
    if season is not None:
        points = season.remove(points, candidate.positions)
    if is_first or state.phase == "relearning":
        usual = 1 if left is None else left.dependence.block
        at = find_change(points, (settings.seed, state.position, 3), usual)
        if is_first:
            dependence = replace(
                dependence, changed_at=-1 if at < 0 else int(candidate.positions[at])
            )
        elif at >= 0:
            return _cut(state, candidate, at, settings, records)
    if state.phase == "relearning" and n < min(MIN_BLOCKS * dependence.block, settings.n_reference):
        return replace(state, target=target)
    returned = None if is_first else _find_return(state, candidate, settings)
    if returned is not None:
        return _return_to(state, returned, candidate, settings, records)
    number = state.numbered
    if state.phase == "watching" and state.watched is not None:  # a provisional one, made again
        number = state.watched.number
    reference = build_reference(candidate, settings, number, state.builds, dependence, previous)
    state = replace(
        state,
        builds=state.builds + 1,
        numbered=max(state.numbered, number + 1),
        home=number if state.home < 0 else state.home,
        candidate=None if is_whole else candidate,
        target=target,
        returned=-1,
    )
    return start_watching(state, reference)


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
        f"Another change at about event {at:,}, while the events since {first:,} were collected: "
        "those before it are left out of the next reference."
    )
    state, record = add_event(state, "cut", at, -1, sentence)
    records.append(record)
    # the events since the onset are of two distributions: they explain the alarm no better
    return replace(state, candidate=rest, target=_first_stage(len(rest), settings), revision=-1)


def _first_stage(n: int, settings: MonitorSettings) -> int:
    return max(next_stage(0, 1, settings.n_reference), n + 1)


def _find_return(
    state: MonitorState, candidate: Events, settings: MonitorSettings
) -> CalibratedReference | None:
    """The newest reference that was left and that the events behind the alarm are like."""
    least = min(MIN_REMEMBERED, settings.n_reference)
    alarm = _find_last_alarm(state)
    behind = candidate[int(np.searchsorted(candidate.positions, alarm.position)) :]
    for reference in reversed(state.remembered):
        if reference.number == state.barred:
            continue
        if len(reference.events) < least and reference.number != state.home:
            continue
        if has_returned(behind, reference, max(alarm.position - alarm.onset, alarm.memory)):
            return reference
    return None


def _return_to(
    state: MonitorState,
    reference: CalibratedReference,
    candidate: Events,
    settings: MonitorSettings,
    records: list[Alarm],
) -> MonitorState:
    """Watch against a reference that was left; unless it is home, a second time made again."""
    is_home = settings.policy == "hold" and reference.number == state.home
    onset = int(candidate.positions[0])
    away = state.position - onset
    kind, name = ("recovered", "home") if is_home else ("returned", f"reference {reference.number}")
    sentence = (
        f"Since about event {onset:,} the stream is like {name} again (seen at {state.position:,}, "
        f"from {away:,} events)."
    )
    state, record = add_event(state, kind, onset, reference.number, sentence)
    records.append(record)
    others = tuple(one for one in state.remembered if one.number != reference.number)
    if state.revision >= 0:  # its explanation needs the reference that was left
        others = state.remembered
    builds = state.builds
    reference = replace(reference, returns=reference.returns + 1)
    is_small = len(reference.events) + len(candidate) <= MAX_REMADE * settings.n_reference
    # one that is left and returned to again may be an unlucky draw
    if not is_home and is_small and reference.returns > 1:
        events = Events.joined((reference.events, candidate))
        reference = build_reference(
            events, settings, reference.number, builds, reference.dependence, reference.season
        )
        builds += 1
    state = replace(
        state,
        builds=builds,
        home=reference.number if state.home < 0 else state.home,
        candidate=None,
        target=0,
        remembered=others,
        returned=state.position,
    )
    return start_watching(state, reference)


def start_watching(state: MonitorState, reference: CalibratedReference) -> MonitorState:
    """The state of a monitor that compares with this reference from now on."""
    missing = np.full((1, len(ALL_CHANNELS)), np.nan)
    timeline = state.timeline
    if state.position and state.phase != "watching":
        memories = np.zeros(missing.shape, dtype=np.int64)
        table = missing, missing, memories
        timeline = timeline.append(ChunkRows.of(np.array([state.position]), state.phase, table))
    return replace(
        state,
        phase="watching",
        began=state.position,
        watched=reference,
        running=running_statistics.init_means(reference.calibration.null.mean.size),
        compared=np.full(2, np.nan),
        timeline=timeline,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ScoredChunks:
    """Scored chunks, up to the first that raises an alarm."""

    running: RunningMeans  # after these chunks
    means: Floats  # (3, p): the exponential means after the last
    # (c, f)
    statistics: Floats
    logs: Floats
    constant_logs: Floats  # (c,): see `CalibratedReference.compute_constant_run_lengths`
    anomalies: Ints  # (c,): sums of the anomaly scores of their events, in millionths
    is_alarm: bool  # whether the last chunk is one

    def __len__(self) -> int:
        return len(self.logs)


def _watch(state: MonitorState, first: int, block: Events, settings: MonitorSettings) -> Step:
    """Score whole chunks up to a boundary, or the next alarm."""
    reference = state.watched
    assert reference is not None
    chunks = _score(state, reference, block)
    chunk, count = reference.chunk, len(chunks)
    block = block[: count * chunk]
    table = _tabulate_channels(chunks, reference)
    position = first + count * chunk
    state = replace(
        state,
        position=position,
        waiting=PendingParts(),
        recent=_keep_recent(state, block),
        candidate=None if state.candidate is None else _join_events(state.candidate, block),
        running=chunks.running,
    )
    # not of a provisional reference: it is gone before two comparisons are worth their cost
    is_whole = state.candidate is None and np.isfinite(settings.ert)
    is_comparison = is_whole and (position - state.began) % reference.interval == 0
    if is_comparison:
        state, reference = _compare_geometry(state, reference, table, settings)
    ends = first + chunk * np.arange(1, count + 1)
    state = replace(
        state,
        watched=reference,
        timeline=state.timeline.append(
            ChunkRows.of(ends, "watching", table, chunks.anomalies, chunk)
        ),
    )
    alarm = None
    if chunks.is_alarm:
        alarm = _explain_chunks(chunks, state, settings)
    elif is_comparison:
        alarm = _explain_comparison(table, state, reference, settings)
    if alarm is not None:
        return _apply_alarm(state, alarm, settings), [alarm]
    return _pass_boundaries(state, settings)


def _score(state: MonitorState, reference: CalibratedReference, block: Events) -> _ScoredChunks:
    assert state.running is not None
    scores = reference.compute_scores(block)
    z = reference.calibration.null.whiten_chunks(scores, reference.chunk)
    anomalies = np.rint(SCORE_UNITS * reference.rank_coverage(scores[:, 0])).astype(np.int64)
    anomalies = anomalies.reshape(-1, reference.chunk).sum(axis=1)
    after, means, variances = running_statistics.update_means(state.running, z)
    statistics = running_statistics.compute_statistics(means, variances, reference.groups)
    logs = reference.calibration.log_run_lengths(statistics)
    constant_logs = reference.compute_constant_run_lengths(block)
    highest = np.maximum(logs.max(axis=1), constant_logs)
    hits = np.flatnonzero(highest > reference.calibration.threshold)
    if not len(hits):
        return _ScoredChunks(
            after, means[-1], statistics, logs, constant_logs, anomalies, is_alarm=False
        )
    n = int(hits[0]) + 1
    after, _, _ = running_statistics.update_means(state.running, z[:n])
    return _ScoredChunks(
        after,
        means[n - 1],
        statistics[:n],
        logs[:n],
        constant_logs[:n],
        anomalies[:n],
        is_alarm=True,
    )


def _compare_geometry(
    state: MonitorState,
    reference: CalibratedReference,
    table: ChannelTable,
    settings: MonitorSettings,
) -> tuple[MonitorState, CalibratedReference]:
    """Compare the last stretch with the reference; the scores go into the last row of the table."""
    reference = reference.with_geometry(settings.seed)
    assert reference.geometry is not None
    stretch = _get_stretch(state, reference)
    now = geometry_channel.measure_shape(reference.map, stretch)
    if pair_channel.is_searched(stretch.shape[1]):
        log, z = pair_channel.compare_pairs(
            reference.prepare(reference.events),
            stretch,
            reference.interval,
            reference.dependence.integrated,
        )
        table[0][-1, PAIRS], table[1][-1, PAIRS] = log, np.abs(z).max()
    scores = geometry_channel.compute_scores(reference.geometry, now)
    # two comparisons in a row: a few far events can explain a single one
    repeated = geometry_channel.compute_run_lengths(
        np.minimum(scores, state.compared), reference.interval
    )
    table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = repeated
    table[1][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = scores
    return replace(state, compared=scores), reference


def _get_stretch(state: MonitorState, reference: CalibratedReference) -> Floats:
    """The points of the last stretch that is compared in its geometry."""
    assert state.recent is not None
    count = min(reference.interval, len(state.recent))
    return reference.prepare(state.recent[len(state.recent) - count :])


def _explain_chunks(chunks: _ScoredChunks, state: MonitorState, settings: MonitorSettings) -> Alarm:
    logs, constant_log = chunks.logs[-1], float(chunks.constant_logs[-1])
    index = int(logs.argmax())
    if constant_log > logs[index]:
        return explain_constants(state, settings, constant_log)
    return explain_events(state, settings, index, float(logs[index]), chunks.means)


def _explain_comparison(
    table: ChannelTable,
    state: MonitorState,
    reference: CalibratedReference,
    settings: MonitorSettings,
) -> Alarm | None:
    """The alarm that a comparison raises; None if it raises none."""
    repeated = table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2]
    log, share = float(table[0][-1, PAIRS]), np.log(1 / (1 - EVENT_CHANNEL_SHARE))
    if log >= np.log(settings.ert) + share:  # nan where pairs are not searched
        _, z = pair_channel.compare_pairs(
            reference.prepare(reference.events),
            _get_stretch(state, reference),
            reference.interval,
            reference.dependence.integrated,
        )
        return explain_pairs(state, settings, log - share, z)
    share = np.log(len(geometry_channel.CHANNELS) / (1 - EVENT_CHANNEL_SHARE))
    if not repeated.max() >= np.log(settings.ert) + share:  # nan at the first
        return None
    index = int(repeated.argmax())
    now = geometry_channel.measure_shape(reference.map, _get_stretch(state, reference))
    return explain_geometry(state, settings, index, float(repeated[index]) - share, now)


def _tabulate_channels(chunks: _ScoredChunks, reference: CalibratedReference) -> ChannelTable:
    columns, memories = reference.groups.columns
    shape = (len(chunks), len(ALL_CHANNELS))
    table = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    own = chunks.logs[:, columns]
    chosen = own.argmax(axis=2)
    places = [ALL_CHANNELS.index(name) for name in reference.groups.names]
    rows, channels = np.arange(len(chunks))[:, None], np.arange(len(places))
    table[0][:, places] = own[rows, channels, chosen]
    table[1][:, places] = chunks.statistics[rows, columns[channels, chosen]]
    table[2][:, places] = memories[channels, chosen] // CHUNK * reference.chunk
    if not reference.constant.any():
        return table
    # constant features count as features where their value is the stronger
    column = ALL_CHANNELS.index("features")
    stronger = np.flatnonzero(
        chunks.constant_logs > np.nan_to_num(table[0][:, column], nan=-np.inf)
    )
    table[0][stronger, column] = table[1][stronger, column] = chunks.constant_logs[stronger]
    table[2][stronger, column] = reference.chunk
    return table


def _apply_alarm(state: MonitorState, alarm: Alarm, settings: MonitorSettings) -> MonitorState:
    """Leave the reference: remember it, and collect the events since the onset."""
    reference, recent = state.watched, state.recent
    assert reference is not None
    assert recent is not None
    is_immediate = settings.is_immediate(alarm.position, state.began)
    state = replace(
        state,
        records=(*state.records, alarm)[-MAX_RECORDS:],
        alarmed=state.alarmed + 1,
        recurring=state.recurring + 1 if is_immediate else 0,
    )
    if settings.policy == "stop":
        return replace(state, phase="stopped", revision=-1)
    came_back = state.returned >= 0 and alarm.position - state.returned <= settings.n_reference
    # events do not show a change of the geometry
    barred = reference.number if alarm.memory == 0 or came_back else -1
    candidate = recent[int(np.searchsorted(recent.positions, max(alarm.onset, state.began))) :]
    return replace(
        state,
        phase="relearning",
        remembered=_remember(state, reference, settings),
        candidate=candidate,
        target=_first_stage(len(candidate), settings),
        barred=barred,
        returned=-1,
        revision=0,
    )


def _remember(
    state: MonitorState, reference: CalibratedReference, settings: MonitorSettings
) -> tuple[CalibratedReference, ...]:
    """The references that were left, and now this one: long ones, the newest, and home."""
    least = min(MIN_REMEMBERED, settings.n_reference)
    home = state.home if settings.policy == "hold" else -1
    others = [
        one
        for one in state.remembered
        if one.number != reference.number and (len(one.events) >= least or one.number == home)
    ]
    while len(others) >= MAX_REMEMBERED:
        others.pop(next(i for i, one in enumerate(others) if one.number != home))
    return (*others, reference)
