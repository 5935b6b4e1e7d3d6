"""The flow, in order, on one page: one chunk in, the next state out.

`start` makes a state of the warm-up, `start_from_support` one of landmarks, `push` is every chunk
after it, `rescale` computes the map from scratch on the same support, and `relayout` its picture.
Decisions (border or extension, refresh, frame) are taken from the state alone, at stream positions,
so that a replay takes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed.geometry import neighbors, self_tuning
from streamembed.geometry.kernel_matrix import KernelMatrix, choose_dtype
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.pairwise import DistanceTable, Pairwise, PointDistances
from streamembed.geometry.scaling import LEAST_SHARE, Scaling, fit_distances, fit_points
from streamembed.geometry.self_tuning import LocalWidths
from streamembed.geometry.support import Support
from streamembed.landmarks import absorption
from streamembed.landmarks.absorption import Cover
from streamembed.methods import (
    alignment_matrix,
    frame_reference,
    geodesic_gram,
    linear_projection,
    neighbor_graph,
    picture_updates,
    slot_assignment,
)
from streamembed.methods.chunk import Chunk
from streamembed.methods.options import POSITION, Config
from streamembed.methods.registry import EVERYWHERE, KernelInput
from streamembed.methods.slot_assignment import SlotAssignment
from streamembed.methods.state import FrameReference, KernelMap, State, UpdateCounts
from streamembed.metric_learners import metrics as learners
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.pairs import reproduction, thresholds
from streamembed.spectral import operator, tracker
from streamembed.spectral.operator import Normalisation
from streamembed.spectral.tracker import Factor

# Refilled slots after which the factor is refreshed, as a share of n: a tenth costs a third of a
# border a chunk, and keeps the plain view of the benchmark's streams under 6e-3.
REFRESH_SHARE = 0.1
# Centred: a cut of a matrix that is not positive loses more, and is paid for less.
CENTRED_REFRESH_SHARE = 0.05
# The frame is renewed when so much of the support is new: what is left ties the axes together,
# and errors of a renewal add up the more, the more often it is done (docs/decisions/0022).
FRAME_SHARE = 0.5
# Chunks larger than this share of n go by extension and refresh, which is cheaper there, ...
BIG_CHUNK_SHARE = 0.05
# ... unless they are small in themselves, or the whole support is: then the border, or a fresh
# decomposition, costs less than either.
SMALL_CHUNK = 25
SMALL_SUPPORT_RANKS = 4
# s / f of any slot outside [1/3, 3] asks for a refresh: the frozen normalisation has aged.
LARGEST_RESCALING = 3.0
# Among landmarks: slots with so much of the stationary measure, for a new one ages as it grows.
# Any slot would ask for twice the refreshes, and no certificate would be met the sooner.
AGED_SHARE = 0.01
# Random directions, on the new slots only, for what an extension cannot see.
CHUNK_PROBES = 8
# Events between two draws of pairs: learning from them costs as much as a few chunks of ten.
PAIRS_EVERY = 50
# Events between two measurements of whether pairs reproduce: each takes 15 to 30 ms.
REPRODUCED_EVERY = 500
# Weight of earlier events in the cover's resolution, per event: the last thousand or so count.
FORGETTING = 1.0 - 1e-3
# An outlier counts as no farther than this.
FARTHEST = 1e100
# Of a leaving entry beside the largest sum that stays: eleven digits of that are still right.
LARGEST_LEAVING = 1e5
# Warm-ups up to this size are decomposed exactly; larger ones by subspace iteration.
LARGEST_DECOMPOSED = 1000
NO_SLOTS: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where in the stream a state is made from scratch: the frame before, and the counts so far."""

    position: int
    frame: FrameReference
    counts: UpdateCounts

    @classmethod
    def first(cls, position: int) -> _Origin:
        """The origin of a state without one before it."""
        frame = FrameReference(np.zeros((0, 0)), NO_SLOTS, position, -1, position, ())
        return cls(position, frame, UpdateCounts(0, 0, 0, 0.0))


