"""The parameters of an engine: words, defaults, and the methods that have them; quick to import."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

# `streamembed.numeric.codec.SAVED_IF_SET`, without the import of numpy
SAVED_IF_SET = {"saved": "if set"}
# Masses fade by events, or by the times that come with them.
POSITION, EVENT_TIME = "position", "event_time"
_KERNEL_OPTIONS = frozenset({"kernel", "bandwidth", "rank"})
_GRAPH_OPTIONS = frozenset(
    {"n_neighbors", "weights", "radius", "width", "bandwidth", "diffusion_time"}
)
# Slots at most: of maps that hold lists of neighbours, of which a million with 15 neighbours take
# 0.5 GB, and of those that compute with all pairs of points.
_LARGEST_GRAPH, _LARGEST_KERNEL = 1_000_000, 50_000


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table of methods: what is known of one without its class."""

    map: str  # module of `streamembed.methods` and class in it: an `EmbeddingMap`
    # What it keeps: "kernel", "gram", "graph", "linear", "alignment" or "geodesic".
    family: str
    options: frozenset[str]  # parameters that not every method has, and this one does
    kernels: tuple[str, ...] = ()  # what ``kernel`` may be, the default first
    largest: int = _LARGEST_KERNEL  # slots at most
    diffusion_time: float = 0.0  # the default: see docs/decisions.md
    is_linear: bool = False  # whether coordinates are linear functions of the features
    alternative: str = ""  # of a method that needs coordinates: the method for distances


METHODS: Mapping[str, Method] = {
    "diffusion_map": Method(
        map="kernel_map:KernelMap",
        family="kernel",
        options=_KERNEL_OPTIONS | {"alpha", "diffusion_time", "n_neighbors", "width"},
        kernels=("self_tuning", "gaussian"),
        diffusion_time=0.5,
    ),
    "laplacian_eigenmaps": Method(
        map="neighbor_graph:GraphMap",
        family="graph",
        options=_GRAPH_OPTIONS,
        largest=_LARGEST_GRAPH,
        diffusion_time=8.0,
    ),
    "linear_eigenmap": Method(
        map="linear_projection:LinearMap",
        family="linear",
        options=_GRAPH_OPTIONS,
        largest=_LARGEST_GRAPH,
        diffusion_time=2.0,
        is_linear=True,
        alternative="method='laplacian_eigenmaps'",
    ),
    "classical_mds": Method(map="gram:GramMap", family="gram", options=frozenset({"rank"})),
    "pca": Method(
        map="gram:GramMap",
        family="gram",
        options=frozenset({"rank"}),
        is_linear=True,
        alternative="method='classical_mds', which is PCA where the distances are Euclidean",
    ),
    "kernel_pca": Method(
        map="gram:GramMap",
        family="gram",
        options=_KERNEL_OPTIONS | {"degree", "coef0", "gamma"},
        kernels=("gaussian", "polynomial", "cosine"),
    ),
    "lle": Method(
        map="alignment_matrix:AlignmentMap",
        family="alignment",
        options=frozenset({"n_neighbors", "reg"}),
        largest=_LARGEST_GRAPH,
        alternative="method='isomap' or 'laplacian_eigenmaps'",
    ),
    "isomap": Method(
        map="isomap_map:IsomapMap",
        family="geodesic",
        options=frozenset({"n_neighbors", "radius", "n_landmarks"}),
    ),
}
KERNELS = tuple(dict.fromkeys(name for method in METHODS.values() for name in method.kernels))
OPTIONS = tuple(sorted(frozenset().union(*(method.options for method in METHODS.values()))))
# Parameters that have an effect with one value of another.
REQUIRED: Mapping[str, tuple[str, object]] = {
    "half_life": ("memory", "landmarks"),
    "max_skew": ("clock", EVENT_TIME),
    "degree": ("kernel", "polynomial"),
    "coef0": ("kernel", "polynomial"),
    "gamma": ("kernel", "polynomial"),
    "spread": ("picture", True),
}


