"""Must-link and cannot-link pairs as metrics: a closed form, and weights of features.

Symbols: delta = x - y; C, F = means of delta delta^T over must-link (close) and cannot-link (far)
pairs, (d, d); S, D = the sums that the sources have in their place; A = the metric; q =
delta^T A delta, a SQUARED distance; H = C with a ridge (`eig_dml.compute_constraint`).

Two answers to one question:

* `solve_leading`: least close spread at far spread 1. Exact from C and F, but of rank one, or of
  the rank asked for.
* `solve_diagonal`: largest mean root of q at tr(A H) = d, over A = diag(w), w >= 0: weights of
  features. The root keeps the answer from one feature; it is no function of F, so that recent far
  pairs are remembered. Means in the place of the sums of Xing et al.: the same A up to a factor.

Source: docs/algorithms/must-link.md; Xing, Ng, Jordan & Russell (2003), Distance metric learning
with application to clustering with side-information, NIPS 15.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from streamembed.metrics import drawn_pairs, eig_dml
from streamembed.metrics.class_moments import MomentLearner, MomentState, sum_pairs
from streamembed.metrics.eig_dml import EigDMLLearner, EigDMLState
from streamembed.metrics.examples import Examples
from streamembed.metrics.learner import Measured
from streamembed.numeric.arrays import Floats
from streamembed.numeric.pencil import SHARE_FLOOR, generalised_eigh
from streamembed.pairs import reservoir
from streamembed.validation import check_optional, check_whole, set_fields


def solve_leading(close: Floats, far: Floats, rank: int = 1) -> tuple[Floats, dict[str, Any]]:
    """argmin over A of tr(A C) subject to A >= 0 and tr(A F) = 1, or its r best directions.

    The answer has rank one: A = u u^T / (u^T F u) with u of the least u^T C u / u^T F u, which is
    the value. For rank r: sum sqrt(f_i) u_i u_i^T over the r largest f of F u = f C u,
    u^T C u = 1, scaled to tr(A F) = 1.

    Parameters
    ----------
    close, far
        C and F, (d, d).
    rank
        At least 1; at most as many directions are kept as pairs differ in.

    Returns
    -------
    A, shape (d, d), exactly symmetric, and its facts: ``value``, tr(A C) at tr(A F) = 1, for rank
    one the minimum; ``ratios`` (r,), far over close spread of the directions kept, descending, at
    most 1 / SHARE_FLOOR, which stands for no close spread at all; ``status``, ``exact``, or what is
    missing, also where none differs: A = I then. O(d^3).

    Notes
    -----
    Solved for the pair (C, C + F), with shares c = 1 / (1 + f): it needs no inverse of C and no
    ridge, and units of features do not matter. One direction is useless among many classes
    (5-NN on letter: 21 %).

    Source: the blog on dimension reduction and metric learning (docs/algorithms/must-link.md),
    min tr(M S) subject to tr(M D) >= 1. Differs: 1. means in the place of sums. 2. ``rank``.
    """
    if not close.any() or not far.any():
        missing = "no far pairs" if close.any() else "no close pairs"
        return np.eye(len(far)), {"status": missing, "value": 0.0, "ratios": np.zeros(0)}
    shares, vectors, _ = generalised_eigh(close, close + far)
    shares, vectors = np.clip(shares[:rank], SHARE_FLOOR, 1.0 - SHARE_FLOOR), vectors[:, :rank]
    ratios = (1.0 - shares) / shares
    weights = np.sqrt(ratios) / shares  # of vectors with b^T (C + F) b = 1, b^T C b = c
    weights /= float(weights @ (1.0 - shares))
    factor = vectors * np.sqrt(weights)
    facts = {"status": "exact", "value": float(weights @ shares), "ratios": ratios}
    return factor @ factor.T, facts


def solve_diagonal(
    state: eig_dml.State, tolerance: float = 1e-3, max_steps: int = 1000
) -> tuple[Floats, dict[str, Any]]:
    """argmax over w of the mean of sqrt(sum_k w_k delta_k^2), w >= 0 and sum w_k H_kk = d.

    Parameters
    ----------
    state
        After `eig_dml.update`; steps are not needed.
    tolerance
        Relative gap at which to stop.
    max_steps
        Where to give up; wine, letter, segment and wdbc take 10 to 100.

    Returns
    -------
    diag(w), shape (d, d), and its facts: ``objective``, the mean root of q over the far pairs
    remembered; its ``bound`` over all weights; ``gap`` = 1 - objective / bound; ``steps`` taken;
    ``n_features``, the weights above 1e-6 of all, in units of the constraint; ``status``,
    ``certified``, ``gap open`` where steps ran out, or what is missing: then every feature has the
    weight 1 / H_kk. Pure; O(n d) a step.

    Notes
    -----
    With x_k = w_k H_kk / d and g = the gradient of the objective in x, a step is x_k <- x_k g_k^2,
    rescaled to sum 1. By Jensen, sqrt(sum w' a) >= sum r_k sqrt(q w'_k / w_k) with r_k =
    w_k a_k / q, and the step maximises that: the objective never falls. The bound: sqrt(q) <=
    v q + 1 / (4 v) for any v > 0, in the mean at v = 1 / (2 sqrt(q)), up to the best factor.

    Source: Xing et al., section 2.1, "the case of diagonal A"; weighted distance of the blog.
    Differs: Newton's method on another form of the problem there, with its step length to search.
    """
    far, d = state.far, len(state.close)
    allowance = np.diag(eig_dml.compute_constraint(state))
    if not state.close.any() or not len(far):
        missing = "no far pairs" if state.close.any() else "no close pairs"
        facts = {"objective": 0.0, "bound": 0.0, "gap": 0.0, "steps": 0, "n_features": d}
        return np.diag(1.0 / allowance), {"status": missing, **facts}
    spreads = d * (far / np.sqrt(allowance)) ** 2  # (n, d), so that q = spreads x
    shares, step = spreads.any(axis=0) / np.count_nonzero(spreads.any(axis=0)), 0
    while True:
        roots = np.sqrt(np.maximum(spreads @ shares, np.finfo(np.float64).tiny))
        objective = float(roots.mean())
        gradient = (0.5 / roots) @ spreads / len(far)
        bound = float(np.sqrt(2.0 * gradient.max() * objective))
        if objective >= (1.0 - tolerance) * bound or step == max_steps:
            break
        shares = shares * (gradient / gradient.max()) ** 2
        shares /= shares.sum()
        step += 1
    gap = max(1.0 - objective / bound, 0.0)
    return np.diag(d * shares / allowance), {
        "status": "certified" if gap <= tolerance else "gap open",
        "objective": objective,
        "bound": bound,
        "gap": gap,
        "steps": step,
        "n_features": int(np.count_nonzero(shares > 1e-6)),
    }


@dataclass(frozen=True)
class LeadingLearner(MomentLearner):
    """See `streamembed.estimators.MustLinkMetric`: directions by the ratio of their spreads."""

    rank: int | None = None

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, rank=check_optional(check_whole, "rank", self.rank, 1))

    def compute_metric(self, state: MomentState, scale: Floats) -> Measured:
        """The metric of the means over pairs; units do not matter."""
        sums, d = sum_pairs(state), len(scale)
        close, far = sums.close / (sums.n_close or 1.0), sums.far / (sums.n_far or 1.0)
        matrix, facts = solve_leading(close, far, self.rank or d)
        return Measured(matrix, np.ones(d), facts)


@dataclass(frozen=True)
class DiagonalLearner(EigDMLLearner):
    """See `streamembed.estimators.MustLinkMetric` with ``diagonal``: weights solved when read."""

    # The mean root of a buffer that prefers near pairs would not be that of the stream.
    policy: str = "recent"
    steps: int = 0

    def init(self, examples: Examples, scale: Floats) -> EigDMLState:
        """No pair yet; partners are a uniform sample of each class."""
        return EigDMLState(eig_dml.init(len(scale)), reservoir.init(drawn_pairs.CAPACITY))

    def compute_metric(self, state: EigDMLState, scale: Floats) -> Measured:
        """The weights of features, to their tolerance."""
        matrix, facts = solve_diagonal(state.core)
        return Measured(matrix, np.ones(len(scale)), facts)
