"""Settings, reference and state of a monitor.

All of them are immutable, so that no update is half applied; the codec of the package saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from scipy.special import bdtrc

from streamembed.data.features import Features
from streamembed.drift import calibration, dependence, geometry_channel, reference, season
from streamembed.drift.alarm import Alarm
from streamembed.drift.calibration import N_STREAMS, Calibration
from streamembed.drift.dependence import Dependence
from streamembed.drift.geometry_channel import ReferenceGeometry
from streamembed.drift.monitor_timeline import EVENT_CHANNELS, PHASES, MonitorTimeline
from streamembed.drift.reference import PER_SCORE, LabelReference, ReferenceMap
from streamembed.drift.running_statistics import MEMORIES, ChannelGroups, RunningMeans
from streamembed.drift.season import Season
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.storage import archive

EVENT_CHANNEL_SHARE = 0.95  # of the false alarms that event channels may raise


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

    def is_immediate(self, position: int, began: int) -> bool:
        """Whether a reference that began there is no older than it took to collect it."""
        return position - began <= self.n_reference


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

    def __getitem__(self, rows: slice) -> Events:
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
    build: int  # references made before
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
    geometry: ReferenceGeometry | None  # None until the first comparison
    returns: int = 0  # to it, since it was made

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

    def with_geometry(self, seed: int) -> CalibratedReference:
        """The same with its geometry, which comparisons need."""
        if self.geometry is not None:
            return self
        most = max(len(self.events) // (4 * geometry_channel.BLOCK), 1)
        points = self.prepare(self.events)[:: min(self.dependence.block, most)]
        own_seed = seed, self.build + 1, 2
        return replace(self, geometry=geometry_channel.fit_geometry(self.map, points, own_seed))

    def compute_constant_run_lengths(self, events: Events) -> Floats:
        """Log run length of the number of events per chunk in which constant features change.

        Shape (c,); 0 where nothing is constant.
        """
        chunk = self.chunk
        if not self.constant.any():
            return np.zeros(len(events) // chunk)
        value = self.events.points[0, self.constant]
        changed = (events.points[:, self.constant] != value).any(axis=1)
        count = changed.reshape(-1, chunk).sum(axis=1)
        p = np.maximum(bdtrc(count - 1.0, chunk, self.chance), np.finfo(np.float64).tiny)
        logs: Floats = np.log(chunk) - np.log(p)
        return logs

    @property
    def interval(self) -> int:
        """Events between two comparisons of the geometry; they do not overlap."""
        half = len(self.events) // 2 if self.dependence.block > 1 else len(self.map.points)
        return max(half // self.chunk, 1) * self.chunk


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """State of a monitor."""

    timeline: MonitorTimeline
    compared: Annotated[Floats, "2"]  # scores of the geometry at the last comparison; nan before
    names: tuple[str, ...] = ()  # the features; empty before the first event
    ordered: bool = True  # True if features have positions instead of names
    position: int = 0  # events so far
    rejected: int = 0
    ids_kind: str | None = None  # "positions", "numbers" or "strings"; None before the first event
    known: tuple[str | int | float | bool, ...] = ()  # labels so far, in the order of their codes
    phase: str = "collecting"  # "collecting", "watching", "relearning" or "stopped"
    # Events behind the last whole chunk, or stage of a candidate; ``position`` counts them.
    waiting: PendingParts[Events] = field(default_factory=PendingParts)
    due: int = 0  # position at which there is something to do next
    recent: Events | None = None  # the last ones before these
    began: int = 0  # event at which the reference began to watch
    watched: CalibratedReference | None = None
    running: RunningMeans | None = None
    builds: int = 0  # references made
    # Events of the reference to be, and how many there must be for its next stage; the reference
    # that watches is provisional while there are some.
    candidate: Events | None = None
    target: int = 0
    # References that were left, the last one last; and the one that "hold" calls home.
    remembered: tuple[CalibratedReference, ...] = ()
    home: int = 0
    numbered: int = 0  # numbers of references that were given
    barred: int = -1  # reference to which the present candidate cannot return; -1 for none
    returned: int = -1  # event at which the stream returned to the reference; -1 if it did not
    recurring: int = 0  # consecutive alarms that came soon after their reference
    alarmed: int = 0  # alarms so far
    revision: int = -1  # explanations of the last alarm after the first; -1 where no more come
    records: tuple[Alarm, ...] = ()  # the last ones, of all kinds

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
        state, watched = self.standing, self.standing.watched
        archive.must(state.phase in PHASES, "phase")
        archive.must((watched is not None) == (state.running is not None), "running")
        archive.must(state.phase != "watching" or watched is not None, "reference")
        for one in (*state.remembered, *(() if watched is None else (watched,))):
            p = sum(one.groups.sizes)
            archive.must(one.calibration.null.mean.shape == (p,), "calibration")
            archive.must(one.calibration.location.shape == (len(one.groups.labels),), "statistics")
            archive.must(len(state.names) == one.map.center.size, "features")
        if watched is not None and state.running is not None:
            shape = len(MEMORIES), sum(watched.groups.sizes)
            archive.must(state.running.carried.shape == shape, "running")


def build_reference(
    events: Events,
    settings: MonitorSettings,
    number: int,
    build: int,
    serial: Dependence,
    previous: Season | None = None,
) -> CalibratedReference:
    """Build the reference of these events: half are for the map, half for the calibration.

    Parameters
    ----------
    number, build
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
        (settings.seed, build, 1),
        serial.block,
        N_STREAMS if len(events) >= settings.n_reference else N_STREAMS // 2,
    )
    return CalibratedReference(
        number=number,
        build=build,
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
        geometry=None,
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
    measured = dependence.measure(points, usual, settings.n_reference)
    # one season is all that is subtracted
    return measured if settings.period is None else replace(measured, period=0)


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
