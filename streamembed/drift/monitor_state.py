"""What a monitor is made of: its settings, the reference it watches against, where it stands.

All of it is immutable, so that nothing is ever half applied; the codec of the package saves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from scipy.special import bdtrc

from streamembed.drift import autocorrelation, calibration, geometry_channel, reference
from streamembed.drift.alarm import Alarm
from streamembed.drift.autocorrelation import Dependence
from streamembed.drift.calibration import Calibration
from streamembed.drift.geometry_channel import Geometry
from streamembed.drift.monitor_timeline import PHASES, Record
from streamembed.drift.reference import CHUNK, PER_SCORE, Labels, Reference
from streamembed.drift.running_statistics import MEMORIES, Groups, Running
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.storage import archive

__all__ = [
    "EVENT_CHANNELS",
    "SHARE",
    "Events",
    "Saved",
    "Settings",
    "Standing",
    "Watched",
    "watched",
]

EVENT_CHANNELS = ("coverage", "coordinates", "features", "spread", "labels")
SHARE = 0.95  # of the false alarms that event channels may raise


@dataclass(frozen=True, slots=True)
class Settings:
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


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Consecutive events of the stream.

    Attributes
    ----------
    points : (n, d)
        In the caller's units.
    ids : (n,)
        int64 or objects that are str.
    labels : (n,)
        Number of the label among those that the monitor has met; -1 where there is none.
    """

    points: Annotated[Floats, "n d"]
    ids: Annotated[Array, "n"]
    labels: Annotated[Ints, "n"]

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, rows: slice) -> Events:
        return Events(self.points[rows], self.ids[rows], self.labels[rows])

    @staticmethod
    def joined(parts: Sequence[Events]) -> Events:
        """All of them in one piece."""
        if len(parts) == 1:
            return parts[0]
        return Events(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.labels for part in parts]),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Watched:
    """A frozen reference, and what is normal against it.

    Attributes
    ----------
    map : Reference
    events : Events
        Of which it was made, all of them.
    ordered : (n, s)
        Scores of those that calibrate, without spread and labels, sorted by column.
    constant : (d,)
        Which features are the same in all of the events.
    chance : float
        That another event has another value of one of these; see `_chance`.
    groups : Groups
    labels : Labels or None
    calibration : Calibration
    dependence : Dependence
    geometry : Geometry or None
        None until the first comparison.
    """

    map: Reference
    events: Events
    ordered: Annotated[Floats, "* s"]
    constant: Annotated[Bools, "d"]
    chance: float
    groups: Groups
    labels: Labels | None
    calibration: Calibration
    dependence: Dependence
    geometry: Geometry | None

    def scores(self, events: Events) -> Floats:
        """Everything that is watched of some events, shape (n, p)."""
        own = self.map.scores(events.points)
        parts = [own, reference.spread(own, self.ordered)]
        if self.labels is not None:
            parts.append(self.labels.scores(self.map.standardised(events.points), events.labels))
        return np.concatenate(parts, axis=1)

    def with_geometry(self, seed: tuple[int, ...]) -> Watched:
        """The same, ready for comparisons."""
        if self.geometry is not None:
            return self
        return replace(self, geometry=geometry_channel.learn(self.map, self.events.points, seed))

    def woken(self, points: Floats) -> Floats:
        """Log of the run length of what each chunk has of events whose constants have changed.

        Shape (c,); 0 where nothing is constant.
        """
        if not self.constant.any():
            return np.zeros(len(points) // CHUNK)
        others = (points[:, self.constant] != self.events.points[0, self.constant]).any(axis=1)
        count = others.reshape(-1, CHUNK).sum(axis=1)
        found: Floats = np.log(CHUNK) - np.log(bdtrc(count - 1.0, CHUNK, self.chance))
        return found

    @property
    def period(self) -> int:
        """Events between two comparisons of the geometry; none is looked at twice."""
        return len(self.map.points) // CHUNK * CHUNK


@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Where a monitor stands in its stream.

    Attributes
    ----------
    names : tuple of str
        The features; empty before the first event.
    ordered : bool
        True where they are places.
    position : int
        Events so far.
    rejected : int
    ids_kind : str or None
        "positions", "numbers" or "strings"; None before the first event.
    phase : str
        "collecting", "watching", "relearning" or "stopped".
    waiting : Events or None
        Of the reference that is being collected, or of a chunk that is not whole; they are counted
        in ``position``.
    recent : Events or None
        The last ones that were watched, whole chunks.
    began : int
        Event with which the watching began.
    watched : Watched or None
    running : Running or None
    compared : (2,)
        Scores of the geometry at the last comparison; nan before.
    renewals : int
        References before this one.
    recurring : int
        Alarms in a row that came as soon as the reference was there.
    is_alarmed : bool
        With policy="hold": whether the stream is still away.
    known : tuple of (str, int, float or bool)
        Labels that were met.
    alarms : tuple of Alarm
    record : Record
    """

    record: Record
    compared: Annotated[Floats, "2"]
    names: tuple[str, ...] = ()
    ordered: bool = True
    position: int = 0
    rejected: int = 0
    ids_kind: str | None = None
    phase: str = "collecting"
    waiting: Events | None = None
    recent: Events | None = None
    began: int = 0
    watched: Watched | None = None
    running: Running | None = None
    renewals: int = 0
    recurring: int = 0
    is_alarmed: bool = False
    known: tuple[str | int | float | bool, ...] = ()
    alarms: tuple[Alarm, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Saved:
    """All that is kept of a monitor."""

    settings: Settings
    standing: Standing

    def check(self) -> None:
        """Refuse what no monitor has: ValueError."""
        standing, against = self.standing, self.standing.watched
        archive.must(standing.phase in PHASES, "phase")
        archive.must((against is not None) == (standing.running is not None), "running")
        archive.must(standing.phase != "watching" or against is not None, "reference")
        if against is None or standing.running is None:
            return
        p = sum(against.groups.sizes)
        archive.must(standing.running.carried.shape == (len(MEMORIES), p), "running")
        archive.must(against.calibration.null.mean.shape == (p,), "calibration")
        archive.must(
            against.calibration.location.shape == (len(against.groups.labels),), "statistics"
        )
        archive.must(len(standing.names) == against.map.center.size, "features")


def watched(events: Events, settings: Settings, renewals: int) -> Watched:
    """The reference of these events; half of them make the map, the others calibrate."""
    chosen = reference.makes_map(len(events))
    points = events.points
    room = max(1, int((~chosen).sum()) // PER_SCORE)
    made = reference.fit(
        points[chosen], min(settings.n_coordinates, room), settings.scaling, settings.bandwidth
    )
    own = made.scores(points)
    spread = np.empty_like(own)
    for half in (chosen, ~chosen):
        spread[half] = reference.spread(own[half], np.sort(own[half], axis=0))
    parts = [own, spread]
    k = made.psi.shape[1]
    sizes = [1, k, own.shape[1] - 1 - k, own.shape[1]]
    labels = None
    known = int(events.labels.max(initial=-1)) + 1  # and none that came later in the same call
    if settings.labels and known:
        standard = made.standardised(points)
        labels = reference.fit_labels(
            standard[chosen], events.labels[chosen], known, room, settings.seed
        )
        parts.append(labels.scores(standard, events.labels))
        sizes.append(parts[-1].shape[1])
    kept = [i for i, size in enumerate(sizes) if size]
    groups = Groups(tuple(EVENT_CHANNELS[i] for i in kept), tuple(sizes[i] for i in kept))
    scores = np.concatenate(parts, axis=1)
    found = calibration.calibrate(
        scores[~chosen],
        np.flatnonzero(~chosen) // reference.BLOCK,
        groups,
        settings.ert / SHARE,
        (settings.seed, renewals, 1),
    )
    constant = (points == points[0]).all(axis=0)
    chance = _chance(points)
    return Watched(
        made,
        events,
        np.sort(own[~chosen], axis=0),
        constant,
        chance,
        groups,
        labels,
        found,
        autocorrelation.measure(scores, chosen, groups),
        None,
    )


def _chance(points: Floats) -> float:
    """That one more event has another value of a feature that is the same in all of these (n, d).

    Each of n + 1 events is as likely the last as any other. So the chance is the share of events
    that alone have another value of some feature: with many features that hardly ever change, as
    the border of a picture, far more than one of n + 1.

    Source: Good (1953), "The population frequencies of species". Differs: one event more is
    counted, so that it is never 0.
    """
    usual = np.median(points, axis=0)
    others = points != usual
    alone = others[:, others.sum(axis=0) == 1].any(axis=1)
    return float((alone.sum() + 1) / (len(points) + 1))