def start(chunk: Chunk, config: Config) -> State:
    """The state at the end of the warm-up: scaling, bandwidth and factor from scratch."""
    scaling = _fit_scaling(chunk.points, np.ones(len(chunk)), chunk.mutual_distances, config)
    empty = Support.empty(chunk.points.shape[1], chunk.ids.dtype)
    cover = Cover.empty() if config.memory == "landmarks" else None
    assignment = slot_assignment.assign(empty, cover, None, 0, scaling, chunk, config)
    positions = np.arange(len(chunk), dtype=np.int64)
    support = slot_assignment.fill_slots(empty, assignment, scaling, chunk, positions)
    distances, d = None, slot_assignment.arrange_distances(empty, assignment, chunk)
    if d is not None:
        # the last refinement level decomposes them exactly
        is_small = (config.slots or 0) <= LARGEST_DECOMPOSED
        exact = is_small or config.is_centred or cover is not None
        ring = _make_ring(len(support), config, exact=exact)
        distances = ring.write(assignment.slots, d)
    origin = _Origin.first(len(chunk))
    read_rows = None if d is None else lambda slots: d[slots]
    state = _build(support, assignment.cover, distances, read_rows, scaling, origin, config)
    state = _init_metrics(replace(state, time=assignment.time), config)
    state = picture_updates.begin(state, _read_geometry(state), config)
    return _train_metrics(state, 0, chunk, config)


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
    points = absorption.PointGeometry(support.scaled, support.scaled[:0], len(support))
    cover = absorption.compute_cover(points, len(support))
    origin = _Origin.first(position)
    state = _build(support, cover, None, None, scaling, origin, config)
    state = replace(state, time=None if config.clock == POSITION else time)
    if state.scales is not None:  # an upper bound: it was not measured
        shares = support.masses / support.masses.sum()
        state = replace(state, apart=(float(shares @ (radius / state.scales.widths) ** 2), 1.0))
    state = _init_metrics(state, config)
    return picture_updates.begin(state, _read_geometry(state), config)


def _init_metrics(state: State, config: Config) -> State:
    if not config.metrics:
        return state
    d = state.support.points.shape[1]
    return replace(state, metrics=learners.init(config.metrics, d, config.seed))


def push(state: State, chunk: Chunk, config: Config) -> State:
    """The state after one more chunk.

    The rings are written in place. Until the new state is committed, the old one can still be
    read, which invalidates the new one: a chunk that fails, at whatever line, changes nothing.
    """
    positions = np.arange(state.position, state.position + len(chunk), dtype=np.int64)

    # support: which points stay, in which slot, with what mass
    previous = state.support, state.cover, state.distances, state.position, state.scaling
    assignment = slot_assignment.assign(*previous, chunk, config, state.time)
    slots = assignment.slots
    support = slot_assignment.fill_slots(state.support, assignment, state.scaling, chunk, positions)
    # widths: which slots have drifted, and are filled again
    new_distances = slot_assignment.arrange_distances(state.support, assignment, chunk)
    distances = read_rows = None
    if state.distances is not None and new_distances is not None:
        distances = state.distances.write(slots, new_distances)
        read_rows = _merge_distances(distances, slots, new_distances)
    refilled, position = slots, state.position + len(chunk)
    changes: dict[str, Any] = {}
    if state.dense is not None:
        inputs = KernelInput(support, read_rows, state.scaling, state.scales, config.rule)
        refilled, inputs, changes["lists"] = _update_scales(state, slots, inputs, distances, config)
        changes["scales"] = inputs.scales
        changes["dense"] = _border(state, inputs, refilled, config)
    else:
        # lists, walk, block: the neighbours of the new slots, and the changes they cause
        after = state, support, slots, _build_geometry(support, distances, slots)
        if state.sparse is not None:
            changes["sparse"], lists = neighbor_graph.update(*after, position, config)
        elif state.rebuilt is not None:
            changes["rebuilt"], lists = alignment_matrix.update(*after, position, config)
        else:
            changes["curved"], lists = geodesic_gram.update(*after, config)
        changes["lists"] = lists
    counts = UpdateCounts(
        state.counts.refreshes,
        state.counts.rebuilds,
        state.counts.rows_since_refresh + len(refilled),
        state.counts.rows_since_frame + _count_turned_rows(state, support, slots),
        state.counts.refilled + len(refilled) - len(slots),
    )
    following = replace(
        state,
        position=position,
        support=support,
        cover=assignment.cover,
        distances=distances,
        counts=counts,
        apart=_measure_cover(state, assignment, config),
        time=assignment.time,
        **changes,
    )
    if config.rescales and len(state.support) < len(support) == config.slots:
        following = _rescale(following, config)  # now that there is a whole support to go by
    elif geodesic_gram.has_changed_part(following):
        renewed = frame_reference.renew(following, config, starts_epoch=True)
        following = replace(following, frame=renewed)
    else:
        following = _maintain(following, config)
    # picture: place the new points, move those whose neighbours changed, then all
    if config.picture:
        following = picture_updates.follow(
            state, following, slots, _read_geometry(following, slots), config
        )
    # pairs, metrics
    return _train_metrics(following, state.position, chunk, config)


