"""River transformers: embeddings and metrics, with a cold start and missing features."""

from streamembed.estimators.class_moments import FENN, DiscriminantAnalysis
from streamembed.estimators.contrast import ContrastMetric, GeometricMeanMetric
from streamembed.estimators.diffusion_map import DiffusionMap
from streamembed.estimators.eig_dml import EigDML
from streamembed.estimators.itml import ITML
from streamembed.estimators.must_link import MustLinkMetric
from streamembed.estimators.unsupervised import UnsupervisedMetric

__all__ = [
    "FENN",
    "ITML",
    "ContrastMetric",
    "DiffusionMap",
    "DiscriminantAnalysis",
    "EigDML",
    "GeometricMeanMetric",
    "MustLinkMetric",
    "UnsupervisedMetric",
]
