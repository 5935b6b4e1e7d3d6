"""The table of metrics: name -> learner, with an engine's settings; estimators build the same."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from streamembed.metrics.class_moments import MomentState
from streamembed.metrics.contrast import ContrastLearner
from streamembed.metrics.discriminant import DiscriminantLearner
from streamembed.metrics.eig_dml import EigDMLLearner, EigDMLState
from streamembed.metrics.fenn import FennLearner
from streamembed.metrics.geometric_mean import GeometricMeanLearner
from streamembed.metrics.itml import ITMLLearner, ITMLState
from streamembed.metrics.learner import MetricLearner
from streamembed.metrics.must_link import LeadingLearner

_LEARNERS: dict[str, Any] = {
    "itml": ITMLLearner,
    "eig_dml": EigDMLLearner,
    "contrast": ContrastLearner,
    "geometric_mean": GeometricMeanLearner,
    "must_link": LeadingLearner,
    "fenn": FennLearner,
    "discriminant": DiscriminantLearner,
}
NAMES = tuple(_LEARNERS)
# Metrics that learn from generated pairs until labels or given pairs come; others need classes.
PAIR_METRICS = NAMES[:5]
# Classes of the states, by the name under which files hold them.
STATES: dict[str, Any] = {"itml": ITMLState, "eig_dml": EigDMLState, "moments": MomentState}


@lru_cache(maxsize=64)
def create_learner(name: str, seed: int) -> MetricLearner:
    """The learner of a metric, with the defaults of its estimator."""
    learner: MetricLearner = _LEARNERS[name](**({"seed": seed} if name in STATES else {}))
    return learner


def get_state_key(name: str) -> str:
    """The name of a metric's state: metrics of sums share one state."""
    return name if name in STATES else "moments"


def create_learners(names: tuple[str, ...], seed: int) -> dict[str, MetricLearner]:
    """One learner for every state that these metrics need."""
    return {get_state_key(name): create_learner(name, seed) for name in names}
