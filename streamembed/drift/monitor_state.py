"""Settings, reference and state of a monitor.

All of them are immutable, so that no update is half applied; the codec of the package saves them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from scipy.special import bdtrc

from streamembed.data.features import Features
from streamembed.drift import calibration, dependence, reference, season
from streamembed.drift.alarm import Alarm
from streamembed.drift.calibration import N_STREAMS, Calibration
from streamembed.drift.dependence import Dependence
from streamembed.drift.missing_channel import CHANNEL, MissingRows
from streamembed.drift.monitor_timeline import EVENT_CHANNELS, MonitorTimeline
from streamembed.drift.reference import PER_SCORE, LabelReference, ReferenceMap
from streamembed.drift.running_statistics import FORMS, MEMORIES, ChannelGroups, RunningMeans
from streamembed.drift.season import Season
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.storage import archive

EVENT_CHANNEL_SHARE = 0.95  # of the false alarms that event channels may raise
OTHER_SHARE = (1 - EVENT_CHANNEL_SHARE) / 2  # that pairs, and missing rows, may raise


@dataclass(frozen=True, slots=True)
class MonitorSettings:
    """Parameters of `streamembed.Monitor`, checked."""

    ert: float
    n_reference: int
    n_coordinates: int
    policy: str
    labels: bool
    scaling: str | None
    bandwidth: float | None
    on_bad_row: str
    seed: int
    period: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Consecutive events of the stream."""

    points: Annotated[Floats, "n d"]  # in the caller's units
    ids: Annotated[Array, "n"]  # int64 or objects that are str
    positions: Annotated[Ints, "n"]  # their numbers in the stream
    # Code of the label among those of the monitor; -1 where there is none.
    labels: Annotated[Ints, "n"]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: slice | Bools) -> Events:
        return Events(self.points[rows], self.ids[rows], self.positions[rows], self.labels[rows])

    @classmethod
    def joined(cls, parts: Sequence[Events]) -> Events:
        """Concatenate."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.positions for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedReference:
    """A frozen reference, and the distribution of scores without drift."""

    number: int  # in the stream, from 0; one that is made again keeps its number
    map: ReferenceMap
    season: Season | None
    events: Events  # all events of the reference
    # Scores of the calibration events, without spread and labels, sorted by column.
    ordered: Annotated[Floats, "* s"]
    constant: Annotated[Bools, "d"]  # which features are constant in the reference
    # Probability that a new event changes one of these; see `_estimate_change_probability`.
    chance: float
    groups: ChannelGroups
    labels: LabelReference | None
    calibration: Calibration
    dependence: Dependence

    def compute_scores(self, events: Events) -> Floats:
        """All scores of some events, shape (n, p)."""
        points = self.prepare(events)
        own = self.map.compute_scores(points)
        parts = [own, reference.score_spread(own, self.ordered)]
        if self.labels is not None:
            parts.append(self.labels.compute_scores(self.map.standardise(points), events.labels))
        return np.concatenate(parts, axis=1)

    def prepare(self, events: Events) -> Floats:
        """Points of some events, less the season."""
        if self.season is None:
            return events.points
        return self.season.remove(events.points, events.positions)

    def rank_coverage(self, coverage: Floats) -> Floats:
        """Anomaly scores of events: the share of the calibration's coverage that is higher.

        Source: Vovk, Gammerman & Shafer (2005), conformal prediction: without drift a score of
        1 - p or more has probability p at most.
        """
        n = len(self.ordered)
        return np.asarray((n - self.ordered[:, 0].searchsorted(coverage, "left")) / (n + 1))

    def whiten_chunks(self, events: Events) -> Floats:
        """Whitened means of the scores of whole chunks, shape (c, p)."""
        return self.calibration.null.whiten_chunks(self.compute_scores(events), self.chunk)

    @property
    def chunk(self) -> int:
        """Events of a chunk."""
        return self.dependence.chunk

    @property
    def rows(self) -> int:
        """Calibration events, or means of blocks of them."""
        return len(self.ordered) // self.dependence.block

    def compute_constant_run_lengths(self, events: Events) -> Floats:
        """Log run length of the number of events per chunk in which constant features change.

        Shape (c,); one event fewer counts, because an alarm stands on two. 0 where nothing is
        constant.
        """
        chunk = self.chunk
        if not self.constant.any():
            return np.zeros(len(events) // chunk)
        value = self.events.points[0, self.constant]
        changed = (events.points[:, self.constant] != value).any(axis=1)
        count = changed.reshape(-1, chunk).sum(axis=1)
        p = np.maximum(bdtrc(count - 2.0, chunk, self.chance), np.finfo(np.float64).tiny)
        logs: Floats = np.log(chunk) - np.log(p)
        return logs

    @property
    def interval(self) -> int:
        """Events between two searches of pairs; they do not overlap."""
        half = len(self.events) // 2 if self.dependence.block > 1 else len(self.map.points)
        return max(half // self.chunk, 1) * self.chunk


@dataclass(frozen=True, slots=True, eq=False)
class Collecting:
    """Events of the reference to be."""

    events: Events | None  # None before the first
    target: int  # events that it has when it is looked at next

    def __len__(self) -> int:
        return 0 if self.events is None else len(self.events)


@dataclass(frozen=True, slots=True, eq=False)
class Watching:
    """A reference that the stream is compared with."""

    reference: CalibratedReference
    is_home: bool  # whether it is the one that "hold" calls home, the first one
    running: RunningMeans
    began: int  # event at which it began to watch
    growing: Collecting | None  # events of which a provisional reference is made again


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """State of a monitor: it collects a reference, watches, or has stopped and has neither."""

    collecting: Collecting | None
    watching: Watching | None = None
    timeline: MonitorTimeline = field(default_factory=MonitorTimeline)
    names: tuple[str, ...] = ()  # the features; empty before the first event
    ordered: bool = True  # True if features have positions instead of names
    position: int = 0  # events so far
    rejected: int = 0
    missing: MissingRows = field(default_factory=MissingRows)
    ids_kind: str | None = None  # "positions", "numbers" or "strings"; None before the first event
    known: tuple[str | int | float | bool, ...] = ()  # labels so far, in the order of their codes
    # Events behind the last whole chunk, or stage of a reference; ``position`` counts them.
    waiting: PendingParts[Events] = field(default_factory=PendingParts)
    due: int = 0  # position at which there is something to do next
    recent: Events | None = None  # the last ones before these
    # Home, and the last other reference that was left; None while they watch.
    home: CalibratedReference | None = None
    left: CalibratedReference | None = None
    numbered: int = 0  # numbers of references that were given
    records: tuple[Alarm, ...] = ()  # the last ones, of all kinds

    @property
    def phase(self) -> str:
        """One of `PHASES`."""
        if self.watching is not None:
            return "watching"
        if self.collecting is None:
            return "stopped"
        return "relearning" if self.numbered else "collecting"

    @property
    def alarm(self) -> Alarm | None:
        """The last alarm that left a reference, as it was explained last."""
        alarms = (r for r in reversed(self.records) if r.kind in ("alarm", "explained"))
        return next((alarm for alarm in alarms if alarm.channel != CHANNEL), None)

    @property
    def watched_reference(self) -> CalibratedReference:
        """The one that watches; there must be one."""
        assert self.watching is not None
        return self.watching.reference

    def list_watched(self, most: int = sys.maxsize) -> Events:
        """Whole chunks of the last events that this reference has watched, at most so many."""
        assert self.watching is not None
        assert self.recent is not None
        since = self.position - self.waiting.count - self.watching.began
        chunk = self.watching.reference.chunk
        count = min(len(self.recent), since, most) // chunk * chunk
        return self.recent[len(self.recent) - count :]

    @property
    def next_number(self) -> int:
        """Of an alarm."""
        return max((record.number for record in self.records), default=-1) + 1

    @property
    def reference(self) -> CalibratedReference | None:
        """The one that watches, or that the last alarm left; None before the first."""
        if self.watching is not None:
            return self.watching.reference
        return None if self.alarm is None else self.find_reference(self.alarm.reference)

    def find_reference(self, number: int) -> CalibratedReference | None:
        """The reference of that number; None where it is forgotten."""
        own = None if self.watching is None else self.watching.reference
        kept = (one for one in (own, self.left, self.home) if one is not None)
        return next((one for one in kept if one.number == number), None)

    @property
    def features(self) -> Features | None:
        """None before the first event."""
        return Features(self.names, self.ordered) if self.names else None

    def with_features(self, features: Features) -> MonitorState:
        """The state of a monitor of these features."""
        if features.names == self.names and features.ordered == self.ordered:
            return self
        return replace(self, names=features.names, ordered=features.ordered)


@dataclass(frozen=True, slots=True, eq=False)
class SavedMonitor:
    """The saved form of a monitor."""

    settings: MonitorSettings
    standing: MonitorState

    def check(self) -> None:
        """Raise ValueError if the parts are inconsistent."""
        state, watching = self.standing, self.standing.watching
        archive.must(state.collecting is None or watching is None, "phase")
        own = None if watching is None else watching.reference
        for one in filter(None, (state.home, state.left, own)):
            p = sum(one.groups.sizes)
            archive.must(one.calibration.null.mean.shape == (p,), "calibration")
            count = len(MEMORIES) * len(FORMS) * len(one.groups.names)
            archive.must(one.calibration.location.shape == (count,), "statistics")
            archive.must(len(state.names) == one.map.center.size, "features")
        if watching is not None:
            shape = len(MEMORIES), sum(watching.reference.groups.sizes)
            archive.must(watching.running.carried.shape == shape, "running")


def build_reference(
    events: Events,
    settings: MonitorSettings,
    number: int,
    serial: Dependence,
    previous: Season | None = None,
) -> CalibratedReference:
    """Build the reference of these events: half are for the map, half for the calibration.

    Parameters
    ----------
    number
        See `CalibratedReference`.
    serial
        Dependence of the events: stretches of so many blocks alternate.
    previous
        The season where there are too few events to fit it.
    """
    own_season = fit_season(events, settings.period, previous)
    points = events.points
    if own_season is not None:
        points = own_season.remove(points, events.positions)
    stretch = reference.count_stretch(len(events), serial.block)
    chosen = reference.select_map_events(len(events), stretch)
    max_scores = max(1, int((~chosen).sum()) // serial.block // PER_SCORE)
    in_map = np.flatnonzero(chosen)
    if serial.block > 1:
        count = min(len(in_map), settings.n_reference // 2)
        in_map = in_map[np.linspace(0, len(in_map) - 1, count).astype(np.int64)]
    reference_map = reference.fit(
        points[in_map],
        min(settings.n_coordinates, max_scores),
        settings.scaling,
        settings.bandwidth,
    )
    own = reference_map.compute_scores(points[~chosen])
    ordered = np.sort(own, axis=0)
    parts = [own, reference.score_spread(own, ordered)]
    k = reference_map.psi.shape[1]
    sizes = [1, k, own.shape[1] - 1 - k, own.shape[1]]
    labels = None
    known = int(events.labels.max(initial=-1)) + 1  # not those that came later in the same call
    if settings.labels and known:
        standard = reference_map.standardise(points)
        labels = reference.fit_labels(
            standard[chosen], events.labels[chosen], known, max_scores, settings.seed
        )
        parts.append(labels.compute_scores(standard[~chosen], events.labels[~chosen]))
        sizes.append(parts[-1].shape[1])
    used = [i for i, size in enumerate(sizes) if size]
    groups = ChannelGroups(tuple(EVENT_CHANNELS[i] for i in used), tuple(sizes[i] for i in used))
    calibrated = calibration.calibrate(
        np.concatenate(parts, axis=1),
        np.flatnonzero(~chosen) // stretch,
        groups,
        settings.ert / EVENT_CHANNEL_SHARE,
        (settings.seed, number, 1),
        serial.block,
        N_STREAMS if len(events) >= settings.n_reference else N_STREAMS // 2,
    )
    return CalibratedReference(
        number=number,
        map=reference_map,
        season=own_season,
        events=events,
        ordered=ordered,
        constant=(events.points == events.points[0]).all(axis=0),
        chance=_estimate_change_probability(events.points),
        groups=groups,
        labels=labels,
        calibration=calibrated,
        dependence=serial,
    )


def fit_season(events: Events, period: int | None, previous: Season | None) -> Season | None:
    """The season of a reference; the previous one where it has less than two periods."""
    if period is None or len(events) < 2 * period:
        return previous
    return season.fit(events.points, events.positions, period)


def measure_dependence(
    events: Events, settings: MonitorSettings, left: CalibratedReference | None = None
) -> Dependence:
    """The dependence of events, less their season; ``left`` is the reference before."""
    usual, previous = (1, None) if left is None else (left.dependence.block, left.season)
    points, own_season = events.points, fit_season(events, settings.period, previous)
    if own_season is not None:
        points = own_season.remove(points, events.positions)
    return dependence.measure(points, usual, settings.n_reference)


def _estimate_change_probability(points: Floats) -> float:
    """Probability that a new event changes a feature that is constant in these (n, d).

    Each of n + 1 events is as likely the last as any other. So the chance is the share of events
    that alone have another value of some feature: with many features that rarely change, as the
    border of an image, far more than one of n + 1.

    Source: Good (1953), "The population frequencies of species". Differs: one event more is
    counted, so that it is never 0.
    """
    usual = np.median(points, axis=0)
    changed = points != usual
    alone = changed[:, changed.sum(axis=0) == 1].any(axis=1)
    return float((alone.sum() + 1) / (len(points) + 1))
