"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.diffusion_map import DiffusionMap
from streamembed.estimators.laplacian_eigenmaps import LaplacianEigenmaps
from streamembed.estimators.moment_metrics import (
    FENN,
    ContrastMetric,
    DiscriminantAnalysis,
    GeometricMeanMetric,
)
from streamembed.estimators.pair_metrics import ITML, EigDML, MustLinkMetric
from streamembed.estimators.pca import PCA
from streamembed.estimators.unsupervised import UnsupervisedMetric

__all__ = [
    "FENN",
    "ITML",
    "PCA",
    "ContrastMetric",
    "DiffusionMap",
    "DiscriminantAnalysis",
    "EigDML",
    "GeometricMeanMetric",
    "LaplacianEigenmaps",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
