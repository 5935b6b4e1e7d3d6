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
    """A row of the table of methods: what is known of one without its class in `maps.py`."""

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
        family="kernel",
        options=_KERNEL_OPTIONS | {"alpha", "diffusion_time", "n_neighbors", "width"},
        kernels=("self_tuning", "gaussian"),
        diffusion_time=0.5,
    ),
    "laplacian_eigenmaps": Method(
        family="graph",
        options=_GRAPH_OPTIONS,
        largest=_LARGEST_GRAPH,
        diffusion_time=8.0,
    ),
    "linear_eigenmap": Method(
        family="linear",
        options=_GRAPH_OPTIONS,
        largest=_LARGEST_GRAPH,
        diffusion_time=2.0,
        is_linear=True,
        alternative="method='laplacian_eigenmaps'",
    ),
    "classical_mds": Method(family="gram", options=frozenset({"rank"})),
    "pca": Method(
        family="gram",
        options=frozenset({"rank"}),
        is_linear=True,
        alternative="method='classical_mds', which is PCA where the distances are Euclidean",
    ),
    "kernel_pca": Method(
        family="gram",
        options=_KERNEL_OPTIONS | {"degree", "coef0", "gamma"},
        kernels=("gaussian", "polynomial", "cosine"),
    ),
    "lle": Method(
        family="alignment",
        options=frozenset({"n_neighbors", "reg"}),
        largest=_LARGEST_GRAPH,
        alternative="method='isomap' or 'laplacian_eigenmaps'",
    ),
    "isomap": Method(
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
        kernel_pca, isomap or lle. "diffusion_map": of a kernel between all points.
        "laplacian_eigenmaps": of a graph of neighbours; no memory for all pairs of points, so
        windows of 50,000, and the better map in two coordinates. "linear_eigenmap": the smoothest
        linear functions on that graph. "classical_mds": coordinates that keep distances.
        "pca": principal components of the support. "kernel_pca": in the feature space of a kernel.
        "isomap": coordinates that keep the lengths of shortest paths on a graph of neighbours.
        "lle": locally linear embedding, the smoothest map that keeps every point rebuilt by its
        neighbours.
    n_components
        Number of coordinates, at least 1. The constant eigenvector is never one of them; those
        beyond the rank of the data are zeros (`DegenerateMapWarning`).
    memory
        What stays: "window", the last ``size`` events; "landmarks", ``size`` points; "all", every
        event. Landmarks have masses and cover every event ever seen; "all" is for small data.
    size
        Events in the window, or number of landmarks.
    half_life
        Events, or seconds of event times, after which a landmark's mass has halved; None: it stays.
    clock
        What masses decay by: "position", the events; "event_time", the times that come with them.
        Plain numbers are a time in their own unit. Late events then weigh less.
    max_skew
        How far the time of an event may lie beyond the newest before it; None: any. One farther
        off is a bad row, for it would fade all others.
    kernel
        Similarity of two points: self_tuning, gaussian, polynomial or cosine. "self_tuning":
        exp(-d2 / (width s_i s_j)), where every point has a width s of its own
        (`streamembed.geometry.self_tuning`). "gaussian": exp(-d2 / bandwidth**2).
    n_neighbors
        Nearest neighbours of a point that count, 1 to 1,000. Self-tuning kernel: s is the distance
        to the last of them, duplicates left out. Graphs: points are joined where either is among
        that many nearest of the other. Pictures: as many attract a point.
    width
        Factor c of squared widths in self-tuning weights, in [1e-3, 1e6], or "auto". "auto": 1 in a
        graph; of the kernel 2 with up to three components, 8 with more.
    weights
        Weights of a graph's edges: "self_tuning", "binary" or "heat". "self_tuning":
        exp(-d2 / (width s_i s_j)), s being the distance to the 7th neighbour; "binary": 1; "heat":
        exp(-d2 / bandwidth**2).
    radius
        Distance within which a graph joins all points, in scaled units; None: it joins neighbours.
        Laplacian eigenmaps take it with weights "binary" or "heat".
    bandwidth
        Width of gaussian and heat weights, in scaled units, positive, or "auto". "auto": the median
        distance to the 7th neighbour among the warm-up events
        (`streamembed.geometry.kernel.choose_bandwidth`); of a graph, to the last neighbour that it
        joins, or the median length of edges within the radius.
    alpha
        Density correction, 0 to 2, or "auto". 1 removes the sampling density from the map, 0 keeps
        it; "auto": 0 self-tuning, whose widths follow the density already, and 1 gaussian.
    diffusion_time
        Time t >= 0 of the coordinates lambda**t psi, or "auto". "auto": 0.5 of a diffusion map, 8
        of Laplacian eigenmaps, 2 of a linear eigenmap.
    degree
        Degree of the polynomial kernel (gamma x y + coef0)**degree, 1 to 20.
    coef0
        Constant that the polynomial kernel adds to products, not negative.
    gamma
        Factor of products in the polynomial kernel, positive; None: 1 / n_features.
    reg
        Ridge of the weights, as a share of their Gram matrix.
    n_landmarks
        Number of points at most from which paths are computed, to place all others; None: all.
        `docs/algorithms/isomap.md` says how far that is from Isomap of all points.
    rank
        Trial functions; more than ``n_components``, or "auto". "auto": as many as the spectrum asks
        for, at least ``n_components + 12`` and usually at most 64. There are never more than a
        third of the points.
    axes
        Axes of the coordinates: "steady", "eigen" or "auto". "steady": the eigenpairs' coordinates
        are turned onto what they were before, so that they can be compared; "eigen": they keep
        their signs, and nothing else; "auto": steady, but with memory "all", which equals the batch
        result. `docs/algorithms/frames.md` says when axes are lost.
    tolerance
        Largest residual of a certified snapshot, relative to lambda_1; None: no certificate.
        Then it is the plain view, with an estimate that claims nothing.
    chunk_size
        Events per update, or "auto". "auto": 10; with landmarks a quarter of ``size``, from 10 to
        128. Chunks are cut at multiples of it in the stream, never by the call, and a snapshot has
        whole chunks only.
    warm_up
        Events before the first snapshot; None: max(50, 5 n_components, chunk_size), up to ``size``.
        A chunk size of "auto" does not count.
    metric
        "euclidean", or "cosine": every vector is divided by its length when it is read, and
        nothing is scaled. Vectors of zeros are bad rows. For embeddings.
    scaling
        Divisor of features: "standard", their deviations; "global", one for all; None: unscaled.
        Of the warm-up, then fixed. But for a gaussian diffusion map no divisor is below 0.3 of the
        median deviation, and all are taken again, once, when the window first fills or the last
        landmark is taken: a new epoch. Distances are never scaled.
    metrics
        Metrics to learn too, such as itml and eig_dml. Names of "itml", "eig_dml", "contrast",
        "geometric_mean", "must_link", "fenn", "discriminant". They learn from labels and from
        `learn_pairs`, like the estimators of these names; without either, all but the last two
        weigh features by how well the others predict them, and learn from generated pairs.
        Snapshots have them in ``metrics``.
    picture
        Also keep a picture in the plane: a stable layout of neighbours. It stands beside the
        coordinates; snapshots have it as ``picture``.
    spread
        Attraction between neighbours of a picture, 0.5 to 20. 1 is that of t-SNE, about 4 that of
        UMAP, whose islands are denser.
    on_bad_row
        What a bad row does: "raise" refuses the call whole, "skip" rejects and reports the row.
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
