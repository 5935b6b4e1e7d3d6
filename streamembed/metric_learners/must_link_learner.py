"""Must-link metrics that remember far pairs, as learners: Xing's roots, and weights of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streamembed.metric_learners import drawn_pairs
from streamembed.metric_learners.eig_dml_learner import EigInfo
from streamembed.metric_learners.labelled_examples import Examples
from streamembed.metric_learners.learner import (
    NO_UPDATES,
    MeasuredMetric,
    MetricLearner,
    Totals,
    widen,
)
from streamembed.metric_learning import eig_dml, must_link
from streamembed.metric_learning.eig_dml import EigDMLSettings
from streamembed.metric_learning.must_link import DiagonalInfo
from streamembed.numeric.arrays import Floats, Ints
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs


@dataclass(frozen=True, slots=True, eq=False)
class LinkState:
    """The core's state, and a sample of every class to draw partners from."""

    core: must_link.State
    sample: Reservoirs


# Of the roots: objective, bound and gap, with what became of all chunks.
LinkInfo = EigInfo


@dataclass(frozen=True, slots=True)
class WeightsInfo(DiagonalInfo):
    """`DiagonalInfo`, with what became of all chunks in ``totals``."""

    totals: Totals = NO_UPDATES


@dataclass(frozen=True)
class LinkLearner(MetricLearner):
    """See `streamembed.estimators.MustLinkMetric` with ``kind`` "roots" or "diagonal"."""

    kind: Literal["roots", "diagonal"] = "roots"
    seed: int = 0

    @property
    def settings(self) -> EigDMLSettings:
        """Of the core; weights are solved for when they are read, without steps before."""
        steps = must_link.SETTINGS.steps if self.kind == "roots" else 0
        return replace(must_link.SETTINGS, steps=steps, seed=self.seed)

    def init(self, examples: Examples, scale: Floats) -> LinkState:
        """No pair yet."""
        return LinkState(must_link.init(len(scale)), reservoir.init(drawn_pairs.CAPACITY))

    def update(self, state: LinkState, examples: Examples) -> tuple[LinkState, eig_dml.Info]:
        """Sums, far pairs, and steps where there are any."""
        sample, differences, similar = drawn_pairs.draw_pairs(state.sample, examples)
        core, info = must_link.update(
            state.core, differences[similar], differences[~similar], self.settings
        )
        return LinkState(core, sample), info

    def measure(self, state: LinkState, scale: Floats) -> MeasuredMetric:
        """The roots' metric as the steps left it; weights to their tolerance."""
        unscaled = np.ones(len(scale))
        if self.kind == "diagonal":
            matrix, weights = must_link.solve_diagonal(state.core)
            info = widen(WeightsInfo, weights)
            return MeasuredMetric(matrix, unscaled, info, info)
        info = widen(LinkInfo, must_link.measure(state.core, self.settings))
        return MeasuredMetric(state.core.pairs.matrix, unscaled, info, info)

    def merge(self, left: LinkState, right: LinkState, indices: Ints) -> LinkState:
        """Sums exactly, far pairs of both; the metric starts between the two."""
        return LinkState(
            must_link.merge(left.core, right.core, self.settings),
            drawn_pairs.merge_samples(left.sample, right.sample, indices, self.seed),
        )
