"""`LaplacianEigenmaps`: the walk on a graph of neighbours as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any

from streamembed.estimators.diffusion_map import DiffusionMap


class LaplacianEigenmaps(DiffusionMap):
    """Eigenfunctions of a graph of neighbours, kept up to date, as a river transformer.

    `DiffusionMap` with ``method="laplacian_eigenmaps"`` and the parameters that a graph has; it
    behaves like it in everything else. No memory is held for pairs of points, so that windows may
    be large. Two coordinates of it tell clusters apart better than two of a kernel's map; ten do
    not.

    Parameters
    ----------
    n_components, n_neighbors, weights, width, radius, bandwidth
        See `streamembed.Engine`.
    memory, size, half_life, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.
    metric
        As in `DiffusionMap`.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = LaplacianEigenmaps(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['laplacian_eigenmaps_0', 'laplacian_eigenmaps_1']
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 15,
        weights: str = "self_tuning",
        width: float | str = "auto",
        radius: float | None = None,
        bandwidth: float | str = "auto",
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
        metric: str = "euclidean",
    ) -> None:
        super().__init__(
            method="laplacian_eigenmaps",
            n_components=n_components,
            memory=memory,
            size=size,
            half_life=half_life,
            n_neighbors=n_neighbors,
            width=width,
            weights=weights,
            radius=radius,
            bandwidth=bandwidth,
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
