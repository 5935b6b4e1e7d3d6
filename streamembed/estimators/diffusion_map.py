"""`DiffusionMap`: as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any, ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class DiffusionMap(MapEstimator):
    """Diffusion coordinates of a stream, kept up to date, as a river transformer.

    Examples
    --------
    >>> from river import datasets
    >>> model = DiffusionMap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['diffusion_map_0', 'diffusion_map_1']
    >>> model.snapshot().certificate.met
    True
    """

    method: ClassVar[str] = "diffusion_map"

    kernel: str = "self_tuning"
    n_neighbors: int = 15
    width: float | str = "auto"
    bandwidth: float | str = "auto"
    alpha: float | str = "auto"
    diffusion_time: float | str = "auto"
    rank: int | str = "auto"

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
        yield {"warm_up": 15, "chunk_size": 5, "memory": "all", "tolerance": None}
