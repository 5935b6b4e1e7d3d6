"""A set of landmarks: what one partition of a stream has learned, or several together.

It is the whole state of a partition as of a position, never a change: sent twice, late or out of
order, it says the same, and the newest of each partition is all that counts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

import numpy as np
import pyarrow as pa
from scipy.spatial.distance import cdist

from streamembed.data.batch import LARGEST_VALUE
from streamembed.errors import InputError
from streamembed.geometry.kernel import choose_bandwidth
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.landmarks import covering
from streamembed.landmarks.absorption import LEAST_MASS
from streamembed.landmarks.net import Landmarks
from streamembed.merging.agreement import Agreement
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Bools, Floats, Ints, frozen
from streamembed.storage import stream
from streamembed.storage.archive import (
    bytes_of,
    matrix_of,
    must,
    replacing,
    sound,
    vectors_of,
    writable,
)
from streamembed.validation import binary

__all__ = [
    "LARGEST_PARTITION",
    "LandmarkSet",
    "of_covering",
    "of_state",
    "parameters_of",
    "renumbered",
    "support_of",
]

KIND = "landmark set"
# A key fits into 63 bits: so many partitions, of so many events each.
LARGEST_PARTITION, LARGEST_POSITION = 2**16 - 1, 2**47 - 1
# No event weighs more than 1: masses in all are no more than events, but for rounding.
SLACK = 1e-9
# The newest event weighs 1, and masses are as of its time; they round. An engine keeps masses above
# `LEAST_MASS` of all of them, and merging above half of that.
LEAST_OF_ALL = 0.5
LEAST_SHARE = 0.25 * LEAST_MASS
COLUMNS = ("points", "masses", "partition", "position", "stale")


@dataclass(frozen=True, slots=True, eq=False)
class LandmarkSet:
    """Landmarks and masses of one or more partitions of a stream, as of a position in each.

    `Engine.landmark_set` gives one, `merge` makes one of several, and `Engine.of_landmarks` has
    the map. Arrays are read-only; the order is by coordinates, so that equal sets are equal bytes.

    Attributes
    ----------
    points : (n, d)
        In the caller's units, columns in the order of ``agreement.features``.
    masses : (n,)
        Events that each stands for, as of ``time``.
    keys : (n, 2)
        Partition, and position in it, of the event that each landmark was; int64.
    stale : (n,)
        bool: those that their own partition would give up first.
    agreement : Agreement
        What sets must have in common to be merged; its ``hash`` tells in brief.
    positions : mapping of int to int
        Events learned of each partition.
    time : float
        Of the clock, as of which masses are.
    size : int
        M, the most landmarks that it can have.
    radius : float
        Distance of the closest pair in scaled units, within which events are represented; 0 where
        there was a place for each.

    Raises
    ------
    InputError
        Parts that do not fit together; of a file or of bytes, DamagedFileError.
    """

    points: Floats
    masses: Floats
    keys: Ints
    stale: Bools
    agreement: Agreement
    positions: Mapping[int, int]
    time: float
    size: int
    radius: float

    def __post_init__(self) -> None:
        """Check all of it: a set may come from anywhere."""
        try:
            _check(self)
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                f"these are no landmarks of a stream: {error}; take them from Engine.landmark_set, "
                "LandmarkSet.load or merge"
            ) from error
        for array in (self.points, self.masses, self.keys, self.stale):
            frozen(array)
        ordered = dict(sorted(self.positions.items()))
        object.__setattr__(self, "positions", MappingProxyType(ordered))

    def __len__(self) -> int:
        return len(self.masses)

    def __repr__(self) -> str:
        events, count = sum(self.positions.values()), len(self.positions)
        what = "1 partition" if count == 1 else f"{count:,} partitions"
        return f"<LandmarkSet of {len(self):,} landmarks, {events:,} events of {what}>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its bytes, and checked when it comes back."""
        return type(self).from_bytes, (self.to_bytes(),)

    @property
    def mass(self) -> float:
        """All masses, summed exactly."""
        return math.fsum(self.masses.tolist())

    @property
    def landmarks(self) -> Landmarks:
        """What is merged of it."""
        return Landmarks(self.points, self.masses, self.keys, self.stale)

    @property
    def scaled(self) -> Floats:
        """The points as the kernel sees them, but for a shift, (n, d)."""
        return self.agreement.scaling().apply(self.points)

    def to_bytes(self) -> bytes:
        """As one Arrow IPC stream with a checksum: at most n (8 d + 24) bytes, and 2 kB + 22 d."""
        columns = {
            "points": vectors_of(self.points),
            "masses": pa.array(self.masses),
            "partition": pa.array(self.keys[:, 0].astype(np.uint16)),
            "position": pa.array(self.keys[:, 1]),
            "stale": pa.array(self.stale),
        }
        header = {
            "agreement": self.agreement.as_dict(),
            "hash": self.agreement.hash,
            "positions": [[partition, at] for partition, at in self.positions.items()],
            "time": self.time,
            "size": self.size,
            "radius": self.radius,
            "mass": self.mass,
        }
        return stream.seal(columns, KIND, header)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """What `to_bytes` gave, checked; DamagedFileError where it is anything else."""
        return cls._of(binary("data", data), "data")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write `to_bytes` to a file, whole or not at all; FileError where that cannot be."""
        target = writable(path)
        with replacing(target) as temporary:
            temporary.write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What `save` wrote.

        Raises
        ------
        DamagedFileError
            The bytes are not what was written, or are no set of landmarks.
        FileError
            The file is missing, or cannot be read.
        """
        return cls._of(bytes_of(path), path)

    @classmethod
    def _of(cls, data: bytes, path: str | os.PathLike[str]) -> Self:
        batch, header = stream.unseal(data, KIND, path)
        with sound(path, KIND):
            must(tuple(batch.schema.names) == COLUMNS, "its columns have other names")
            points = matrix_of(pa.chunked_array([batch.column("points")]))
            masses, partition, position = (
                batch.column(name).to_numpy().copy() for name in COLUMNS[1:4]
            )
            stale = batch.column("stale").to_numpy(zero_copy_only=False).copy()
            keys = np.column_stack([partition.astype(np.int64), position])
            agreement = Agreement.from_dict(header["agreement"])
            must(agreement.hash == header["hash"], "its agreement is not that of its hash")
            pairs = header["positions"]
            must(len({pair[0] for pair in pairs}) == len(pairs), "a partition comes twice")
            found = cls(
                points,
                masses,
                keys,
                stale,
                agreement,
                dict(pairs),
                header["time"],
                header["size"],
                header["radius"],
            )
            must(found.mass == header["mass"], "masses are not what they are in all")
        return found


