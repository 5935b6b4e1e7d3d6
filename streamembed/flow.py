"""The flow, in order, on one page: one chunk in, the next state out.

`first` makes a state of the warm-up, `push` is every chunk after it, `rescaled` starts the map
anew on the same support. Decisions (border or extension, refresh, frame) are taken from the state
alone, at stream positions, so that a replay takes them again.
"""

from __future__ import annotations

import numpy as np

from streamembed import axes
from streamembed.config import Config
from streamembed.core import kernel, support, tracker, view
from streamembed.core.arrays import Array, Floats, Ints
from streamembed.core.graph import Graph, ring_dtype
from streamembed.core.support import Support
from streamembed.core.tracker import Factor
from streamembed.state import Counts, FrameReference, Scaling, State

__all__ = ["first", "push", "rescaled"]

# Refilled slots after which the factor is refreshed, as a share of n: a tenth costs a third of a
# border a chunk, and keeps the plain view of the benchmark's streams under 6e-3.
REFRESH_SHARE = 0.1
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
# Random directions, on the new slots only, that look for what an extension cannot see.
CHUNK_PROBES = 8
# Warm-ups up to this size are decomposed exactly; larger ones by subspace iteration.
LARGEST_DECOMPOSED = 1000


def first(points: Floats, ids: Array, config: Config) -> State:
    """The state at the end of the warm-up: scaling, bandwidth and factor from scratch."""
    scaling = _scaling(points, config)
    count = len(points)
    births = np.arange(count, dtype=np.int64)
    slots = support.slots_for(0, count, config.window)
    held = support.fill(
        Support.empty(points.shape[1], ids.dtype),
        slots,
        points,
        scaling.scaled(points),
        ids,
        births,
        np.ones(count),
    )
    return _built(held, scaling, count, config, 0, Counts(0, 0, 0, 0))


def push(state: State, points: Floats, ids: Array, config: Config) -> State:
    """The state after one more chunk: a new one, but for the ring.

    The kernel ring is written in place, and put back if anything after it fails.
    """
    count = len(points)
    births = np.arange(state.position, state.position + count, dtype=np.int64)

    # support: which points stay, in which slot
    slots = support.slots_for(state.position, count, config.window)
    held = support.fill(
        state.support, slots, points, state.scaling.scaled(points), ids, births, np.ones(count)
    )
    # rows: the kernel rows of the new slots
    rows = _kernel_rows(held, slots, state.scaling, state.graph)
    leaving = slots[slots < state.graph.n]
    degrees = _degrees(state, held, slots, leaving, rows)
    before = state.graph.write(slots, rows)
    try:
        # tracker: evict the old, border the new
        factor = _updated(state, held, degrees, slots, rows, config)
        counts = Counts(
            state.counts.refreshes,
            state.counts.rebuilds,
            state.counts.rows_since_refresh + count,
            state.counts.rows_since_frame + count,
        )
        after = State(
            state.position + count,
            state.scaling,
            held,
            state.graph,
            degrees,
            factor,
            state.frame,
            counts,
        )
        return _maintained(after, config)
    except BaseException:
        state.graph.restore(slots, before)
        raise


def rescaled(state: State, config: Config) -> State:
    """The state with scaling, bandwidth, ring, factor and frame made anew from its support."""
    old = state.support
    scaling = _scaling(old.points, config)
    moved = Support(old.points, scaling.scaled(old.points), old.ids, old.births, old.masses)
    return _built(moved, scaling, state.position, config, state.frame.epoch + 1, state.counts)


def _kernel_rows(held: Support, slots: Ints, scaling: Scaling, graph: Graph) -> Array:
    """Kernel rows of ``slots`` against the whole support: exactly 1 on the diagonal, symmetric."""
    rows = kernel.gaussian_rows(
        held.scaled[slots], held.scaled, scaling.bandwidth, graph.buffer.dtype
    )
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    rows[np.arange(len(slots)), slots] = 1.0
    return rows


def _degrees(state: State, held: Support, slots: Ints, leaving: Ints, rows: Array) -> Floats:
    """q = W m after the chunk: subtract the rows that leave as they were added, add the new."""
    degrees = np.concatenate([state.degrees, np.zeros(len(held) - len(state.degrees))])
    if len(leaving):
        old = state.graph.rows(leaving).astype(np.float64)
        degrees[: state.graph.n] -= state.support.masses[leaving] @ old
    exact = rows.astype(np.float64)
    degrees += held.masses[slots] @ exact
    degrees[slots] = exact @ held.masses
    return degrees


