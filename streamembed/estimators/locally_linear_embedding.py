"""`LocallyLinearEmbedding`: as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any

from streamembed.estimators.diffusion_map import DiffusionMap


class LocallyLinearEmbedding(DiffusionMap):
    """The smoothest map that keeps points rebuilt by their neighbours, as a river transformer.

    `DiffusionMap` with ``method="lle"`` and the parameters that it has; it behaves like it in
    everything else. Coordinates are those of scikit-learn's ``LocallyLinearEmbedding`` up to signs,
    of the support.

    Parameters
    ----------
    n_components, n_neighbors, reg
        See `streamembed.Engine`.
    memory, size, half_life, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = LocallyLinearEmbedding(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['lle_0', 'lle_1']
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 12,
        reg: float = 1e-3,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
    ) -> None:
        super().__init__(
            method="lle",
            n_components=n_components,
            n_neighbors=n_neighbors,
            reg=reg,
            memory=memory,
            size=size,
            half_life=half_life,
            tolerance=tolerance,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            seed=seed,
        )

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 14, "chunk_size": 6, "size": 48, "n_neighbors": 6}
