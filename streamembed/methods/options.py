"""The parameters of an engine, checked once, when the engine is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from streamembed.errors import ParameterError, quote
from streamembed.geometry.kernel import LARGEST_COEFFICIENT, LARGEST_DEGREE, KernelFunction
from streamembed.geometry.lists import LARGEST_NEIGHBORS
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, LEAST_SHARE, SMALLEST_BANDWIDTH
from streamembed.geometry.self_tuning import WIDTHS, WidthRule
from streamembed.layout.forces import SPREADS
from streamembed.methods.engine_parameters import (
    EVENT_TIME,
    KERNELS,
    METHODS,
    OPTIONS,
    REQUIRED,
    EngineParameters,
    Method,
)
from streamembed.methods.engine_parameters import (
    POSITION as POSITION,
)
from streamembed.metrics import catalog
from streamembed.numeric.chunks import Chunks
from streamembed.spectral.neighbor_walk import WEIGHTS
from streamembed.validation import (
    LARGEST_SEED,
    check_choice,
    check_flag,
    check_optional,
    check_real,
    check_scaling,
    check_whole,
    set_fields,
)

RADII = 1e-100, 1e100
# Landmarks, whose paths are decomposed whole: 0.25 s; and points, where all are, a minute.
MOST_LANDMARKS, MOST_SOURCES = 1000, 5000
# What to do instead of a method of other libraries.
METHOD_NOTES: Mapping[str, str] = {
    **dict.fromkeys(
        ("umap", "umap-learn", "tsne", "t-sne", "t_sne", "opentsne", "phate"),
        "use picture=True, or streamembed.estimators.LiveMap, for two coordinates that "
        "keep neighbours together",
    ),
    **dict.fromkeys(
        ("lpp", "locality_preserving_projections"),
        "locality preserving projections are method='linear_eigenmap'",
    ),
}
# Eigenpairs that are carried beside those that are certified, so that axes can be kept where two
# eigenvalues cross at the cut (docs/algorithms/frames.md).
SPARES = 3
# Events a chunk with chunk_size="auto". Most events only add mass to landmarks, which is cheapest
# in large chunks; a snapshot lags by less than a quarter of them (docs/decisions.md).
USUAL_CHUNK, LANDMARK_CHUNK, LANDMARK_SHARE = 10, 128, 4
# Trial functions with rank="auto": at least the components and these guards, at most 64 (or more
# guards). In between they go down to a share of the last published eigenvalue.
GUARDS = 12
LARGEST_RANK = 64
# Components up to which the self-tuning kernel is narrow (docs/decisions.md).
FEW_COMPONENTS = 3
USUAL_TOLERANCE = 6e-3  # residual of a plain view, without a tolerance


@dataclass(frozen=True)
class Config(EngineParameters):
    """Every parameter of `streamembed.Engine`, checked.

    A number of any kind (numpy's, a fraction, a decimal) is kept as a plain int or float.

    Raises
    ------
    ParameterError
        Naming the parameter, what it was, what it must be and what to try.
    """

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain Python value."""
        bandwidths = SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH
        metric, scaling = check_scaling(self.metric, self.scaling)
        set_fields(
            self,
            method=check_choice("method", self.method, tuple(METHODS), notes=METHOD_NOTES),
            memory=check_choice("memory", self.memory, ("window", "landmarks", "all")),
            clock=check_choice("clock", self.clock, (POSITION, EVENT_TIME)),
            kernel=check_choice("kernel", self.kernel, KERNELS),
            metric=metric,
            scaling=scaling,
            on_bad_row=check_choice("on_bad_row", self.on_bad_row, ("raise", "skip")),
            n_components=check_whole("n_components", self.n_components, 1),
            size=check_whole("size", self.size, 3),
            half_life=check_optional(check_real, "half_life", self.half_life, 1e-3, 1e15),
            max_skew=check_optional(check_real, "max_skew", self.max_skew, 0.0, 1e15),
            chunk_size=_check_or_auto(check_whole, "chunk_size", self.chunk_size, 1),
            warm_up=check_optional(check_whole, "warm_up", self.warm_up, 1),
            seed=check_whole("seed", self.seed, 0, high=LARGEST_SEED),
            diffusion_time=_check_or_auto(
                check_real, "diffusion_time", self.diffusion_time, 0.0, 1e6
            ),
            axes=check_choice("axes", self.axes, ("auto", "steady", "eigen")),
            n_neighbors=check_whole("n_neighbors", self.n_neighbors, 1, high=LARGEST_NEIGHBORS),
            width=_check_or_auto(check_real, "width", self.width, *WIDTHS),
            alpha=_check_or_auto(check_real, "alpha", self.alpha, 0.0, 2.0),
            bandwidth=_check_or_auto(check_real, "bandwidth", self.bandwidth, *bandwidths),
            weights=check_choice("weights", self.weights, WEIGHTS),
            radius=check_optional(check_real, "radius", self.radius, *RADII),
            degree=check_whole("degree", self.degree, 1, high=LARGEST_DEGREE),
            coef0=check_real("coef0", self.coef0, 0.0, LARGEST_COEFFICIENT),
            gamma=check_optional(check_real, "gamma", self.gamma, 1e-100, 1e100),
            reg=check_real("reg", self.reg, 1e-12, 1e6),
            n_landmarks=check_optional(check_whole, "n_landmarks", self.n_landmarks, 1),
            rank=_check_or_auto(check_whole, "rank", self.rank, 1),
            tolerance=check_optional(check_real, "tolerance", self.tolerance, 1e-12, 1.0),
            picture=check_flag("picture", self.picture),
            spread=check_real("spread", self.spread, *SPREADS),
        )
        if self.method == "kernel_pca" and self.kernel == DEFAULTS["kernel"]:
            set_fields(self, kernel=self.method_row.kernels[0])
        self._check_options()
        self._check_bandwidth()
        self._check_metrics()
        self._check_rank()
        self._check_memory()
        self._check_warm_up()

    def _check_bandwidth(self) -> None:
        if self.bandwidth == "auto":
            return
        if self.is_sparse and self.weights != "heat":
            needed = "weights='heat'"
        elif self.method_row.kernels and self.kernel != "gaussian":
            needed = "kernel='gaussian'"
        else:
            return
        raise ParameterError(f"bandwidth={self.bandwidth!r} is for {needed}; set that, or width=")

    def _check_options(self) -> None:
        """Refuse an option that would have no effect."""
        method = self.method_row
        for name in OPTIONS:
            value = getattr(self, name)
            if name in method.options or value == DEFAULTS[name]:
                continue
            if name == "n_neighbors" and self.picture:
                continue
            others = [repr(key) for key, spec in METHODS.items() if name in spec.options]
            raise ParameterError(
                f"{name}={value!r} is for method={' or '.join(others)}: leave it out with method="
                f"{self.method!r}"
            )
        if method.kernels and self.kernel not in method.kernels:
            raise ParameterError(
                f"kernel={self.kernel!r} must be one of {quote(method.kernels)} with method="
                f"{self.method!r}"
            )
        for name, (other, needed) in REQUIRED.items():
            value = getattr(self, name)
            if value != DEFAULTS[name] and getattr(self, other) != needed:
                raise ParameterError(
                    f"{name}={value!r} is for {other}={needed!r}: leave it out with {other}="
                    f"{getattr(self, other)!r}"
                )
        self._check_landmarks()
        if self.is_sparse and self.weights != "self_tuning" and self.width != DEFAULTS["width"]:
            raise ParameterError(
                f"width={self.width!r} is for weights='self_tuning': leave it out with weights="
                f"{self.weights!r}"
            )
        if self.is_sparse and self.radius is not None and self.weights == "self_tuning":
            raise ParameterError(
                f"radius={self.radius!r} needs weights='binary' or 'heat': a width of its own for "
                "every point comes from its nearest neighbours"
            )

    def _check_landmarks(self) -> None:
        count = self.n_landmarks
        if self.method != "isomap":
            return
        if count is None and self.memory != "all" and self.size > MOST_SOURCES:
            raise ParameterError(
                f"size={self.size} must be at most {MOST_SOURCES} with n_landmarks=None: every "
                "snapshot decomposes the paths between all points; leave n_landmarks out"
            )
        if count is not None and not self.n_components + 2 <= count <= MOST_LANDMARKS:
            raise ParameterError(
                f"n_landmarks={count} must be at least n_components + 2 = {self.n_components + 2} "
                f"and at most {MOST_LANDMARKS}, or None for the paths between all points"
            )

    def _check_metrics(self) -> None:
        given: Any = self.metrics
        if isinstance(given, np.ndarray) and given.ndim == 1:
            given = given.tolist()
        names = isinstance(given, Sequence) and not isinstance(given, (str, bytes, memoryview))
        if not names or not all(isinstance(name, str) for name in given):
            raise ParameterError(
                f"metrics={quote(given)} must be a tuple of names, such as ('itml',)"
            )
        chosen = tuple(check_choice("metrics", name, catalog.NAMES) for name in given)
        if len(set(chosen)) < len(chosen):
            raise ParameterError(f"metrics={chosen!r} must not repeat a name")
        set_fields(self, metrics=chosen)

    def _check_rank(self) -> None:
        if self.rank != "auto" and int(self.rank) <= self.n_components:
            raise ParameterError(
                f"rank={self.rank} must be larger than n_components={self.n_components}: the "
                "trial functions are also those of guards; try rank='auto'"
            )

    def _check_memory(self) -> None:
        if self.clock != POSITION and self.half_life is None:
            raise ParameterError(
                f"clock={self.clock!r} needs half_life, without which masses do not fade: set "
                "half_life, in units of the times (seconds of timestamps), or leave clock out"
            )
        if self.memory == "all":
            return
        if self.size > (limit := self.method_row.largest):
            raise ParameterError(f"size={self.size} must be at most {limit}: try a smaller one")
        if self.memory == "window" and self.chunks.size > self.size:
            raise ParameterError(
                f"chunk_size={self.chunk_size} must be at most size={self.size}: a chunk must "
                "fit into the window"
            )

    def _check_warm_up(self) -> None:
        if self.warm_up_events < self.n_components + 2:
            name = "size" if self.warm_up is None else "warm_up"
            raise ParameterError(
                f"{name}={self.warm_up_events} must be at least {self.n_components + 2}: n points "
                f"have at most n - 2 components, and the map has {self.n_components}"
            )
        if self.memory == "landmarks" and self.size < self.n_components + 2:
            raise ParameterError(
                f"size={self.size} must be at least {self.n_components + 2}: n points have at most "
                f"n - 2 components, and the map has {self.n_components}"
            )
        if self.memory == "window" and self.warm_up_events > self.size:
            raise ParameterError(
                f"warm_up={self.warm_up_events} must be at most size={self.size}: the "
                "warm-up must fit into the window"
            )

    @cached_property
    def method_row(self) -> Method:
        """The method's row in the table."""
        return METHODS[self.method]

    @cached_property
    def kernel_function(self) -> KernelFunction:
        """The kernel of kernel PCA, with its numbers; of principal components the products."""
        if self.method == "pca":
            return KernelFunction("polynomial", 1, 0.0, 1.0)
        return KernelFunction(self.kernel, self.degree, self.coef0, self.gamma)

    @cached_property
    def width_rule(self) -> WidthRule | None:
        """How every point gets its own width; None where all have one bandwidth."""
        if self.family != "kernel" or self.kernel == "gaussian":
            return None
        return WidthRule(self.n_neighbors, self.kernel_width)

    @cached_property
    def kernel_width(self) -> float:
        """c of self-tuning weights: narrow where few components tell the coarsest structure."""
        if not isinstance(self.width, str):
            return self.width
        if self.is_sparse:
            return 1.0
        return 2.0 if self.n_components <= FEW_COMPONENTS else 8.0

    @cached_property
    def resolved_diffusion_time(self) -> float:
        """t of lambda**t psi; 0 of methods without one."""
        is_auto = isinstance(self.diffusion_time, str)
        return self.method_row.diffusion_time if is_auto else float(self.diffusion_time)

    @cached_property
    def has_steady_axes(self) -> bool:
        """Whether coordinates are turned onto a frame; an embedding of all is the batch answer."""
        return self.axes == "steady" or (self.axes == "auto" and self.memory != "all")

    @cached_property
    def n_carried(self) -> int:
        """Eigenpairs that coordinates are made of: those certified, and spares beside them.

        Methods that keep distances, and one whose axes all weigh the same, turn within k only.
        """
        has_spares = self.has_steady_axes and self.family in ("kernel", "graph", "linear")
        return self.n_components + (SPARES if has_spares else 0)

    @cached_property
    def n_pairs(self) -> int:
        """Eigenpairs that a refinement level computes: one more than k at least, to see the cut."""
        return max(self.n_carried, self.n_components + 1)

    @cached_property
    def is_sparse(self) -> bool:
        """Whether the embedding is that of a graph of neighbours."""
        return self.family in ("graph", "linear")

    @cached_property
    def is_centred(self) -> bool:
        """Whether the mean is taken out of rows and columns."""
        return self.family in ("gram", "geodesic")

    @cached_property
    def family(self) -> str:
        """The representation of the operator; see `streamembed.methods.engine_parameters`."""
        return self.method_row.family

    @cached_property
    def rescales(self) -> bool:
        """Whether the scaling is computed again when the support is full for the first time."""
        return self.has_widths or (self.family != "kernel" and self.scaling is not None)

    @cached_property
    def least_share(self) -> float:
        """Of the median deviation of features, which no divisor is below."""
        return LEAST_SHARE if self.rescales else 0.0

    @cached_property
    def has_widths(self) -> bool:
        """Whether neighbours set the width of each point, without one bandwidth for all."""
        return self.is_sparse or self.width_rule is not None

    @cached_property
    def resolved_alpha(self) -> float:
        """alpha, as a number: 0 where every point has a width, which corrects already."""
        if isinstance(self.alpha, str):  # "auto"
            return 1.0 if self.kernel == "gaussian" and self.family == "kernel" else 0.0
        return self.alpha

    @cached_property
    def has_bandwidth(self) -> bool:
        """Whether the kernel has one bandwidth for all."""
        return self.kernel == "gaussian" and bool(self.method_row.kernels)

    @cached_property
    def fixed_bandwidth(self) -> float | None:
        """The bandwidth that was given; None where it is chosen."""
        return None if isinstance(self.bandwidth, str) else self.bandwidth

    @cached_property
    def warm_up_events(self) -> int:
        """Events before the first snapshot.

        ``warm_up``, or max(50, 5 n_components, chunk_size), but no more than there are slots. A
        chunk size that was not given does not count: the first chunk may be a short one.
        """
        if self.warm_up is not None:
            return self.warm_up
        given = 0 if isinstance(self.chunk_size, str) else self.chunk_size
        events = max(50, 5 * self.n_components, given)
        return events if self.memory == "all" else min(events, self.size)

    @cached_property
    def chunks(self) -> Chunks:
        """Where chunks of the stream end."""
        if isinstance(self.chunk_size, int):
            size = self.chunk_size
        elif self.memory == "landmarks":
            size = max(USUAL_CHUNK, min(self.size // LANDMARK_SHARE, LANDMARK_CHUNK))
        else:
            size = min(USUAL_CHUNK, self.window or USUAL_CHUNK)
        return Chunks(size, self.warm_up_events)

    @cached_property
    def max_slots(self) -> int | None:
        """Largest number of slots of the support; None if it grows with the stream."""
        return None if self.memory == "all" else self.size

    @cached_property
    def window(self) -> int | None:
        """Events before the oldest is forgotten; None if events are not forgotten by age."""
        return self.size if self.memory == "window" else None

    @cached_property
    def rank_limits(self) -> tuple[int, int]:
        """Trial functions at most, and at least."""
        if not isinstance(self.rank, str):
            return self.rank, self.rank
        least, most = self.n_carried + GUARDS, LARGEST_RANK
        if self.family == "kernel" and self.n_components > FEW_COMPONENTS:
            most += GUARDS  # of wide kernels
        return max(most, least), least

    def as_dict(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready."""
        return asdict(self)

    @staticmethod
    def complete(parameters: Mapping[str, Any]) -> dict[str, Any]:
        """The output of `as_dict`, with defaults for parameters that did not exist then."""
        return {**DEFAULTS, **parameters}


DEFAULTS = {item.name: item.default for item in fields(Config)}


def _check_or_auto(check: Callable[..., Any], name: str, value: object, *ends: float) -> Any:
    """ "auto", or the value as `check_whole` or `check_real` keep it."""
    is_auto = isinstance(value, str) and value == "auto"
    return "auto" if is_auto else check(name, value, *ends, other=" or 'auto'")
