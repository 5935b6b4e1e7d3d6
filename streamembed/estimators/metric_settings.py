"""The parameters of the pipeline without labels, checked once, when they are put together."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from streamembed.errors import ParameterError, quote
from streamembed.estimators.replicate import Embedding
from streamembed.geometry import neighbors
from streamembed.methods.options import Config
from streamembed.pairs import thresholds
from streamembed.validation import (
    LARGEST_DRAW,
    LARGEST_SEED,
    LARGEST_TIME,
    check_choice,
    check_flag,
    check_optional,
    check_real,
    check_whole,
    set_fields,
)

# Coordinates in which pairs are judged, at most: those of the tracked factor's usual rank.
MOST_COMPONENTS = 48
GRAPHS: dict[str, Embedding | None] = {"neighbors": neighbors.embed_self_tuning, "kernel": None}
# Three events for each half: two more than the least number of components.
LEAST_WARM_UP = 6
# What becomes of pairs, as `streamembed.pairs.thresholds.PairSettings` calls it.
OF_PAIRS = (
    "candidates",
    "buffer",
    "percentiles",
    "similar_below",
    "dissimilar_above",
    "by_mass",
    "decay",
)


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Every parameter of `UnsupervisedPipeline`, with its default.

    Their meaning is documented there; this class checks them. A number of any kind is
    kept as a plain int or float.

    Raises
    ------
    ParameterError
        A parameter cannot have that value, alone or in combination with others.
    """

    n_components: int | None = None
    diffusion_time: float | None = 16.0
    memory: str = "window"
    size: int = 2000
    half_life: float | None = None
    bandwidth: float | str = "auto"
    alpha: float = 1.0
    warm_up: int | None = None
    chunk_size: int = 50
    candidates: int = 40
    buffer: int = 500
    percentiles: tuple[float, float] = (5.0, 95.0)
    similar_below: float | None = None
    dissimilar_above: float | None = None
    by_mass: bool = False
    decay: float = 0.9
    gamma: float = 0.1
    shrunk: bool = True
    graph: str | Embedding = "neighbors"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check every parameter, and keep it as a plain Python value."""
        set_fields(
            self,
            gamma=check_real("gamma", self.gamma, 0.0, float("inf"), opened=True),
            diffusion_time=check_optional(
                check_real, "diffusion_time", self.diffusion_time, 0.0, LARGEST_TIME
            ),
            n_components=check_optional(check_whole, "n_components", self.n_components, 1),
            half_life=check_optional(check_real, "half_life", self.half_life, 2e-3, 1e15),
            memory=check_choice("memory", self.memory, ("window", "landmarks", "all")),
            size=check_whole("size", self.size, 3),
            chunk_size=check_whole("chunk_size", self.chunk_size, 1),
            candidates=check_whole("candidates", self.candidates, 1, high=LARGEST_DRAW),
            shrunk=check_flag("shrunk", self.shrunk),
            seed=check_whole("seed", self.seed, 0, high=LARGEST_SEED // 4),
        )
        if self.warm_up is not None:
            halves = ": each half learns half of them"
            set_fields(self, warm_up=check_whole("warm_up", self.warm_up, LEAST_WARM_UP, halves))
        if isinstance(self.graph, str):
            set_fields(
                self, graph=check_choice("graph", self.graph, tuple(GRAPHS), " or a function")
            )
        elif not callable(self.graph):
            raise ParameterError(
                f"graph={quote(self.graph)} must be one of {', '.join(GRAPHS)}, or a function"
            )
        # their own classes check the rest, here and not at the first event
        pairs, engine = self.build_pair_settings(0), self.build_engine_config(1, 0)
        set_fields(self, **{name: getattr(pairs, name) for name in OF_PAIRS})
        set_fields(self, bandwidth=engine.bandwidth, alpha=engine.correction)

    @property
    def embedding(self) -> Embedding | None:
        """The map in which pairs are judged; None: the engine's own."""
        return GRAPHS[self.graph] if isinstance(self.graph, str) else self.graph

    def build_pair_settings(self, index: int) -> thresholds.PairSettings:
        """Settings of the pairs of one replicate; the draws of the three are independent."""
        given = {name: getattr(self, name) for name in OF_PAIRS}
        return thresholds.PairSettings(**given, seed=3 * self.seed + index)

    def build_engine_config(self, width: int, index: int) -> Config:
        """Settings of one engine for ``width`` features: index 0 all events, 1 and 2 the halves."""
        share = 2 if index else 1
        warm_up = self.warm_up
        if warm_up is None:
            warm_up = max(100, 10 * width, self.chunk_size)
            warm_up = warm_up if self.memory == "all" else min(warm_up, self.size)
        # the halves, as small as they are, must have more events than components
        most = max(1, min(MOST_COMPONENTS, warm_up // 2 - 2))
        return Config(
            n_components=min(self.n_components or width, most),
            memory=self.memory,
            size=self.size // share,
            half_life=None if self.half_life is None else self.half_life / share,
            kernel="gaussian",
            bandwidth=self.bandwidth,
            alpha=self.alpha,
            tolerance=None,  # pairs ask for the order of distances, not for a certificate
            chunk_size=max(1, self.chunk_size // share),
            warm_up=warm_up // share,
            scaling=None if index else "standard",
            seed=3 * self.seed + index,
        )

    def as_dict(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready; a ``graph`` that is a function is "given"."""
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**given, "graph": self.graph if isinstance(self.graph, str) else "given"}
