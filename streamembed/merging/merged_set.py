"""`merge`: several sets of landmarks as one, the same whoever comes first."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from streamembed.errors import InputError, shown
from streamembed.geometry.scaling import LEAST_SHARE, fit_points
from streamembed.landmarks import net
from streamembed.landmarks.absorption import LEAST_MASS
from streamembed.landmarks.net import Landmarks
from streamembed.merging.agreement import Agreement
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.methods.options import POSITION
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.validation import one_of, whole

__all__ = ["FAN", "aligned", "merge", "merged", "newest"]

# Sets that are merged at once; more go by groups of that many, level by level.
FAN = 8
AGREED = "agreed"
# Masses that have faded below half of what an engine keeps are kept at that: so no set that comes
# from an engine, or from here, is changed.
LEAST = 0.5 * LEAST_MASS
TINY = float(np.finfo(np.float64).tiny)


def merge(
    sets: Iterable[LandmarkSet], size: int | None = None, *, scaling: str | None = AGREED
) -> LandmarkSet:
    """What several partitions of a stream have learned, as one set of landmarks.

    The result is the same bytes for every order of the sets; the same set twice counts once, and
    of each partition the newest counts. Mass is conserved. Landmarks that are too many are thinned
    by one radius: each that is left out has one that stays within it, and leaves its mass to the 8
    nearest of these (`streamembed.landmarks.net`). More than 8 sets are merged by groups of 8 by
    the numbers of their partitions, level by level: their radii add.

    Parameters
    ----------
    sets
        Of one agreement: features, scaling, half-life, clock; one set at least.
    size
        The most landmarks; None for the largest ``size`` among the sets.
    scaling
        "agreed": that of the sets, which must be equal. "standard", "global" or None take it anew
        of all their landmarks, as an engine does: for engines that scaled each by their own
        events. With it a gaussian bandwidth is chosen anew, too.

    Raises
    ------
    InputError
        There is no set; sets differ in their agreement; two hold some of the same events, and
        neither is the newer one; masses fade by the positions of different streams.
    ParameterError
        A size that is no whole number of at least 1; another scaling.

    Examples
    --------
    >>> import numpy as np
    >>> import streamembed as se
    >>> rng, sets = np.random.default_rng(0), []
    >>> for part in range(3):
    ...     engine = se.Engine(memory="landmarks", size=40, scaling=None)
    ...     _ = engine.learn(rng.standard_normal((500, 2)))
    ...     sets.append(engine.landmark_set(partition=part))
    >>> both = se.merge(sets)
    >>> both
    <LandmarkSet of 40 landmarks, 1,500 events of 3 partitions>
    >>> round(both.mass), both.to_bytes() == se.merge(sets[::-1] + sets).to_bytes()
    (1500, True)
    """
    kind = one_of("scaling", scaling, (AGREED, "standard", "global", None))
    try:
        parts = iter(sets)
    except TypeError as error:
        raise InputError(
            f"sets is {shown(sets)}; it must be a list of LandmarkSet objects"
        ) from error
    given = list(parts)
    for one in given:
        if not isinstance(one, LandmarkSet):
            raise InputError(
                f"sets has {shown(one)}; it must hold LandmarkSet objects: take them from "
                "Engine.landmark_set or LandmarkSet.load"
            )
    if not given:
        raise InputError("sets is empty: there must be one set of landmarks at least")
    largest = max(one.size for one in given)
    size = largest if size is None else whole("size", size, 1, " or None")
    kept = newest(given)
    if kind != AGREED:
        kept = _rescaled(kept, kind)
    return merged(kept, size)


def merged(sets: Sequence[LandmarkSet], size: int, keep: Ints | None = None) -> LandmarkSet:
    """`merge` of sets of which none holds events of another.

    Parameters
    ----------
    keep
        Keys (m, 2) of landmarks that are to stay if they can: of the set before, so that one
        follows another with few changes. Not of groups, where it would hang on how they are made.
    """
    level = sorted(sets, key=lambda one: min(one.positions))
    _must_agree(level)
    while len(level) > FAN:
        groups = [level[start : start + FAN] for start in range(0, len(level), FAN)]
        level = [_flat(group, size, None) for group in groups]
    return _flat(level, size, keep)


def aligned(found: LandmarkSet, time: float) -> Landmarks:
    """Its landmarks as of a later time: m 2^(-(time - T) / h)."""
    if found.agreement.half_life is None or time == found.time or not len(found):
        return found.landmarks
    faded = np.exp2(-(time - found.time) / found.agreement.half_life)
    return replace(found.landmarks, masses=np.maximum(found.masses * faded, TINY))


def _newest_time(sets: Sequence[LandmarkSet]) -> float:
    """As of which all are aligned; a set without landmarks has no time of its own."""
    return max((one.time for one in sets if len(one)), default=sets[0].time)


def newest(sets: Sequence[LandmarkSet]) -> list[LandmarkSet]:
    """Those that hold the newest position of each of their partitions, by the numbers of these.

    Of such a set and others that have parts of it, the set. One that is older in any partition
    counts for nothing, if the others hold all of its partitions.

    Raises
    ------
    InputError
        Two hold events of one partition, and neither is newer: they would count twice.
    """
    last: dict[int, int] = {}
    for one in sets:
        for partition, at in one.positions.items():
            last[partition] = max(at, last.get(partition, at))
    now = [one for one in sets if all(last[key] == at for key, at in one.positions.items())]
    lost = last.keys() - {key for one in now for key in one.positions}
    for one in sets:
        if lost & one.positions.keys():  # of one partition it is needed, and of another too old
            raise _twice(min(key for key, at in one.positions.items() if at < last[key]))
    kept: list[LandmarkSet] = []
    for one in sorted(now, key=lambda found: (-sum(found.positions.values()), found.to_bytes())):
        shared = [other for other in kept if one.positions.keys() & other.positions.keys()]
        if not shared:
            kept.append(one)
        elif not any(_holds(other, one) for other in shared):
            raise _twice(min(one.positions.keys() & shared[0].positions.keys()))
        elif any(one.positions == other.positions for other in shared):
            same = next(other for other in shared if one.positions == other.positions)
            if same.to_bytes() != one.to_bytes():
                partition = min(one.positions)
                raise InputError(
                    f"two different sets are both of partition {partition} at position "
                    f"{one.positions[partition]}: one of them is of another stream; give each "
                    "stream a partition of its own"
                )
    return sorted(kept, key=lambda found: min(found.positions))


def _twice(partition: int) -> InputError:
    return InputError(
        f"two sets hold events of partition {partition}, and neither is the newer one: they would "
        "count twice; merge the sets of single partitions, or give each stream a partition of its "
        "own"
    )


def _holds(newer: LandmarkSet, older: LandmarkSet) -> bool:
    """Whether a set is as new in every partition of another."""
    return all(newer.positions.get(one, -1) >= at for one, at in older.positions.items())


def _must_agree(sets: Sequence[LandmarkSet]) -> None:
    """InputError unless kernels and masses of all are comparable."""
    first, *others = (one.agreement for one in sets)
    for other in others:
        if other.hash == first.hash:
            continue
        lines = first.differences(other)
        scalings = all(line.split()[0] in ("scale", "bandwidth") for line in lines)
        remedy = (
            "take them anew of all landmarks with scaling='standard', 'global' or None"
            if scalings
            else "learn them alike"
        )
        raise InputError(f"sets were made under different agreements: {'; '.join(lines)}: {remedy}")
    if first.half_life is not None and first.clock == POSITION and others:
        raise InputError(
            f"masses fade with half_life={first.half_life:g} by the positions of {len(sets)} "
            "different streams, which is no clock that they share: learn them with a column of "
            "times (clock='event_time'), or without half_life"
        )


def _flat(sets: Sequence[LandmarkSet], size: int, keep: Ints | None) -> LandmarkSet:
    """At most eight sets, or as many as there are, as one."""
    time = _newest_time(sets)
    agreement = sets[0].agreement
    every = net.union([aligned(one, time) for one in sets])
    every = replace(every, masses=_raised(every.masses))
    scaled = agreement.scaling().apply(every.points)
    found = net.thin(every, scaled, size, None if keep is None else _known(every, keep))
    left = replace(every.take(found.kept), masses=found.masses)
    radius = max(one.radius for one in sets)
    if len(left) < len(every):
        # one alone has no neighbour; none is 0, which says that there was a place for each event
        radius = max(net.closest(scaled[found.kept]), found.radius, TINY)
    positions = {key: at for one in sets for key, at in one.positions.items()}
    parts = left.points, left.masses, left.keys, left.stale
    return LandmarkSet(*parts, agreement, positions, time, size, radius)


def _raised(masses: Floats) -> Floats:
    """Masses of which none is below `LEAST` of their sum; the same masses where that is so.

    Those that are raised are raised to twice that: the sum of the result is larger, and a mass at
    the limit would be below it.
    """
    while (low := masses < LEAST * math.fsum(masses.tolist())).any():
        masses = np.where(low, LEAST_MASS * math.fsum(masses.tolist()), masses)
    return masses


def _known(every: Landmarks, keep: Ints) -> Bools:
    """Which landmarks have one of these keys."""
    wanted = set(map(tuple, keep.tolist()))
    return np.array([tuple(key) in wanted for key in every.keys.tolist()], dtype=bool)


def _rescaled(sets: Sequence[LandmarkSet], kind: str | None) -> list[LandmarkSet]:
    """The same sets under one scaling, that of all their landmarks."""
    time = _newest_time(sets)
    every = net.union([aligned(one, time) for one in sets])
    plain = [replace(one.agreement, scale=(), bandwidth=None, epoch=0) for one in sets]
    for one, agreement in zip(sets, plain, strict=True):
        if agreement.hash != plain[0].hash:
            _must_agree([sets[0], one])
    has_widths = all(one.agreement.bandwidth is None for one in sets)
    least = LEAST_SHARE if has_widths else 0.0
    scaling = fit_points(every.points, every.masses, kind, 1.0, least)
    agreement = Agreement(
        sets[0].agreement.features,
        sets[0].agreement.ordered,
        tuple(scaling.scale.tolist()),
        None,
        sets[0].agreement.half_life,
        sets[0].agreement.clock,
        max(one.agreement.epoch for one in sets) + 1,
    )
    scaled = [replace(one, agreement=agreement) for one in sets]
    return [replace(one, radius=net.closest(one.scaled) if one.radius else 0.0) for one in scaled]
