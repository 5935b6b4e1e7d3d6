"""Must-link metrics that remember far pairs, as learners: Xing's roots, and weights of features."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from streamembed.metric_learners import drawn_pairs
from streamembed.metric_learners.eig_dml_learner import EigInfo
from streamembed.metric_learners.labelled_examples import Examples
from streamembed.metric_learners.learner import NO_UPDATES, Learner, Measured, Totals, widened
from streamembed.metric_learning import eig_dml, must_link
from streamembed.metric_learning.eig_dml import Settings
from streamembed.metric_learning.must_link import DiagonalInfo
from streamembed.numeric.arrays import Floats, Ints
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs

__all__ = ["LinkInfo", "LinkLearner", "LinkState", "WeightsInfo"]


@dataclass(frozen=True, slots=True, eq=False)
class LinkState:
    """The core's state, and a sample of every class to draw partners from."""

    core: must_link.State
    sample: Reservoirs


# of the roots: objective, bound and gap, and what became of all chunks
LinkInfo = EigInfo


@dataclass(frozen=True, slots=True)
class WeightsInfo(DiagonalInfo):
    """`DiagonalInfo`, and what became of all chunks in ``totals``."""

    totals: Totals = NO_UPDATES


@dataclass(frozen=True)
class LinkLearner(Learner):
    """See `streamembed.estimators.MustLinkMetric` with ``kind`` "roots" or "diagonal"."""

    kind: Literal["roots", "diagonal"] = "roots"
    seed: int = 0

    @property
    def settings(self) -> Settings:
        """Of the core; weights are solved for when they are read, without steps before."""
        steps = must_link.SETTINGS.steps if self.kind == "roots" else 0
        return replace(must_link.SETTINGS, steps=steps, seed=self.seed)

    def init(self, examples: Examples, scale: Floats) -> LinkState:
        """No pair yet."""
        return LinkState(must_link.init(len(scale)), reservoir.init(drawn_pairs.CAPACITY))

    def update(self, state: LinkState, examples: Examples) -> tuple[LinkState, eig_dml.Info]:
        """Sums, far pairs, and steps where there are any."""
        sample, differences, similar = drawn_pairs.pairs(state.sample, examples)
        core, info = must_link.update(
            state.core, differences[similar], differences[~similar], self.settings
        )
        return LinkState(core, sample), info

    def measure(self, state: LinkState, scale: Floats) -> Measured:
        """The roots' metric as the steps left it; weights to their tolerance."""
        unscaled = np.ones(len(scale))
        if self.kind == "diagonal":
            matrix, weights = must_link.diagonal(state.core)
            own = widened(WeightsInfo, weights)
            return Measured(matrix, unscaled, own, own)
        info = widened(LinkInfo, must_link.measure(state.core, self.settings))
        return Measured(state.core.pairs.matrix, unscaled, info, info)

    def merge(self, left: LinkState, right: LinkState, indices: Ints) -> LinkState:
        """Sums exactly, far pairs of both; the metric goes on from between."""
        return LinkState(
            must_link.merge(left.core, right.core, self.settings),
            drawn_pairs.merged(left.sample, right.sample, indices, self.seed),
        )
