"""`ClassicalMDS`: coordinates that keep distances, as a mini-batch transformer for river."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY
from typing import Any, ClassVar

from streamembed.estimators.map_estimator import MapEstimator, declare_map


@declare_map
class ClassicalMDS(MapEstimator):
    """Coordinates whose distances are those of a stream's objects, as a river transformer.

    Exact for Euclidean distances of n_components dimensions; for others the best in the sense of
    the centred matrix, and ``snapshot().certificate.negative_mass`` says how far they are from
    being Euclidean. Points are not scaled unless you ask for it: their distances are kept.

    Examples
    --------
    >>> model = ClassicalMDS(metric=lambda a, b: abs(len(a) - len(b)), warm_up=6, n_components=1)
    >>> for word in ["a", "an", "and", "andy", "candy", "dandies", "handiest"]:
    ...     model.learn_one(word)
    >>> here, there = (model.transform_one(word)["classical_mds_0"] for word in ("xyz", "vwxyz"))
    >>> round(abs(here - there), 6)
    2.0
    """

    method: ClassVar[str] = "classical_mds"

    metric: str | Callable[[Any, Any], float] = "euclidean"
    rank: int | str = "auto"
    _: KW_ONLY
    scaling: str | None = None
