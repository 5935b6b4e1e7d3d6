"""`KernelPCA`: principal components in the feature space of a kernel, as a river transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from streamembed.errors import InputError, ParameterError, quote
from streamembed.estimators.map_estimator import MapEstimator, declare_map
from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.options import DEFAULTS, Config

# Of values of a kernel, in what is left of their sum.
ROUNDING = 1e-9


@declare_map
class KernelPCA(MapEstimator):
    """Kernel principal components of a stream, kept up to date, as a river transformer.

    Coordinates are those of scikit-learn's ``KernelPCA`` up to signs, of the support. Distances, by
    ``metric``, are for the gaussian kernel.

    Parameters
    ----------
    kernel
        Similarity of two points: gaussian, polynomial or cosine; or a callable k(a, b). Of a
        callable events are any objects. It must be symmetric and positive semidefinite, and is
        called once for every object held.

    Notes
    -----
    Of a callable kernel the engine is given the distances that it makes, d(a, b)^2 = k(a, a) +
    k(b, b) - 2 k(a, b): centring takes out of -d^2 / 2 all that k has not.

    Examples
    --------
    >>> from river import datasets
    >>> model = KernelPCA(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['kernel_pca_0', 'kernel_pca_1']
    """

    method: ClassVar[str] = "kernel_pca"

    kernel: str | Callable[[Any, Any], float] = "gaussian"
    bandwidth: float | str = "auto"
    degree: int = 3
    coef0: float = 1.0
    gamma: float | None = None
    rank: int | str = "auto"

    @property
    def _function(self) -> Callable[[Any, Any], Any] | None:
        return self.kernel if callable(self.kernel) else super()._function

    def _measure_distance(self, a: Any, b: Any) -> float:
        if not callable(self.kernel):
            return super()._measure_distance(a, b)
        between, own, others = (self._call_function(*two) for two in ((a, b), (a, a), (b, b)))
        squared, size = own + others - 2.0 * between, abs(own) + abs(others) + abs(between)
        if min(own, others) < 0.0 or squared < -ROUNDING * size:
            raise InputError(
                f"kernel({quote(a)}, {quote(b)}) is {between!r}, and of each with itself {own!r} "
                f"and {others!r}: no positive semidefinite kernel has such values; give a distance "
                "as metric="
            )
        return float(np.sqrt(max(squared, 0.0)))

    def _check_metric(self) -> None:
        is_gaussian = isinstance(self.kernel, str) and self.kernel == "gaussian"
        if not is_gaussian and self.metric != "euclidean":
            raise ParameterError(
                f"metric={quote(self.metric)} is for kernel='gaussian', and kernel="
                f"{quote(self.kernel)} needs none: leave one of them out"
            )
        super()._check_metric()

    def _build_config(self) -> Config:
        if not callable(self.kernel):
            return super()._build_config()
        known = self._get_parameters()
        for name in METHODS["kernel_pca"].options - METHODS["classical_mds"].options:
            if name != "kernel" and known[name] != DEFAULTS[name]:
                raise ParameterError(
                    f"{name}={known[name]!r} is for kernels by name: leave it out with a callable"
                )
            del known[name]
        return Config(**{**known, "method": "classical_mds", "scaling": None})

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
        yield {"warm_up": 15, "chunk_size": 5, "kernel": "polynomial", "degree": 2, "memory": "all"}
