"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.classical_mds import ClassicalMDS
from streamembed.estimators.diffusion_map import DiffusionMap
from streamembed.estimators.embedding_drift import EmbeddingDrift
from streamembed.estimators.isomap import Isomap
from streamembed.estimators.kernel_pca import KernelPCA
from streamembed.estimators.label_spreading import LabelSpreading
from streamembed.estimators.laplacian_eigenmaps import LaplacianEigenmaps
from streamembed.estimators.linear_eigenmap import LinearEigenmap
from streamembed.estimators.live_map import LiveMap
from streamembed.estimators.locally_linear_embedding import LocallyLinearEmbedding
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
    "LabelSpreading",
    "LaplacianEigenmaps",
    "LinearEigenmap",
    "LiveMap",
    "LocallyLinearEmbedding",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
