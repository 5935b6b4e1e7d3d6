"""`LocallyLinearEmbedding`: as a mini-batch transformer for river."""

from __future__ import annotations

from typing import ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class LocallyLinearEmbedding(MapEstimator):
    """The smoothest map that keeps points rebuilt by their neighbours, as a river transformer.

    Coordinates are those of scikit-learn's ``LocallyLinearEmbedding`` up to signs, of the support.

    Parameters
    ----------
    metric
        Always "euclidean": it needs coordinates.

    Examples
    --------
    >>> from river import datasets
    >>> model = LocallyLinearEmbedding(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['lle_0', 'lle_1']
    """

    method: ClassVar[str] = "lle"

    n_neighbors: int = 12
    reg: float = 1e-3
