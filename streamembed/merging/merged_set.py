"""`merge`: several sets of landmarks as one, the same in any order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from streamembed.errors import InputError, quote
from streamembed.geometry.scaling import LEAST_SHARE, fit_points
from streamembed.landmarks import net
from streamembed.landmarks.absorption import LEAST_MASS
from streamembed.landmarks.net import Landmarks
from streamembed.merging.agreement import MergeSettings
from streamembed.merging.landmark_set import LandmarkSet, of_landmarks
from streamembed.methods.options import POSITION
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.validation import check_choice, check_whole

# Sets that are merged at once; more are merged in groups of this size, level by level.
GROUP_SIZE = 8
AGREED = "agreed"
# Masses that have faded below half of what an engine keeps are kept at that: so no set of an
# engine, or of `merge`, changes.
LEAST = 0.5 * LEAST_MASS
TINY = float(np.finfo(np.float64).tiny)


def merge(
    sets: Iterable[LandmarkSet], size: int | None = None, *, scaling: str | None = AGREED
) -> LandmarkSet:
    """What several partitions of a stream have learned, as one set of landmarks.

    The result is the same bytes for every order of the sets; the same set twice counts once, and
    of each partition the newest counts. Mass is conserved. Too many landmarks are thinned
    by one radius: each that is dropped has one that stays within it, and leaves its mass to the 8
    nearest of these (`streamembed.landmarks.net`). More than 8 sets are merged by groups of 8 by
    the numbers of their partitions, level by level: their radii add.

    Parameters
    ----------
    sets
        Of one agreement: features, scaling, half-life, clock; one set at least.
    size
        The most landmarks; None for the largest ``size`` among the sets.
    scaling
        "agreed": that of the sets, which must be equal. "standard", "global" or None fit it again
        to all their landmarks, as an engine does: for engines that scaled each by its own events. A
        gaussian bandwidth is then chosen again, too.

    Raises
    ------
    InputError
        There is no set; sets differ in their agreement; two hold some of the same events, and
        neither is the newer one; masses fade by the positions of different streams.
    ParameterError
        ``size`` is not a whole number of at least 1, or ``scaling`` is another value.

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
    kind = check_choice("scaling", scaling, (AGREED, "standard", "global", None))
    try:
        parts = iter(sets)
    except TypeError as error:
        raise InputError(
            f"sets is {quote(sets)}; it must be a list of LandmarkSet objects"
        ) from error
    given_sets = list(parts)
    for landmark_set in given_sets:
        if not isinstance(landmark_set, LandmarkSet):
            raise InputError(
                f"sets has {quote(landmark_set)}; it must hold LandmarkSet objects: take them from "
                "Engine.landmark_set or LandmarkSet.load"
            )
    if not given_sets:
        raise InputError("sets is empty: there must be one set of landmarks at least")
    largest = max(landmark_set.size for landmark_set in given_sets)
    size = largest if size is None else check_whole("size", size, 1, " or None")
    newest_sets = select_newest_by_partition(given_sets)
    if kind != AGREED:
        newest_sets = _rescale(newest_sets, kind)
    return merge_disjoint(newest_sets, size)


def merge_disjoint(sets: Sequence[LandmarkSet], size: int, keep: Ints | None = None) -> LandmarkSet:
    """`merge` of sets of which none holds events of another.

    Parameters
    ----------
    keep
        Keys (m, 2) of landmarks to keep if possible: those of the previous set, so that sets
        change little. Not for groups, where the result would depend on the grouping.
    """
    level = sorted(sets, key=lambda one: min(one.positions))
    _check_agreement(level)
    while len(level) > GROUP_SIZE:
        groups = [level[start : start + GROUP_SIZE] for start in range(0, len(level), GROUP_SIZE)]
        level = [_merge_group(group, size, None) for group in groups]
    return _merge_group(level, size, keep)


def align_time(landmark_set: LandmarkSet, time: float) -> Landmarks:
    """Its landmarks as of a later time: m 2^(-(time - T) / h)."""
    if (
        landmark_set.agreement.half_life is None
        or time == landmark_set.time
        or not len(landmark_set)
    ):
        return landmark_set
    faded = np.exp2(-(time - landmark_set.time) / landmark_set.agreement.half_life)
    masses = np.maximum(landmark_set.masses * faded, TINY)
    return Landmarks(landmark_set.points, masses, landmark_set.keys, landmark_set.stale)


def _find_newest_time(sets: Sequence[LandmarkSet]) -> float:
    """The time to which all are aligned; a set without landmarks has no time of its own."""
    return max(
        (landmark_set.time for landmark_set in sets if len(landmark_set)), default=sets[0].time
    )


