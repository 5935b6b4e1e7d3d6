"""The one table of metrics: name -> learner, as an engine has it; the estimators build the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamembed.metric_learners.class_moments import (
    ContrastLearner,
    DiscriminantLearner,
    FennLearner,
    GeometricMeanLearner,
    LeadingLearner,
    MomentState,
)
from streamembed.metric_learners.eig_dml_learner import EigLearner, EigState
from streamembed.metric_learners.itml_learner import ITMLLearner, ITMLState
from streamembed.metric_learners.learner import Learner
from streamembed.metric_learning.eig_dml import Settings

__all__ = [
    "CLASS_METRICS",
    "NAMES",
    "PAIR_METRICS",
    "STATES",
    "learner",
    "learns_classes",
    "states_of",
]

_TABLE: dict[str, Callable[[int], Learner]] = {
    "itml": lambda seed: ITMLLearner(seed=seed),
    "eig_dml": lambda seed: EigLearner(Settings(seed=seed)),
    "contrast": lambda seed: ContrastLearner(),
    "geometric_mean": lambda seed: GeometricMeanLearner(),
    "must_link": lambda seed: LeadingLearner(),
    "fenn": lambda seed: FennLearner(),
    "discriminant": lambda seed: DiscriminantLearner(),
}
# Those that learn from pairs of a map where nothing better comes, and those that need classes.
PAIR_METRICS = ("itml", "eig_dml", "contrast", "geometric_mean", "must_link")
CLASS_METRICS = ("fenn", "discriminant")
NAMES = PAIR_METRICS + CLASS_METRICS
# Classes of the states, by the name they are kept under.
STATES: dict[str, Any] = {"itml": ITMLState, "eig_dml": EigState, "moments": MomentState}


def learner(name: str, seed: int) -> Learner:
    """The learner of a metric, with the defaults of its estimator."""
    return _TABLE[name](seed)


def states_of(name: str) -> str:
    """What a metric's state is kept under: those of sums are read off the same one."""
    return name if name in STATES else "moments"


def learns_classes(names: tuple[str, ...], seed: int) -> dict[str, Learner]:
    """One learner for every state that these metrics need."""
    return {states_of(name): learner(name, seed) for name in names}
