"""Settings, reference and state of a monitor.

All of them are immutable, so that no update is half applied; the codec of the package saves them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.special import bdtrc

from streamembed.data.features import Features
from streamembed.drift import autocorrelation, calibration, geometry_channel, reference
from streamembed.drift.alarm import Alarm
from streamembed.drift.autocorrelation import Autocorrelation
from streamembed.drift.calibration import Calibration
from streamembed.drift.geometry_channel import ReferenceGeometry
from streamembed.drift.monitor_timeline import EVENT_CHANNELS, PHASES, MonitorTimeline
from streamembed.drift.reference import CHUNK, PER_SCORE, LabelReference, ReferenceMap
from streamembed.drift.running_statistics import MEMORIES, ChannelGroups, RunningMeans
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
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

    def is_immediate(self, position: int, began: int) -> bool:
        """Whether a reference that began there is no older than it took to collect it."""
        return position - began <= self.n_reference


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Consecutive events of the stream."""

    points: Annotated[Floats, "n d"]  # in the caller's units
    ids: Annotated[Array, "n"]  # int64 or objects that are str
    # Code of the label among those of the monitor; -1 where there is none.
    labels: Annotated[Ints, "n"]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: slice) -> Events:
        return Events(self.points[rows], self.ids[rows], self.labels[rows])

    @staticmethod
    def join(parts: Sequence[Events]) -> Events:
        """Concatenate."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class CalibratedReference:
    """A frozen reference, and the distribution of scores without drift."""

    map: ReferenceMap
    events: Events  # all events of the reference
    # Scores of the calibration events, without spread and labels, sorted by column.
    ordered: Annotated[Floats, "* s"]
    constant: Annotated[Bools, "d"]  # which features are constant in the reference
    # Probability that a new event changes one of these; see `_estimate_change_probability`.
    chance: float
    groups: ChannelGroups
    labels: LabelReference | None
    calibration: Calibration
    dependence: Autocorrelation
    geometry: ReferenceGeometry | None  # None until the first comparison

    def compute_scores(self, events: Events) -> Floats:
        """All scores of some events, shape (n, p)."""
        own = self.map.compute_scores(events.points)
        parts = [own, reference.score_spread(own, self.ordered)]
        if self.labels is not None:
            parts.append(
                self.labels.compute_scores(self.map.standardise(events.points), events.labels)
            )
        return np.concatenate(parts, axis=1)

    def with_geometry(self, seed: tuple[int, ...]) -> CalibratedReference:
        """The same with its geometry, which comparisons need."""
        if self.geometry is not None:
            return self
        return replace(
            self, geometry=geometry_channel.fit_geometry(self.map, self.events.points, seed)
        )

    def compute_constant_run_lengths(self, points: Floats) -> Floats:
        """Log run length of the number of events per chunk in which constant features change.

        Shape (c,); 0 where nothing is constant.
        """
        if not self.constant.any():
            return np.zeros(len(points) // CHUNK)
        changed = (points[:, self.constant] != self.events.points[0, self.constant]).any(axis=1)
        count = changed.reshape(-1, CHUNK).sum(axis=1)
        logs: Floats = np.log(CHUNK) - np.log(bdtrc(count - 1.0, CHUNK, self.chance))
        return logs

    @property
    def period(self) -> int:
        """Events between two comparisons of the geometry; they do not overlap."""
        return len(self.map.points) // CHUNK * CHUNK


@dataclass(frozen=True, slots=True, eq=False)
class MonitorState:
    """State of a monitor."""

    record: MonitorTimeline
    compared: Annotated[Floats, "2"]  # scores of the geometry at the last comparison; nan before
    names: tuple[str, ...] = ()  # the features; empty before the first event
    ordered: bool = True  # True if features have positions instead of names
    position: int = 0  # events so far
    rejected: int = 0
    ids_kind: str | None = None  # "positions", "numbers" or "strings"; None before the first event
    phase: str = "collecting"  # "collecting", "watching", "relearning" or "stopped"
    # Of the reference that is being collected, or of an incomplete chunk; ``position`` counts them.
    waiting: Events | None = None
    recent: Events | None = None  # the last ones, whole chunks
    began: int = 0  # event at which the monitoring began
    watched: CalibratedReference | None = None
    running: RunningMeans | None = None
    renewals: int = 0  # references before this one
    recurring: int = 0  # consecutive alarms that came soon after their reference
    # With policy="hold": whether the stream is still away from its reference.
    is_alarmed: bool = False
    known: tuple[str | int | float | bool, ...] = ()  # labels so far, in the order of their codes
    alarms: tuple[Alarm, ...] = ()

    @property
    def features(self) -> Features | None:
        """None before the first event."""
        return Features(self.names, self.ordered) if self.names else None

    def with_features(self, features: Features) -> MonitorState:
        """The state of a monitor of these features."""
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
        if watched is None or state.running is None:
            return
        p = sum(watched.groups.sizes)
        archive.must(state.running.carried.shape == (len(MEMORIES), p), "running")
        archive.must(watched.calibration.null.mean.shape == (p,), "calibration")
        archive.must(
            watched.calibration.location.shape == (len(watched.groups.labels),), "statistics"
        )
        archive.must(len(state.names) == watched.map.center.size, "features")


def build_reference(
    events: Events, settings: MonitorSettings, renewals: int
) -> CalibratedReference:
    """Build the reference of these events: half are for the map, half for the calibration."""
    chosen = reference.select_map_events(len(events))
    points = events.points
    max_scores = max(1, int((~chosen).sum()) // PER_SCORE)
    reference_map = reference.fit(
        points[chosen],
        min(settings.n_coordinates, max_scores),
        settings.scaling,
        settings.bandwidth,
    )
    own = reference_map.compute_scores(points)
    spread = np.empty_like(own)
    for half in (chosen, ~chosen):
        spread[half] = reference.score_spread(own[half], np.sort(own[half], axis=0))
    parts = [own, spread]
    k = reference_map.psi.shape[1]
    sizes = [1, k, own.shape[1] - 1 - k, own.shape[1]]
    labels = None
    known = int(events.labels.max(initial=-1)) + 1  # not those that came later in the same call
    if settings.labels and known:
        standard = reference_map.standardise(points)
        labels = reference.fit_labels(
            standard[chosen], events.labels[chosen], known, max_scores, settings.seed
        )
        parts.append(labels.compute_scores(standard, events.labels))
        sizes.append(parts[-1].shape[1])
    used = [i for i, size in enumerate(sizes) if size]
    groups = ChannelGroups(tuple(EVENT_CHANNELS[i] for i in used), tuple(sizes[i] for i in used))
    scores = np.concatenate(parts, axis=1)
    calibrated = calibration.calibrate(
        scores[~chosen],
        np.flatnonzero(~chosen) // reference.BLOCK,
        groups,
        settings.ert / EVENT_CHANNEL_SHARE,
        (settings.seed, renewals, 1),
    )
    return CalibratedReference(
        map=reference_map,
        events=events,
        ordered=np.sort(own[~chosen], axis=0),
        constant=(points == points[0]).all(axis=0),
        chance=_estimate_change_probability(points),
        groups=groups,
        labels=labels,
        calibration=calibrated,
        dependence=autocorrelation.measure(scores, chosen, groups),
        geometry=None,
    )


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
