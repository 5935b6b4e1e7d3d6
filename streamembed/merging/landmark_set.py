"""A set of landmarks: what one partition of a stream, or several together, have learned.

It is the whole state of a partition as of a position, never a change. So it may come twice, late or
out of order: the newest of each partition counts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import scipy

from streamembed.data.features import Features
from streamembed.errors import InputError
from streamembed.geometry.kernel import choose_bandwidth
from streamembed.geometry.scaling import Scaling, fit_points
from streamembed.geometry.support import Support
from streamembed.landmarks import covering
from streamembed.landmarks.absorption import LEAST_MASS
from streamembed.landmarks.net import Landmarks, find_order, select
from streamembed.merging.agreement import MergeSettings
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.numeric import codec
from streamembed.numeric.arrays import LARGEST_VALUE, Floats, freeze
from streamembed.numeric.codec import NOT_SAVED
from streamembed.storage.archive import require, to_list_column, to_matrix
from streamembed.storage.saved_object import SavedObject

# A key fits into 63 bits: limits for partitions, and for events of each.
LARGEST_PARTITION, LARGEST_POSITION = 2**16 - 1, 2**47 - 1
# No event weighs more than 1: the total mass is at most the number of events, but for rounding.
SLACK = 1e-9
# The newest event weighs 1, and masses are as of its time; they round. An engine keeps masses above
# `LEAST_MASS` of all of them, and merging above half of that.
LEAST_OF_ALL = 0.5
LEAST_SHARE = 0.25 * LEAST_MASS
COLUMNS = ("points", "masses", "partition", "position", "stale")


@dataclass(frozen=True, slots=True, eq=False)
class LandmarkSet(Landmarks, SavedObject):
    """Landmarks and masses of one or more partitions of a stream, as of a position in each.

    `Engine.landmark_set` returns one, `merge` combines several, and `Engine.of_landmarks` maps
    one. Arrays are read-only; the order is by coordinates, so that equal sets are equal bytes.

    Attributes
    ----------
    points : (n, d)
        In the caller's units, columns in the order of ``agreement.features``.
    masses : (n,)
        Events that each stands for, as of ``time``.
    keys : (n, 2)
        Partition, and position in it, of the event that each landmark was; int64.
    stale : (n,)
        bool: those that their own partition would drop first.
    agreement : MergeSettings
        The settings that sets must share to be merged; its ``hash`` compares them.
    positions : mapping of int to int
        Events learned of each partition.
    time : float
        Time of the clock that the masses refer to.
    size : int
        M, the maximum number of landmarks.
    radius : float
        Distance of the closest pair in scaled units, within which events are represented; 0 where
        every event has a landmark.

    Raises
    ------
    InputError
        The parts are inconsistent; of a file or of bytes, DamagedFileError.
    """

    _kind: ClassVar[str] = "landmark set"
    agreement: MergeSettings
    positions: Mapping[int, int] = field(metadata=NOT_SAVED)
    time: Annotated[float, "finite"]
    size: int
    radius: Annotated[float, "finite", "at least 0"]

    def __post_init__(self) -> None:
        """Check everything: a set may come from any source."""
        try:
            self._check()
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"these are no landmarks of a stream: {error}; take them from Engine.landmark_set, "
                "LandmarkSet.load or merge"
            ) from error
        for array in (self.points, self.masses, self.keys, self.stale):
            freeze(array)
        ordered = dict(sorted(self.positions.items()))
        object.__setattr__(self, "positions", MappingProxyType(ordered))

    def _check(self) -> None:
        """ValueError for a set that no stream can have."""
        codec.check(self)
        n, d = self.points.shape
        require(d == len(self.agreement.features), f"points have {d} columns")
        require(
            d >= 1, "it has no features: objects known by their distances alone cannot be merged"
        )
        require(n <= self.size, f"{n} landmarks of at most {self.size}")
        with np.errstate(over="ignore"):
            is_far = np.abs(self.scaled) > LARGEST_VALUE
        require(not is_far.any(), f"a point is beyond {LARGEST_VALUE:g} where it is scaled")
        require(self.positions, "it is of no partition")
        for partition, position in self.positions.items():
            require(type(partition) is int and 0 <= partition <= LARGEST_PARTITION, "partition")
            require(type(position) is int and 0 <= position <= LARGEST_POSITION, "position")
        events = sum(self.positions.values())
        require(n <= events, f"{n} landmarks of {events} events")
        most = events * (1.0 + SLACK)
        require(
            (self.masses <= most).all() and self.mass <= most,  # first, or the sum overflows
            f"masses has {self.masses.max(initial=0.0):g}; the sum must be at most {events}, "
            "the number of events",
        )
        require(
            not n or self.mass >= LEAST_OF_ALL,
            f"masses are {self.mass:g} in all, less than 1",
        )
        require((self.masses >= LEAST_SHARE * self.mass).all(), "a mass is next to nothing")
        for partition in np.unique(self.keys[:, 0]).tolist():
            require(
                partition in self.positions,
                f"a landmark of partition {partition}, which has none",
            )
            arrivals = self.keys[self.keys[:, 0] == partition, 1]
            require(
                ((arrivals >= 0) & (arrivals < self.positions[partition])).all(),
                "a key is out of range",
            )
            require(len(np.unique(arrivals)) == len(arrivals), "two landmarks are one event")
        require((find_order(self) == np.arange(n)).all(), "landmarks are not in order")

    def __repr__(self) -> str:
        events, count = sum(self.positions.values()), len(self.positions)
        what = "1 partition" if count == 1 else f"{count:,} partitions"
        return f"<LandmarkSet of {len(self):,} landmarks, {events:,} events of {what}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its bytes, and checked when unpickled."""
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def mass(self) -> float:
        """All masses, summed exactly."""
        return math.fsum(self.masses.tolist())

    @property
    def scaled(self) -> Floats:
        """The points in scaled units, up to a shift, (n, d)."""
        return self.agreement.scaling().apply(self.points)

    def _to_file(self) -> tuple[Any, Mapping[str, Any]]:
        """At most n (8 d + 24) bytes, and 2 kB + 22 d."""
        columns = {
            "points": to_list_column(self.points),
            "masses": pa.array(self.masses),
            "partition": pa.array(self.keys[:, 0].astype(np.uint16)),
            "position": pa.array(self.keys[:, 1]),
            "stale": pa.array(self.stale),
        }
        header = {
            "agreement": self.agreement.as_dict(),
            "hash": self.agreement.hash,
            "positions": [[partition, position] for partition, position in self.positions.items()],
            "time": self.time,
            "size": self.size,
            "radius": self.radius,
            "mass": self.mass,
        }
        return pa.table(columns), header

    @classmethod
    def _of_file(cls, table: Any, header: dict[str, Any]) -> Self:
        require(tuple(table.schema.names) == COLUMNS, "its columns have other names")
        points = to_matrix(table["points"])
        masses, partition, position, stale = (table[name].to_numpy().copy() for name in COLUMNS[1:])
        keys = np.column_stack([partition.astype(np.int64), position])
        agreement = MergeSettings.from_dict(header["agreement"])
        require(agreement.hash == header["hash"], "its agreement is not that of its hash")
        pairs = header["positions"]
        require(len({pair[0] for pair in pairs}) == len(pairs), "a partition comes twice")
        landmark_set = cls(
            points=points,
            masses=masses,
            keys=keys,
            stale=stale,
            agreement=agreement,
            positions=dict(pairs),
            **{name: header[name] for name in ("time", "size", "radius")},
        )
        require(landmark_set.mass == header["mass"], "masses are not what they are in all")
        return landmark_set


