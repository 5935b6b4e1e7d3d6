"""How a monitor goes on: from one standing and some events to the next, and the alarms of these.

Chunks are cut from the event on with which the watching began, comparisons of the geometry every
``period`` of it: whatever the calls were, the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift import geometry_channel, running_statistics
from streamembed.drift.alarm import Alarm
from streamembed.drift.explanation import Seen, of_constants, of_events, of_geometry
from streamembed.drift.monitor_state import SHARE, Events, Settings, Standing, Watched, watched
from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.drift.reference import CHUNK
from streamembed.drift.running_statistics import MEMORIES, Running
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["advance", "begun"]

RING = 1280  # events that are looked back at
QUIET = 0.3  # of the run length of an alarm: below, a stream that was away may be back
MOST_ALARMS = 1000  # that are remembered
FIRST_GEOMETRY = ALL_CHANNELS.index(geometry_channel.CHANNELS[0])

# By chunk and channel: log run lengths, statistics, memories.
Table = tuple[Floats, Floats, Ints]


def advance(
    standing: Standing, events: Events, settings: Settings
) -> tuple[Standing, tuple[Alarm, ...]]:
    """Take some events of the stream, of known features and ids."""
    found: list[Alarm] = []
    rest = events
    while len(rest):
        if standing.phase == "stopped":
            return replace(standing, position=standing.position + len(rest)), tuple(found)
        if standing.phase == "watching":
            standing, rest, alarm = _watch(standing, rest, settings)
            if alarm is not None:
                found.append(alarm)
        else:
            standing, rest = _collect(standing, rest, settings)
    return standing, tuple(found)


def _together(first: Events | None, second: Events) -> Events:
    return second if first is None or not len(first) else Events.joined((first, second))


def _collect(standing: Standing, rest: Events, settings: Settings) -> tuple[Standing, Events]:
    """Events of a reference; the reference, where they are enough."""
    held = 0 if standing.waiting is None else len(standing.waiting)
    count = max(0, min(settings.n_reference - held, len(rest)))
    waiting = _together(standing.waiting, rest[:count]) if count else standing.waiting
    standing = replace(standing, position=standing.position + count, waiting=waiting)
    if waiting is None or len(waiting) < settings.n_reference:
        return standing, rest[count:]
    return begun(standing, waiting[len(waiting) - settings.n_reference :], settings), rest[count:]


def begun(standing: Standing, events: Events, settings: Settings) -> Standing:
    """Watching against a reference of these events."""
    made = watched(events, settings, standing.renewals)
    nothing = np.full((1, len(ALL_CHANNELS)), np.nan)
    record = standing.record
    if standing.position:
        memories = np.zeros(nothing.shape, dtype=np.int64)
        here = np.array([standing.position])
        record = record.followed_by(here, standing.phase, nothing, nothing, memories)
    return replace(
        standing,
        phase="watching",
        waiting=None,
        recent=None,
        began=standing.position,
        watched=made,
        running=running_statistics.start(made.calibration.null.mean.size),
        compared=np.full(2, np.nan),
        renewals=standing.renewals + 1,
        is_alarmed=False,
        record=record,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Followed:
    """Some chunks, up to the first with an alarm or the first of a stream that is back.

    Attributes
    ----------
    running : Running
        After them.
    means : (3, p)
        The exponential means after the last.
    statistics, logs : (c, f)
    woken : (c,)
        See `Watched.woken`.
    turned : bool
        Whether the last is such a chunk.
    """

    running: Running
    means: Floats
    statistics: Floats
    logs: Floats
    woken: Floats
    turned: bool

    def __len__(self) -> int:
        return len(self.logs)


def _watch(
    standing: Standing, rest: Events, settings: Settings
) -> tuple[Standing, Events, Alarm | None]:
    """Whole chunks until the next comparison of the geometry, or the next alarm."""
    against = standing.watched
    assert against is not None
    held = 0 if standing.waiting is None else len(standing.waiting)
    first = standing.position - held
    period = against.period // CHUNK
    left = period - (first - standing.began) // CHUNK % period
    count = min((held + len(rest)) // CHUNK, left)
    if count == 0:
        waiting, position = _together(standing.waiting, rest), standing.position + len(rest)
        return replace(standing, waiting=waiting, position=position), rest[len(rest) :], None
    block = _together(standing.waiting, rest[: count * CHUNK - held])
    was_away = standing.is_alarmed
    follow = _follow_away if was_away else _follow
    followed = follow(standing, against, block)
    count = len(followed)
    recent = _together(standing.recent, block[: count * CHUNK])
    table = _by_channel(followed, against)
    looks = count == left and np.isfinite(settings.ert)
    if looks:
        standing, against = _look(standing, against, recent, table, settings)
    keep = max(RING, against.period)
    standing = replace(
        standing,
        position=first + count * CHUNK,
        waiting=None,
        recent=recent[max(0, len(recent) - keep) :],
        running=followed.running,
        watched=against,
        is_alarmed=standing.is_alarmed and not followed.turned,
        record=standing.record.followed_by(
            first + CHUNK * np.arange(1, count + 1), "watching", *table
        ),
    )
    rest = rest[count * CHUNK - held :]
    alarm = None
    if followed.turned and not was_away:
        alarm = _of_followed(followed, standing, against, settings)
    elif looks and not was_away:
        alarm = _of_look(table, standing, against, settings)
    return (standing if alarm is None else _after(standing, alarm, settings)), rest, alarm


def _follow(standing: Standing, against: Watched, block: Events) -> _Followed:
    """Until an alarm."""
    assert standing.running is not None
    z = against.calibration.null.whitened(against.scores(block))
    after, means, variances = running_statistics.run(standing.running, z)
    statistics = running_statistics.values(means, variances, against.groups)
    logs, woken = against.calibration.log_run_lengths(statistics), against.woken(block.points)
    hits = np.flatnonzero(np.maximum(logs.max(axis=1), woken) > against.calibration.threshold)
    if not len(hits):
        return _Followed(after, means[-1], statistics, logs, woken, turned=False)
    n = int(hits[0]) + 1
    after, _, _ = running_statistics.run(standing.running, z[:n])
    return _Followed(after, means[n - 1], statistics[:n], logs[:n], woken[:n], turned=True)


def _follow_away(standing: Standing, against: Watched, block: Events) -> _Followed:
    """Until the stream is back: the means begin anew until they stay quiet over all memories.

    What spectrum or metric have seen, events may not see: then `_look` says when it is back.
    """
    assert standing.running is not None
    z = against.calibration.null.whitened(against.scores(block))
    woken, quiet = against.woken(block.points), against.calibration.threshold + np.log(QUIET)
    by_events = standing.alarms[-1].memory > 0
    state, rows, is_back = standing.running, [], False
    means = np.zeros(state.carried.shape)
    for i in range(len(z)):
        state, moved, variances = running_statistics.run(state, z[i : i + 1])
        means = moved[-1]
        rows.append(running_statistics.values(moved, variances, against.groups)[0])
        log = float(against.calibration.log_run_lengths(rows[-1]).max())
        if max(log, float(woken[i])) > quiet:
            state = running_statistics.start(z.shape[1])
        elif by_events and state.chunks >= MEMORIES[-1]:
            is_back = True
            break
    statistics = np.array(rows)
    logs = against.calibration.log_run_lengths(statistics)
    return _Followed(state, means, statistics, logs, woken[: len(rows)], is_back)


def _look(
    standing: Standing, against: Watched, recent: Events, table: Table, settings: Settings
) -> tuple[Standing, Watched]:
    """Compare the last stretch with the reference, and write it into the last row of the table."""
    against = against.with_geometry((settings.seed, standing.renewals, 2))
    assert against.geometry is not None
    now = geometry_channel.shape(against.map, recent.points[-against.period :])
    scored = geometry_channel.scores(against.geometry, now)
    # two comparisons in a row: one alone may have met a few far events
    twice = geometry_channel.run_lengths(np.minimum(scored, standing.compared), against.period)
    table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = twice
    table[1][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = scored
    is_alarmed = standing.is_alarmed
    if is_alarmed and standing.alarms[-1].memory == 0:
        once = geometry_channel.run_lengths(scored, against.period)
        is_alarmed = bool(once.max() >= _line(settings) + np.log(QUIET))
    return replace(standing, compared=scored, is_alarmed=is_alarmed), against


def _line(settings: Settings) -> float:
    """Log of the run length of either snapshot channel at which there is an alarm."""
    return float(np.log(settings.ert * len(geometry_channel.CHANNELS) / (1 - SHARE)))


def _seen(standing: Standing, settings: Settings) -> Seen:
    position = standing.position
    again = standing.recurring > 0 and _at_once(position, standing, settings)
    against = standing.watched
    noted = against is not None and against.dependence.is_noted
    recent, names = standing.recent, standing.names
    return Seen(position, standing.began, again, names, recent, settings.ert, noted)


def _of_followed(
    followed: _Followed, standing: Standing, against: Watched, settings: Settings
) -> Alarm:
    """The alarm of the last chunk."""
    seen, logs, woken = _seen(standing, settings), followed.logs[-1], float(followed.woken[-1])
    which = int(logs.argmax())
    if woken > logs[which]:
        return of_constants(seen, against, woken)
    return of_events(seen, against, which, float(logs[which]), followed.means)


def _of_look(
    table: Table, standing: Standing, against: Watched, settings: Settings
) -> Alarm | None:
    """The alarm of a comparison, if it is one."""
    twice = table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2]
    if not twice.max() >= _line(settings):  # nan at the first
        return None
    which = int(twice.argmax())
    log = float(twice[which]) - np.log(len(geometry_channel.CHANNELS) / (1 - SHARE))
    assert standing.recent is not None
    now = geometry_channel.shape(against.map, standing.recent.points[-against.period :])
    return of_geometry(_seen(standing, settings), against, which, log, now)


def _by_channel(followed: _Followed, against: Watched) -> Table:
    """Of every chunk the loudest value of each channel."""
    labels = against.groups.labels
    wide = (len(followed), len(ALL_CHANNELS))
    table = np.full(wide, np.nan), np.full(wide, np.nan), np.zeros(wide, dtype=np.int64)
    rows = np.arange(len(followed))
    for name in against.groups.names:
        own = np.array([i for i, label in enumerate(labels) if label[0] == name])
        chosen = own[followed.logs[:, own].argmax(axis=1)]
        column = ALL_CHANNELS.index(name)
        table[0][:, column] = followed.logs[rows, chosen]
        table[1][:, column] = followed.statistics[rows, chosen]
        table[2][:, column] = np.array([label[1] for label in labels])[chosen]
    # what never changed belongs to the features, where it is louder than they are
    column = ALL_CHANNELS.index("features")
    louder = np.flatnonzero(followed.woken > np.nan_to_num(table[0][:, column], nan=-np.inf))
    table[0][louder, column] = table[1][louder, column] = followed.woken[louder]
    table[2][louder, column] = CHUNK
    return table


def _at_once(position: int, standing: Standing, settings: Settings) -> bool:
    """Whether the reference is no older than it took to collect it."""
    return position - standing.began <= settings.n_reference


def _after(standing: Standing, alarm: Alarm, settings: Settings) -> Standing:
    """What an alarm makes of the monitor."""
    at_once = _at_once(alarm.position, standing, settings)
    standing = replace(
        standing,
        alarms=(*standing.alarms, alarm)[-MOST_ALARMS:],
        recurring=standing.recurring + 1 if at_once else 0,
        is_alarmed=True,
    )
    if settings.policy == "hold":
        return standing
    if settings.policy == "stop":
        return replace(standing, phase="stopped", waiting=None)
    recent = standing.recent
    assert recent is not None
    since = min(alarm.position - max(alarm.onset, standing.began), len(recent))
    return replace(standing, phase="relearning", waiting=recent[len(recent) - since :])
