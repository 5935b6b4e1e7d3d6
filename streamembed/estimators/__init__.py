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
from streamembed.transformers.kernel_pca import KernelPCA
from streamembed.transformers.laplacian_eigenmaps import LaplacianEigenmaps

__all__ = [
    "FENN",
    "ITML",
    "ClassicalMDS",
    "ContrastMetric",
    "DiffusionMap",
    "DiscriminantAnalysis",
    "EigDML",
    "GeometricMeanMetric",
    "KernelPCA",
    "LaplacianEigenmaps",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
