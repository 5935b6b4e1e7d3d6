"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.moment_metrics import (
    FENN,
    ContrastMetric,
    DiscriminantAnalysis,
    GeometricMeanMetric,
)
from streamembed.estimators.pair_metrics import ITML, EigDML, MustLinkMetric
from streamembed.estimators.unsupervised import UnsupervisedMetric
from streamembed.transformers.classical_mds import ClassicalMDS
from streamembed.transformers.diffusion_map import DiffusionMap
from streamembed.transformers.embedding_drift import EmbeddingDrift
from streamembed.transformers.isomap import Isomap
from streamembed.transformers.kernel_pca import KernelPCA
from streamembed.transformers.laplacian_eigenmaps import LaplacianEigenmaps
from streamembed.transformers.live_map import LiveMap
from streamembed.transformers.locally_linear import LocallyLinearEmbedding
from streamembed.transformers.pca import PCA

__all__ = [
    "FENN",
    "ITML",
    "PCA",
    "ClassicalMDS",
    "ContrastMetric",
    "DiffusionMap",
    "DiscriminantAnalysis",
    "EigDML",
    "EmbeddingDrift",
    "GeometricMeanMetric",
    "Isomap",
    "KernelPCA",
    "LaplacianEigenmaps",
    "LiveMap",
    "LocallyLinearEmbedding",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
