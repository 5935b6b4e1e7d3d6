"""How a monitor goes on: from one standing and some events to the next, and the alarms of these.

Chunks are cut from the event on with which the watching began, comparisons of the geometry every
``period`` of it: whatever the calls were, the same bits.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamembed.monitoring import geometry, running
from streamembed.monitoring.alarm import Alarm
from streamembed.monitoring.explaining import Seen, of_events, of_geometry
from streamembed.monitoring.record import ALL_CHANNELS
from streamembed.monitoring.reference import CHUNK
from streamembed.monitoring.watch import SHARE, Events, Settings, Standing, Watched, watched
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["MOST_ALARMS", "RING", "advance"]

RING = 1280  # events that are looked back at
HYSTERESIS = 0.1  # of the run length of an alarm: below, a stream that was away is back
MOST_ALARMS = 1000  # that are remembered
FIRST_GEOMETRY = ALL_CHANNELS.index(geometry.CHANNELS[0])


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
    made = watched(events, settings, standing.renewals, len(standing.known))
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
        running=running.start(made.calibration.null.mean.size),
        compared=np.full(2, np.nan),
        renewals=standing.renewals + 1,
        is_alarmed=False,
        record=record,
    )


def _watch(
    standing: Standing, rest: Events, settings: Settings
) -> tuple[Standing, Events, Alarm | None]:
    """Whole chunks until the next comparison of the geometry, or the next alarm."""
    against, before = standing.watched, standing.running
    assert against is not None
    assert before is not None
    held = 0 if standing.waiting is None else len(standing.waiting)
    period = against.period // CHUNK
    left = period - (standing.position - held - standing.began) // CHUNK % period
    count = min((held + len(rest)) // CHUNK, left)
    used = count * CHUNK - held
    if count == 0:
        waiting = _together(standing.waiting, rest)
        position = standing.position + len(rest)
        return replace(standing, waiting=waiting, position=position), rest[len(rest) :], None
    block = _together(standing.waiting, rest[:used])
    scores = against.scores(block)
    z = against.calibration.null.whitened(scores)
    after, means, variances = running.run(before, z)
    statistics = running.values(means, variances, against.groups)
    logs = against.calibration.log_run_lengths(statistics)
    at = _turn(logs, standing, against)
    is_back = at is not None and standing.is_alarmed
    if at is not None:
        count = at + 1
        after, _, _ = running.run(before, z[:count])
    if is_back:
        after = running.start(z.shape[1])
    first = standing.position - held
    position = first + count * CHUNK
    recent = _together(standing.recent, block[: count * CHUNK])
    keep = max(RING, against.period)
    table = _by_channel(logs[:count], statistics[:count], against)
    compared = standing.compared
    looks = count == left and np.isfinite(settings.ert)
    now = None
    if looks:
        against = against.with_geometry((settings.seed, standing.renewals, 2))
        now = geometry.shape(against.map, recent.points[-against.period :])
        scored = geometry.scores(_geometry(against), now)
        # two comparisons in a row: one alone may have met a few far events
        twice = geometry.run_lengths(np.minimum(scored, compared), against.period)
        table[0][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = twice
        table[1][-1, FIRST_GEOMETRY : FIRST_GEOMETRY + 2] = scored
        compared = scored
    positions = first + CHUNK * np.arange(1, count + 1)
    standing = replace(
        standing,
        position=position,
        waiting=None,
        recent=recent[max(0, len(recent) - keep) :],
        running=after,
        watched=against,
        compared=compared,
        is_alarmed=standing.is_alarmed and not is_back,
        record=standing.record.followed_by(positions, "watching", *table),
    )
    rest = rest[count * CHUNK - held :]
    alarm = None
    again = standing.recurring > 0 and _at_once(position, standing, settings)
    seen = Seen(position, standing.began, again, standing.names, standing.recent)
    if at is not None and not is_back:
        which = int(logs[at].argmax())
        alarm = of_events(seen, against, which, float(logs[at, which]), means[at])
    elif looks and now is not None and not standing.is_alarmed:
        line = np.log(settings.ert * len(geometry.CHANNELS) / (1 - SHARE))
        loudest = int(np.nan_to_num(twice, nan=-np.inf).argmax())
        if twice[loudest] >= line:
            log = float(twice[loudest]) - np.log(len(geometry.CHANNELS) / (1 - SHARE))
            alarm = of_geometry(seen, against, loudest, log, now)
    return (
        (standing, rest, None)
        if alarm is None
        else (_after(standing, alarm, settings), rest, alarm)
    )


def _geometry(against: Watched) -> geometry.Geometry:
    assert against.geometry is not None
    return against.geometry


def _turn(logs: Floats, standing: Standing, against: Watched) -> int | None:
    """The first chunk with an alarm; of a stream that is away, the first that is back.

    It is back once no memory that is as short as that of its alarm sees anything: longer ones
    remember the time away for long.
    """
    line = against.calibration.threshold
    if not standing.is_alarmed:
        found = np.flatnonzero(logs.max(axis=1) >= line)
    else:
        longest = standing.alarms[-1].memory or np.inf
        seen = [i for i, label in enumerate(against.groups.labels) if label[1] <= longest]
        found = np.flatnonzero(logs[:, seen].max(axis=1) < line + np.log(HYSTERESIS))
    return int(found[0]) if len(found) else None


def _by_channel(logs: Floats, statistics: Floats, against: Watched) -> tuple[Floats, Floats, Ints]:
    """Of every chunk the loudest value of each channel, shapes (c, 7)."""
    labels = against.groups.labels
    wide = (len(logs), len(ALL_CHANNELS))
    table = np.full(wide, np.nan), np.full(wide, np.nan), np.zeros(wide, dtype=np.int64)
    rows = np.arange(len(logs))
    for name in against.groups.names:
        own = np.array([i for i, label in enumerate(labels) if label[0] == name])
        chosen = own[logs[:, own].argmax(axis=1)]
        column = ALL_CHANNELS.index(name)
        table[0][:, column] = logs[rows, chosen]
        table[1][:, column] = statistics[rows, chosen]
        table[2][:, column] = np.array([label[1] for label in labels])[chosen]
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
