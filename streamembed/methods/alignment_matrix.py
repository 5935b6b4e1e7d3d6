"""Locally linear embedding: retained lists, weights of changed rows, solves when due.

A chunk changes some two hundred lists, and the weights of these rows alone are solved for. The
bottom of the alignment matrix is found by inverse steps with fresh factors
(`streamembed.manifold.barycentric`) from the last one, whose new slots are filled from their
neighbours; in `push` after a fiftieth of the support, so that the start stays near, and by
every snapshot.

Eigenvalues mu of the bottom are 1e-10 to 1e-5 of the largest. The certificate is about theta = u /
(mu + u), u = mu_(k+1), eigenvalues of u (M + u)^-1, from 1 downwards. M v - mu v = r makes a
residual of at most theta ||r|| / u there, which is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
import scipy
from scipy.sparse import csr_array

from streamembed.geometry.lists import NeighborLists
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.manifold import barycentric
from streamembed.manifold.barycentric import BottomPairs, SolveReport
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.options import Config
from streamembed.methods.placement import BarycentricExtension
from streamembed.methods.state import (
    BuildInput,
    EmbeddingMap,
    Pairs,
    State,
    UpdateInput,
    WeightSummary,
)
from streamembed.numeric.arrays import Floats, pad
from streamembed.numeric.codec import Count
from streamembed.spectral import certificate, operator
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.operator import Normalisation, deflate

# A solve is due after this share of n has been refilled, but never after fewer slots than these.
SOLVE_SHARE, SOLVE_ROWS = 0.02, 20
# Of the tolerance, for a solve: the residual is measured in theta, where it may be larger.
SOLVE_TOLERANCE_SHARE = 0.3
USUAL_TOLERANCE = 3e-3
# Inverse steps at most, by refinement level.
LEVELS = {"view": 4, "refresh": 12, "batch": 40}
# Of the norm of M, what rounding makes of its eigenvalues.
ROUNDING = 1e-15
# mu_(k+1) is taken for no less than this share of the norm of M.
LEAST = 1e-13
# Where the search bound lies between the last wanted value and the next, and solves at most.
AIM, SOLVES = 0.3, 200


@dataclass(frozen=True, eq=False)
class AlignmentMap(EmbeddingMap):
    """The map of locally linear embedding: reconstruction weights, and the bottom eigenpairs."""

    weights: Annotated[Floats, "slots k"]  # of the lists' neighbours, in their order
    bottom: BottomPairs  # by the last solve; at slots that were filled since from their neighbours
    rows: Count  # slots filled since that solve
    has_resolution = False
    extension = BarycentricExtension

    def compute_coordinates(
        self, psi: Floats, eigenvalues: Floats, state: State, config: Config
    ) -> Floats:
        """Z = psi / sqrt(M), with Z^T diag(m) Z = 1. Source: Roweis & Saul (2000)."""
        coordinates: Floats = psi / np.sqrt(float(state.support.masses.sum()))
        return coordinates

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch."""
        support = inputs.support
        lists = NeighborLists.build(inputs.geometry, support.births, config.n_neighbors)
        weights = barycentric.compute_weights(support.scaled, lists.nearest[0], reg=config.reg)
        bottom, _ = _solve(support, lists, weights, None, inputs.position, config, LEVELS["view"])
        return cls(weights, bottom, 0, lists=lists), inputs.scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk."""
        assert self.lists is not None
        support, slots, lists, n = inputs.support, inputs.slots, self.lists, len(inputs.support)
        weights, bottom, rows = self.weights, self.bottom, self.rows + len(slots)
        if len(slots):
            lists = lists.replace(slots, inputs.geometry, support.births)
            changed = lists.find_changed(self.lists, slots)
            # a list with a refilled slot may be the same slots at the same distances, elsewhere
            is_refilled = np.zeros(n + 1, dtype=bool)  # the last for the slot -1
            is_refilled[slots] = True
            around = np.flatnonzero(is_refilled[lists.nearest[0]].any(axis=1))
            changed = np.union1d(np.union1d(changed, around), slots)
            weights = pad(weights, n)
            weights[changed] = barycentric.compute_weights(
                support.scaled, lists.nearest[0], changed, config.reg
            )
            vectors = barycentric.interpolate_refilled(
                bottom.vectors, slots, lists.nearest[0], weights
            )
            bottom = BottomPairs(vectors, bottom.values)
        if rows >= max(SOLVE_SHARE * n, SOLVE_ROWS) or len(bottom.values) <= config.n_components:
            start = bottom.vectors
            bottom, _ = _solve(
                support, lists, weights, start, inputs.position, config, LEVELS["view"]
            )
            rows = 0
        return type(self)(weights, bottom, rows, lists=lists), len(slots)

    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """theta and psi of the first pairs as the last solve left them."""
        bottom = self.bottom
        c = min(count, bottom.vectors.shape[1])
        unit = _choose_unit(bottom, count - 1, 1.0)
        vectors = deflate(bottom.vectors[:, :c], normal.constant)
        lengths = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
        vectors = np.divide(vectors, lengths, out=np.zeros_like(vectors), where=lengths > 0)
        return unit / (bottom.values[:c] + unit), normal.eigenfunctions(vectors)

    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """Leading pairs: solves of more and more steps, the first from the state's."""
        assert self.lists is not None
        if state.coincide:  # any weights reconstruct them
            yield Eigenpairs.none(operator.weigh_equally(state.support.masses))
            return
        start, support = self.bottom.vectors, state.support
        for refinement, most in LEVELS.items():
            solved = _solve(support, self.lists, self.weights, start, state.position, config, most)
            yield _certify(state, *solved, config, refinement)
            if config.tolerance is None:
                return
            start = solved[0].vectors

    def complete_certificate(
        self, claim: Certificate, values: Floats, pairs: Eigenpairs, state: State, config: Config
    ) -> tuple[Certificate, Floats]:
        """Certificate and eigenvalues of mu, from those of theta = unit / (mu + unit)."""
        mu = certificate.invert_values(values, pairs.unit)
        values = np.where(values > 0.0, mu, 0.0)  # columns of zeros
        return certificate.invert_certificate(claim, pairs.unit), values

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """Without widths, and parts of the graph of lists: the eigenvalue 0 is as many-fold."""
        assert self.lists is not None
        neighbors = self.lists.nearest[0]
        is_neighbor = neighbors >= 0
        starts = np.concatenate([[0], np.cumsum(is_neighbor.sum(axis=1))]).astype(np.int32)
        graph = csr_array(
            (np.ones(int(starts[-1])), neighbors[is_neighbor], starts), shape=(len(neighbors),) * 2
        )
        count = scipy.sparse.csgraph.connected_components(
            graph, directed=False, return_labels=False
        )
        return replace(super().summarise_weights(state, config, pairs), n_connected=int(count))


