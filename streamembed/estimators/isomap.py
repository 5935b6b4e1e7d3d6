"""`Isomap`: coordinates that keep shortest paths, as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any

from streamembed.estimators.diffusion_map import DiffusionMap


class Isomap(DiffusionMap):
    """Coordinates that keep the shortest paths among neighbours, as a river transformer.

    `DiffusionMap` with ``method="isomap"`` and the parameters that it has; it behaves like it in
    everything else. Coordinates are those of scikit-learn's ``Isomap`` up to signs, of the support,
    where its graph has one part; points outside of the largest part have zeros.

    Parameters
    ----------
    n_components, n_neighbors, radius, n_landmarks
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
    >>> model = Isomap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['isomap_0', 'isomap_1']
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int = 10,
        radius: float | None = None,
        n_landmarks: int | None = None,
        memory: str = "window",
        size: int = 1000,
        half_life: float | None = None,
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
        metric: str = "euclidean",
    ) -> None:
        super().__init__(
            method="isomap",
            n_components=n_components,
            n_neighbors=n_neighbors,
            radius=radius,
            n_landmarks=n_landmarks,
            memory=memory,
            size=size,
            half_life=half_life,
            tolerance=tolerance,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            seed=seed,
            metric=metric,
        )

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 14, "chunk_size": 6, "size": 40, "n_neighbors": 5}
