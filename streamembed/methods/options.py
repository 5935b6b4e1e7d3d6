"""The parameters of an engine, checked once, when the engine is made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np

from streamembed.errors import ParameterError, shown
from streamembed.geometry.kernel_matrix import LARGEST_SUPPORT
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH
from streamembed.geometry.self_tuning import Rule
from streamembed.methods.registry import METHODS, Form, Method, rows_of
from streamembed.metric_learners import metrics as learners
from streamembed.numeric.chunks import Chunks
from streamembed.numeric.codec import KEPT_WHERE_SET
from streamembed.spectral.neighbor_walk import WEIGHTS
from streamembed.spectral.tracker import Cut
from streamembed.validation import LARGEST_SEED, flag, keep, one_of, or_none, real, whole

__all__ = ["EVENT_TIME", "POSITION", "Config"]

# What masses fade by: the events themselves, or the times that come with them.
POSITION, EVENT_TIME = "position", "event_time"
KERNELS = tuple(dict.fromkeys(name for one in METHODS.values() for name in one.kernels))
LARGEST_DEGREE, LARGEST_COEFFICIENT = 20, 1e6
LARGEST_NEIGHBORS = 1000
# Of graphs; lists of a million points with 15 neighbours take 0.5 GB.
LARGEST_GRAPH = 1_000_000
RADII = 1e-100, 1e100
# Rows of paths, which are decomposed whole: 0.25 s.
MOST_LANDMARKS = 1000
# Attraction of a picture, beside that of t-SNE.
SPREADS = 0.5, 20.0
# Rooms that hold lists of neighbours, and nothing for all pairs of points.
LISTED = ("graph", "rebuilt")
# What not every method has.
OPTIONS = tuple(sorted(frozenset().union(*(one.options for one in METHODS.values()))))
# c of exp(-d2 / (c s_i s_j)): below, points lose their neighbours; above, all weights are 1.
WIDTHS = 1e-3, 1e6
# Share of the tolerance that turning may use up: published eigenvalues of turned columns can be off
# by as much as their residual, and must stay within the tolerance themselves.
TOLERANCE_SHARE = 0.8
# Columns of the factor with rank="auto": at least the components and these guards, at most 64 (or
# more guards), in between the eigenvalues above ten times the tolerance, whose loss in a border
# would show in the residual (docs/decisions/0004).
GUARDS = 12
LARGEST_RANK = 64
RANK_LEVEL = 10.0
CENTRED_SHARE = 1e-2
USUAL_TOLERANCE = 6e-3  # what a plain view reaches, where no tolerance is asked for


@dataclass(frozen=True, slots=True)
class Config:
    """Every parameter of `streamembed.Engine`, with its default.

    The meaning of each is told in `streamembed.Engine`; this class is where they are checked. A
    number of any kind (numpy's, a fraction, a decimal) is kept as a plain int or float.

    Raises
    ------
    ParameterError
        Naming the parameter, what it was, what it must be and what to try.
    """

    method: str = "diffusion_map"
    n_components: int = 2
    memory: str = "window"
    size: int = 2000
    half_life: float | None = None
    clock: str = field(default=POSITION, metadata=KEPT_WHERE_SET)
    max_skew: float | None = field(default=None, metadata=KEPT_WHERE_SET)
    kernel: str = "self_tuning"
    n_neighbors: int = 15
    width: float | str = "auto"
    weights: str = "self_tuning"
    radius: float | None = None
    bandwidth: float | str = "auto"
    alpha: float | str = "auto"
    diffusion_time: float = 1.0
    degree: int = 3
    coef0: float = 1.0
    gamma: float | None = None
    reg: float = 1e-3
    n_landmarks: int | None = None
    rank: int | str = "auto"
    tolerance: float | None = 3e-3
    chunk_size: int = 10
    warm_up: int | None = None
    scaling: str | None = "standard"
    metrics: tuple[str, ...] = ()
    picture: bool = False
    spread: float = 1.5
    on_bad_row: str = "raise"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain Python value."""
        keep(
            self,
            method=one_of("method", self.method, tuple(METHODS)),
            memory=one_of("memory", self.memory, ("window", "landmarks", "all")),
            clock=one_of("clock", self.clock, (POSITION, EVENT_TIME)),
            kernel=one_of("kernel", self.kernel, KERNELS),
            scaling=one_of("scaling", self.scaling, ("standard", "global", None)),
            on_bad_row=one_of("on_bad_row", self.on_bad_row, ("raise", "skip")),
            n_components=whole("n_components", self.n_components, 1),
            size=whole("size", self.size, 3),
            chunk_size=whole("chunk_size", self.chunk_size, 1),
            seed=whole("seed", self.seed, 0, high=LARGEST_SEED),
            diffusion_time=real("diffusion_time", self.diffusion_time, 0.0, 1e6),
            n_neighbors=whole("n_neighbors", self.n_neighbors, 1, high=LARGEST_NEIGHBORS),
            weights=one_of("weights", self.weights, WEIGHTS),
            radius=or_none(real, "radius", self.radius, *RADII),
            degree=whole("degree", self.degree, 1, high=LARGEST_DEGREE),
            coef0=real("coef0", self.coef0, 0.0, LARGEST_COEFFICIENT),
            gamma=or_none(real, "gamma", self.gamma, 1e-100, 1e100),
            reg=real("reg", self.reg, 1e-12, 1e6),
            n_landmarks=or_none(whole, "n_landmarks", self.n_landmarks, 1),
            picture=flag("picture", self.picture),
            spread=real("spread", self.spread, *SPREADS),
        )
        if self.method == "kernel_pca" and self.kernel == DEFAULTS["kernel"]:
            keep(self, kernel=self.embedding.kernels[0])
        self._check_options()
        self._check_kernel()
        keep(self, tolerance=or_none(real, "tolerance", self.tolerance, 1e-12, 1.0))
        self._check_metrics()
        self._check_rank()
        self._check_memory()
        self._check_warm_up()

    def _check_kernel(self) -> None:
        auto = _is_auto(self.width)
        keep(self, width="auto" if auto else real("width", self.width, *WIDTHS, " or 'auto'"))
        auto = _is_auto(self.alpha)
        keep(self, alpha="auto" if auto else real("alpha", self.alpha, 0.0, 2.0, " or 'auto'"))
        if _is_auto(self.bandwidth):
            keep(self, bandwidth="auto")
            return
        ends = SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH
        keep(self, bandwidth=real("bandwidth", self.bandwidth, *ends, " or 'auto'"))
        if self.is_sparse and self.weights != "heat":
            raise ParameterError(
                f"bandwidth={self.bandwidth!r} is for weights='heat'; set that, or width="
            )
        if self.embedding.kernels and self.kernel != "gaussian":
            raise ParameterError(
                f"bandwidth={self.bandwidth!r} is for kernel='gaussian'; set that, or width="
            )

    def _check_options(self) -> None:
        """An option that would do nothing is refused."""
        method = self.embedding
        for name in OPTIONS:
            value = getattr(self, name)
            if name in method.options or value == DEFAULTS[name]:
                continue
            if name == "n_neighbors" and self.picture:
                continue
            others = [repr(key) for key, one in METHODS.items() if name in one.options]
            raise ParameterError(
                f"{name}={value!r} is for method={' or '.join(others)}: leave it out with method="
                f"{self.method!r}"
            )
        if method.kernels and self.kernel not in method.kernels:
            raise ParameterError(
                f"kernel={self.kernel!r} must be one of {shown(method.kernels)} with method="
                f"{self.method!r}"
            )
        for name in ("degree", "coef0", "gamma"):
            value = getattr(self, name)
            if value != DEFAULTS[name] and self.kernel != "polynomial":
                raise ParameterError(
                    f"{name}={value!r} is for kernel='polynomial': leave it out with kernel="
                    f"{self.kernel!r}"
                )
        if self.spread != DEFAULTS["spread"] and not self.picture:
            raise ParameterError(
                f"spread={self.spread!r} is for picture=True (--picture): leave it out, or set that"
            )
        self._check_landmarks()
        if self.is_sparse and self.radius is not None and self.weights == "self_tuning":
            raise ParameterError(
                f"radius={self.radius!r} needs weights='binary' or 'heat': a width of its own for "
                "every point comes from its nearest neighbours"
            )

    def _check_landmarks(self) -> None:
        count = self.n_landmarks
        if count is None:
            return
        if not self.n_components + 2 <= count <= MOST_LANDMARKS:
            raise ParameterError(
                f"n_landmarks={count} must be at least n_components + 2 = {self.n_components + 2} "
                f"and at most {MOST_LANDMARKS}, or None for the paths between all points"
            )
        if self.memory == "landmarks" or self.metrics:
            what = f"memory={self.memory!r}" if self.memory == "landmarks" else "metrics"
            raise ParameterError(
                f"n_landmarks={count} cannot be combined with {what}: leave one of them out"
            )

    def _check_metrics(self) -> None:
        given: Any = self.metrics
        if isinstance(given, np.ndarray) and given.ndim == 1:
            given = given.tolist()
        names = isinstance(given, Sequence) and not isinstance(given, (str, bytes, memoryview))
        if not names or not all(isinstance(name, str) for name in given):
            raise ParameterError(
                f"metrics={shown(given)} must be a tuple of names, such as ('itml',)"
            )
        kept = tuple(one_of("metrics", name, learners.NAMES) for name in given)
        if len(set(kept)) < len(kept):
            raise ParameterError(f"metrics={kept!r} must not repeat a name")
        keep(self, metrics=kept)

    def _check_rank(self) -> None:
        if _is_auto(self.rank):
            keep(self, rank="auto")
            return
        keep(self, rank=whole("rank", self.rank, 1, " or 'auto'"))
        if int(self.rank) <= self.n_components:
            raise ParameterError(
                f"rank={self.rank} must be larger than n_components={self.n_components}: the "
                "factor also holds the constant vector and guard columns; try rank='auto'"
            )

    def _check_memory(self) -> None:
        keep(self, half_life=or_none(real, "half_life", self.half_life, 1e-3, 1e15))
        if self.half_life is not None and self.memory != "landmarks":
            raise ParameterError(
                f"half_life={self.half_life!r} must be None with memory={self.memory!r}: only "
                "landmarks have masses that fade; try memory='landmarks'"
            )
        if self.clock != POSITION and self.half_life is None:
            raise ParameterError(
                f"clock={self.clock!r} is what masses fade by, and with half_life=None none does: "
                "set half_life, in units of the times (seconds of timestamps), or leave it out"
            )
        keep(self, max_skew=or_none(real, "max_skew", self.max_skew, 0.0, 1e15))
        if self.max_skew is not None and self.clock == POSITION:
            raise ParameterError(
                f"max_skew={self.max_skew!r} is for clock='event_time': set that, or leave it out"
            )
        if self.memory == "all":
            return
        if self.room in LISTED and self.size > LARGEST_GRAPH:
            raise ParameterError(
                f"size={self.size} must be at most {LARGEST_GRAPH}: try a smaller one"
            )
        if self.size > LARGEST_SUPPORT and self.room not in LISTED:
            raise ParameterError(
                f"size={self.size} must be at most {LARGEST_SUPPORT} with memory={self.memory!r}: "
                f"its kernel ring would take {4e-9 * self.size**2:.1f} GB; try a smaller one, or "
                "method='laplacian_eigenmaps', which has none"
            )
        if self.memory == "window" and self.chunk_size > self.size:
            raise ParameterError(
                f"chunk_size={self.chunk_size} must be at most size={self.size}: a chunk must "
                "fit into the window"
            )

    def _check_warm_up(self) -> None:
        keep(self, warm_up=or_none(whole, "warm_up", self.warm_up, 1))
        if self.warm_up_events < self.n_components + 2:
            raise ParameterError(
                f"warm_up={self.warm_up_events} must be at least n_components + 2 = "
                f"{self.n_components + 2}: n points have at most n - 2 components"
            )
        if self.memory == "landmarks" and self.size < self.n_components + 2:
            raise ParameterError(
                f"size={self.size} must be at least n_components + 2 = {self.n_components + 2}: n "
                "points have at most n - 2 components"
            )
        if self.memory == "window" and self.warm_up_events > self.size:
            raise ParameterError(
                f"warm_up={self.warm_up_events} must be at most size={self.size}: the "
                "warm-up must fit into the window"
            )

    @property
    def embedding(self) -> Method:
        """What is particular to the method."""
        method = METHODS[self.method]
        if self.method != "kernel_pca":
            return method
        return replace(method, rows=rows_of(self.form))

    @property
    def form(self) -> Form:
        """The kernel of kernel PCA, with its numbers."""
        return Form(self.kernel, self.degree, self.coef0, self.gamma)

    @property
    def rule(self) -> Rule | None:
        """How every point gets its own width; None where all have one bandwidth."""
        if self.room != "dense" or self.kernel == "gaussian":
            return None
        return Rule(self.n_neighbors, 2.0 if isinstance(self.width, str) else self.width)

    @property
    def is_sparse(self) -> bool:
        """Whether the embedding is that of a graph of neighbours."""
        return self.room == "graph"

    @property
    def is_centred(self) -> bool:
        """Whether the mean is taken out of rows and columns."""
        return self.room in ("centred", "curved")

    @property
    def room(self) -> str:
        """Where the operator is kept; see `streamembed.methods.registry.Method`."""
        return METHODS[self.method].room

    @property
    def rescales(self) -> bool:
        """Whether the scaling is taken anew when the support is full for the first time."""
        return self.has_widths or (self.room != "dense" and self.scaling is not None)

    @property
    def has_widths(self) -> bool:
        """Whether neighbours say how far a point reaches, and no bandwidth is chosen for all."""
        return self.is_sparse or self.rule is not None

    @property
    def correction(self) -> float:
        """alpha, as a number: a width of its own has done its work already for every point."""
        if isinstance(self.alpha, str):  # "auto"
            return 1.0 if self.kernel == "gaussian" and self.room == "dense" else 0.0
        return self.alpha

    @property
    def fixed_bandwidth(self) -> float | None:
        """The bandwidth that was given; None where it is chosen."""
        return None if isinstance(self.bandwidth, str) else self.bandwidth

    @property
    def warm_up_events(self) -> int:
        """Events before the first snapshot.

        ``warm_up``, or max(50, 5 n_components, chunk_size), but no more than there are slots.
        """
        if self.warm_up is not None:
            return self.warm_up
        events = max(50, 5 * self.n_components, self.chunk_size)
        return events if self.memory == "all" else min(events, self.size)

    @property
    def chunks(self) -> Chunks:
        """Where chunks of the stream end."""
        return Chunks(self.chunk_size, self.warm_up_events)

    @property
    def slots(self) -> int | None:
        """Largest number of slots of the support; None if it grows with the stream."""
        return None if self.memory == "all" else self.size

    @property
    def window(self) -> int | None:
        """Events before the oldest is forgotten; None if events are not forgotten by age."""
        return self.size if self.memory == "window" else None

    @property
    def rank_cut(self) -> Cut:
        """Which columns the tracked factor keeps."""
        if isinstance(self.rank, str):  # "auto"
            least = self.n_components + GUARDS
            level = RANK_LEVEL * (self.tolerance or USUAL_TOLERANCE)
            if self.is_centred:  # the mean may be a hundred times what is left without it
                level *= CENTRED_SHARE
            if self.room == "curved":  # most lengths change with every chunk: a block, no factor
                return Cut(least, least, 0.0, True)
            return Cut(max(LARGEST_RANK, least + GUARDS), least, level, self.is_centred)
        return Cut(int(self.rank), int(self.rank), 0.0, self.is_centred)

    def as_dict(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready."""
        return asdict(self)

    @staticmethod
    def completed(told: Mapping[str, Any]) -> dict[str, Any]:
        """What `as_dict` gave, also before there were all of today's parameters."""
        return {**DEFAULTS, **told}


DEFAULTS = {one.name: one.default for one in fields(Config)}


def _is_auto(value: object) -> bool:
    return isinstance(value, str) and value == "auto"