def select_newest_by_partition(sets: Sequence[LandmarkSet]) -> list[LandmarkSet]:
    """The sets with the newest position of each of their partitions, by partition number.

    Of such a set and others with a part of its partitions, the set. One that is older in any
    partition is dropped if the others hold all of its partitions.

    Raises
    ------
    InputError
        Two hold events of one partition, and neither is newer: they would count twice.
    """
    newest_positions: dict[int, int] = {}
    for candidate in sets:
        for partition, position in candidate.positions.items():
            newest_positions[partition] = max(position, newest_positions.get(partition, position))
    candidates = [
        candidate
        for candidate in sets
        if all(newest_positions[key] == position for key, position in candidate.positions.items())
    ]
    missing = newest_positions.keys() - {
        key for candidate in candidates for key in candidate.positions
    }
    for candidate in sets:
        if missing & candidate.positions.keys():  # needed for one partition, and too old in another
            raise _double_count_error(
                min(
                    key
                    for key, position in candidate.positions.items()
                    if position < newest_positions[key]
                )
            )
    selected: list[LandmarkSet] = []
    for candidate in sorted(
        candidates, key=lambda given: (-sum(given.positions.values()), given.to_bytes())
    ):
        shared = [
            previous
            for previous in selected
            if candidate.positions.keys() & previous.positions.keys()
        ]
        if not shared:
            selected.append(candidate)
        elif not any(_is_as_new(previous, candidate) for previous in shared):
            raise _double_count_error(min(candidate.positions.keys() & shared[0].positions.keys()))
        elif any(candidate.positions == previous.positions for previous in shared):
            same = next(
                previous for previous in shared if candidate.positions == previous.positions
            )
            if same.to_bytes() != candidate.to_bytes():
                partition = min(candidate.positions)
                raise InputError(
                    f"two different sets are both of partition {partition} at position "
                    f"{candidate.positions[partition]}: one of them is of another stream; give "
                    "each stream a partition of its own"
                )
    return sorted(selected, key=lambda given: min(given.positions))


def _double_count_error(partition: int) -> InputError:
    return InputError(
        f"two sets hold events of partition {partition}, and neither is the newer one: they would "
        "count twice; merge the sets of single partitions, or give each stream a partition of its "
        "own"
    )


def _is_as_new(newer: LandmarkSet, older: LandmarkSet) -> bool:
    return all(
        newer.positions.get(partition, -1) >= position
        for partition, position in older.positions.items()
    )


def _check_agreement(sets: Sequence[LandmarkSet]) -> None:
    """InputError unless the kernels and masses of all sets are comparable."""
    first, *others = (landmark_set.agreement for landmark_set in sets)
    for other in others:
        if other.hash == first.hash:
            continue
        lines = first.differences(other)
        scalings = all(line.split()[0] in ("scale", "bandwidth") for line in lines)
        remedy = "learn them with equal settings"
        if scalings:
            remedy = "fit them again to all landmarks with scaling='standard', 'global' or None"
        raise InputError(f"sets were made under different agreements: {'; '.join(lines)}: {remedy}")
    if first.half_life is not None and first.clock == POSITION and others:
        raise InputError(
            f"masses fade with half_life={first.half_life:g} by the positions of {len(sets)} "
            "different streams, which share no clock: learn them with a column of "
            "times (clock='event_time'), or without half_life"
        )


def _merge_group(sets: Sequence[LandmarkSet], size: int, keep: Ints | None) -> LandmarkSet:
    time = _find_newest_time(sets)
    agreement = sets[0].agreement
    union = net.union([align_time(landmark_set, time) for landmark_set in sets])
    union = replace(union, masses=_raise_masses(union.masses))
    scaled = agreement.scaling().apply(union.points)
    thinned = net.thin(union, scaled, size, None if keep is None else _find_keys(union, keep))
    merged = replace(net.select(union, thinned.indices), masses=thinned.masses)
    radius = max(landmark_set.radius for landmark_set in sets)
    if len(merged) < len(union):
        # a single one has no neighbour; 0 would say that every event has a landmark
        radius = max(net.measure_closest(scaled[thinned.indices]), thinned.radius, TINY)
    positions = {
        key: position for landmark_set in sets for key, position in landmark_set.positions.items()
    }
    return of_landmarks(merged, agreement, positions, time, size, radius)


def _raise_masses(masses: Floats) -> Floats:
    """Masses of which none is below `LEAST` of their sum; the same masses where that is so.

    Those that are raised are raised to twice that: the sum of the result is larger, and a mass at
    the limit would be below it.
    """
    while (is_low := masses < LEAST * math.fsum(masses.tolist())).any():
        masses = np.where(is_low, LEAST_MASS * math.fsum(masses.tolist()), masses)
    return masses


def _find_keys(landmarks: Landmarks, keep: Ints) -> Bools:
    wanted = set(map(tuple, keep.tolist()))
    return np.array([tuple(key) in wanted for key in landmarks.keys.tolist()], dtype=bool)


def _rescale(sets: Sequence[LandmarkSet], kind: str | None) -> list[LandmarkSet]:
    """The same sets under one scaling, that of all their landmarks."""
    time = _find_newest_time(sets)
    union = net.union([align_time(landmark_set, time) for landmark_set in sets])
    unscaled = [
        replace(landmark_set.agreement, scale=(), bandwidth=None, epoch=0) for landmark_set in sets
    ]
    for landmark_set, agreement in zip(sets, unscaled, strict=True):
        if agreement.hash != unscaled[0].hash:
            _check_agreement([sets[0], landmark_set])
    has_widths = all(landmark_set.agreement.bandwidth is None for landmark_set in sets)
    least = LEAST_SHARE if has_widths else 0.0
    divisors = sets[0].agreement.as_features().divisors
    scaling = fit_points(union.points, union.masses, kind, 1.0, least, divisors)
    agreement = MergeSettings(
        sets[0].agreement.features,
        sets[0].agreement.ordered,
        tuple(scaling.scale.tolist()),
        None,
        sets[0].agreement.half_life,
        sets[0].agreement.clock,
        metric=sets[0].agreement.metric,
        epoch=max(landmark_set.agreement.epoch for landmark_set in sets) + 1,
    )
    scaled = [replace(landmark_set, agreement=agreement) for landmark_set in sets]
    return [
        replace(
            landmark_set,
            radius=net.measure_closest(landmark_set.scaled) if landmark_set.radius else 0.0,
        )
        for landmark_set in scaled
    ]
