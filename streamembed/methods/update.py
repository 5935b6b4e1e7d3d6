"""The flow, in order, on one page: one chunk in, the next state out.

`start` makes a state of the warm-up, `of_support` one of landmarks, `push` is every chunk after it,
`rescale` starts the map anew on the same support, and `lay_out_again` its picture. Decisions
(border or extension, refresh, frame) are taken from the state alone, at stream positions, so that a
replay takes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from streamembed.geometry import neighbors, self_tuning
from streamembed.geometry.kernel_matrix import Graph, ring_dtype
from streamembed.geometry.lists import Edges, Lists
from streamembed.geometry.pairwise import Coordinates, Pairwise, Table
from streamembed.geometry.scaling import LEAST_SHARE, Scaling, fit_distances, fit_points
from streamembed.geometry.self_tuning import Scales
from streamembed.geometry.support import Support
from streamembed.landmarks import absorption
from streamembed.landmarks.absorption import Cover
from streamembed.methods import (
    alignment_matrix,
    frame_reference,
    geodesic_gram,
    neighbor_graph,
    picture_updates,
    slot_assignment,
)
from streamembed.methods.chunk import Chunk
from streamembed.methods.options import POSITION, Config
from streamembed.methods.registry import EVERYWHERE, Seen
from streamembed.methods.slot_assignment import Assigned
from streamembed.methods.state import Counts, Dense, FrameReference, Sparse, State
from streamembed.metric_learners import metrics as learners
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.pairs import reproduction, thresholds
from streamembed.spectral import operator, tracker
from streamembed.spectral.operator import Normalisation
from streamembed.spectral.tracker import Factor

__all__ = ["lay_out_again", "of_support", "push", "rescale", "start"]

# Refilled slots after which the factor is refreshed, as a share of n: a tenth costs a third of a
# border a chunk, and keeps the plain view of the benchmark's streams under 6e-3.
REFRESH_SHARE = 0.1
# Centred: a cut of a matrix that is not positive loses more, and is paid for less.
CENTRED_REFRESH_SHARE = 0.05
# The frame is renewed more often, because eigenfunctions turn (docs/decisions/0005): after a
# fiftieth of the support, in small ones after 20 rows, but never more than a twenty-fifth.
FRAME_SHARE = 0.02
FRAME_ROWS = 20
LARGEST_FRAME_SHARE = 0.04
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
# Random directions, on the new slots only, that look for what an extension cannot see.
CHUNK_PROBES = 8
# Events between two draws of pairs: learning from them costs as much as a few chunks of ten.
PAIRS_EVERY = 50
# Events between two looks at whether the pairs teach what reproduces: each takes 15 to 30 ms.
REPRODUCED_EVERY = 500
# Of what events say of the cover, for every later one: the last thousand or so count.
FORGETTING = 1.0 - 1e-3
# An outlier counts as no farther than this.
FARTHEST = 1e100
# Of a leaving entry beside the largest sum that stays: eleven digits of that are still right.
LARGEST_LEAVING = 1e5
# Warm-ups up to this size are decomposed exactly; larger ones by subspace iteration.
LARGEST_DECOMPOSED = 1000
NO_SLOTS: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class _Place:
    """Where in the stream a state is made from scratch: its axes, and what was counted so far."""

    position: int
    epoch: int
    counts: Counts


def start(chunk: Chunk, config: Config) -> State:
    """The state at the end of the warm-up: scaling, bandwidth and factor from scratch."""
    scaling = _fit_scaling(chunk.points, np.ones(len(chunk)), chunk.among, config)
    nothing = Support.empty(chunk.points.shape[1], chunk.ids.dtype)
    cover = Cover.empty() if config.memory == "landmarks" else None
    placed = slot_assignment.assign(nothing, cover, None, 0, scaling, chunk, config)
    births = np.arange(len(chunk), dtype=np.int64)
    held = slot_assignment.fill_slots(nothing, placed, scaling, chunk, births)
    distances, d = None, slot_assignment.arrange_distances(nothing, placed, chunk)
    if d is not None:
        small = (config.slots or 0) <= LARGEST_DECOMPOSED  # the last rung decomposes them exactly
        exact = small or config.is_centred or cover is not None
        ring = _make_ring(len(held), config, exact=exact)
        distances = ring.write(placed.slots, d)
    now = _Place(len(chunk), 0, Counts(0, 0, 0, 0.0))
    known = None if d is None else lambda slots: d[slots]
    state = _build(held, placed.cover, distances, known, scaling, now, config)
    state = replace(state, time=placed.time)
    if config.metrics:
        untaught = learners.init(config.metrics, chunk.points.shape[1], config.seed)
        state = replace(state, metrics=untaught)
    state = picture_updates.begin(state, _near_of(state), config)
    return _teach_metrics(state, 0, chunk, config)


def of_support(
    held: Support, scaling: Scaling, position: int, radius: float, time: float, config: Config
) -> State:
    """The state of landmarks that were learned elsewhere: all but these from scratch.

    Parameters
    ----------
    position
        Events that they stand for, more than any birth.
    radius
        Within it of a landmark was every event, in scaled units.
    time
        As of which masses are, where they fade by event times.
    """
    points = absorption.Points(held.scaled, held.scaled[:0], len(held))
    cover = absorption.cover_of(points, len(held))
    now = _Place(position, 0, Counts(0, 0, 0, 0.0))
    state = _build(held, cover, None, None, scaling, now, config)
    state = replace(state, time=None if config.clock == POSITION else time)
    if state.scales is not None:  # at most: nobody has measured it
        shares = held.masses / held.masses.sum()
        state = replace(state, apart=(float(shares @ (radius / state.scales.widths) ** 2), 1.0))
    if config.metrics:
        untaught = learners.init(config.metrics, held.points.shape[1], config.seed)
        state = replace(state, metrics=untaught)
    return picture_updates.begin(state, _near_of(state), config)


def push(state: State, chunk: Chunk, config: Config) -> State:
    """The state after one more chunk.

    The rings are written in place. Until the new state is settled, the old one can still be read,
    which is the end of the new one: so a chunk that fails, at whatever line, changes nothing.
    """
    births = np.arange(state.position, state.position + len(chunk), dtype=np.int64)

    # support: which points stay, in which slot, with what mass
    before = state.support, state.cover, state.distances, state.position, state.scaling
    placed = slot_assignment.assign(*before, chunk, config, state.time)
    slots = placed.slots
    held = slot_assignment.fill_slots(state.support, placed, state.scaling, chunk, births)
    # widths: which slots have drifted, and are filled again
    new, distances, known = (
        slot_assignment.arrange_distances(state.support, placed, chunk),
        None,
        None,
    )
    if state.distances is not None and new is not None:
        distances = state.distances.write(slots, new)
        known = _known_distances(distances, slots, new)
    refilled, position = slots, state.position + len(chunk)
    scales = dense = sparse = rebuilt = curved = None
    if state.sparse is not None:
        # lists, walk, block: the neighbours of the new slots, and what they change
        near = _near(held, distances, slots)
        sparse, lists = neighbor_graph.update(state, held, slots, near, position, config)
    elif state.rebuilt is not None:
        near = _near(held, distances, slots)
        rebuilt, lists = alignment_matrix.update(state, held, slots, near, position, config)
    elif state.curved is not None:
        near = _near(held, distances, slots)
        curved, lists = geodesic_gram.update(state, held, slots, near, config)
    else:
        seen = Seen(held, known, state.scaling, state.scales, config.rule)
        refilled, seen, lists = _update_scales(state, slots, seen, distances, config)
        scales = seen.scales
        dense = _border(state, seen, refilled, config)
    counts = Counts(
        state.counts.refreshes,
        state.counts.rebuilds,
        state.counts.rows_since_refresh + len(refilled),
        state.counts.rows_since_frame + _count_turned_rows(state, held, slots),
        state.counts.refilled + len(refilled) - len(slots),
    )
    after = replace(
        state,
        position=position,
        scales=scales,
        lists=lists,
        support=held,
        cover=placed.cover,
        distances=distances,
        dense=dense,
        sparse=sparse,
        rebuilt=rebuilt,
        curved=curved,
        counts=counts,
        apart=_measure_cover(state, placed, config),
        time=placed.time,
    )
    if config.rescales and len(state.support) < len(held) == config.slots:
        after = _rescale(after, config)  # now that there is a whole support to go by
    elif geodesic_gram.has_moved(after):
        after = replace(after, frame=frame_reference.renew(after, config, after.frame.epoch + 1))
    else:
        after = _maintain(after, config)
    # picture: newcomers find their places, whose neighbours changed come to rest, all breathe
    if config.picture:
        after = picture_updates.follow(state, after, slots, _near_of(after, slots), config)
    # pairs, metrics
    return _teach_metrics(after, state.position, chunk, config)


def rescale(state: State, config: Config) -> State:
    """The state with scaling, widths, ring, factor, frame and picture anew from its support."""
    moved = _rescale(state, config)
    return picture_updates.respread(moved, _near_of(moved), config) if config.picture else moved


def lay_out_again(state: State, config: Config) -> State:
    """The state with a picture from scratch, turned as the one that it has."""
    everything = np.arange(len(state.support))
    return picture_updates.lay_out_again(state, everything, _near_of(state), config)


def _rescale(state: State, config: Config) -> State:
    """The state with all but its picture recomputed from its support."""
    old, d = state.support, state.known_distances()
    every = None if d is None or config.has_widths else d(np.arange(len(old)))
    scaling = _fit_scaling(old.points, old.masses, every, config)
    moved = replace(old, scaled=scaling.apply(old.points))
    cover = state.cover
    if cover is not None and state.distances is None:
        points = absorption.Points(moved.scaled, moved.scaled[:0], len(moved))
        cover = absorption.cover_of(points, len(moved))
    now = _Place(state.position, state.frame.epoch + 1, state.counts)
    built = _build(moved, cover, state.distances, d, scaling, now, config)
    built = replace(built, picture=state.picture, time=state.time)
    if state.metrics is None:
        return built
    ratio = scaling.scale / state.scaling.scale
    return replace(built, metrics=learners.rescale(state.metrics, ratio, config.seed))


def _border(state: State, seen: Seen, refilled: Ints, config: Config) -> Dense:
    """The dense room after ``refilled`` slots were filled, for the first time or again."""
    # rows: the kernel rows of these slots
    rows = config.embedding.rows(seen, refilled, state.graph.buffer.dtype)
    leaving = state.graph.rows(refilled[refilled < state.graph.n])
    graph = state.graph.write(refilled, rows)
    held = seen.support
    degrees = _update_degrees(state, held, graph, refilled, leaving, rows)
    if np.abs(leaving).max(initial=0.0) > LARGEST_LEAVING * np.abs(degrees).max():
        return _make_dense(graph, held, config)  # what is left of both is rounding of what was
    # tracker: evict the old, border the new
    factor = _update_factor(state, held, graph, degrees, refilled, rows, config)
    return Dense(graph, degrees, factor, config.is_centred)


def _update_scales(
    state: State, slots: Ints, seen: Seen, distances: Graph | None, config: Config
) -> tuple[Ints, Seen, Lists | None]:
    """Slots to be bordered, and what the kernel sees and the lists after the chunk.

    Those are the chunk's, and slots whose width has drifted: they are filled again, with what they
    hold. ``seen`` has the widths before.
    """
    scales, rule = seen.scales, config.rule
    if scales is None or rule is None or state.lists is None or len(slots) == 0:
        return slots, seen, state.lists
    held = seen.support
    near, n = _near(held, distances, slots), len(held)
    lists, _ = state.lists.replace(slots, near, held.births)
    reaches = lists.kth_positive(config.n_neighbors, near)
    small = max(SMALL_CHUNK, int(BIG_CHUNK_SHARE * n))
    # a border of both, unless the chunk alone takes most of its room
    most = small if 2 * len(slots) > small else small - len(slots)
    again = self_tuning.drifted(scales, reaches, slots, most)
    refilled = np.concatenate([slots, again])
    squares = seen.squares(refilled, state.graph.buffer.dtype)
    seen = replace(seen, at_hand=(refilled, squares))
    scales = self_tuning.place(scales, refilled, reaches[refilled], seen.squares, n, rule)
    return refilled, replace(seen, scales=scales), lists


def _measure_cover(state: State, placed: Assigned, config: Config) -> tuple[float, float]:
    """`State.apart` after the chunk: how far its events were from landmarks of a full support."""
    scales, near, d2 = state.scales, placed.near, placed.near_d2
    if scales is None or near is None or d2 is None or len(scales.widths) < config.size:
        return state.apart
    ratios = (np.minimum(np.sqrt(d2), FARTHEST) / scales.widths[near]) ** 2
    shares = FORGETTING ** np.arange(len(ratios))[::-1]
    left = FORGETTING ** len(ratios)
    total, weight = state.apart
    return float(total * left + shares @ ratios), float(weight * left + shares.sum())


def _near_of(state: State, slots: Ints = NO_SLOTS) -> Pairwise:
    return _near(state.support, state.distances, slots)


def _near(held: Support, distances: Graph | None, slots: Ints) -> Pairwise:
    """The geometry of the lists: of points, or of the ring of distances with ``slots`` at hand."""
    if distances is None:
        return Coordinates(held.scaled)

    def squares(asked: Ints) -> Floats:
        d = distances.rows(asked).astype(np.float64)
        return d * d

    return Table(slots, squares(slots), squares)


def _known_distances(distances: Graph, slots: Ints, new: Floats) -> Callable[[Ints], Floats]:
    """slots -> unsquared distances to all: ``new`` rows as they came, others by the ring."""
    place = np.full(distances.n, -1)
    place[slots] = np.arange(len(slots))

    def rows(asked: Ints) -> Floats:
        d = distances.rows(asked).astype(np.float64)
        at = place[asked]
        d[at >= 0] = new[at[at >= 0]]
        return d

    return rows


def _update_degrees(
    state: State, held: Support, graph: Graph, slots: Ints, leaving: Array, rows: Array
) -> Floats:
    """q = W m after the chunk.

    In a window: subtract the rows that leave as they were added, add the new. Among landmarks
    every mass may have changed: one product with the ring.
    """
    if state.cover is not None:
        return graph.product(held.masses[:, None])[:, 0].astype(np.float64)
    degrees = np.concatenate([state.degrees, np.zeros(len(held) - len(state.degrees))])
    if len(leaving):
        gone = state.support.masses[slots[slots < len(state.support)]]
        degrees[: leaving.shape[1]] -= gone @ leaving.astype(np.float64)
    exact = rows.astype(np.float64)
    degrees += held.masses[slots] @ exact
    degrees[slots] = exact @ held.masses
    return degrees


def _count_turned_rows(state: State, held: Support, slots: Ints) -> float:
    """By how many of its n rows the support has changed: those refilled, and the mass that moved.

    A window's chunk of c events changes c rows. A landmark counts by the share of its mass that is
    new, so that a stream which has seen much turns slowly.
    """
    if state.cover is None:
        return float(len(slots))
    n = len(state.support)
    before = np.zeros(len(held))
    before[:n] = state.support.masses / state.support.masses.sum()
    moved = 0.5 * np.abs(held.masses / held.masses.sum() - before).sum()
    return float(len(slots) + len(held) * moved)


def _update_factor(
    state: State,
    held: Support,
    graph: Graph,
    degrees: Floats,
    slots: Ints,
    rows: Array,
    config: Config,
) -> Factor:
    """The factor after the chunk, by the cheapest way that is sound at this size."""
    n, count, cut = len(held), len(slots), config.rank_cut
    if count == 0:
        return state.factor  # masses are a diagonal scaling, which the view restores
    exact = rows.astype(np.float64)
    normalise = config.embedding.normalise
    new = normalise(degrees, held.masses, config.correction, lambda x: exact @ x, slots).scaling
    if count <= max(SMALL_CHUNK, BIG_CHUNK_SHARE * n):
        return tracker.replace(state.factor, slots, rows, new, cut)
    normal = _normalise(graph, degrees, held, config)
    if n <= SMALL_SUPPORT_RANKS * cut.most:
        return tracker.decompose(graph.weights, normal.scaling, cut)
    extended = tracker.extend(state.factor, slots, rows, new)
    probes = np.zeros((n, min(CHUNK_PROBES, count)))
    generator = np.random.default_rng((config.seed, state.position, n))
    probes[slots] = generator.standard_normal((count, probes.shape[1]))
    floor = operator.ROUNDING_FLOOR[graph.buffer.dtype]
    return tracker.refresh(
        extended, normal.scaling, graph.product, cut, floor, probes, operator.LARGEST_EIGENVALUE
    )


def _normalise(graph: Graph, degrees: Floats, held: Support, config: Config) -> Normalisation:
    """The exact normalisation, by one product with the ring."""

    def product(x: Floats) -> Floats:
        return graph.product(x[:, None])[:, 0].astype(np.float64)

    return config.embedding.normalise(degrees, held.masses, config.correction, product, EVERYWHERE)


def _maintain(state: State, config: Config) -> State:
    """The state with factor and frame renewed where they are due: decided by the state alone."""
    n = len(state.support)
    if state.dense is not None:
        state = _refresh(state, state.dense, config)
    counts = state.counts
    frame_rows = max(FRAME_SHARE * n, min(FRAME_ROWS, LARGEST_FRAME_SHARE * n))
    if counts.rows_since_frame < frame_rows and not state.frame.restless:
        return state
    renewed = frame_reference.renew(state, config)
    return replace(state, frame=renewed, counts=replace(counts, rows_since_frame=0.0))


def _refresh(state: State, dense: Dense, config: Config) -> State:
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


def _teach_metrics(state: State, position: int, chunk: Chunk, config: Config) -> State:
    """The state with its metrics after a chunk that began at ``position``."""
    if state.metrics is None:
        return state
    metrics, support = state.metrics, state.support
    if chunk.classes is not None:
        metrics = learners.learn_labels(metrics, chunk.points, chunk.classes, config.seed)
    if state.position // PAIRS_EVERY > position // PAIRS_EVERY and not metrics.given:
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
                _map_of_a_half(state, config),
                state.position,
                config.seed,
            )
    return replace(state, metrics=metrics)


def _map_of_a_half(state: State, config: Config) -> reproduction.Embed:
    """How half of the events are embedded by themselves: with one width, or widths of their own."""
    if config.room == "dense" and config.rule is None:
        bandwidth, alpha = state.scaling.bandwidth, config.correction
        return lambda points, count: reproduction.kernel_map(points, bandwidth, alpha, count)
    return neighbors.self_tuning_map


def _embed_for_pairs(state: State, config: Config) -> Floats:
    """Coordinates that tell pairs apart: as many as features, at a long diffusion time."""
    normal = frame_reference.estimate_normalisation(state, config)
    most = state.support.points.shape[1]
    if state.dense is not None:
        most = min(most, len(state.dense.factor.values))
    values, psi = frame_reference.view(state, normal, most)
    if config.room != "dense" and not config.is_sparse:  # as they are shown
        events = float(state.counting.sum())
        return config.embedding.coordinates(psi, values, 1.0, events)
    return thresholds.weight_columns(psi, values)


def _make_ring(n: int, config: Config, exact: bool) -> Graph:
    """An empty ring; ``exact`` for float64 whatever its size."""
    capacity = config.slots or max(n, 256)
    exact = exact or config.slots is None
    dtype = np.float64 if exact else ring_dtype(capacity, config.tolerance)
    return Graph.empty(capacity, dtype)


def _build(
    held: Support,
    cover: Cover | None,
    distances: Graph | None,
    known: Callable[[Ints], Floats] | None,
    scaling: Scaling,
    now: _Place,
    config: Config,
) -> State:
    """A state from a support alone, or its distances: widths, ring, factor and frame anew.

    ``known`` are the distances, as exact as they are known.
    """
    made: _Rooms
    rebuilt = curved = None
    if config.is_sparse:
        made = _build_sparse(held, distances, scaling, config)
    elif config.room == "rebuilt":
        near = _near(held, distances, NO_SLOTS)
        rebuilt, neighbours = alignment_matrix.build(held, near, now.position, config)
        made = scaling, None, neighbours, None, None
    elif config.room == "curved":
        near = _near(held, distances, NO_SLOTS)
        curved, some = geodesic_gram.build(held, near, config)
        made = scaling, None, some, None, None
    else:
        made = _build_dense(held, distances, known, scaling, config)
    scaling, scales, lists, dense, sparse = made
    none = np.zeros((0, 0)), NO_SLOTS
    nothing = FrameReference(
        none[0], np.zeros(0), NO_SLOTS, now.position, now.epoch, False, 0.0, 0.0, *none
    )
    fresh = Counts(now.counts.refreshes, now.counts.rebuilds + 1, 0, 0.0, now.counts.refilled)
    rooms = distances, dense, sparse
    state = State(
        now.position,
        scaling,
        scales,
        lists,
        held,
        cover,
        *rooms,
        nothing,
        fresh,
        rebuilt=rebuilt,
        curved=curved,
    )
    return replace(state, frame=frame_reference.renew(state, config, now.epoch))


_Rooms = tuple[Scaling, Scales | None, Lists | None, Dense | None, Sparse | None]


def _build_sparse(
    held: Support, distances: Graph | None, scaling: Scaling, config: Config
) -> _Rooms:
    """The sparse room from scratch, with its lists, and the bandwidth of heat weights."""
    near, k = _near(held, distances, NO_SLOTS), config.n_neighbors
    lists = edges = None
    if config.radius is not None:
        edges = Edges.build(near, config.radius**2)
        known = edges.d2
    else:
        lists = Lists.build(near, held.births, k)
        known = np.where(np.isfinite(lists.d2[:, :k]), lists.d2[:, :k], 0.0).max(axis=1)
    bandwidth = config.fixed_bandwidth
    if bandwidth is None:
        positive = known[known > 0]
        bandwidth = float(np.sqrt(np.median(positive))) if len(positive) else 1.0
    scaling = scaling.of_bandwidth(bandwidth)
    width = 1.0 if isinstance(config.width, str) else config.width
    scale = {"binary": 1.0, "heat": scaling.bandwidth**2, "self_tuning": width}[config.weights]
    sparse = neighbor_graph.build(held, lists, edges, scale, config)
    return scaling, None, lists, None, sparse


def _build_dense(
    held: Support,
    distances: Graph | None,
    known: Callable[[Ints], Floats] | None,
    scaling: Scaling,
    config: Config,
) -> _Rooms:
    """The dense room from scratch, with widths and lists where the kernel has them."""
    n, rule, scales, lists = len(held), config.rule, None, None
    slots = np.arange(n, dtype=np.int64)
    if rule is not None:
        near = _near(held, distances, slots[:0])
        lists = Lists.build(near, held.births, config.n_neighbors, positive=True)
        reaches = lists.kth_positive(config.n_neighbors, near)
        seen = Seen(held, known, scaling, None, rule)
        scales = self_tuning.place(Scales.empty(), slots, reaches, seen.squares, n, rule)
        scaling = scaling.of_bandwidth(float(np.sqrt(rule.width)) * scales.typical)
    empty = _make_ring(n, config, exact=config.is_centred)
    seen = Seen(held, known, scaling, scales, rule)
    graph = empty.write(slots, config.embedding.rows(seen, slots, empty.buffer.dtype))
    return scaling, scales, lists, _make_dense(graph, held, config), None


def _make_dense(graph: Graph, held: Support, config: Config) -> Dense:
    """Degrees and factor by the ring alone."""
    degrees = graph.product(held.masses[:, None])[:, 0].astype(np.float64)
    normal, cut = _normalise(graph, degrees, held, config), config.rank_cut
    if len(held) <= max(LARGEST_DECOMPOSED, cut.most):
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
    return Dense(graph, degrees, factor, config.is_centred)


def _fit_scaling(points: Floats, masses: Floats, d: Floats | None, config: Config) -> Scaling:
    """What the kernel is to see, as the configuration says: of points, or of distances.

    Where every point has its own width, the bandwidth follows from these.
    """
    bandwidth = 1.0 if config.has_widths else config.fixed_bandwidth
    if d is not None or points.shape[1] == 0:
        return fit_distances(np.zeros((0, 0)) if d is None else d, bandwidth)
    least = LEAST_SHARE if config.rescales else 0.0
    return fit_points(points, masses, config.scaling, bandwidth, least)