def rescale(state: State, config: Config) -> State:
    """The state with scaling, widths, ring, factor, frame and picture from scratch."""
    state = _rescale(state, config)
    if config.picture:
        state = picture_updates.respread(state, _read_geometry(state), config)
    return state


def relayout(state: State, config: Config) -> State:
    """The state with a picture from scratch, turned as the one that it has."""
    slots = np.arange(len(state.support))
    return picture_updates.relayout(state, slots, _read_geometry(state), config)


def _rescale(state: State, config: Config) -> State:
    """The state with all but its picture recomputed from its support."""
    support, d = state.support, state.read_distances()
    all_distances = None if d is None or config.has_widths else d(np.arange(len(support)))
    scaling = _fit_scaling(support.points, support.masses, all_distances, config)
    rescaled = replace(support, scaled=scaling.apply(support.points))
    cover = state.cover
    if cover is not None and state.distances is None:
        points = absorption.PointGeometry(rescaled.scaled, rescaled.scaled[:0], len(rescaled))
        cover = absorption.compute_cover(points, len(rescaled))
    origin = _Origin(state.position, state.frame, state.counts)
    built = _build(rescaled, cover, state.distances, d, scaling, origin, config)
    built = replace(built, picture=state.picture, time=state.time)
    if state.metrics is None:
        return built
    ratio = scaling.scale / state.scaling.scale
    return replace(built, metrics=learners.rescale(state.metrics, ratio, config.seed))


def _border(state: State, inputs: KernelInput, refilled: Ints, config: Config) -> KernelMap:
    """The kernel map after ``refilled`` slots were filled, for the first time or again."""
    # rows: the kernel rows of these slots
    rows = config.embedding.rows(inputs, refilled, state.kernel_matrix.buffer.dtype)
    leaving = state.kernel_matrix.rows(refilled[refilled < state.kernel_matrix.n])
    graph = state.kernel_matrix.write(refilled, rows)
    support = inputs.support
    degrees = _update_degrees(state, support, graph, refilled, leaving, rows)
    if np.abs(leaving).max(initial=0.0) > LARGEST_LEAVING * np.abs(degrees).max():
        return _make_dense(graph, support, config)  # both are rounding of larger numbers
    # tracker: evict the old, border the new
    factor = _update_factor(state, support, graph, degrees, refilled, rows, config)
    return KernelMap(graph, degrees, factor, config.is_centred)


