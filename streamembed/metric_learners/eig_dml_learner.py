"""Eig-DML as a learner: partners from labels, and the core's Frank-Wolfe steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.metric_learners import drawn_pairs
from streamembed.metric_learners.labelled_examples import Examples
from streamembed.metric_learners.learner import (
    NO_UPDATES,
    MeasuredMetric,
    MetricLearner,
    Totals,
    widen,
)
from streamembed.metric_learning import eig_dml
from streamembed.metric_learning.eig_dml import EigDMLSettings, Info
from streamembed.numeric.arrays import Floats, Ints
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs


@dataclass(frozen=True, slots=True, eq=False)
class EigState:
    """The core's state, and a sample of every class to draw partners from."""

    core: eig_dml.State
    sample: Reservoirs


@dataclass(frozen=True, slots=True)
class EigInfo(Info):
    """`streamembed.metric_learning.eig_dml.Info`, with what became of all chunks in ``totals``."""

    totals: Totals = NO_UPDATES


@dataclass(frozen=True)
class EigLearner(MetricLearner):
    """See `streamembed.estimators.EigDML`; nothing is scaled."""

    settings: EigDMLSettings

    def init(self, examples: Examples, scale: Floats) -> EigState:
        """No pair yet."""
        recent = self.settings.policy == "recent" or self.settings.decay is not None
        return EigState(eig_dml.init(len(scale)), reservoir.init(drawn_pairs.CAPACITY, recent))

    def update(self, state: EigState, examples: Examples) -> tuple[EigState, Info]:
        """Steps of the core with these pairs."""
        sample, differences, similar = drawn_pairs.draw_pairs(state.sample, examples)
        core, info = eig_dml.update(
            state.core, differences[similar], differences[~similar], self.settings
        )
        return EigState(core, sample), info

    def measure(self, state: EigState, scale: Floats) -> MeasuredMetric:
        """The core's metric and its gap."""
        info = widen(EigInfo, eig_dml.measure(state.core, self.settings))
        return MeasuredMetric(state.core.matrix, np.ones(len(scale)), info, info)

    def merge(self, left: EigState, right: EigState, indices: Ints) -> EigState:
        """Close pairs exactly, far pairs of both; the metric starts between the two."""
        return EigState(
            eig_dml.merge(left.core, right.core, self.settings),
            drawn_pairs.merge_samples(left.sample, right.sample, indices, self.settings.seed),
        )