def _solve(
    support: Support,
    lists: NeighborLists,
    weights: Floats,
    start: Floats | None,
    position: int,
    config: Config,
    max_steps: int,
) -> tuple[BottomPairs, SolveReport]:
    masses = None if (support.masses == 1.0).all() else support.masses
    B, M = barycentric.build_alignment(lists.nearest[0], weights, masses)
    tolerance = SOLVE_TOLERANCE_SHARE * (config.tolerance or USUAL_TOLERANCE)
    generator = np.random.default_rng((config.seed, position, len(support), max_steps))
    n_pairs = min(config.n_components + 1, max(len(support) - 1, 1))
    return barycentric.solve(
        B, M, start, n_pairs, generator, masses, tolerance=tolerance, max_steps=max_steps
    )


def _choose_unit(bottom: BottomPairs, k: int, norm: float) -> float:
    """u = mu_(k+1), or a little where that is rounding."""
    values = bottom.values
    following = float(values[min(k, len(values) - 1)]) if len(values) else norm
    return max(following, LEAST * norm)


def _certify(
    state: State, bottom: BottomPairs, report: SolveReport, config: Config, refinement: str
) -> Eigenpairs:
    """The pairs in theta, with a bound beyond the solve's columns, by its own factors."""
    normal, k = operator.weigh_equally(state.support.masses), config.n_components
    values, vectors, constant = bottom.values, bottom.vectors, normal.constant
    c = report.errors.shape[1]
    unit = _choose_unit(bottom, k, report.norm)
    theta = unit / (values + unit)
    errors = report.errors * (theta[:c] / unit)
    rounding = ROUNDING * report.norm / unit if len(values) else 0.0
    basis = np.concatenate([constant[:, None], vectors], axis=1)

    def project_out(column: Floats) -> Floats:
        return column - basis @ (basis.T @ column)

    # of (M + shift)^-1, in units of its largest; theta = u / (mu + u) in terms of that
    largest = 1.0 / report.shift
    shown = min(k, len(theta))
    last = float(theta[shown - 1]) if shown else 1.0
    following = float(theta[shown]) if shown < len(theta) else 0.0
    target = last - AIM * (last - following)
    level = 1.0 / (unit * (1.0 / target - 1.0) + report.shift)
    complete = basis.shape[1] >= len(basis)
    beyond = 0.0 if complete else 1.0
    if config.tolerance is not None and 0.0 < target < 1.0 and not complete:
        draw = np.random.default_rng((config.seed, state.position, len(basis)))
        bound = bound_largest(
            lambda column: project_out(report.inverse(column)) / largest,
            project_out(draw.standard_normal(len(basis))),
            level / largest,
            SOLVES,
        )
        mu = 1.0 / (bound * largest) - report.shift
        beyond = min(1.0, unit / (max(mu, 0.0) + unit))
    outside = certificate.bound_next_eigenvalue(theta[:c], errors.T @ errors, beyond, k, rounding)
    leading = theta[:c], vectors[:, :c], errors
    return Eigenpairs(*leading, outside, normal, rounding, refinement, unit=unit)