def _update_scales(
    state: State, slots: Ints, inputs: KernelInput, distances: KernelMatrix | None, config: Config
) -> tuple[Ints, KernelInput, NeighborLists | None]:
    """Slots to be bordered, the kernel's input and the lists after the chunk.

    Those are the chunk's, and slots whose width has drifted: they are filled again with the
    same events. ``inputs`` has the previous widths.
    """
    scales, rule = inputs.scales, config.rule
    if scales is None or rule is None or state.lists is None or len(slots) == 0:
        return slots, inputs, state.lists
    support = inputs.support
    geometry, n = _build_geometry(support, distances, slots), len(support)
    lists, _ = state.lists.replace(slots, geometry, support.births)
    reaches = lists.kth_positive(config.n_neighbors, geometry)
    limit = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
    # a border of both, unless the chunk alone takes most of it
    n_more = limit if 2 * len(slots) > limit else limit - len(slots)
    drifted = self_tuning.find_drifted(scales, reaches, slots, n_more)
    refilled = np.concatenate([slots, drifted])
    squares = inputs.squares(refilled, state.kernel_matrix.buffer.dtype)
    inputs = replace(inputs, computed=(refilled, squares))
    scales = self_tuning.fill_widths(scales, refilled, reaches[refilled], inputs.squares, n, rule)
    return refilled, replace(inputs, scales=scales), lists


def _measure_cover(state: State, assignment: SlotAssignment, config: Config) -> tuple[float, float]:
    """`State.apart` after the chunk: how far its events were from landmarks of a full support."""
    scales, nearest, d2 = state.scales, assignment.near, assignment.near_d2
    if scales is None or nearest is None or d2 is None or len(scales.widths) < config.size:
        return state.apart
    ratios = (np.minimum(np.sqrt(d2), FARTHEST) / scales.widths[nearest]) ** 2
    shares = FORGETTING ** np.arange(len(ratios))[::-1]
    decay = FORGETTING ** len(ratios)
    total, weight = state.apart
    return float(total * decay + shares @ ratios), float(weight * decay + shares.sum())


def _read_geometry(state: State, slots: Ints = NO_SLOTS) -> Pairwise:
    return _build_geometry(state.support, state.distances, slots)


def _build_geometry(support: Support, distances: KernelMatrix | None, slots: Ints) -> Pairwise:
    """The geometry of the lists: of points, or of the ring of distances with ``slots`` at hand."""
    if distances is None:
        return PointDistances(support.scaled)

    def squares(slots_read: Ints) -> Floats:
        d = distances.rows(slots_read).astype(np.float64)
        return d * d

    return DistanceTable(slots, squares(slots), squares)


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


def _update_degrees(
    state: State, support: Support, graph: KernelMatrix, slots: Ints, leaving: Array, rows: Array
) -> Floats:
    """q = W m after the chunk.

    In a window: subtract the rows that leave as they were added, add the new. Among landmarks
    every mass may have changed: one product with the ring.
    """
    if state.cover is not None:
        return graph.product(support.masses[:, None])[:, 0].astype(np.float64)
    degrees = np.concatenate([state.degrees, np.zeros(len(support) - len(state.degrees))])
    if len(leaving):
        leaving_masses = state.support.masses[slots[slots < len(state.support)]]
        degrees[: leaving.shape[1]] -= leaving_masses @ leaving.astype(np.float64)
    exact = rows.astype(np.float64)
    degrees += support.masses[slots] @ exact
    degrees[slots] = exact @ support.masses
    return degrees


def _count_turned_rows(state: State, support: Support, slots: Ints) -> float:
    """By how many of its n rows the support has changed: those refilled, and the mass that moved.

    A window's chunk of c events changes c rows. A landmark counts by the share of its mass that is
    new, so that a stream which has seen much turns slowly.
    """
    if state.cover is None:
        return float(len(slots))
    n = len(state.support)
    previous = np.zeros(len(support))
    previous[:n] = state.support.masses / state.support.masses.sum()
    moved_share = 0.5 * np.abs(support.masses / support.masses.sum() - previous).sum()
    return float(len(slots) + len(support) * moved_share)


