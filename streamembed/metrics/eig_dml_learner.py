"""Frank-Wolfe metrics as learners: partners from labels, and the core's steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.metrics import drawn_pairs, eig_dml, must_link
from streamembed.metrics.eig_dml import EigDMLSettings
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import MeasuredMetric, MetricLearner
from streamembed.numeric.arrays import Floats, Ints
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs


@dataclass(frozen=True, slots=True, eq=False)
class EigState:
    """The core's state, and a sample of every class to draw partners from."""

    core: eig_dml.State
    sample: Reservoirs


@dataclass(frozen=True)
class EigLearner(MetricLearner):
    """Of `streamembed.estimators.EigDML`, and `MustLinkMetric` with roots; nothing is scaled."""

    settings: EigDMLSettings
    recent: bool = False  # whether partners are of the last points of a class

    def init(self, examples: Examples, scale: Floats) -> EigState:
        """No pair yet."""
        return EigState(eig_dml.init(len(scale)), reservoir.init(drawn_pairs.CAPACITY, self.recent))

    def update(self, state: EigState, examples: Examples) -> tuple[EigState, str]:
        """Steps of the core with these pairs."""
        sample, differences, similar = drawn_pairs.draw_pairs(state.sample, examples)
        core, info = eig_dml.update(
            state.core, differences[similar], differences[~similar], self.settings
        )
        return EigState(core, sample), info.status

    def measure(self, state: EigState, scale: Floats) -> MeasuredMetric:
        """The core's metric and its gap."""
        info = eig_dml.measure(state.core, self.settings)
        return MeasuredMetric(state.core.matrix, np.ones(len(scale)), info, info)

    def merge(self, left: EigState, right: EigState, indices: Ints) -> EigState:
        """Close pairs exactly, far pairs of both; the metric starts between the two."""
        return EigState(
            eig_dml.merge(left.core, right.core, self.settings),
            drawn_pairs.merge_samples(left.sample, right.sample, indices, self.settings.seed),
        )


@dataclass(frozen=True)
class DiagonalLearner(EigLearner):
    """See `streamembed.estimators.MustLinkMetric` with ``diagonal``: weights solved when read."""

    def measure(self, state: EigState, scale: Floats) -> MeasuredMetric:
        """The weights of features, to their tolerance."""
        matrix, info = must_link.solve_diagonal(state.core)
        return MeasuredMetric(matrix, np.ones(len(scale)), info, info)
