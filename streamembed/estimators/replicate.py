"""A stream of points, its embedding, and its generated pairs; and the metric that pairs imply.

One replicate has all events, two more have halves of them. `Replicate.push` is what a chunk does to
each, `learn_metric` what the pairs of all three say.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

import numpy as np

from streamembed.engine.engine import Engine
from streamembed.methods.options import Config
from streamembed.metric_learning import itml
from streamembed.numeric.arrays import Floats
from streamembed.pairs import metric_shrinkage, pair_memory, thresholds

# (points as the kernel sees them (N, d), components) -> psi (N, m), eigenvalues (m,), descending.
Embedding = Callable[[Floats, int], tuple[Floats, Floats]]


# Where ITML stops: far below what another draw of pairs changes. At gamma = 0.1 tens of sweeps do.
TOLERANCE, MOST_SWEEPS = 1e-4, 300

Status = Literal["ok", "nothing reproduces", "nothing learned", "no pairs", "halves not ready"]


@dataclass(frozen=True, slots=True)
class Fit:
    """How a metric was obtained: in place of a certificate where there is no optimum to reach.

    Attributes
    ----------
    factor : float
        s in [0, 1], the share of the learned logarithm that was kept; 1 where shrink is off.
    stretch : float
        Length of that logarithm before: 0 is a multiple of the identity.
    n_similar, n_dissimilar : int
        Pairs behind A.
    n_halves : tuple of int
        Pairs behind A_1 and A_2.
    upper, lower : float
        Bounds on squared distances of similar and dissimilar pairs, in standardised units; NaN
        where there are no pairs.
    residual : float
        How far ITML is from its optimum (`streamembed.metric_learning.itml.Info`).
    position : int
        Events learned.
    status : str
        ``ok``. ``nothing reproduces``: the halves disagree; the metric is Euclidean distance of
        standardised features. ``nothing learned``: the pairs asked for no change. ``no pairs``:
        the map separates none. ``halves not ready``: more events are needed to judge A.
    """

    factor: float
    stretch: float
    n_similar: int
    n_dissimilar: int
    n_halves: tuple[int, int]
    upper: float
    lower: float
    residual: float
    position: int
    status: Status


def learn_metric(
    whole: pair_memory.State,
    halves: tuple[pair_memory.State, pair_memory.State] | None,
    gamma: float = 0.1,
) -> tuple[Floats, Fit]:
    """The metric of the remembered pairs, in the units of their differences, and its `Fit`.

    Parameters
    ----------
    whole
        Pairs of all events.
    halves
        Pairs of the two halves; None: A is not shrunk.
    gamma
        Slack of ITML; smaller stays nearer to the identity.

    Returns
    -------
    Shape (d, d), positive definite, and the `Fit`. Determinant 1 where it was shrunk.
    """
    d = whole.pairs.differences.shape[1]
    near = int(np.count_nonzero(whole.pairs.similar))
    sizes = (0, 0) if halves is None else (len(halves[0].pairs), len(halves[1].pairs))
    fit = Fit(
        factor=0.0,
        stretch=0.0,
        n_similar=near,
        n_dissimilar=len(whole.pairs) - near,
        n_halves=sizes,
        upper=np.nan,
        lower=np.nan,
        residual=0.0,
        position=whole.position,
        status="no pairs",
    )
    bounds = itml.compute_percentile_bounds(whole.inputs)
    if bounds is None or not whole.pairs.has_both_kinds:
        return np.eye(d), fit
    matrix, residual = _solve(whole, bounds, gamma)
    fit = replace(fit, upper=bounds[0], lower=bounds[1], residual=residual)
    stretch = float(np.linalg.norm(metric_shrinkage.compute_trace_free_log(matrix)))
    if halves is None:
        return matrix, replace(fit, factor=1.0, stretch=stretch, status="ok")
    if not all(half.pairs.has_both_kinds for half in halves):
        return np.eye(d), replace(fit, stretch=stretch, status="halves not ready")
    first, second = (_solve(half, bounds, gamma)[0] for half in halves)
    matrix, info = metric_shrinkage.shrink(matrix, first, second)
    return matrix, replace(fit, factor=info.factor, stretch=info.stretch, status=info.status)


def _solve(
    state: pair_memory.State, bounds: tuple[float, float], gamma: float
) -> tuple[Floats, float]:
    """ITML from the identity on the remembered pairs: A, and the largest residual left."""
    memory = state.pairs
    solved, info = itml.solve(
        memory.differences,
        memory.similar,
        *bounds,
        gamma=gamma,
        tolerance=TOLERANCE,
        max_sweeps=MOST_SWEEPS,
    )
    return solved.matrix, info.residual


class Replicate:
    """A stream of points, its embedding, and the pairs generated from it.

    Attributes
    ----------
    engine : Engine
        The map, and the support that pairs are drawn from.
    pairs : streamembed.pairs.pair_memory.State
    """

    def __init__(
        self,
        config: Config,
        width: int,
        settings: thresholds.PairSettings,
        diffusion_time: float | None,
        embedding: Embedding | None,
    ) -> None:
        """An engine with this config for points of ``width`` features, and no pairs yet.

        ``settings.candidates`` are drawn for every event learned.
        """
        self.engine = Engine(**config.as_dict())
        self.pairs = pair_memory.init(width)
        self.settings = settings
        self.diffusion_time = diffusion_time
        self.embedding = embedding

    def __copy__(self) -> Self:
        """The same replicate on a copy of its engine: learning leaves this one unchanged."""
        copied = object.__new__(type(self))
        vars(copied).update(vars(self), engine=copy.copy(self.engine))
        return copied

    def push(self, points: Floats, scaled: Callable[[Floats], Floats] | None = None) -> None:
        """Learn points; after a complete chunk, draw pairs and judge the old ones again.

        Parameters
        ----------
        points
            Shape (n, d).
        scaled
            From the engine's units to those in which pairs differ; None: they are the same.
        """
        self.engine.learn(points)
        self.judge(scaled)

    def judge(self, scaled: Callable[[Floats], Floats] | None = None) -> None:
        """Draw and judge pairs, if the engine has learned since the last time."""
        engine = self.engine
        learned = engine.learned
        if not engine.ready or learned == self.pairs.position:
            return
        support = engine.publish()
        births = engine.support_positions
        points = support.points if scaled is None else scaled(support.points)
        psi, eigenvalues = support.psi, support.eigenvalues
        if self.embedding is not None:
            psi, eigenvalues = self.embedding(points, psi.shape[1])
        coordinates = thresholds.weight_columns(psi, eigenvalues, self.diffusion_time)
        since = min(learned - self.pairs.position, len(births))
        settings = replace(self.settings, candidates=since * self.settings.candidates)
        self.pairs = thresholds.update(
            self.pairs, coordinates, points, births, support.masses, learned, settings
        )
