"""The flow, in order, on one page: one chunk in, the next state out.

`start` makes a state of the warm-up, `start_from_support` one of landmarks, `push` is every chunk
after it, `rescale` computes the map from scratch on the same support, and `relayout` its picture.
Decisions (border or extension, refresh, frame) are taken from the state alone, at stream positions,
so that a replay takes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from streamembed.geometry.kernel_matrix import KernelMatrix, choose_dtype
from streamembed.geometry.pairwise import SquaredDistances
from streamembed.geometry.scaling import Scaling, fit_distances, fit_points, recenter
from streamembed.geometry.support import Support
from streamembed.landmarks.absorption import Absorption, Cover
from streamembed.methods import frame_reference, picture_updates
from streamembed.methods.chunk import AcceptedEvents, arrange_distances, assign_slots
from streamembed.methods.eigenpairs import LARGEST_EXACT
from streamembed.methods.maps import MAPS
from streamembed.methods.options import POSITION, Config
from streamembed.methods.state import (
    NO_SLOTS,
    BuildInput,
    FrameReference,
    State,
    UpdateCounts,
    UpdateInput,
)
from streamembed.metrics import engine_metrics as learners
from streamembed.numeric.arrays import Floats, Ints

# The frame is renewed when so much of the support is new: what is left ties the axes together,
# and errors of a renewal add up the more, the more often it is done.
FRAME_SHARE = 0.5
# Slots by which a centre is judged, when the frame is renewed.
SAMPLE = 256
# Weight of earlier events in the cover's resolution, per event: the last thousand or so count.
FORGETTING = 1.0 - 1e-3
# Widths between an event and its landmark count up to here: a cover is too coarse from a mean of
# 0.7 on, and one outlier says nothing of the others.
FARTHEST = 4.0


def start(chunk: AcceptedEvents, config: Config, divisors: Floats) -> State:
    """The state at the end of the warm-up: scaling, bandwidth and map from scratch.

    ``divisors`` are those of the features, as in `fit_points`.
    """
    masses = np.ones(len(chunk))
    scaling = _fit_scaling(chunk.points, masses, chunk.mutual_distances, config, divisors)
    empty = Support.empty(chunk.points.shape[1], chunk.ids.dtype)
    cover = Cover.empty() if config.memory == "landmarks" else None
    support, assignment, time = assign_slots(empty, cover, None, 0, scaling, chunk, config)
    distances = read_rows = None
    if chunk.distances is not None:
        d = arrange_distances(empty, assignment, chunk)
        distances = _make_distance_ring(len(support), config).with_rows(assignment.slots, d)
        read_rows = d.__getitem__
    squares = SquaredDistances(support.scaled, read_rows)
    inputs = BuildInput(support, distances, squares, len(chunk), NO_SLOTS, scaling)
    state = _build(inputs, assignment.cover, None, config)
    state = _init_metrics(replace(state, time=time), config)
    state = picture_updates.begin(state, config)
    return state if state.metrics is None else _train_metrics(state, chunk, config)


def _make_distance_ring(n: int, config: Config) -> KernelMatrix:
    """An empty ring: in double precision where the last level decomposes it, or has no mean."""
    capacity = config.max_slots or max(n, 256)
    is_small = config.max_slots is None or config.max_slots <= LARGEST_EXACT
    exact = is_small or config.is_centred or config.memory == "landmarks"
    dtype = np.float64 if exact else choose_dtype(capacity, config.tolerance)
    return KernelMatrix.empty(capacity, dtype)


def start_from_support(
    support: Support, scaling: Scaling, position: int, radius: float, time: float, config: Config
) -> State:
    """The state of landmarks that were learned elsewhere: all but these from scratch.

    Parameters
    ----------
    position
        Events that they stand for, more than any arrival position.
    radius
        Within it of a landmark was every event, in scaled units.
    time
        As of which masses are, where they fade by event times.
    """
    cover = Cover.of(support.scaled)
    squares = SquaredDistances(support.scaled)
    inputs = BuildInput(support, None, squares, position, NO_SLOTS, scaling)
    state = _build(inputs, cover, None, config)
    state = replace(state, time=None if config.clock == POSITION else time)
    if (scales := state.map.scales) is not None:  # an upper bound: it was not measured
        shares = support.masses / support.masses.sum()
        state = replace(state, apart=(float(shares @ (radius / scales.widths) ** 2), 1.0))
    state = _init_metrics(state, config)
    return picture_updates.begin(state, config)


def _init_metrics(state: State, config: Config) -> State:
    if not config.metrics:
        return state
    d = state.support.points.shape[1]
    return replace(state, metrics=learners.init(config.metrics, d, config.seed))


def push(state: State, chunk: AcceptedEvents, config: Config, divisors: Floats) -> State:
    """The state after one more chunk.

    The rings are written in place. Until the new state is committed, the old one can still be
    read, which invalidates the new one: a chunk that fails, at whatever line, changes nothing.
    """
    # support: which points stay, in which slot, with what mass
    previous = state.support, state.cover, state.distances, state.position, state.scaling
    support, assignment, time = assign_slots(*previous, chunk, config, state.time)
    slots = assignment.slots
    distances = read_rows = left = None
    if state.distances is not None:
        new_distances = arrange_distances(state.support, assignment, chunk)
        left = state.distances.rows(slots[slots < state.distances.n]).astype(np.float64)
        distances = state.distances.with_rows(slots, new_distances)
        read_rows = _merge_distances(distances, slots, new_distances)
    position = state.position + len(chunk)
    # map: the rows or lists of the new slots, and the changes they cause
    squares = SquaredDistances(support.scaled, read_rows)
    inputs = UpdateInput(support, distances, squares, position, slots, state, left)
    updated, n_filled = state.map.update(inputs, config)
    turned, apart = float(len(slots)), state.apart
    if assignment.cover is not None:  # landmarks
        turned = _measure_turnover(state, support, slots)
        apart = _update_landmark_distance(state, assignment, config)
    counts = UpdateCounts(
        state.counts.refreshes + updated.products - state.map.products,
        state.counts.rebuilds,
        state.counts.rows_since_frame + turned,
        state.counts.refilled + n_filled - len(slots),
    )
    following = replace(
        state,
        position=position,
        support=support,
        cover=assignment.cover,
        distances=distances,
        counts=counts,
        apart=apart,
        time=time,
        map=updated,
    )
    if config.rescales and len(state.support) < len(support) == config.max_slots:
        following = _rescale(following, config, divisors)  # now that the support is whole
    elif following.map.has_changed_part(following):
        renewed = frame_reference.renew(following, config, starts_epoch=True)
        following = replace(following, frame=renewed)
    else:
        following = _renew_due_frame(following, config)
    # picture: place the new points, move those whose neighbours changed, then all
    if config.picture:
        following = picture_updates.update_picture(state, following, slots, config)
    # metrics: labels, or what features tell of one another
    return following if state.metrics is None else _train_metrics(following, chunk, config)


def rescale(state: State, config: Config, divisors: Floats) -> State:
    """The state with scaling, map, frame and picture from scratch."""
    state = _rescale(state, config, divisors)
    return relayout(state, config) if config.picture else state


def relayout(state: State, config: Config) -> State:
    """The state with a picture from scratch, turned as the one that it has."""
    return picture_updates.relayout(state, np.arange(len(state.support)), config)


def _rescale(state: State, config: Config, divisors: Floats) -> State:
    """The state with all but its picture recomputed from its support."""
    support, d = state.support, state.read_distances()
    all_distances = None if d is None or config.has_widths else d(np.arange(len(support)))
    scaling = _fit_scaling(support.points, support.masses, all_distances, config, divisors)
    built = _rebuild(state, scaling, config, starts_epoch=True)
    metrics = None if state.metrics is None else learners.rescale(state.metrics)
    return replace(built, metrics=metrics)


def _rebuild(state: State, scaling: Scaling, config: Config, starts_epoch: bool) -> State:
    """The state with its map from scratch under another scaling."""
    support = state.support
    rescaled = replace(support, scaled=scaling.apply(support.points))
    cover = state.cover
    if cover is not None and state.distances is None:
        cover = Cover.of(rescaled.scaled)
    squares = SquaredDistances(rescaled.scaled, state.read_distances())
    inputs = BuildInput(rescaled, state.distances, squares, state.position, NO_SLOTS, scaling)
    built = _build(inputs, cover, state, config, starts_epoch)
    return replace(built, picture=state.picture, time=state.time, metrics=state.metrics)


def _recenter(state: State, config: Config) -> State:
    """The state about a centre of now, where its support has moved far away from the one it has.

    The slots that decide are drawn. A support of distances has no centre.
    """
    support, scaling = state.support, state.scaling
    if state.distances is not None:
        return state
    generator = np.random.default_rng((config.seed, state.position, len(support)))
    drawn = generator.permutation(len(support))[:SAMPLE]
    centred = recenter(scaling, support.points[drawn], support.masses[drawn])
    if centred is scaling:
        return state
    if config.is_sparse and config.weights == "heat":  # with the bandwidth that it has
        config = replace(config, bandwidth=scaling.bandwidth)
    return _rebuild(state, centred, config, starts_epoch=False)


def _update_landmark_distance(
    state: State, assignment: Absorption, config: Config
) -> tuple[float, float]:
    """`State.apart` after the chunk: how far its events were from landmarks of a full support."""
    scales, nearest, d2 = state.map.scales, assignment.near, assignment.near_d2
    if scales is None or nearest is None or d2 is None or len(scales.widths) < config.size:
        return state.apart
    ratios = np.minimum(np.sqrt(d2) / scales.widths[nearest], FARTHEST) ** 2
    shares = FORGETTING ** np.arange(len(ratios))[::-1]
    decay = FORGETTING ** len(ratios)
    total, weight = state.apart
    return float(total * decay + shares @ ratios), float(weight * decay + shares.sum())


def _merge_distances(distances: KernelMatrix, slots: Ints, new: Floats) -> Callable[[Ints], Floats]:
    """slots -> unsquared distances to all: ``new`` rows as they came, others by the ring."""
    row_of = np.full(distances.n, -1)
    row_of[slots] = np.arange(len(slots))

    def rows(slots_read: Ints) -> Floats:
        d = distances.rows(slots_read).astype(np.float64)
        index = row_of[slots_read]
        d[index >= 0] = new[index[index >= 0]]
        return d

    return rows


def _measure_turnover(state: State, support: Support, slots: Ints) -> float:
    """By how many of its n rows landmarks have changed: those refilled, and the mass that moved.

    A window's chunk of c events changes c rows. A landmark counts by the share of its mass that is
    new, so that a stream which has seen much turns slowly.
    """
    n = len(state.support)
    previous = np.zeros(len(support))
    previous[:n] = state.support.masses / state.support.masses.sum()
    moved_share = 0.5 * np.abs(support.masses / support.masses.sum() - previous).sum()
    return float(len(slots) + len(support) * moved_share)


def _renew_due_frame(state: State, config: Config) -> State:
    """The state with its frame renewed where that is due: decided by the state alone."""
    n = len(state.support)
    counts = state.counts
    if counts.rows_since_frame < FRAME_SHARE * n:
        return state
    if (centred := _recenter(state, config)) is not state:
        return centred
    renewed = frame_reference.renew(state, config)
    return replace(state, frame=renewed, counts=replace(counts, rows_since_frame=0.0))


def _train_metrics(state: State, chunk: AcceptedEvents, config: Config) -> State:
    """The state with its metrics after a chunk."""
    assert state.metrics is not None
    metrics, support = state.metrics, state.support
    if chunk.classes is not None:
        metrics = learners.learn_labels(metrics, chunk.points, chunk.classes, config.seed)
    if not metrics.all_fitted and metrics.is_measurement_due(state.position, len(support)):
        metrics = learners.learn_unlabelled(
            metrics, support.scaled, support.births, state.position, config.seed
        )
    return replace(state, metrics=metrics)


def _build(
    inputs: BuildInput,
    cover: Cover | None,
    before: State | None,
    config: Config,
    starts_epoch: bool = True,
) -> State:
    """A state with its map and frame from scratch, and what it may keep of the one before."""
    built, scaling = MAPS[config.method].build(inputs, config)
    position, support = inputs.position, inputs.support
    frame = FrameReference(
        np.zeros((0, 0)), NO_SLOTS, position, epoch=-1, since=position, fidelity=1.0
    )
    counts = UpdateCounts()
    if before is not None:
        frame, counts = before.frame, before.counts
    state = State(
        position=position,
        support=support,
        cover=cover,
        distances=inputs.distances,
        frame=frame,
        counts=replace(counts, rebuilds=counts.rebuilds + 1, rows_since_frame=0.0),
        scaling=scaling,
        map=built,
    )
    return replace(state, frame=frame_reference.renew(state, config, starts_epoch))


def _fit_scaling(
    points: Floats, masses: Floats, d: Floats | None, config: Config, divisors: Floats
) -> Scaling:
    """The scaling that the configuration asks for: of points, or of distances.

    Where every point has its own width, the bandwidth follows from these.
    """
    bandwidth = config.fixed_bandwidth if config.has_bandwidth else 1.0
    if d is not None or points.shape[1] == 0:
        return fit_distances(np.zeros((0, 0)) if d is None else d, bandwidth)
    return fit_points(points, masses, config.scaling, bandwidth, config.least_share, divisors)