def _check(found: LandmarkSet) -> None:
    """ValueError where a set is none that a stream can lead to."""
    found.agreement.check()
    n, d = len(found.masses), len(found.agreement.features)
    shapes = {"points": (n, d), "masses": (n,), "keys": (n, 2), "stale": (n,)}
    kinds = {"points": np.float64, "masses": np.float64, "keys": np.int64, "stale": np.bool_}
    for name, shape in shapes.items():
        array = getattr(found, name)
        must(array.shape == shape, f"{name} has shape {array.shape}, and must have {shape}")
        must(array.dtype == kinds[name], f"{name} has dtype {array.dtype}")
    must(d >= 1, "it has no features: things known by their distances alone cannot be merged")
    must(type(found.size) is int and n <= found.size, f"{n} landmarks of at most {found.size}")
    must(np.isfinite(found.points).all(), "a point is not finite")
    must((np.abs(found.points) <= LARGEST_VALUE).all(), f"a point is beyond {LARGEST_VALUE:g}")
    with np.errstate(over="ignore"):
        far = np.abs(found.scaled) > LARGEST_VALUE
    must(not far.any(), f"a point is beyond {LARGEST_VALUE:g} where it is scaled")
    must(found.positions, "it is of no partition")
    for partition, at in found.positions.items():
        must(type(partition) is int and 0 <= partition <= LARGEST_PARTITION, "partition")
        must(type(at) is int and 0 <= at <= LARGEST_POSITION, "position")
    events = sum(found.positions.values())
    must(n <= events, f"{n} landmarks of {events} events")
    must(np.isfinite(found.masses).all() and (found.masses > 0).all(), "a mass is not positive")
    most = events * (1.0 + SLACK)
    must(
        (found.masses <= most).all() and found.mass <= most,  # first, or the sum overflows
        f"masses has {found.masses.max(initial=0.0):g}; the sum must be at most {events}, the "
        "number of events",
    )
    must(not n or found.mass >= LEAST_OF_ALL, f"masses are {found.mass:g} in all, less than 1")
    must((found.masses >= LEAST_SHARE * found.mass).all(), "a mass is next to nothing")
    for partition in np.unique(found.keys[:, 0]).tolist():
        must(partition in found.positions, f"a landmark of partition {partition}, which has none")
        own = found.keys[found.keys[:, 0] == partition, 1]
        must(((own >= 0) & (own < found.positions[partition])).all(), "a key is out of range")
        must(len(np.unique(own)) == len(own), "two landmarks are one event")
    must(type(found.time) is float and math.isfinite(found.time), f"time is {found.time!r}")
    must(type(found.radius) is float and 0.0 <= found.radius < np.inf, "radius")
    must((found.landmarks.order == np.arange(n)).all(), "landmarks are not in order")


