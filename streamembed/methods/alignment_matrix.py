"""The room of locally linear embedding: kept lists, weights of changed rows, solves when due.

A chunk changes some two hundred lists, and the weights of these rows alone are solved for. The
bottom of the alignment matrix is found by inverse steps with fresh factors
(`streamembed.manifold.barycentric`) from the last one, whose new slots are filled from their
neighbours; in `push` after a fiftieth of the support, so that frame and start stay near, and by
every snapshot.

Eigenvalues mu of the bottom are 1e-10 to 1e-5 of the largest: what is certified are theta = u / (mu
+ u), u = mu_(k+1), eigenvalues of u (M + u)^-1, from 1 downwards. M v - mu v = r makes a residual
of at most theta ||r|| / u there, which is what is reported.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from streamembed.geometry.lists import Lists, Slots
from streamembed.geometry.pairwise import Pairwise
from streamembed.geometry.support import Support
from streamembed.manifold import barycentric
from streamembed.manifold.barycentric import Bottom, Report
from streamembed.methods.eigenpairs import Pairs
from streamembed.methods.gram import normalisation
from streamembed.methods.options import Config
from streamembed.methods.state import Rebuilt, State
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import certificate
from streamembed.spectral.certificate import Outside
from streamembed.spectral.lanczos import bound_largest

__all__ = ["build", "climb", "count_parts", "update", "view"]

# A solve is due after so many refilled slots, as a share of n, and never after fewer than these:
# as often as the frame is renewed.
SOLVE_SHARE, SOLVE_ROWS = 0.02, 20
# Of the tolerance, for a solve: the rest is for the frame. And steps of the rungs.
KEPT_SHARE = 0.3
USUAL_TOLERANCE = 3e-3
RUNGS = {"view": 4, "refresh": 12, "batch": 40}
# Of the norm of M, what rounding makes of its eigenvalues.
ROUNDING = 1e-15
# mu_(k+1) is taken for no less than this share of the norm of M.
LEAST = 1e-13
# What is looked for between the last wanted value and that, and solves at most.
AIM, SOLVES = 0.3, 200


def build(held: Support, near: Pairwise, position: int, config: Config) -> tuple[Rebuilt, Lists]:
    """The room of a support that nothing is known of, with its lists."""
    lists = Lists.build(near, held.births, config.n_neighbors)
    weights = barycentric.weights_of(held.scaled, _first(lists), reg=config.reg)
    bottom, _ = _solve(held, lists, weights, None, position, config, RUNGS["view"])
    return Rebuilt(weights, bottom, 0), lists


def update(
    state: State, held: Support, slots: Ints, near: Pairwise, position: int, config: Config
) -> tuple[Rebuilt, Lists]:
    """Room and lists after a chunk that filled ``slots`` and ended at ``position``."""
    assert state.rebuilt is not None
    assert state.lists is not None
    room, lists, n = state.rebuilt, state.lists, len(held)
    weights, bottom, rows = room.weights, room.bottom, room.rows + len(slots)
    if len(slots):
        lists, changed = lists.replace(slots, near, held.births)
        # a list with a refilled slot may be the same slots at the same distances, elsewhere
        refilled = np.zeros(n + 1, dtype=bool)  # the last for the slot -1
        refilled[slots] = True
        around = np.flatnonzero(refilled[_first(lists)].any(axis=1))
        changed = np.union1d(np.union1d(changed, around), slots)
        grown = np.zeros((n - len(weights), weights.shape[1]))
        weights = np.concatenate([weights, grown])
        weights[changed] = barycentric.weights_of(held.scaled, _first(lists), changed, config.reg)
        vectors = barycentric.refill(bottom.vectors, slots, _first(lists), weights)
        bottom = Bottom(vectors, bottom.values)
    if rows >= max(SOLVE_SHARE * n, SOLVE_ROWS) or len(bottom.values) <= config.n_components:
        start = bottom.vectors
        bottom, _ = _solve(held, lists, weights, start, position, config, RUNGS["view"])
        rows = 0
    return Rebuilt(weights, bottom, rows), lists


def view(state: State, count: int) -> tuple[Floats, Floats]:
    """theta and psi, shape (n, c), of the first ``count`` pairs as the last solve left them."""
    assert state.rebuilt is not None
    bottom, normal = state.rebuilt.bottom, normalisation(state)
    c = min(count, bottom.vectors.shape[1])
    unit = _unit(bottom, count - 1, 1.0)
    vectors = bottom.vectors[:, :c]
    constant = normal.constant
    vectors = vectors - np.outer(constant, constant @ vectors)
    lengths = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
    vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
    return unit / (bottom.values[:c] + unit), normal.eigenfunctions(vectors)


def count_parts(state: State) -> int:
    """How many parts the graph of the lists has: the eigenvalue 0 is as many-fold."""
    assert state.lists is not None
    near = _first(state.lists)
    known = near >= 0
    starts = np.concatenate([[0], np.cumsum(known.sum(axis=1))]).astype(np.int32)
    graph = csr_array((np.ones(int(starts[-1])), near[known], starts), shape=(len(near),) * 2)
    return int(connected_components(graph, directed=False, return_labels=False))


def climb(state: State, config: Config) -> Iterator[Pairs]:
    """Solves of more and more steps; the first from what the state has."""
    assert state.rebuilt is not None
    assert state.lists is not None
    if state.coincide:  # any weights rebuild them
        none, empty = Outside(0.0, 0.0, np.zeros(0)), np.zeros((len(state.support), 0))
        yield Pairs(np.zeros(0), empty, empty, none, normalisation(state), 0.0, "view")
        return
    start, held = state.rebuilt.bottom.vectors, state.support
    for rung, most in RUNGS.items():
        near, weights = state.lists, state.rebuilt.weights
        solved = _solve(held, near, weights, start, state.position, config, most)
        yield _certify(state, *solved, config, rung)
        if config.tolerance is None:
            return
        start = solved[0].vectors


def _first(lists: Lists) -> Slots:
    """The first K of every list."""
    return lists.near[:, : lists.n_neighbors]


def _masses(held: Support) -> Floats | None:
    return None if (held.masses == 1.0).all() else held.masses


def _solve(
    held: Support,
    lists: Lists,
    weights: Floats,
    start: Floats | None,
    position: int,
    config: Config,
    most: int,
) -> tuple[Bottom, Report]:
    masses = _masses(held)
    B, M = barycentric.alignment(_first(lists), weights, masses)
    tolerance = KEPT_SHARE * (config.tolerance or USUAL_TOLERANCE)
    generator = np.random.default_rng((config.seed, position, len(held), most))
    count = min(config.n_components + 1, max(len(held) - 1, 1))
    return barycentric.solve(B, M, start, count, generator, masses, tolerance, most)


def _unit(bottom: Bottom, k: int, norm: float) -> float:
    """u = mu_(k+1), or a little where that is rounding."""
    values = bottom.values
    following = float(values[min(k, len(values) - 1)]) if len(values) else norm
    return max(following, LEAST * norm)


def _certify(state: State, bottom: Bottom, report: Report, config: Config, rung: str) -> Pairs:
    """The pairs in theta, with a bound on what the solve does not know, by its own factors."""
    normal, k = normalisation(state), config.n_components
    values, vectors, constant = bottom.values, bottom.vectors, normal.constant
    c = report.errors.shape[1]
    unit = _unit(bottom, k, report.norm)
    theta = unit / (values + unit)
    errors = report.errors * (theta[:c] / unit)
    rounding = ROUNDING * report.norm / unit if len(values) else 0.0
    known = np.concatenate([constant[:, None], vectors], axis=1)

    def rest_of(column: Floats) -> Floats:
        left: Floats = column - known @ (known.T @ column)
        return left

    # of (M + shift)^-1, in units of its largest; theta = u / (mu + u) in terms of that
    largest = 1.0 / report.shift
    shown = min(k, len(theta))
    last = float(theta[shown - 1]) if shown else 1.0
    following = float(theta[shown]) if shown < len(theta) else 0.0
    target = last - AIM * (last - following)
    level = 1.0 / (unit * (1.0 / target - 1.0) + report.shift)
    complete = known.shape[1] >= len(known)
    beyond = 0.0 if complete else 1.0
    if config.tolerance is not None and 0.0 < target < 1.0 and not complete:
        draw = np.random.default_rng((config.seed, state.position, len(known)))
        found = bound_largest(
            lambda column: rest_of(report.inverse(column)) / largest,
            rest_of(draw.standard_normal(len(known))),
            level / largest,
            SOLVES,
        )
        mu = 1.0 / (found * largest) - report.shift
        beyond = min(1.0, unit / (max(mu, 0.0) + unit))
    coupling = errors.T @ errors
    outside = certificate.following(theta[:c], coupling, beyond, k, rounding)
    return Pairs(theta[:c], vectors[:, :c], errors, outside, normal, rounding, rung, unit)