@dataclass(frozen=True, slots=True)
class EngineParameters:
    """The parameters of `streamembed.Engine`, with their defaults.

    Parameters
    ----------
    method
        Map: diffusion_map, laplacian_eigenmaps, linear_eigenmap, classical_mds, pca,
        kernel_pca, isomap or lle. "diffusion_map" uses a kernel between all points.
        "laplacian_eigenmaps" uses a graph of neighbours, in windows of up to 50,000; it is the
        better map in two coordinates. "linear_eigenmap" finds the smoothest linear functions on
        that graph. "classical_mds" keeps distances. "pca" finds the principal components of the
        support, "kernel_pca" those under a kernel. "isomap" keeps the lengths of shortest paths.
        "lle" is locally linear embedding.
    n_components
        Number of coordinates, at least 1. The constant eigenvector is never one of them. Those
        beyond the rank of the data are zeros (`DegenerateMapWarning`).
    memory
        Which points the engine holds: "window", "landmarks" or "all". "window" holds the last
        ``size`` events. "landmarks" holds ``size`` points with masses, which represent every event
        ever seen. "all" holds every event, and is for small data.
    size
        Events in the window, or number of landmarks.
    half_life
        Events, or seconds of event times, in which a landmark's mass halves; None: it never does.
    clock
        What masses decay by: "position", which counts events, or "event_time".
        Times come with the events. Plain numbers are a time in their own unit. Late events weigh
        less.
    max_skew
        How far the time of an event may lie beyond the newest so far; None: any distance.
        An event beyond it is a bad row, because it would fade all others.
    kernel
        Similarity of two points: self_tuning, gaussian, polynomial or cosine. "self_tuning" is
        exp(-d2 / (width s_i s_j)), where every point has a width s of its own
        (`streamembed.geometry.self_tuning`). "gaussian" is exp(-d2 / bandwidth**2).
    n_neighbors
        Number of nearest neighbours that count, 1 to 1,000. In the self-tuning kernel, s is the
        distance to the last of them; duplicates do not count. In graphs, two points are joined if
        either is among that many nearest of the other. In pictures, as many attract a point.
    width
        Factor c of squared widths in self-tuning weights, in [1e-3, 1e6], or "auto". "auto" is 1 in
        a graph. In a kernel it is 2 with up to three components, and 8 with more.
    weights
        Weights of a graph's edges: "self_tuning", "binary" or "heat". "self_tuning" is
        exp(-d2 / (width s_i s_j)), where s is the distance to the 7th neighbour. "binary" is 1.
        "heat" is exp(-d2 / bandwidth**2).
    radius
        Distance within which a graph joins all points, in scaled units; None: it joins neighbours.
        Laplacian eigenmaps use it with weights "binary" or "heat".
    bandwidth
        Width of gaussian and heat weights, in scaled units, positive, or "auto". "auto" is the
        median distance to the 7th neighbour in the warm-up
        (`streamembed.geometry.kernel.choose_bandwidth`). In a graph it is the median distance to
        the last neighbour, or the median length of edges within the radius.
    alpha
        Density correction, 0 to 2, or "auto". 1 removes the sampling density from the map, 0 keeps
        it. "auto" is 0 for self-tuning widths, which follow the density, and 1 for gaussian.
    diffusion_time
        Time t >= 0 of the coordinates lambda**t psi, or "auto". "auto" is 0.5 for a diffusion map,
        8 for Laplacian eigenmaps, and 2 for a linear eigenmap.
    degree
        Degree of the polynomial kernel (gamma x y + coef0)**degree, 1 to 20.
    coef0
        Constant that the polynomial kernel adds to products, not negative.
    gamma
        Factor of products in the polynomial kernel, positive; None: 1 / n_features.
    reg
        Ridge of the weights, relative to their Gram matrix.
    n_landmarks
        Largest number of points from which paths are computed; None: all points.
        All other points are placed by their paths to these. `docs/algorithms/isomap.md` says how
        far that is from Isomap of all points.
    rank
        Number of trial functions, above ``n_components``, or "auto". "auto" follows the spectrum:
        at least ``n_components + 12`` and usually at most 64. There are never more than a third
        of the points.
    axes
        Axes of the coordinates: "steady", "eigen" or "auto". "steady" turns the coordinates onto
        the earlier ones, so that you can compare them. "eigen" keeps signs only. "auto" is steady,
        and eigen with memory "all". `docs/algorithms/frames.md` says when axes are lost.
    tolerance
        Largest residual of a certified snapshot, relative to lambda_1; None: no certificate.
        With None a snapshot has an estimate of its residual, and claims nothing.
    chunk_size
        Events per update, or "auto". "auto" is 10, and with landmarks a quarter of ``size``, from
        10 to 128. Chunks end at multiples of it in the stream, whatever the calls are. A snapshot
        has whole chunks only.
    warm_up
        Events before the first snapshot; None: max(50, 5 n_components, chunk_size), up to ``size``.
        A chunk size of "auto" does not count.
    metric
        "euclidean", or "cosine", which divides every vector by its length and scales nothing.
        Vectors of zeros are then bad rows. Use "cosine" for embeddings.
    scaling
        Divisor of features: "standard", their deviations; "global", one for all; None: unscaled.
        Divisors are those of the warm-up. They are computed once more when the window first fills,
        or the last landmark is chosen, which begins a new epoch; then they are fixed. No divisor is
        below 0.3 of the median deviation. A gaussian diffusion map has no such floor and keeps the
        divisors of the warm-up. Distances are never scaled.
    metrics
        Metrics to learn too, such as itml and eig_dml. Names are "itml", "eig_dml", "contrast",
        "geometric_mean", "must_link", "fenn" and "discriminant". They learn from labels and from
        `learn_pairs`, like the estimators of these names. Without either, all but the last two
        weigh features by how well the others predict them, and learn from generated pairs.
        Snapshots have them in ``metrics``.
    picture
        Also keep a picture in the plane: a stable layout of neighbours. Snapshots have it as
        ``picture``.
    spread
        Attraction between neighbours of a picture, 0.5 to 20. t-SNE has 1. UMAP is near 4, with
        denser islands.
    on_bad_row
        What a bad row does: "raise" refuses the whole call, "skip" rejects and reports the row.
    seed
        Random seed. With the stream position it determines every draw.
    """

    method: str = "diffusion_map"
    n_components: int = 2
    memory: str = "window"
    size: int = 2000
    half_life: float | None = None
    clock: str = field(default=POSITION, metadata=SAVED_IF_SET)
    max_skew: float | None = field(default=None, metadata=SAVED_IF_SET)
    kernel: str = "self_tuning"
    n_neighbors: int = 15
    width: float | str = "auto"
    weights: str = "self_tuning"
    radius: float | None = None
    bandwidth: float | str = "auto"
    alpha: float | str = "auto"
    diffusion_time: float | str = "auto"
    degree: int = 3
    coef0: float = 1.0
    gamma: float | None = None
    reg: float = 1e-3
    n_landmarks: int | None = 500
    rank: int | str = "auto"
    axes: str = field(default="auto", metadata=SAVED_IF_SET)
    tolerance: float | None = 3e-3
    chunk_size: int | str = "auto"
    warm_up: int | None = None
    metric: str = "euclidean"
    scaling: str | None = "standard"
    metrics: tuple[str, ...] = ()
    picture: bool = False
    spread: float = 1.5
    on_bad_row: str = "raise"
    seed: int = 0


def describe_applicability(name: str, method: str | None = None) -> str:
    """In one sentence with which methods and other parameters one has an effect; "" with all.

    Parameters
    ----------
    method
        The only one of which the sentence is to speak, as in the words of an estimator.

    Examples
    --------
    >>> describe_applicability("degree"), describe_applicability("size")
    ("For kernel_pca with kernel='polynomial'.", '')
    >>> describe_applicability("degree", "kernel_pca")
    "With kernel='polynomial'."
    """
    parts = []
    if method is None and name in OPTIONS:
        uses = [key for key, row in METHODS.items() if name in row.options]
        if name == "kernel":
            uses = [f"{key} ({', '.join(METHODS[key].kernels)})" for key in uses]
        *others, last = uses
        parts.append(f"for {', '.join(others)} and {last}" if others else f"for {last}")
    elif name == "kernel" and method is not None:
        parts.append(f"here {' or '.join(METHODS[method].kernels)}")
    if name in REQUIRED:
        other, value = REQUIRED[name]
        parts.append(f"with {other}={value!r}")
    sentence = " ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}." if sentence else ""
