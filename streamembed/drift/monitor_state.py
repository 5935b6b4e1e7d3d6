"""Settings, reference and state of a monitor.

All of them are immutable, so that no update is half applied; the codec of the package saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
from scipy.special import bdtrc

from streamembed.data.features import Features
from streamembed.drift import calibration, reference, season
from streamembed.drift.alarm import NO_LEAVE, Alarm
from streamembed.drift.calibration import N_STREAMS, Calibration
from streamembed.drift.dependence import Dependence
from streamembed.drift.missing_channel import MissingRows
from streamembed.drift.monitor_timeline import EVENT_CHANNELS, MonitorTimeline
from streamembed.drift.reference import BLOCKS, PER_SCORE, LabelReference, ReferenceMap
from streamembed.drift.running_statistics import ChannelGroups, RunningMeans
from streamembed.drift.season import Season
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts

MOST_FEATURES = 32  # that have no names and are still named
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
    metric: str
    scaling: str | None
    bandwidth: float | None
    on_bad_row: str
    seed: int
    period: int | None


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Events of the stream, in their order."""

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
        columns = zip(*((p.points, p.ids, p.positions, p.labels) for p in parts), strict=True)
        return Events(*(np.concatenate(column) for column in columns))


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedReference:
    """A frozen reference, and the distribution of scores without drift."""

    number: int  # in the stream, from 0; one that is made again keeps its number
    map: ReferenceMap
    season: Season | None
    events: Events  # all events of the reference
    # Scores of the calibration events, without spread, labels and components, sorted by column.
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
        points = self.deseasonalise(events)
        own = self.map.compute_scores(points)
        parts = [own, reference.compute_spread_scores(own, self.ordered)]
        if self.labels is not None:
            parts.append(self.labels.compute_scores(self.map.standardise(points), events.labels))
        return np.concatenate(parts, axis=1)

    def deseasonalise(self, events: Events) -> Floats:
        """Points of some events, less the season."""
        return remove_season(events, self.season)

    def score_anomalies(self, coverage: Floats) -> Floats:
        """Anomaly scores of events: the share of the calibration's coverage that is higher.

        Source: Vovk, Gammerman & Shafer (2005), conformal prediction: without drift a score of
        1 - p or more has probability p at most.
        """
        n = len(self.ordered)
        return np.asarray((n - self.ordered[:, 0].searchsorted(coverage, "left")) / (n + 1))

    def whiten_chunks(self, events: Events) -> Floats:
        """Whitened means of the scores of whole chunks, shape (c, p)."""
        return self.calibration.null.whiten_chunks(self.compute_scores(events), self.chunk_size)

    @property
    def chunk_size(self) -> int:
        """Events of a chunk."""
        return self.dependence.chunk_size

    def compute_log_run_lengths(self, events: Events, statistics: Floats) -> Floats:
        """Log run length of every statistic of whole chunks, and behind them of constant features.

        Shape (c, f + 1). The last column counts the events of a chunk in which constant features
        change; one fewer counts, because an alarm stands on two. 0 where nothing is constant.
        """
        chunk, own = self.chunk_size, np.zeros(len(statistics))
        if self.constant.any():
            changed = self.find_changed_constants(events).any(axis=1)
            count = changed.reshape(-1, chunk).sum(axis=1)
            p = np.maximum(bdtrc(count - 2.0, chunk, self.chance), np.finfo(np.float64).tiny)
            own = np.log(chunk) - np.log(p)
        return np.column_stack([self.calibration.log_run_lengths(statistics), own])

    def find_changed_constants(self, events: Events) -> Bools:
        """Which features that are constant in the reference have another value, shape (n, q)."""
        usual, own = map(self.map.standardise, (self.events.points[:1], events.points))
        changed: Bools = own[:, self.constant] != usual[:, self.constant]
        return changed

    @property
    def pair_search_interval(self) -> int:
        """Events between two searches of pairs; they do not overlap."""
        half = len(self.events) // 2 if self.dependence.block > 1 else len(self.map.points)
        return max(half // self.chunk_size, 1) * self.chunk_size


@dataclass(frozen=True, slots=True)
class Candidate:
    """Events that are to become a reference: those since one of them."""

    since: int
    due: int  # position at which they are looked at next


@dataclass(frozen=True, slots=True, eq=False)
class Watching:
    """A reference that the stream is compared with."""

    reference: CalibratedReference
    is_home: bool  # whether it is the one that "hold" calls home, the first one
    running: RunningMeans
    began: int  # event at which it began to watch

    @property
    def chunk_size(self) -> int:
        """Events of a chunk."""
        return self.reference.chunk_size


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """State of a monitor.

    It collects a candidate, or watches, or both where the reference that watches is provisional; it
    has stopped where it does neither.
    """

    settings: MonitorSettings
    candidate: Candidate | None
    watching: Watching | None = None
    timeline: MonitorTimeline = field(default_factory=MonitorTimeline)
    features: Features | None = None  # None before the first event
    position: int = 0  # events so far
    rejected: int = 0
    missing: MissingRows = field(default_factory=MissingRows)
    ids_kind: str | None = None  # "positions", "numbers" or "strings"; None before the first event
    known: tuple[str | int | float | bool, ...] = ()  # labels so far, in the order of their codes
    # Events behind the last whole chunk, or stage of a candidate; ``position`` counts them.
    waiting: PendingParts[Events] = field(default_factory=PendingParts)
    recent: Events | None = None  # the last ones before these, and the candidate
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
        if self.candidate is None:
            return "stopped"
        return "relearning" if self.numbered else "collecting"

    @property
    def names(self) -> tuple[str, ...]:
        """The features; none before the first event."""
        return () if self.features is None else self.features.names

    @property
    def n_processed(self) -> int:
        """Events so far, but for those that wait."""
        return self.position - self.waiting.count

    @property
    def alarm(self) -> Alarm | None:
        """The last alarm that left a reference, as it was explained last."""
        alarms = (r for r in reversed(self.records) if r.kind in ("alarm", "explained"))
        return next((alarm for alarm in alarms if alarm.channel not in NO_LEAVE), None)

    def list_since(self, position: int) -> Events:
        """The last events, from this one on."""
        assert self.recent is not None
        return self.recent[int(np.searchsorted(self.recent.positions, position)) :]

    def list_watched(self, most: int) -> Events:
        """Whole chunks of the last events that the reference has watched, at most so many."""
        assert self.watching is not None
        events, chunk = self.list_since(self.watching.began), self.watching.reference.chunk_size
        return events[len(events) - min(len(events), most) // chunk * chunk :]

    @property
    def next_alarm_number(self) -> int:
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


def are_vectors(features: Features | None) -> bool:
    """Whether features are too many, and without names, for one of them to say something."""
    return features is not None and features.ordered and len(features.names) > MOST_FEATURES


def build_reference(
    events: Events,
    settings: MonitorSettings,
    number: int,
    own_season: Season | None,
    serial: Dependence,
    features: Features | None,
) -> CalibratedReference:
    """Build the reference of these events: half are for the map, half for the calibration.

    Parameters
    ----------
    number
        See `CalibratedReference`.
    serial
        Dependence of the events less the season: stretches of so many blocks alternate.
    """
    points = remove_season(events, own_season)
    stretch = serial.block * min(BLOCKS, max(len(events) // (2 * serial.block), 1))
    stretches = np.arange(len(events)) // stretch
    chosen = stretches % 2 == 0
    max_scores = max(1, int((~chosen).sum()) // serial.block // PER_SCORE)
    in_map = np.flatnonzero(chosen)
    if serial.block > 1:
        count = min(len(in_map), settings.n_reference // 2)
        in_map = in_map[np.linspace(0, len(in_map) - 1, count).astype(np.int64)]
    is_vector = are_vectors(features)
    reference_map = reference.fit(
        points[in_map],
        min(settings.n_coordinates, max_scores),
        # the numbers of a vector have one unit
        None if is_vector and settings.bandwidth is None else settings.scaling,
        settings.bandwidth,
        1.0 if features is None else features.divisors,
        is_vector,
    )
    own = reference_map.compute_scores(points[~chosen])
    k = reference_map.psi.shape[1]
    ordered = np.sort(own[:, : 1 + k] if is_vector else own, axis=0)
    parts = [own, reference.compute_spread_scores(own, ordered)]
    sizes = [1, k, own.shape[1] - 1 - k, ordered.shape[1]]
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
    names, counts = tuple(EVENT_CHANNELS[i] for i in used), tuple(sizes[i] for i in used)
    columns, fitted = (0, 0), np.zeros(0)
    if is_vector:
        columns = 1 + k, own.shape[1]
        fitted = reference_map.compute_scores(points[in_map])[:, 1 + k :].mean(axis=0)
    groups = ChannelGroups(names, counts, columns)
    calibrated = calibration.calibrate(
        np.concatenate(parts, axis=1),
        stretches[~chosen],
        groups,
        settings.ert / EVENT_CHANNEL_SHARE,
        (settings.seed, number, 1),
        serial.block,
        N_STREAMS if len(events) >= settings.n_reference else N_STREAMS // 2,
        fitted=fitted,
    )
    standard = reference_map.standardise(events.points)
    return CalibratedReference(
        number=number,
        map=reference_map,
        season=own_season,
        events=events,
        ordered=ordered,
        constant=(standard == standard[0]).all(axis=0),
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


def remove_season(events: Events, own: Season | None) -> Floats:
    """Points of some events, less the season."""
    return events.points if own is None else own.remove(events.points, events.positions)


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
