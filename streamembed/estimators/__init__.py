"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.embedding_drift import EmbeddingDrift
from streamembed.estimators.kernel_pca import KernelPCA
from streamembed.estimators.maps import (
    ClassicalMDS,
    DiffusionMap,
    Isomap,
    LaplacianEigenmaps,
    LinearEigenmap,
    LiveMap,
    LocallyLinearEmbedding,
)
from streamembed.estimators.moment_metrics import (
    FENN,
    ContrastMetric,
    DiscriminantAnalysis,
    GeometricMeanMetric,
)
from streamembed.estimators.pair_metrics import ITML, EigDML, MustLinkMetric
from streamembed.estimators.pca import PCA
from streamembed.estimators.unsupervised_metric import UnsupervisedMetric

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
    "LinearEigenmap",
    "LiveMap",
    "LocallyLinearEmbedding",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
