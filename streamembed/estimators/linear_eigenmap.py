"""`LinearEigenmap`: the smoothest linear functions of a graph of neighbours, for river."""

from __future__ import annotations

from typing import ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class LinearEigenmap(MapEstimator):
    """Locality preserving projections, kept up to date, as a river transformer.

    Coordinates are linear functions of the features, chosen so that neighbours are near one
    another. A new point costs d k products, and ``snapshot().feature_loadings`` says by how much
    each coordinate grows with each feature. Tells clusters apart better than `PCA` in two
    coordinates; in ten they are level.

    Examples
    --------
    >>> from river import datasets
    >>> model = LinearEigenmap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['linear_eigenmap_0', 'linear_eigenmap_1']
    >>> model.snapshot().feature_loadings.shape
    (9, 2)
    """

    method: ClassVar[str] = "linear_eigenmap"

    n_neighbors: int = 15
    weights: str = "self_tuning"
    width: float | str = "auto"
    radius: float | None = None
    bandwidth: float | str = "auto"
    diffusion_time: float | str = "auto"
