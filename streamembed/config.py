"""The parameters of an engine, checked once, when they are put together."""

from __future__ import annotations

import math
import numbers
from dataclasses import asdict, dataclass
from typing import Any

from streamembed import learners
from streamembed.core.tracker import Cut
from streamembed.errors import ParameterError

__all__ = ["Config"]

# Beyond these powers a squared distance over a squared bandwidth leaves the doubles.
SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH = 1e-100, 1e100
# A support of 20,000 slots has a float32 ring of 1.6 GB.
LARGEST_SUPPORT = 20_000
# Columns of the factor with rank="auto": at least the components and these guards, at most 64 (or
# more guards), in between the eigenvalues above ten times the tolerance, whose loss in a border
# would show in the residual (docs/decisions/0004).
GUARDS = 12
LARGEST_RANK = 64
RANK_LEVEL = 10.0
USUAL_TOLERANCE = 6e-3  # what a plain view reaches, where no tolerance is asked for


@dataclass(frozen=True, slots=True)
class Config:
    """Every parameter of `streamembed.Engine`, with its default.

    The meaning of each is told in `streamembed.Engine`; this class is where they are checked.

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
    kernel: str = "gaussian"
    bandwidth: float | str = "auto"
    alpha: float = 1.0
    diffusion_time: float = 1.0
    rank: int | str = "auto"
    tolerance: float | None = 3e-3
    chunk_size: int = 10
    warm_up: int | None = None
    scaling: str | None = "standard"
    metrics: tuple[str, ...] = ()
    on_bad_row: str = "raise"
    seed: int = 0

    def __post_init__(self) -> None:
        _one_of("method", self.method, ("diffusion_map",))
        _one_of("memory", self.memory, ("window", "landmarks", "all"))
        _one_of("kernel", self.kernel, ("gaussian",))
        _one_of("scaling", self.scaling, ("standard", None))
        _one_of("on_bad_row", self.on_bad_row, ("raise", "skip"))
        _whole("n_components", self.n_components, 1)
        _whole("size", self.size, 3)
        _whole("chunk_size", self.chunk_size, 1)
        _whole("seed", self.seed, 0)
        _real("alpha", self.alpha, low=0.0, high=2.0)
        _real("diffusion_time", self.diffusion_time, low=0.0, high=1e6)
        if self.bandwidth != "auto":
            _real("bandwidth", self.bandwidth, SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH, "auto")
        if self.tolerance is not None:
            _real("tolerance", self.tolerance, low=1e-12, high=1.0)
        self._check_metrics()
        self._check_rank()
        self._check_memory()
        self._check_warm_up()

    def _check_metrics(self) -> None:
        if isinstance(self.metrics, str) or not all(isinstance(n, str) for n in self.metrics):
            raise ParameterError(
                f"metrics={self.metrics!r} must be a tuple of names, such as ('itml',)"
            )
        object.__setattr__(self, "metrics", tuple(self.metrics))
        for name in self.metrics:
            _one_of("metrics", name, learners.NAMES)
        if len(set(self.metrics)) < len(self.metrics):
            raise ParameterError(f"metrics={self.metrics!r} must be different names")

    def _check_rank(self) -> None:
        if self.rank == "auto":
            return
        _whole("rank", self.rank, 1, other="'auto'")
        if int(self.rank) <= self.n_components:
            raise ParameterError(
                f"rank={self.rank!r} must be larger than n_components={self.n_components}: the "
                "factor also holds the constant vector and some guards; try rank='auto'"
            )

    def _check_memory(self) -> None:
        if self.half_life is not None:
            _real("half_life", self.half_life, 1e-3, 1e15, "None")
            if self.memory != "landmarks":
                raise ParameterError(
                    f"half_life={self.half_life!r} must be None with memory={self.memory!r}: only "
                    "landmarks have masses that fade; try memory='landmarks'"
                )
        if self.memory == "all":
            return
        if self.size > LARGEST_SUPPORT:
            raise ParameterError(
                f"size={self.size} must be at most {LARGEST_SUPPORT} with memory={self.memory!r}: "
                f"its kernel ring would take {4e-9 * self.size**2:.1f} GB; try a smaller one"
            )
        if self.memory == "window" and self.chunk_size > self.size:
            raise ParameterError(
                f"chunk_size={self.chunk_size} must be at most size={self.size}: a chunk must "
                "fit into the window"
            )

    def _check_warm_up(self) -> None:
        if self.warm_up is not None:
            _whole("warm_up", self.warm_up, 1, other="None")
        if self.warm_up_events < self.n_components + 2:
            raise ParameterError(
                f"warm_up={self.warm_up_events} must be at least n_components + 2 = "
                f"{self.n_components + 2}: fewer points have fewer components"
            )
        if self.memory == "landmarks" and self.size < self.n_components + 2:
            raise ParameterError(
                f"size={self.size} must be at least n_components + 2 = {self.n_components + 2}: "
                "fewer landmarks have fewer components"
            )
        if self.memory == "window" and self.warm_up_events > self.size:
            raise ParameterError(
                f"warm_up={self.warm_up_events} must be at most size={self.size}: the warm-up "
                "must fit into the window"
            )

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
    def slots(self) -> int | None:
        """The most slots that the support ever has; None where it grows with the stream."""
        return None if self.memory == "all" else self.size

    @property
    def window(self) -> int | None:
        """Events before the oldest is forgotten; None where no event is forgotten by its age."""
        return self.size if self.memory == "window" else None

    @property
    def rank_cut(self) -> Cut:
        """Which columns the tracked factor keeps."""
        if isinstance(self.rank, str):
            least = self.n_components + GUARDS
            level = RANK_LEVEL * (self.tolerance or USUAL_TOLERANCE)
            return Cut(max(LARGEST_RANK, least + GUARDS), least, level)
        return Cut(int(self.rank), int(self.rank), 0.0)

    def as_dict(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready."""
        return asdict(self)


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if not any(value is choice or value == choice for choice in allowed):
        choices = ", ".join(repr(choice) for choice in allowed)
        raise ParameterError(f"{name}={value!r} must be one of {choices}")


def _whole(name: str, value: object, low: int, other: str = "") -> None:
    alternative = f" or {other}" if other else ""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < low:
        raise ParameterError(
            f"{name}={value!r} must be a whole number of at least {low}{alternative}"
        )


def _real(name: str, value: object, low: float, high: float, other: str = "") -> None:
    alternative = f" or {other!r}" if other else ""
    fits = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not fits or not (low <= float(value) <= high) or math.isnan(float(value)):  # type: ignore[arg-type]
        raise ParameterError(
            f"{name}={value!r} must be a number between {low:g} and {high:g}{alternative}"
        )
