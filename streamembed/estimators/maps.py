"""The maps that are an engine of one method and its parameters, as river transformers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, field
from typing import Any, ClassVar

import numpy as np

from streamembed.engine.picture import PREFIX, Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, ParameterError, quote
from streamembed.estimators.map_estimator import MapEstimator, declare_map
from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.options import DEFAULTS, Config

# Of values of a kernel, in what is left of their sum.
ROUNDING = 1e-9


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
        call = super()._measure_distance
        between, own, others = call(a, b), call(a, a), call(b, b)
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


@declare_map
class LinearEigenmap(LaplacianEigenmaps):
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


@declare_map
class LiveMap(MapEstimator):
    """Places in the plane that keep neighbours together, and that keep still, for a stream.

    What UMAP and t-SNE draw of a table, kept up to date: points that stay hardly move while others
    come and go, and newcomers come to rest among their neighbours. It is the picture of an engine
    (``Engine(picture=True)``) with ``method="laplacian_eigenmaps"``, and has no certificate.

    Examples
    --------
    >>> from river import datasets
    >>> model = LiveMap(warm_up=50, size=200)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['live_map_0', 'live_map_1']
    >>> model.picture.coordinates.shape
    (100, 2)
    """

    method: ClassVar[str] = "laplacian_eigenmaps"

    n_components: int = field(default=2, init=False)
    n_neighbors: int = 15
    spread: float = 1.5
    _: KW_ONLY
    axes: str = field(default="auto", init=False)
    tolerance: float | None = field(default=None, init=False)

    @property
    def picture(self) -> Picture:
        """Places of the window, and how far each is to be trusted; NotReadyError before."""
        picture = self.engine.publish().picture  # no warnings about its coordinates
        assert picture is not None
        return picture

    def snapshot(self) -> Snapshot:
        """The engine's snapshot, without warnings about its coordinates; NotReadyError before."""
        return self.engine.publish()

    def relayout(self) -> None:
        """Lay the picture out from scratch; see `streamembed.Engine.relayout`."""
        self.engine.relayout()

    @property
    def prefix(self) -> str:
        """What places are called after."""
        return PREFIX

    def _choose_snapshot(self) -> Picture:
        return self.picture

    def _get_parameters(self) -> dict[str, Any]:
        fixed = {"n_components": self.n_components, "tolerance": self.tolerance, "picture": True}
        return {**super()._get_parameters(), **fixed}


@declare_map
class LocallyLinearEmbedding(MapEstimator):
    """The smoothest map that keeps points rebuilt by their neighbours, as a river transformer.

    Coordinates are those of scikit-learn's ``LocallyLinearEmbedding`` up to signs, of the support.

    Parameters
    ----------
    metric
        "euclidean" or "cosine": it needs coordinates.

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