def _update_factor(
    state: State,
    support: Support,
    graph: KernelMatrix,
    degrees: Floats,
    slots: Ints,
    rows: Array,
    config: Config,
) -> Factor:
    """The factor after the chunk, by the cheapest way that is sound at this size."""
    n, count, cut = len(support), len(slots), config.rank_cut
    if count == 0:
        return state.factor  # masses are a diagonal scaling, which the view restores
    exact = rows.astype(np.float64)
    normalise = config.embedding.normalise
    scaling = normalise(
        degrees, support.masses, config.correction, lambda x: exact @ x, slots
    ).scaling
    if count <= max(SMALL_CHUNK, BIG_CHUNK_SHARE * n):
        return tracker.replace(state.factor, slots, rows, scaling, cut)
    normal = _normalise(graph, degrees, support, config)
    if n <= SMALL_SUPPORT_RANKS * cut.most:
        return tracker.decompose(graph.weights, normal.scaling, cut)
    extended = tracker.extend(state.factor, slots, rows, scaling)
    probes = np.zeros((n, min(CHUNK_PROBES, count)))
    generator = np.random.default_rng((config.seed, state.position, n))
    probes[slots] = generator.standard_normal((count, probes.shape[1]))
    floor = operator.ROUNDING_FLOOR[graph.buffer.dtype]
    return tracker.refresh(
        extended, normal.scaling, graph.product, cut, floor, probes, operator.LARGEST_EIGENVALUE
    )


def _normalise(
    graph: KernelMatrix, degrees: Floats, support: Support, config: Config
) -> Normalisation:
    """The exact normalisation, by one product with the ring."""

    def product(x: Floats) -> Floats:
        return graph.product(x[:, None])[:, 0].astype(np.float64)

    return config.embedding.normalise(
        degrees, support.masses, config.correction, product, EVERYWHERE
    )


def _maintain(state: State, config: Config) -> State:
    """The state with factor and frame renewed where they are due: decided by the state alone."""
    n = len(state.support)
    if state.dense is not None:
        state = _refresh(state, state.dense, config)
    counts = state.counts
    if counts.rows_since_frame < FRAME_SHARE * n:
        return state
    if state.sparse is not None and state.sparse.axes is not None:
        axes = linear_projection.find_axes(state.support)
        state = replace(state, sparse=replace(state.sparse, axes=axes))
    renewed = frame_reference.renew(state, config)
    return replace(state, frame=renewed, counts=replace(counts, rows_since_frame=0.0))


def _refresh(state: State, dense: KernelMap, config: Config) -> State:
    """The state with its factor refreshed, where that is due."""
    counts = state.counts
    share = CENTRED_REFRESH_SHARE if dense.centred else REFRESH_SHARE
    due = counts.rows_since_refresh >= share * len(state.support)
    if not due and (dense.centred or not _has_aged(state, config)):
        return state
    normal = _normalise(dense.graph, dense.degrees, state.support, config)
    factor = tracker.refresh(
        dense.factor,
        normal.scaling,
        dense.graph.product,
        config.rank_cut,
        operator.ROUNDING_FLOOR[dense.graph.buffer.dtype],
        norm=operator.LARGEST_EIGENVALUE,
    )
    if dense.centred:  # sums of signed rows lose digits where they are added and taken away
        exact = dense.graph.product(state.support.masses[:, None])[:, 0].astype(np.float64)
        dense = replace(dense, degrees=exact)
    counts = replace(counts, refreshes=counts.refreshes + 1, rows_since_refresh=0)
    return replace(state, dense=replace(dense, factor=factor), counts=counts)


def _has_aged(state: State, config: Config) -> bool:
    """True where the frozen normalisation is off by a factor of three.

    In a window, that of any slot; among landmarks, where a new one grows tenfold as a matter of
    course, that of slots which together have a share in the whole.
    """
    normal = frame_reference.estimate_normalisation(state, config)
    ratio = normal.scaling / state.factor.scaling
    aged = (ratio > LARGEST_RESCALING) | (ratio * LARGEST_RESCALING < 1.0)
    share = float(normal.stationary[aged].sum())
    return share > (0.0 if state.cover is None else AGED_SHARE)