def of_landmarks(landmarks: Landmarks, *facts: Any) -> LandmarkSet:
    """The set of landmarks in their order, with the fields that follow ``stale``."""
    return LandmarkSet(landmarks.points, landmarks.masses, landmarks.keys, landmarks.stale, *facts)


def from_covering(
    state: covering.Covering, agreement: MergeSettings, partition: int, size: int
) -> LandmarkSet:
    """The set of a partition without a map."""
    support, radius = state.support, math.sqrt(state.cover.radius2(size))
    stale = covering.find_stale(support.masses, state.position - support.births, size)
    keys = np.column_stack([np.full(len(support), partition, dtype=np.int64), support.births])
    # -0.0 becomes 0.0: equal points must be equal bytes
    landmarks = Landmarks(support.points + 0.0, support.masses, keys, stale)
    positions = {partition: state.position}
    return of_landmarks(
        select(landmarks, find_order(landmarks)), agreement, positions, state.time, size, radius
    )


def from_state(state: State, config: Config, features: Features, partition: int) -> LandmarkSet:
    """The set of an engine, whose landmarks have coordinates."""
    assert state.cover is not None
    scaling = state.scaling
    bandwidth = None if config.has_widths or config.family != "kernel" else scaling.bandwidth
    agreement = MergeSettings(
        features.names,
        features.ordered,
        tuple(scaling.scale.tolist()),
        bandwidth,
        config.half_life,
        config.clock,
        features.metric,
    )
    time = state.position - 1.0 if state.time is None else state.time
    covered = covering.Covering(state.position, time, state.support, state.cover)
    return from_covering(covered, agreement, partition, config.size)


def infer_engine_parameters(landmark_set: LandmarkSet) -> dict[str, Any]:
    """Parameters of an engine that a set determines."""
    agreement = landmark_set.agreement
    clock = POSITION if agreement.half_life is None else agreement.clock
    return {
        "memory": "landmarks",
        "half_life": agreement.half_life,
        "clock": clock,
        "metric": agreement.metric,
    }


def build_support(landmark_set: LandmarkSet, config: Config) -> tuple[Support, Scaling]:
    """The slots of an engine that holds these landmarks, and its scaling."""
    agreement = landmark_set.agreement
    partition, arrivals = landmark_set.keys.T
    ids = partition * 2**47 + arrivals
    if len(landmark_set.positions) == 1:
        ids = arrivals
    else:  # unique, and fewer than events; which came first is unknown
        arrivals = np.argsort(np.argsort(ids, kind="stable")).astype(np.int64)
    fitted = fit_points(landmark_set.points, landmark_set.masses, None, 1.0)
    scaling = agreement.scaling(center=fitted.center)
    scaled = scaling.apply(landmark_set.points)
    bandwidth = config.fixed_bandwidth or agreement.bandwidth
    if bandwidth is None and config.has_bandwidth:
        bandwidth = choose_bandwidth(
            lambda slots: scipy.spatial.distance.cdist(scaled[slots], scaled), len(scaled)
        )
    copied = (ids.copy(), arrivals.copy(), landmark_set.masses.copy())
    return Support(landmark_set.points.copy(), scaled, *copied), scaling.with_bandwidth(
        bandwidth or 1.0
    )


def renumber(landmark_set: LandmarkSet, partition: int) -> LandmarkSet:
    """The set of one partition under another partition number."""
    keys = landmark_set.keys.copy()
    keys[:, 0] = partition
    (position,) = landmark_set.positions.values()
    return replace(landmark_set, keys=keys, positions={partition: position})
