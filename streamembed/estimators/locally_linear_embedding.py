"""`LocallyLinearEmbedding`: as a mini-batch transformer for river."""

from __future__ import annotations

from typing import Any, ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class LocallyLinearEmbedding(MapEstimator):
    """The smoothest map that keeps points rebuilt by their neighbours, as a river transformer.

    Coordinates are those of scikit-learn's ``LocallyLinearEmbedding`` up to signs, of the support.

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

    method: ClassVar[str] = "lle"

    n_neighbors: int = 12
    reg: float = 1e-3

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 14, "chunk_size": 6, "size": 48, "n_neighbors": 6}
