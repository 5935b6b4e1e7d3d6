"""`KernelPCA`: principal components in the feature space of a kernel, as a river transformer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from streamembed.errors import InputError, ParameterError, quote
from streamembed.estimators.object_embedding import ObjectEmbedding
from streamembed.methods.options import DEFAULTS, Config
from streamembed.methods.registry import METHODS

# Of values of a kernel, in what is left of their sum.
ROUNDING = 1e-9


class KernelPCA(ObjectEmbedding):
    """Kernel principal components of a stream, kept up to date, as a river transformer.

    `DiffusionMap` with ``method="kernel_pca"`` and the parameters that it has; it behaves like it
    in everything else. Coordinates are those of scikit-learn's ``KernelPCA`` up to signs, of the
    support.

    Parameters
    ----------
    n_components, bandwidth, degree, coef0, gamma, rank
        See `streamembed.Engine`.
    kernel
        "gaussian", "polynomial" or "cosine" of points; or a callable k(a, b): events are any
        objects. It must be symmetric and positive semidefinite, and is called once for every
        object held.
    memory, size, half_life, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.
    metric
        With "gaussian" as in `DiffusionMap`; otherwise "euclidean".

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

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

    def __init__(
        self,
        n_components: int = 2,
        kernel: str | Callable[[Any, Any], float] = "gaussian",
        bandwidth: float | str = "auto",
        degree: int = 3,
        coef0: float = 1.0,
        gamma: float | None = None,
        rank: int | str = "auto",
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
            method="kernel_pca",
            n_components=n_components,
            memory=memory,
            size=size,
            half_life=half_life,
            kernel=kernel,
            bandwidth=bandwidth,
            degree=degree,
            coef0=coef0,
            gamma=gamma,
            rank=rank,
            tolerance=tolerance,
            chunk_size=chunk_size,
            warm_up=warm_up,
            scaling=scaling,
            seed=seed,
            metric=metric,
        )

    @property
    def _is_callable_metric(self) -> bool:
        return callable(self.kernel)

    def _distance(self, a: Any, b: Any) -> float:
        assert callable(self.kernel)
        between, own, others = (self._number(self.kernel, *two) for two in ((a, b), (a, a), (b, b)))
        squared, size = own + others - 2.0 * between, abs(own) + abs(others) + abs(between)
        if min(own, others) < 0.0 or squared < -ROUNDING * size:
            raise InputError(
                f"kernel({quote(a)}, {quote(b)}) is {between!r}, and of each with itself {own!r} "
                f"and {others!r}: no positive semidefinite kernel has such values; a distance is "
                "for ClassicalMDS(metric=)"
            )
        return float(np.sqrt(max(squared, 0.0)))

    def _check_metric(self, metric: Any) -> None:
        if callable(metric):
            raise ParameterError(
                "metric= is a callable: KernelPCA takes kernel=k(a, b), ClassicalMDS takes metric="
            )
        super()._check_metric(metric)

    def _config(self) -> Config:
        if not self._is_callable_metric:
            return super()._config()
        known = self._parameters()
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