def _updated(
    state: State, held: Support, degrees: Floats, slots: Ints, rows: Array, config: Config
) -> Factor:
    """The factor after the chunk, by the cheapest way that is sound at this size."""
    n, count, cut = len(held), len(slots), config.rank_cut
    density = view.density_weights(degrees, config.alpha)
    spread = rows.astype(np.float64) @ (held.masses * density)
    arriving = view.normalise(density[slots], held.masses[slots], spread).scaling
    if count <= max(SMALL_CHUNK, BIG_CHUNK_SHARE * n):
        return tracker.replace(state.factor, slots, rows, arriving, cut)
    normal = _normalisation(state.graph, degrees, held, config)
    if n <= SMALL_SUPPORT_RANKS * cut.most:
        return tracker.decompose(state.graph.weights, normal.scaling, cut)
    extended = tracker.extend(state.factor, slots, rows, arriving)
    probes = np.zeros((n, min(CHUNK_PROBES, count)))
    generator = np.random.default_rng((config.seed, state.position, n))
    probes[slots] = generator.standard_normal((count, probes.shape[1]))
    floor = view.rounding_floor(state.graph.rounding)
    return tracker.refresh(extended, normal.scaling, state.graph.product, cut, floor, probes)


def _normalisation(
    graph: Graph, degrees: Floats, held: Support, config: Config
) -> view.Normalisation:
    """The exact normalisation, by one product with the ring."""
    density = view.density_weights(degrees, config.alpha)
    spread = graph.product((held.masses * density)[:, None])[:, 0].astype(np.float64)
    return view.normalise(density, held.masses, spread)


def _maintained(state: State, config: Config) -> State:
    """The state with factor and frame renewed where they are due: decided by the state alone."""
    n, counts, factor = len(state.support), state.counts, state.factor
    refreshed = 0
    if counts.rows_since_refresh >= REFRESH_SHARE * n or _aged(state, config):
        normal = _normalisation(state.graph, state.degrees, state.support, config)
        floor = view.rounding_floor(state.graph.rounding)
        factor = tracker.refresh(
            factor, normal.scaling, state.graph.product, config.rank_cut, floor
        )
        refreshed = 1
    counts = Counts(
        counts.refreshes + refreshed,
        counts.rebuilds,
        0 if refreshed else counts.rows_since_refresh,
        counts.rows_since_frame,
    )
    state = _with(state, factor, state.frame, counts)
    frame_rows = max(FRAME_SHARE * n, min(FRAME_ROWS, LARGEST_FRAME_SHARE * n))
    if counts.rows_since_frame < frame_rows and not state.frame.restless:
        return state
    renewed = axes.reference(state, config)
    counts = Counts(counts.refreshes, counts.rebuilds, counts.rows_since_refresh, 0)
    return _with(state, factor, renewed, counts)


def _aged(state: State, config: Config) -> bool:
    """True where the frozen normalisation of some slot is off by a factor of three."""
    ratio = axes.estimated_normalisation(state, config).scaling / state.factor.scaling
    return bool(ratio.max() > LARGEST_RESCALING or ratio.min() * LARGEST_RESCALING < 1.0)


def _with(state: State, factor: Factor, frame: FrameReference, counts: Counts) -> State:
    return State(
        state.position,
        state.scaling,
        state.support,
        state.graph,
        state.degrees,
        factor,
        frame,
        counts,
    )


def _built(
    held: Support, scaling: Scaling, position: int, config: Config, epoch: int, counts: Counts
) -> State:
    """A state from a support alone: ring, degrees, factor and frame made anew."""
    n = len(held)
    capacity = config.window or max(n, 256)
    graph = Graph.empty(capacity, np.float64 if config.window is None else ring_dtype(capacity))
    slots = np.arange(n, dtype=np.int64)
    graph.write(slots, _kernel_rows(held, slots, scaling, graph))
    degrees = graph.product(held.masses[:, None])[:, 0].astype(np.float64)
    normal = _normalisation(graph, degrees, held, config)
    cut = config.rank_cut
    if n <= max(LARGEST_DECOMPOSED, cut.most):
        factor = tracker.decompose(graph.weights, normal.scaling, cut)
    else:
        factor = tracker.sketch(
            normal.scaling,
            graph.product,
            cut,
            view.rounding_floor(graph.rounding),
            graph.buffer.dtype,
            config.seed,
        )
    births = np.zeros(0, dtype=np.int64)
    nothing = FrameReference(
        np.zeros((0, 0)), np.zeros(0), births, position, epoch, False, 0.0, 0.0
    )
    fresh = Counts(counts.refreshes, counts.rebuilds + 1, 0, 0)
    state = State(position, scaling, held, graph, degrees, factor, nothing, fresh)
    return _with(state, factor, axes.reference(state, config, epoch), fresh)


def _scaling(points: Floats, config: Config) -> Scaling:
    """Centre, scale and bandwidth of a set of points, as the configuration says."""
    center = points.mean(axis=0)
    scale = np.ones(points.shape[1])
    if config.scaling == "standard":
        spread = np.abs(points - center).max(axis=0)
        # A constant column differs from its mean by rounding only; so does one below 1e-150.
        varies = spread > np.maximum(8 * np.finfo(np.float64).eps * np.abs(center), 1e-150)
        safe = np.where(varies, spread, 1.0)
        scale = np.where(
            varies, safe * np.sqrt((((points - center) / safe) ** 2).mean(axis=0)), 1.0
        )
    chosen = Scaling(center, scale, 1.0)
    if isinstance(config.bandwidth, str):
        return Scaling(center, scale, kernel.choose_bandwidth(chosen.scaled(points)))
    return Scaling(center, scale, float(config.bandwidth))
