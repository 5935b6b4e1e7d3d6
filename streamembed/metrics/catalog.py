"""The table of metrics: name -> learner, with an engine's settings; estimators build the same."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from streamembed.metrics.class_moments import (
    ContrastLearner,
    DiscriminantLearner,
    FennLearner,
    GeometricMeanLearner,
    LeadingLearner,
    MomentState,
)
from streamembed.metrics.eig_dml import EigDMLSettings
from streamembed.metrics.eig_dml_learner import EigLearner, EigState
from streamembed.metrics.itml_learner import ITMLLearner, ITMLState
from streamembed.metrics.learner import MetricLearner

_FACTORIES: dict[str, Callable[[int], MetricLearner]] = {
    "itml": lambda seed: ITMLLearner(seed=seed),
    "eig_dml": lambda seed: EigLearner(EigDMLSettings(seed=seed)),
    "contrast": lambda seed: ContrastLearner(),
    "geometric_mean": lambda seed: GeometricMeanLearner(),
    "must_link": lambda seed: LeadingLearner(),
    "fenn": lambda seed: FennLearner(),
    "discriminant": lambda seed: DiscriminantLearner(),
}
# Metrics that learn from generated pairs until labels or given pairs come, and those that need
# classes.
PAIR_METRICS = ("itml", "eig_dml", "contrast", "geometric_mean", "must_link")
CLASS_METRICS = ("fenn", "discriminant")
NAMES = PAIR_METRICS + CLASS_METRICS
# Classes of the states, by the name under which files hold them.
STATES: dict[str, Any] = {"itml": ITMLState, "eig_dml": EigState, "moments": MomentState}


@lru_cache(maxsize=64)
def create_learner(name: str, seed: int) -> MetricLearner:
    """The learner of a metric, with the defaults of its estimator."""
    return _FACTORIES[name](seed)


def get_state_key(name: str) -> str:
    """The name of a metric's state: metrics of sums share one state."""
    return name if name in STATES else "moments"


def create_learners(names: tuple[str, ...], seed: int) -> dict[str, MetricLearner]:
    """One learner for every state that these metrics need."""
    return {get_state_key(name): create_learner(name, seed) for name in names}
