"""`ClassicalMDS`: coordinates that keep distances, as a mini-batch transformer for river."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamembed.estimators.object_embedding import ObjectEmbedding


class ClassicalMDS(ObjectEmbedding):
    """Coordinates whose distances are those of a stream's objects, as a river transformer.

    `DiffusionMap` with ``method="classical_mds"`` and the parameters that it has; it behaves like
    it in everything else. Exact for Euclidean distances of n_components dimensions; for others the
    best in the sense of the centred matrix, and ``snapshot().certificate.negative_mass`` says how
    far they are from being Euclidean.

    Parameters
    ----------
    n_components, rank
        See `streamembed.Engine`.
    metric
        "euclidean": events are points; "precomputed": an event is a dict ``{id: distance}`` to the
        objects before it; a callable d(a, b): events are any objects. It is called once for every
        object held, and must be symmetric and 0 for an object and itself.
    memory, size, half_life, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`. Points are not scaled unless asked for: their distances are kept.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> model = ClassicalMDS(metric=lambda a, b: abs(len(a) - len(b)), warm_up=6, n_components=1)
    >>> for word in ["a", "an", "and", "andy", "candy", "dandies", "handiest"]:
    ...     model.learn_one(word)
    >>> here, there = (model.transform_one(word)["classical_mds_0"] for word in ("xyz", "vwxyz"))
    >>> round(abs(here - there), 6)
    2.0
    """

    def __init__(
        self,
        n_components: int = 2,
        metric: str | Callable[[Any, Any], float] = "euclidean",
        rank: int | str = "auto",
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(
            method="classical_mds",
            n_components=n_components,
            memory=memory,
            size=size,
            half_life=half_life,
            rank=rank,
            tolerance=tolerance,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            seed=seed,
            metric=metric,
        )

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
