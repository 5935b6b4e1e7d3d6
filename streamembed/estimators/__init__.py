"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.embedding_drift import EmbeddingDrift
from streamembed.estimators.label_spreading import LabelSpreading
from streamembed.estimators.maps import (
    ClassicalMDS,
    DiffusionMap,
    Isomap,
    KernelPCA,
    LaplacianEigenmaps,
    LinearEigenmap,
    LiveMap,
    LocallyLinearEmbedding,
)
from streamembed.estimators.metrics import (
    FENN,
    ITML,
    ContrastMetric,
    DiscriminantAnalysis,
    EigDML,
    GeometricMeanMetric,
    MustLinkMetric,
)
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
    "LabelSpreading",
    "LaplacianEigenmaps",
    "LinearEigenmap",
    "LiveMap",
    "LocallyLinearEmbedding",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
