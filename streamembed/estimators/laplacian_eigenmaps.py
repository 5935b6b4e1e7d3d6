"""`LaplacianEigenmaps`: the walk on a graph of neighbours as a mini-batch transformer for river."""

from __future__ import annotations

from typing import ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class LaplacianEigenmaps(MapEstimator):
    """Eigenfunctions of a graph of neighbours, kept up to date, as a river transformer.

    No memory is held for pairs of points, so that windows may be large. Two coordinates of it tell
    clusters apart better than two of a kernel's map; ten do not.

    Examples
    --------
    >>> from river import datasets
    >>> model = LaplacianEigenmaps(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['laplacian_eigenmaps_0', 'laplacian_eigenmaps_1']
    """

    method: ClassVar[str] = "laplacian_eigenmaps"

    n_neighbors: int = 15
    weights: str = "self_tuning"
    width: float | str = "auto"
    radius: float | None = None
    bandwidth: float | str = "auto"
    diffusion_time: float | str = "auto"
