"""`Isomap`: coordinates that keep shortest paths, as a mini-batch transformer for river."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class Isomap(MapEstimator):
    """Coordinates that keep the shortest paths among neighbours, as a river transformer.

    Coordinates are those of scikit-learn's ``Isomap`` up to signs, of the support, where its graph
    has one part; points outside of the largest part have zeros.

    Examples
    --------
    >>> from river import datasets
    >>> model = Isomap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['isomap_0', 'isomap_1']
    """

    method: ClassVar[str] = "isomap"

    n_neighbors: int = 10
    radius: float | None = None
    n_landmarks: int | None = 500
    _: KW_ONLY
    size: int = 1000
