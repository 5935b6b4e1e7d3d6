"""The update of a monitor: from a state and some events to the next state and the alarms.

Chunks and comparisons of the geometry (one every ``period`` events) are counted from the event at
which the monitoring began: the bits do not depend on how the stream is cut into calls.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift import geometry_channel, running_statistics
from streamembed.drift.alarm import Alarm
from streamembed.drift.explanation import explain_constants, explain_events, explain_geometry
from streamembed.drift.monitor_state import (
    EVENT_CHANNEL_SHARE,
    CalibratedReference,
    Events,
    MonitorSettings,
    MonitorState,
    build_reference,
)
from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import MEMORIES, RunningMeans
from streamembed.numeric.arrays import Floats, Ints

N_RECENT = 1280  # events that are kept for explanations
# Of an alarm's run length: below it, a stream that has left its reference may return.
RETURN_SHARE = 0.3
MAX_ALARMS = 1000  # that the state keeps
FIRST_GEOMETRY = ALL_CHANNELS.index(geometry_channel.CHANNELS[0])

# By chunk and channel: log run lengths, statistics, memories.
ChannelTable = tuple[Floats, Floats, Ints]


def advance(
    state: MonitorState, events: Events, settings: MonitorSettings
) -> tuple[MonitorState, tuple[Alarm, ...]]:
    """The state after some events of the stream, checked, and the alarms that they raise."""
    alarms: list[Alarm] = []
    remaining = events
    while len(remaining):
        if state.phase == "stopped":
            return replace(state, position=state.position + len(remaining)), tuple(alarms)
        if state.phase == "watching":
            state, remaining, alarm = _watch(state, remaining, settings)
            if alarm is not None:
                alarms.append(alarm)
        else:
            state, remaining = _collect(state, remaining, settings)
    return state, tuple(alarms)


def _join_events(first: Events | None, second: Events) -> Events:
    return second if first is None or not len(first) else Events.join((first, second))


def _collect(
    state: MonitorState, remaining: Events, settings: MonitorSettings
) -> tuple[MonitorState, Events]:
    """Collect events of a reference; build it as soon as they are enough."""
    waiting_count = 0 if state.waiting is None else len(state.waiting)
    count = max(0, min(settings.n_reference - waiting_count, len(remaining)))
    waiting = _join_events(state.waiting, remaining[:count]) if count else state.waiting
    state = replace(state, position=state.position + count, waiting=waiting)
    if waiting is None or len(waiting) < settings.n_reference:
        return state, remaining[count:]
    return start_watching(
        state, waiting[len(waiting) - settings.n_reference :], settings
    ), remaining[count:]


def start_watching(state: MonitorState, events: Events, settings: MonitorSettings) -> MonitorState:
    """The state of a monitor whose reference is these events."""
    reference = build_reference(events, settings, state.renewals)
    missing = np.full((1, len(ALL_CHANNELS)), np.nan)
    record = state.record
    if state.position:
        memories = np.zeros(missing.shape, dtype=np.int64)
        positions = np.array([state.position])
        record = record.append_chunks(positions, state.phase, missing, missing, memories)
    return replace(
        state,
        phase="watching",
        waiting=None,
        recent=None,
        began=state.position,
        watched=reference,
        running=running_statistics.init_means(reference.calibration.null.mean.size),
        compared=np.full(2, np.nan),
        renewals=state.renewals + 1,
        is_alarmed=False,
        record=record,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _ScoredChunks:
    """Scored chunks, up to the first that raises an alarm or shows that the stream has returned."""

    running: RunningMeans  # after these chunks
    means: Floats  # (3, p): the exponential means after the last
    # (c, f)
    statistics: Floats
    logs: Floats
    constant_logs: Floats  # (c,): see `CalibratedReference.compute_constant_run_lengths`
    is_decided: bool  # whether the last chunk is such a chunk

    def __len__(self) -> int:
        return len(self.logs)


def _watch(
    state: MonitorState, remaining: Events, settings: MonitorSettings
) -> tuple[MonitorState, Events, Alarm | None]:
    """Score whole chunks until the next comparison of the geometry, or the next alarm."""
    reference = state.watched
    assert reference is not None
    waiting_count = 0 if state.waiting is None else len(state.waiting)
    first = state.position - waiting_count
    period = reference.period // CHUNK
    chunks_left = period - (first - state.began) // CHUNK % period
    count = min((waiting_count + len(remaining)) // CHUNK, chunks_left)
    if count == 0:
        waiting, position = _join_events(state.waiting, remaining), state.position + len(remaining)
        return replace(state, waiting=waiting, position=position), remaining[len(remaining) :], None
    block = _join_events(state.waiting, remaining[: count * CHUNK - waiting_count])
    was_alarmed = state.is_alarmed
    follow = _score_until_return if was_alarmed else _score_until_alarm
    chunks = follow(state, reference, block)
    count = len(chunks)
    recent = _join_events(state.recent, block[: count * CHUNK])
    table = _tabulate_channels(chunks, reference)
    is_comparison = count == chunks_left and np.isfinite(settings.ert)
    if is_comparison:
        state, reference = _compare_geometry(state, reference, recent, table, settings)
    n_recent = max(N_RECENT, reference.period)
    state = replace(
        state,
        position=first + count * CHUNK,
        waiting=None,
        recent=recent[max(0, len(recent) - n_recent) :],
        running=chunks.running,
        watched=reference,
        is_alarmed=state.is_alarmed and not chunks.is_decided,
        record=state.record.append_chunks(
            first + CHUNK * np.arange(1, count + 1), "watching", *table
        ),
    )
    remaining = remaining[count * CHUNK - waiting_count :]
    alarm = None
    if chunks.is_decided and not was_alarmed:
        alarm = _explain_chunks(chunks, state, settings)
    elif is_comparison and not was_alarmed:
        alarm = _explain_comparison(table, state, reference, settings)
    return (state if alarm is None else _apply_alarm(state, alarm, settings)), remaining, alarm


def _score_until_alarm(
    state: MonitorState, reference: CalibratedReference, block: Events
) -> _ScoredChunks:
    assert state.running is not None
    z = reference.calibration.null.whiten_chunks(reference.compute_scores(block))
    after, means, variances = running_statistics.update_means(state.running, z)
    statistics = running_statistics.compute_statistics(means, variances, reference.groups)
    logs = reference.calibration.log_run_lengths(statistics)
    constant_logs = reference.compute_constant_run_lengths(block.points)
    highest = np.maximum(logs.max(axis=1), constant_logs)
    hits = np.flatnonzero(highest > reference.calibration.threshold)
    if not len(hits):
        return _ScoredChunks(after, means[-1], statistics, logs, constant_logs, is_decided=False)
    n = int(hits[0]) + 1
    after, _, _ = running_statistics.update_means(state.running, z[:n])
    return _ScoredChunks(
        after, means[n - 1], statistics[:n], logs[:n], constant_logs[:n], is_decided=True
    )


def _score_until_return(
    state: MonitorState, reference: CalibratedReference, block: Events
) -> _ScoredChunks:
    """Score chunks until the stream has returned: below the threshold over all memories.

    The means start again after each chunk above the return threshold.

    Events may not show a change of spectrum or metric: then `_compare_geometry` decides.
    """
    assert state.running is not None
    z = reference.calibration.null.whiten_chunks(reference.compute_scores(block))
    constant_logs = reference.compute_constant_run_lengths(block.points)
    return_level = reference.calibration.threshold + np.log(RETURN_SHARE)
    is_event_alarm = state.alarms[-1].memory > 0
    running, rows, is_back = state.running, [], False
    means = np.zeros(running.carried.shape)
    for i in range(len(z)):
        running, after, variances = running_statistics.update_means(running, z[i : i + 1])
        means = after[-1]
        rows.append(running_statistics.compute_statistics(after, variances, reference.groups)[0])
        largest_log = float(reference.calibration.log_run_lengths(rows[-1]).max())
        if max(largest_log, float(constant_logs[i])) > return_level:
            running = running_statistics.init_means(z.shape[1])
        elif is_event_alarm and running.chunks >= MEMORIES[-1]:
            is_back = True
            break
    statistics = np.array(rows)
    logs = reference.calibration.log_run_lengths(statistics)
    return _ScoredChunks(running, means, statistics, logs, constant_logs[: len(rows)], is_back)


def _compare_geometry(
    state: MonitorState,
    reference: CalibratedReference,
    recent: Events,
    table: ChannelTable,
    settings: MonitorSettings,
) -> tuple[MonitorState, CalibratedReference]:
    """Compare the last stretch with the reference; the scores go into the last row of the table."""
    reference = reference.with_geometry((settings.seed, state.renewals, 2))
    assert reference.geometry is not None
    now = geometry_channel.measure_shape(reference.map, recent.points[-reference.period :])
    scores = geometry_channel.compute_scores(reference.geometry, now)
    # two comparisons in a row: a few far events can explain a single one
    repeated = geometry_channel.compute_run_lengths(
        np.minimum(scores, state.compared), reference.period
    )
    table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = repeated
    table[1][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = scores
    is_alarmed = state.is_alarmed
    if is_alarmed and state.alarms[-1].memory == 0:
        single = geometry_channel.compute_run_lengths(scores, reference.period)
        is_alarmed = bool(single.max() >= _geometry_threshold(settings) + np.log(RETURN_SHARE))
    return replace(state, compared=scores, is_alarmed=is_alarmed), reference


def _geometry_threshold(settings: MonitorSettings) -> float:
    """Log of the run length of either snapshot channel at which there is an alarm."""
    return float(np.log(settings.ert * len(geometry_channel.CHANNELS) / (1 - EVENT_CHANNEL_SHARE)))


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
    if not repeated.max() >= _geometry_threshold(settings):  # nan at the first
        return None
    index = int(repeated.argmax())
    log = float(repeated[index]) - np.log(
        len(geometry_channel.CHANNELS) / (1 - EVENT_CHANNEL_SHARE)
    )
    assert state.recent is not None
    now = geometry_channel.measure_shape(reference.map, state.recent.points[-reference.period :])
    return explain_geometry(state, settings, index, log, now)


def _tabulate_channels(chunks: _ScoredChunks, reference: CalibratedReference) -> ChannelTable:
    labels = reference.groups.labels
    shape = (len(chunks), len(ALL_CHANNELS))
    table = np.full(shape, np.nan), np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    rows = np.arange(len(chunks))
    for name in reference.groups.names:
        own = np.array([i for i, label in enumerate(labels) if label[0] == name])
        chosen = own[chunks.logs[:, own].argmax(axis=1)]
        column = ALL_CHANNELS.index(name)
        table[0][:, column] = chunks.logs[rows, chosen]
        table[1][:, column] = chunks.statistics[rows, chosen]
        table[2][:, column] = np.array([label[1] for label in labels])[chosen]
    # constant features count as features where their value is the stronger
    column = ALL_CHANNELS.index("features")
    stronger = np.flatnonzero(
        chunks.constant_logs > np.nan_to_num(table[0][:, column], nan=-np.inf)
    )
    table[0][stronger, column] = table[1][stronger, column] = chunks.constant_logs[stronger]
    table[2][stronger, column] = CHUNK
    return table


def _apply_alarm(state: MonitorState, alarm: Alarm, settings: MonitorSettings) -> MonitorState:
    is_immediate = settings.is_immediate(alarm.position, state.began)
    state = replace(
        state,
        alarms=(*state.alarms, alarm)[-MAX_ALARMS:],
        recurring=state.recurring + 1 if is_immediate else 0,
        is_alarmed=True,
    )
    if settings.policy == "hold":
        return state
    if settings.policy == "stop":
        return replace(state, phase="stopped", waiting=None)
    recent = state.recent
    assert recent is not None
    since = min(alarm.position - max(alarm.onset, state.began), len(recent))
    return replace(state, phase="relearning", waiting=recent[len(recent) - since :])