def _train_metrics(state: State, position: int, chunk: Chunk, config: Config) -> State:
    """The state with its metrics after a chunk that began at ``position``."""
    if state.metrics is None:
        return state
    metrics, support = state.metrics, state.support
    if chunk.classes is not None:
        metrics = learners.learn_labels(metrics, chunk.points, chunk.classes, config.seed)
    if state.position // PAIRS_EVERY > position // PAIRS_EVERY and not metrics.all_fitted:
        is_first = metrics.pairs.counts.candidates == 0
        coordinates = _embed_for_pairs(state, config)
        metrics = learners.learn_generated(
            metrics,
            coordinates,
            support.scaled,
            support.births,
            support.masses,
            state.position,
            config.seed,
        )
        if is_first or state.position // REPRODUCED_EVERY > position // REPRODUCED_EVERY:
            metrics = learners.measure_reproduction(
                metrics,
                support.scaled,
                support.births,
                _choose_half_map(state, config),
                state.position,
                config.seed,
            )
    return replace(state, metrics=metrics)


def _choose_half_map(state: State, config: Config) -> reproduction.Embed:
    """How half of the events are embedded by themselves: with one width, or widths of their own."""
    if config.family == "kernel" and config.rule is None:
        bandwidth, alpha = state.scaling.bandwidth, config.correction
        return lambda points, count: reproduction.compute_kernel_map(
            points, bandwidth, alpha, count
        )
    return neighbors.embed_self_tuning


def _embed_for_pairs(state: State, config: Config) -> Floats:
    """Coordinates that distinguish pairs: as many as features, at a long diffusion time."""
    normal = frame_reference.estimate_normalisation(state, config)
    most = state.support.points.shape[1]
    if state.dense is not None:
        most = min(most, len(state.dense.factor.values))
    values, psi = frame_reference.view(state, normal, most)
    if config.family != "kernel" and not config.is_sparse:  # as they are shown
        events = float(state.active_masses.sum())
        return config.embedding.coordinates(psi, values, 1.0, events)
    return thresholds.weight_columns(psi, values)


def _make_ring(n: int, config: Config, exact: bool) -> KernelMatrix:
    """An empty ring; ``exact`` for float64 whatever its size."""
    capacity = config.slots or max(n, 256)
    exact = exact or config.slots is None
    dtype = np.float64 if exact else choose_dtype(capacity, config.tolerance)
    return KernelMatrix.empty(capacity, dtype)


def _build(
    support: Support,
    cover: Cover | None,
    distances: KernelMatrix | None,
    read_rows: Callable[[Ints], Floats] | None,
    scaling: Scaling,
    origin: _Origin,
    config: Config,
) -> State:
    """A state from a support alone, or its distances: widths, ring, factor and frame from scratch.

    ``read_rows`` gives the distances, without rounding to the ring.
    """
    parts: dict[str, Any] = {"scaling": scaling}
    if config.family in ("kernel", "gram"):
        parts |= _build_dense(support, distances, read_rows, scaling, config)
    else:
        geometry = _build_geometry(support, distances, NO_SLOTS)
        if config.is_sparse:
            parts |= _build_sparse(support, geometry, scaling, config)
        elif config.family == "alignment":
            built = alignment_matrix.build(support, geometry, origin.position, config)
            parts["rebuilt"], parts["lists"] = built
        else:
            parts["curved"], parts["lists"] = geodesic_gram.build(support, geometry, config)
    counts = UpdateCounts(
        origin.counts.refreshes, origin.counts.rebuilds + 1, 0, 0.0, origin.counts.refilled
    )
    state = State(
        position=origin.position,
        support=support,
        cover=cover,
        distances=distances,
        frame=origin.frame,
        counts=counts,
        **parts,
    )
    return replace(state, frame=frame_reference.renew(state, config, starts_epoch=True))