def of_covering(
    held: covering.Covering, agreement: Agreement, partition: int, size: int
) -> LandmarkSet:
    """What a partition has learned."""
    support, radius = held.support, math.sqrt(held.cover.radius2(size))
    stale = covering.stale(support.masses, held.position - support.births, size)
    keys = np.column_stack([np.full(len(support), partition, dtype=np.int64), support.births])
    # a zero has no sign in a set, for equal points are to be equal bytes
    every = Landmarks(support.points + 0.0, support.masses, keys, stale)
    found = every.take(every.order)
    parts = found.points, found.masses, found.keys, found.stale
    return LandmarkSet(*parts, agreement, {partition: held.position}, held.time, size, radius)


def of_state(
    state: State, config: Config, features: tuple[tuple[str, ...], bool], partition: int
) -> LandmarkSet:
    """What an engine has learned, if it has landmarks with coordinates."""
    assert state.cover is not None
    scaling = state.scaling
    bandwidth = None if config.has_widths or config.room != "dense" else scaling.bandwidth
    agreement = Agreement(
        *features,
        tuple(scaling.scale.tolist()),
        bandwidth,
        config.half_life,
        config.clock,
    )
    time = state.position - 1.0 if state.time is None else state.time
    held = covering.Covering(state.position, time, state.support, state.cover)
    return of_covering(held, agreement, partition, config.size)


def parameters_of(found: LandmarkSet) -> dict[str, Any]:
    """Parameters of an engine that a set has settled."""
    agreement = found.agreement
    clock = POSITION if agreement.half_life is None else agreement.clock
    return {"memory": "landmarks", "half_life": agreement.half_life, "clock": clock}


def support_of(found: LandmarkSet, config: Config) -> tuple[Support, Scaling]:
    """The slots of an engine that holds these landmarks, and what its kernel sees."""
    agreement = found.agreement
    births, ids = found.keys[:, 1], found.keys[:, 0] * 2**47 + found.keys[:, 1]
    if len(found.positions) > 1:  # unique, and fewer than events; which came first nobody knows
        births = np.argsort(np.argsort(ids, kind="stable")).astype(np.int64)
    else:
        ids = births
    shares = found.masses / found.masses.sum()
    scaling = agreement.scaling(center=shares @ found.points)
    scaled = scaling.apply(found.points)
    bandwidth = config.fixed_bandwidth or agreement.bandwidth
    if bandwidth is None:
        bandwidth = 1.0 if config.has_widths else choose_bandwidth(cdist(scaled, scaled))
    parts = found.points.copy(), scaled, ids.copy(), births.copy(), found.masses.copy()
    return Support(*parts), scaling.of_bandwidth(bandwidth)


def renumbered(found: LandmarkSet, partition: int) -> LandmarkSet:
    """The set of one partition, as that of another number."""
    keys = found.keys.copy()
    keys[:, 0] = partition
    (at,) = found.positions.values()
    return replace(found, keys=keys, positions={partition: at})
