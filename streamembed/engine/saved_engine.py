"""What is kept of an engine, and what it must hold before an engine is made of it.

The checksum of a file finds what was damaged; it cannot tell whether what was sealed is an engine.
The codec sees to it that everything is there and of its declared type; what is checked here is
whether it fits together. While a file is read, all of it runs within
`streamembed.storage.archive.raise_damaged`, which makes any error a `DamagedFileError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from streamembed.data.labels import LARGEST_CLASSES
from streamembed.engine.engine_state import EngineState
from streamembed.geometry.kernel_matrix import KernelMatrix, choose_capacity
from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH
from streamembed.geometry.support import choose_slots
from streamembed.layout.layout import Layout
from streamembed.methods import geodesic_gram
from streamembed.methods.chunk import AcceptedEvents
from streamembed.methods.options import LIST_FAMILIES, POSITION, Config
from streamembed.methods.state import AlignmentMap, GeodesicMap, GraphMap, KernelMap, State
from streamembed.metric_learners import metrics
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array
from streamembed.numeric.chunks import PendingParts
from streamembed.pairs import pair_memory
from streamembed.storage.archive import must

# Of floats: large rings, and what is made of them alone, may have the second.
WIDTHS = ("<f8", "<f4")
# Degrees are sums of the ring's rows, and an edit of one without the other changes more.
ROUNDING = 1e-4
# Of a picture: no stream carries it so far.
FARTHEST = 1e12
POSITIVE = ("scaling.scale", "support.masses")
COUNTS = (
    "position",
    "frame.position",
    "frame.epoch",
    "counts.refreshes",
    "counts.rebuilds",
    "counts.rows_since_refresh",
    "counts.refilled",
)
FINITE = ("scaling.bandwidth", "frame.displacement", "frame.movement", "counts.rows_since_frame")


@dataclass(frozen=True, slots=True, eq=False)
class SavedEngine:
    """All that is kept of an engine.

    Attributes
    ----------
    config : Config
    progress : Progress
    """

    config: Config
    progress: EngineState


def check(saved: SavedEngine) -> None:
    """Refuse a state that no engine of these parameters has: ValueError, as far as detectable."""
    config, progress = saved.config, saved.progress
    names, labels, state = progress.feature_names, progress.labels, progress.state
    must(len(set(names)) == len(names), "names are not unique")
    must(progress.ids_kind in (None, "positions", "numbers", "strings"), "ids_kind")
    must(progress.rejected >= 0 and labels.unlearned >= 0, "counts of rejected rows")
    must(progress.log_offset >= 0, "log_offset")
    must(len(labels.known) <= LARGEST_CLASSES, "labels")
    is_text = progress.ids_kind == "strings"
    if state is not None:
        _check_state(state, len(names), is_text, config)
    else:
        must(progress.ids_kind is None or progress.waiting.parts, "there is no event")
    n_support = 0 if state is None else len(state.support)
    _check_waiting(progress.waiting, len(names), is_text, n_support, config.window)
    for part in progress.waiting.parts:
        must((part.classes is not None) == bool(config.metrics), "classes of pending events")
        must((part.times is not None) == (config.clock != POSITION), "times of pending events")
        if part.times is not None:
            _has("times", part.times, (len(part),))
        must(
            progress.position < progress.next_cut(config),
            ("more events are pending than a chunk has"),
        )
    _check_labelled(progress)
    if progress.early is not None:
        left, right, similar = progress.early
        for end in (left, right):
            _has("early", end, (len(similar), len(names)))
        _has("early", similar, (len(similar),))


def _check_labelled(progress: EngineState) -> None:
    """Which events have a label: some of the support, ascending."""
    labelled, state = progress.labelled, progress.state
    _has("labelled", labelled, (len(labelled),))
    must((np.diff(labelled) > 0).all(), "labelled events are not in order")
    taught = state is not None and state.metrics is not None
    must(not len(labelled) or taught, "labelled events without metrics")
    if state is not None:
        must(
            np.isin(labelled, state.support.births).all(), "labelled events are not in the support"
        )


def check_metrics(state: State | None) -> None:
    """Refuse learners from which no metric can be made."""
    if state is not None and state.metrics is not None:
        with np.errstate(all="ignore"):
            metrics.publish(state.metrics, state.scaling.scale)


def _check_state(state: State, d: int, is_text: bool, config: Config) -> None:
    support, births, masses = state.support, state.support.births, state.support.masses
    n, position = len(births), state.position
    m, c = state.frame.columns.shape
    anchored = len(state.frame.anchor_births)
    shapes: dict[str, tuple[int, ...]] = {
        **dict.fromkeys(("scaling.center", "scaling.scale"), (d,)),
        **dict.fromkeys(("support.births", "support.masses"), (n,)),
        "support.points": (n, d),
        "frame.columns": (m, c),
        "frame.eigenvalues": (c,),
        "frame.births": (m,),
        "frame.anchor": (anchored, state.frame.anchor.shape[-1]),
        "frame.anchor_births": (anchored,),
    }
    must((state.distances is not None) == (d == 0), "distances")
    if state.distances is not None:
        shapes["distances.weights"] = (n, n)
    for name, shape in shapes.items():
        _has(name, attrgetter(name)(state), shape)
    _check_scales(state, n, config)
    must((state.cover is not None) == (config.memory == "landmarks"), "cover")
    if state.cover is not None:
        nearest, nearest_d2 = state.cover.nearest, state.cover.nearest_d2
        must(nearest.shape == nearest_d2.shape == (n,), "cover has another shape")
        must(((nearest >= -1) & (nearest < n)).all(), "cover.nearest is out of range")
        # infinite for a landmark that is alone
        must(not np.isnan(nearest_d2).any(), "cover.nearest_d2 is not a number")
    _has_ids(support.ids, n, is_text)
    for name in POSITIVE:
        must((attrgetter(name)(state) > 0).all(), f"{name} is not positive")
    for name in COUNTS:
        must(attrgetter(name)(state) >= 0, f"{name} is negative")
    for name in FINITE:
        must(abs(attrgetter(name)(state)) < np.inf, f"{name} is not finite")
    must(SMALLEST_BANDWIDTH <= state.scaling.bandwidth <= LARGEST_BANDWIDTH, "bandwidth")
    must(1 <= n <= (config.slots or n), f"the support has {n} points")
    if state.distances is not None:
        _check_ring(state.distances, n, config)
    must(len(np.unique(births)) == n, "births are not unique")
    must(((births >= 0) & (births < position)).all(), "births lie outside of the stream")
    if config.memory != "landmarks":
        must((masses == 1.0).all(), "the masses of a window must be 1")
        must(n == min(position, config.window or position), f"{n} points of {position} events")
        slots = choose_slots(position - n, n, config.window)
        must((births[slots] == np.arange(position - n, position)).all(), "births and slots differ")
    must((state.sparse is not None) == config.is_sparse, "the method")
    must((state.dense is not None) == (config.family in ("kernel", "gram")), "the method")
    must((state.rebuilt is not None) == (config.family == "alignment"), "the method")
    must((state.curved is not None) == (config.family == "geodesic"), "the method")
    if state.dense is not None:
        _check_dense(state.dense, masses, config)
    if state.sparse is not None:
        _check_sparse(state, state.sparse, n, config)
    if state.rebuilt is not None:
        _check_rebuilt(state, state.rebuilt, n, config)
    if state.curved is not None:
        _check_curved(state, state.curved, n, config)
    must((state.picture is not None) == config.picture, "picture")
    if state.picture is not None:
        _check_picture(state, state.picture, n, config)
    must((state.time is not None) == (config.clock != POSITION), "time")
    must(state.time is None or abs(state.time) < np.inf, "time is not finite")
    must((state.metrics is not None) == bool(config.metrics), "metrics")
    if state.metrics is not None:
        _check_learners(state.metrics, d, config)


def _check_ring(ring: KernelMatrix, n: int, config: Config) -> None:
    must(0 <= ring.capacity <= choose_capacity(n, config.slots or 0), "capacity")
    must(ring.weights.dtype.str in WIDTHS, f"a ring has dtype {ring.weights.dtype}")


def _check_dense(dense: KernelMap, masses: Array, config: Config) -> None:
    """Ring, degrees and factor of kernels."""
    n, r, factor = len(masses), len(dense.factor.values), dense.factor
    weights = dense.graph.weights
    _has("degrees", dense.degrees, (n,))
    _has("factor.scaling", factor.scaling, (n,))
    _has("factor.vectors", factor.vectors, (n, r))
    _has("factor.values", factor.values, (r,))
    _has("graph.weights", weights, (n, n))
    must(dense.centred == config.is_centred, "the method")
    positive = dense.centred or (dense.degrees > 0).all()
    must(positive and (factor.scaling > 0).all(), "degrees are not positive")
    _check_ring(dense.graph, n, config)
    must(weights.dtype == factor.vectors.dtype, "ring and factor differ in precision")
    with np.errstate(all="ignore"):
        sums = weights.astype(np.float64) @ masses
        # of signed rows, which may cancel
        slack = ROUNDING * float((np.abs(weights) @ masses).max()) if dense.centred else 0.0
    must(
        np.allclose(dense.degrees, sums, rtol=ROUNDING, atol=slack),
        ("degrees are not the sums of the ring"),
    )


def _check_sparse(state: State, sparse: GraphMap, n: int, config: Config) -> None:
    """Block, lists or edges of a graph."""
    block = sparse.block
    _has("block.psi", block.psi, (n, len(block.values)))
    must(block.psi.dtype.str in WIDTHS, f"a block has dtype {block.psi.dtype}")
    _has("block.values", block.values, (len(block.values),))
    must(block.labels.shape == (n,), "block.labels")
    must(((block.labels >= -1) & (block.labels < n)).all(), "block.labels")
    must(-1.0 <= block.low <= 0.0, "block.low")
    must(sparse.weights == config.weights and 0 < sparse.scale < np.inf, "weights, or their scale")
    must(min(sparse.low_rows, sparse.count_rows) >= 0, "rows of the graph")
    must(-1 <= sparse.counted <= state.position, "counted")
    must(sparse.missed is None or 0 <= sparse.missed <= n, "missed")
    _check_neighbours(state.lists, sparse.edges, n, config)


def _check_rebuilt(state: State, map_state: AlignmentMap, n: int, config: Config) -> None:
    """Weights and columns of locally linear embedding."""
    bottom, r = map_state.bottom, len(map_state.bottom.values)
    _check_neighbours(state.lists, None, n, config)
    _has("rebuilt.weights", map_state.weights, (n, config.n_neighbors))
    _has("bottom.vectors", bottom.vectors, (n, r))
    _has("bottom.values", bottom.values, (r,))
    must((bottom.values >= 0).all(), "a value of the bottom is negative")
    must(map_state.rows >= 0, "rows since the last refresh")


def _check_curved(state: State, map_state: GeodesicMap, n: int, config: Config) -> None:
    """Paths and factor of Isomap."""
    factor, labels, lengths = map_state.factor, map_state.labels, map_state.geodesics.lengths
    sources, expected = map_state.geodesics.sources, geodesic_gram.choose_landmarks(n, config)
    slots = np.arange(n) if expected is None else expected
    must((sources is None) == (expected is None), "sources of paths")
    must(sources is None or sources.tolist() == slots.tolist(), "sources of paths")
    _check_neighbours(state.lists, map_state.edges, n, config)
    must(lengths.shape == (len(slots), n) and (lengths >= 0).all(), "lengths of paths")
    must((lengths[np.arange(len(slots)), slots] == 0).all(), "lengths of paths")
    must(labels.shape == (n,) and ((labels >= 0) & (labels < n)).all(), "labels of parts")
    here = labels == 0
    must(here.any() and np.isfinite(lengths[np.ix_(here[slots], here)]).all(), "labels of parts")
    _has("factor.scaling", factor.scaling, (n,))
    _has("factor.vectors", factor.vectors, (n, len(factor.values)))
    _has("factor.values", factor.values, (len(factor.values),))
    must((factor.scaling == 1.0).all(), "factor.scaling")
    must(factor.vectors.dtype == np.float64, "factor.vectors")
    must(min(map_state.rows, map_state.stale) >= 0, "rows since the last refresh")


def _check_picture(state: State, picture: Layout, n: int, config: Config) -> None:
    """Places in the plane, and lists where the method has none."""
    for name in ("places", "breath"):
        _has(name, getattr(picture, name), (n, 2))
    _has("moved", picture.moved, (n,))
    must((picture.moved >= 0).all(), "moved")
    must(max(np.abs(picture.places).max(), np.abs(picture.breath).max()) < FARTHEST, "places")
    must(0.0 <= picture.gamma < FARTHEST and 0.0 <= picture.kept_then <= 1.0, "gamma, or kept_then")
    must(1 <= picture.laid_out <= n and min(picture.age, picture.epoch) >= 0, "laid_out, or age")
    must((picture.lists is None) == (state.lists is not None), "lists of the picture")
    if picture.lists is not None:
        _check_lists(picture.lists, n, config, positive=False)


def _check_neighbours(
    lists: NeighborLists | None, edges: RadiusEdges | None, n: int, config: Config
) -> None:
    """Lists, or edges where there is a radius."""
    must((edges is not None) == (config.radius is not None), "edges")
    must((lists is None) == (config.radius is not None), "lists")
    if edges is not None:
        must(edges.radius2 == (config.radius or 0.0) ** 2, "radius")
        ends = np.concatenate([edges.i, edges.j])
        must(((ends >= 0) & (ends < n)).all() and (edges.i < edges.j).all(), "edges")
        must(((edges.d2 >= 0) & (edges.d2 <= edges.radius2)).all(), "edges")
    if lists is not None:
        _check_lists(lists, n, config, positive=False)


def _check_lists(lists: NeighborLists, n: int, config: Config, positive: bool) -> None:
    must(len(lists) == n and lists.n_neighbors == config.n_neighbors, "lists of other slots")
    must(lists.positive == positive, "lists with duplicates, or without")
    must((lists.d2 >= 0).all() and (lists.reach >= 0).all(), "lists have a negative distance")
    must((np.isfinite(lists.d2) == (lists.near >= 0)).all(), "lists have distances to nothing")


def _check_scales(state: State, n: int, config: Config) -> None:
    """Widths and lists, where the kernel has them."""
    scales, lists = state.scales, state.lists
    has = config.rule is not None
    must((scales is not None) == has, "widths")
    must((lists is not None) == has or config.family in (*LIST_FAMILIES, "geodesic"), "lists")
    total, weight = state.apart
    must(0 <= total < np.inf and 0 <= weight < np.inf, "apart")
    if scales is None or lists is None:
        return
    for name, array in (("reaches", scales.reaches), ("widths", scales.widths)):
        _has(name, array, (n,))
    must((scales.reaches >= 0).all() and (scales.widths > 0).all(), "a width is not positive")
    must(0 <= scales.median < np.inf, "median of the reaches")
    _check_lists(lists, n, config, positive=True)


def _check_learners(learners: metrics.Learners, d: int, config: Config) -> None:
    arrays, numbers = codec.pack(learners)
    for name, array in arrays.items():  # infinities are among what metrics may hold
        must(array.dtype.kind != "f" or not np.isnan(array).any(), f"{name} has NaN")
    must(_least(numbers) >= 0, "a count of the metrics is negative")
    must(learners.names == config.metrics, "names of the metrics")
    expected = metrics.init(config.metrics, 1, config.seed)
    must(learners.course.progress.keys() == expected.course.progress.keys(), "learners")
    guessed = {} if learners.all_fitted else expected.guess
    must(learners.guess.keys() == guessed.keys(), "learners of generated pairs")
    spread = learners.course.spread
    for array in (spread.means, spread.squares, spread.counts):
        _has("moments of the features", array, (d,))
    check_pairs(learners.pairs, d)


def check_pairs(state: pair_memory.State, d: int) -> None:
    """Refuse remembered pairs of ``d`` features whose parts do not fit one another."""
    pairs, n = state.pairs, len(state.pairs.similar)
    _has("differences of pairs", pairs.differences, (n, d))
    _has("births of pairs", pairs.births, (n, 2))
    for array in (pairs.similar, pairs.positions, pairs.d2):
        _has("pairs", array, (n,))
    for array in (pairs.similar_below, pairs.dissimilar_above):  # may be infinite
        must(array.shape == (n,), "thresholds of pairs")
    for counted in (state.embedded, state.inputs):
        buckets = counted.buckets
        must(buckets.ndim == 1 and buckets.shape == counted.counts.shape, "a histogram")
        must((np.diff(buckets) > 0).all() and (counted.counts > 0).all(), "a histogram")


def _least(numbers: Any) -> int:
    """The least of all whole numbers in a tree; 0 without any."""
    if isinstance(numbers, dict | list):
        parts = numbers.values() if isinstance(numbers, dict) else numbers
        return min(map(_least, parts), default=0)
    return numbers if type(numbers) is int else 0


def _check_waiting(
    waiting: PendingParts[AcceptedEvents], d: int, is_text: bool, n_support: int, window: int | None
) -> None:
    """One part, where events wait, for a support of ``held`` items."""
    must(waiting.count == sum(map(len, waiting.parts)), "count of pending events")
    must(len(waiting.parts) == min(waiting.count, 1), "parts of pending events")
    for part in waiting.parts:
        count = len(part)
        _has("pending points", part.points, (count, d))
        _has_ids(part.ids, count, is_text)
        must((part.rows is not None) == (d == 0), "pending rows")
        if part.rows is not None:
            must(len(part.rows) == count, "pending rows")
            for i, row in enumerate(part.rows):
                _has("a pending row", row, (min(n_support + i, window or n_support + i),))
        must(part.classes is None or part.classes.shape == (count,), "pending classes")


def _has(name: str, array: Array, shape: tuple[int, ...]) -> None:
    must(array.shape == shape, f"{name} has shape {array.shape}, not {shape}")
    must(array.dtype.kind != "f" or np.isfinite(array).all(), f"{name} is not finite")


def _has_ids(ids: Array, n: int, is_text: bool) -> None:
    must(ids.shape == (n,), "ids have another shape")
    must(ids.dtype == (np.dtype(object) if is_text else np.dtype(np.int64)), "ids: wrong kind")
    must(len(set(ids.tolist())) == n, "ids are not unique")