def _build_sparse(
    support: Support, geometry: Pairwise, scaling: Scaling, config: Config
) -> dict[str, Any]:
    """The map of a graph from scratch, with its lists, and the bandwidth of heat weights."""
    lists = edges = None
    if config.radius is not None:
        edges = RadiusEdges.build(geometry, config.radius**2)
        lengths2 = edges.d2
    else:
        lists = NeighborLists.build(geometry, support.births, config.n_neighbors)
        d2 = lists.nearest[1]
        lengths2 = np.where(np.isfinite(d2), d2, 0.0).max(axis=1)
    bandwidth = config.fixed_bandwidth
    if bandwidth is None:
        positive = lengths2[lengths2 > 0]
        bandwidth = float(np.sqrt(np.median(positive))) if len(positive) else 1.0
    scaling = scaling.of_bandwidth(bandwidth)
    scales = {"binary": 1.0, "heat": scaling.bandwidth**2, "self_tuning": config.kernel_width}
    scale = scales[config.weights]
    sparse = neighbor_graph.build(support, lists, edges, scale, config)
    return {"scaling": scaling, "lists": lists, "sparse": sparse}


def _build_dense(
    support: Support,
    distances: KernelMatrix | None,
    read_rows: Callable[[Ints], Floats] | None,
    scaling: Scaling,
    config: Config,
) -> dict[str, Any]:
    """The kernel map from scratch, with widths and lists where the kernel has them."""
    n, rule, scales, lists = len(support), config.rule, None, None
    slots = np.arange(n, dtype=np.int64)
    if rule is not None:
        geometry = _build_geometry(support, distances, slots[:0])
        lists = NeighborLists.build(geometry, support.births, config.n_neighbors, positive=True)
        reaches = lists.kth_positive(config.n_neighbors, geometry)
        inputs = KernelInput(support, read_rows, scaling, None, rule)
        scales = self_tuning.fill_widths(
            LocalWidths.empty(), slots, reaches, inputs.squares, n, rule
        )
        scaling = scaling.of_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
    empty = _make_ring(n, config, exact=config.is_centred)
    inputs = KernelInput(support, read_rows, scaling, scales, rule)
    graph = empty.write(slots, config.embedding.rows(inputs, slots, empty.buffer.dtype))
    dense = _make_dense(graph, support, config)
    return {"scaling": scaling, "scales": scales, "lists": lists, "dense": dense}


def _make_dense(graph: KernelMatrix, support: Support, config: Config) -> KernelMap:
    """Degrees and factor by the ring alone."""
    degrees = graph.product(support.masses[:, None])[:, 0].astype(np.float64)
    normal, cut = _normalise(graph, degrees, support, config), config.rank_cut
    if len(support) <= max(LARGEST_DECOMPOSED, cut.most):
        factor = tracker.decompose(graph.weights, normal.scaling, cut)
    else:
        factor = tracker.sketch(
            normal.scaling,
            graph.product,
            cut,
            operator.ROUNDING_FLOOR[graph.buffer.dtype],
            graph.buffer.dtype,
            config.seed,
            operator.LARGEST_EIGENVALUE,
        )
    return KernelMap(graph, degrees, factor, config.is_centred)


def _fit_scaling(points: Floats, masses: Floats, d: Floats | None, config: Config) -> Scaling:
    """The scaling that the configuration asks for: of points, or of distances.

    Where every point has its own width, the bandwidth follows from these.
    """
    bandwidth = 1.0 if config.has_widths else config.fixed_bandwidth
    if d is not None or points.shape[1] == 0:
        return fit_distances(np.zeros((0, 0)) if d is None else d, bandwidth)
    least = LEAST_SHARE if config.rescales else 0.0
    return fit_points(points, masses, config.scaling, bandwidth, least)
