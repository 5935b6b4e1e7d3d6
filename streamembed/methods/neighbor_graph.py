"""Embeddings of a graph of neighbours, from retained lists to certified pairs.

The walk on the graph is computed with every chunk from retained lists. Its leading pairs are
kept in a block, which one round of a filter follows (`streamembed.spectral.block`). There is no
n x n ring. A random vector bounds what the block lacks (`streamembed.spectral.lanczos`).

Source: Jain, section 1.1; Belkin & Niyogi (2003), "Laplacian eigenmaps". Differs: see
`streamembed.spectral.neighbor_walk`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from scipy.sparse import csr_array

from streamembed.geometry.lists import NeighborLists, RadiusEdges
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.methods.eigenpairs import LARGEST_EXACT, SMALLEST_FACTORED, Eigenpairs
from streamembed.methods.extension import GraphExtension
from streamembed.methods.options import Config
from streamembed.methods.state import (
    BuildInput,
    EmbeddingMap,
    Pairs,
    State,
    UpdateInput,
    WeightSummary,
)
from streamembed.numeric.arrays import Floats, find_last
from streamembed.numeric.codec import NOT_SAVED, Count
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import adjacency, neighbor_walk
from streamembed.spectral import block as blocks
from streamembed.spectral.block import Block, RitzPairs
from streamembed.spectral.certificate import TINY, Certificate, Outside, bound_next_eigenvalue
from streamembed.spectral.lanczos import bound_largest
from streamembed.spectral.neighbor_walk import Parts, Walk
from streamembed.spectral.operator import Normalisation

# Share of the tolerance that the block keeps to after every chunk.
BLOCK_TOLERANCE_SHARE = 0.6
USUAL_TOLERANCE = 3e-3
# Events after which a bound on unpublished eigenvalues is renewed: this share of the slots, within
# these limits.
BOUND_SHARE, BOUND_EVENTS = 0.02, (20, 1000)
# The least eigenvalue is computed again when this share of the slots has been refilled.
TURNED_SHARE = 0.5
# Rounds of each refinement level after the view.
LEVELS = {"polish": 2, "refresh": 6, "batch": 40}
# Products with S lose this much at most: sums of a hundred terms in doubles.
ROUNDING = 1e-12
# Eigenvalues up to this are rounding; there is nothing to publish beside the constant.
NEGLIGIBLE = 1e-13
# Parts up to which their basis is a dense array.
FEW = 32
# What of the tolerance a bound may take: the rest is for eigenvalues that change until it is
# renewed. Where the search bound lies between that limit and the next eigenvalue of the block. And
# the share of that interval that residuals of guards may take.
ALLOWANCE, AIM, SMOOTH = 0.8, 0.3, 0.1
# Products of a search for eigenvalues that the block lacks, at most.
PRODUCTS = 500


@dataclass(frozen=True, eq=False)
class WalkMap(EmbeddingMap):
    """A walk among neighbours, and what all maps by one have in common."""

    weights: str  # see `streamembed.spectral.neighbor_walk.WEIGHTS`
    # What distances are divided by; see `streamembed.spectral.adjacency.join_lists`.
    scale: float
    edges: RadiusEdges | None  # of a graph of all within a radius; None where neighbours are joined
    walk: Walk = field(metadata=NOT_SAVED)
    parts: Parts = field(metadata=NOT_SAVED)

    def replace_slots(self, inputs: UpdateInput) -> dict[str, Any]:
        """Lists or edges, walk and parts after a chunk."""
        lists, edges, support, slots = self.lists, self.edges, inputs.support, inputs.slots
        if len(slots) and lists is not None:
            lists = lists.replace(slots, inputs.geometry, support.births)
        if len(slots) and edges is not None:
            edges = edges.replace(slots, inputs.geometry)
        graph = weigh_edges(len(support), lists, edges, self.weights, self.scale)
        return {"lists": lists, "edges": edges, **build_walk(graph, support)}

    def complete_certificate(
        self, claim: Certificate, values: Floats, pairs: Eigenpairs, state: State, config: Config
    ) -> tuple[Certificate, Floats]:
        """With what is known of a walk."""
        rate = 1.0 - float(values[config.n_components - 1])
        error = claim.residual * float(values[0])
        completed = replace(
            claim,
            isolated=len(self.parts.isolated),
            residual_rate=min(error / rate, 1.0) if rate > 0.0 else 1.0,
            bound_age=pairs.bound_age,
        )
        return completed, values

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """Those of edges; isolated points are parts, too."""
        n, least, width = len(state.support), state.scaling.bandwidth, 1.0
        widths, reaches = np.full(n, least), np.full(n, config.radius or 0.0)
        if self.lists is not None:
            reaches = self.lists.reaches
            if self.weights == "self_tuning":
                widths, width = adjacency.compute_local_scales(self.lists.nearest[1]), self.scale
                least = adjacency.LEAST_SCALE * float(np.median(widths[widths > 0]))
        degrees = self.walk.degrees / state.support.masses
        n_connected = self.parts.count + len(self.parts.isolated)
        made = self.weights, widths, reaches
        return WeightSummary(*made, degrees, n_connected, width, least)

    def restore(self, support: Support) -> Self:
        """With its walk."""
        graph = weigh_edges(len(support), self.lists, self.edges, self.weights, self.scale)
        return replace(self, **build_walk(graph, support))


def weigh_edges(
    n: int, lists: NeighborLists | None, edges: RadiusEdges | None, weights: str, scale: float
) -> csr_array:
    """The weighted edges of lists, or of all pairs within a radius."""
    if lists is not None:
        return adjacency.join_lists(lists.nearest, weights, scale)
    assert edges is not None
    return adjacency.join_edges((edges.i, edges.j, edges.d2), n, weights, scale)


def build_walk(graph: csr_array, support: Support) -> dict[str, Any]:
    """The walk on edges, and its parts."""
    walk = neighbor_walk.build_walk(graph, get_unequal_masses(support))
    return {"walk": walk, "parts": neighbor_walk.find_parts(walk)}


def get_unequal_masses(support: Support) -> Floats | None:
    """Masses, or None where all are 1."""
    return None if (support.masses == 1.0).all() else support.masses


def build_fields(inputs: BuildInput, config: Config) -> tuple[dict[str, Any], Scaling]:
    """Fields of a `WalkMap` from scratch, and the scaling with the bandwidth of heat weights."""
    support, lists, edges = inputs.support, None, None
    if config.radius is not None:
        edges = RadiusEdges.build(inputs.geometry, config.radius**2)
        lengths2 = edges.d2
    else:
        lists = NeighborLists.build(inputs.geometry, support.births, config.n_neighbors)
        lengths2 = find_last(lists.nearest[1])
    bandwidth = config.fixed_bandwidth
    if bandwidth is None:
        positive = lengths2[lengths2 > 0]
        bandwidth = float(np.sqrt(np.median(positive))) if len(positive) else 1.0
    scaling = inputs.scaling.with_bandwidth(bandwidth)
    scales = {"binary": 1.0, "heat": scaling.bandwidth**2, "self_tuning": config.kernel_width}
    scale = scales[config.weights]
    walk = build_walk(weigh_edges(len(support), lists, edges, config.weights, scale), support)
    return {"weights": config.weights, "scale": scale, "edges": edges, "lists": lists, **walk}, (
        scaling
    )


@dataclass(frozen=True, eq=False)
class GraphMap(WalkMap):
    """The map of a graph: a walk among neighbours, and a block of its leading pairs."""

    block: Block
    turned_rows: Count = 0  # slots filled since the least eigenvalue was computed
    # No unpublished eigenvalue was larger, at that stream position; see `Certificate.bound_age`.
    bound: float = 1.0
    bounded: int = -1
    extension = GraphExtension

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch."""
        parts, scaling = build_fields(inputs, config)
        accuracy = BLOCK_TOLERANCE_SHARE * _choose_tolerance(config)
        block, _ = blocks.start(
            parts["walk"], parts["parts"], config.n_components + 1, accuracy, config.seed
        )
        return cls(**parts, block=block)._renew_eigenvalue_bound(inputs.position, config), scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk: one round of a filter, and now and then a bound."""
        slots, position, n = inputs.slots, inputs.position, len(inputs.support)
        following = replace(self, **self.replace_slots(inputs))
        walk, parts, count = following.walk, following.parts, config.n_components + 1
        block, turned_rows = self.block, self.turned_rows + len(slots)
        if turned_rows >= TURNED_SHARE * n:
            turned_rows, low = 0, blocks.bound_least_eigenvalue(walk, config.seed)
            block = replace(block, low=low)
        accuracy, seed = BLOCK_TOLERANCE_SHARE * _choose_tolerance(config), config.seed
        block, info = blocks.update(
            block, walk, parts, slots, count, accuracy, seed=seed, position=position
        )
        following = replace(following, block=block, turned_rows=turned_rows)
        has_jumped = info.rounds > 1 or not neighbor_walk.are_same(self.parts, parts, slots)
        is_due = has_jumped or following._is_bound_due(following.bounded, position)
        if is_due := is_due or not following._is_bound_met(config):
            following = following._renew_eigenvalue_bound(position, config)
        if is_due and not following._is_bound_met(config):
            draws = (seed, position, n, 1)
            block, _ = blocks.refine(following.block, walk, parts, count, 0.5 * accuracy, draws)
            following = replace(following, block=block)._renew_eigenvalue_bound(position, config)
        return following, len(slots)

    def _is_bound_due(self, position: int, now: int) -> bool:
        """Whether the bound that was taken at that position is due again."""
        return bool(now - position > np.clip(BOUND_SHARE * len(self.parts.labels), *BOUND_EVENTS))

    def _is_bound_met(self, config: Config) -> bool:
        """Whether the bound is within the tolerance, and none of the block's values is above."""
        if not self._needs_bound(config):
            return True
        k = config.n_components
        values = np.append(np.ones(max(self.parts.count - 1, 0)), self.block.values)
        allowed = _choose_tolerance(config) * float(values[:1].max(initial=0.0))
        limit = values[k - 1 : k].max(initial=0.0) + allowed + ROUNDING
        return bool(values[k : k + 1].max(initial=0.0) <= self.bound + ROUNDING <= limit)

    def _needs_bound(self, config: Config) -> bool:
        """Whether there is a tolerance, and more points than are decomposed as a whole."""
        return config.tolerance is not None and len(self.parts.labels) > SMALLEST_FACTORED

    def renew_eigenvalue_bound(self, state: State, config: Config) -> Self:
        """The map with a bound of now on eigenvalues that are not published."""
        return (
            self
            if self.bounded == state.position
            else self._renew_eigenvalue_bound(state.position, config)
        )

    def _renew_eigenvalue_bound(self, position: int, config: Config) -> Self:
        if not self._needs_bound(config):
            return self
        outside = self._bound_remaining_eigenvalues(self.block, position, config)
        return replace(self, bound=min(outside.bound, 1.0), bounded=position)

    def compute_normalisation(self, state: State, config: Config) -> Normalisation:
        """The normalisation of the walk: degrees are exact; isolated points have no share."""
        degrees, masses = self.walk.degrees, state.support.masses
        scaling = np.divide(masses, np.sqrt(degrees), out=np.zeros_like(masses), where=degrees > 0)
        total = float(degrees.sum())
        stationary = degrees / total if total else np.zeros_like(degrees)
        return Normalisation(np.ones_like(masses), scaling, stationary)

    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """Leading pairs as the block has them."""
        ritz = blocks.select_pairs(self.block, self.walk, self.parts, count)
        is_real = ritz.values > NEGLIGIBLE
        return ritz.values[is_real], normal.eigenfunctions(ritz.vectors[:, is_real])

    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """The block as it is, after more rounds, all pairs at once."""
        n, count = len(state.support), config.n_components + 1
        if n <= SMALLEST_FACTORED:
            yield self._decompose(state, config)
            return
        first = self._select_ritz_pairs(self.block, config)
        outside = _bound_next_eigenvalue(first, self.bound, config.n_components)
        view = self._to_eigenpairs(state, first, outside, config, "view")
        if config.tolerance is None:
            yield view
            return
        yield replace(view, bound_age=state.position - self.bounded)
        block = self.block
        for attempt, (level, rounds) in enumerate(LEVELS.items()):
            seed = (config.seed, state.position, n, 2 + attempt)
            accuracy = (0.3, 0.1, 0.03)[attempt] * config.tolerance
            block, _ = blocks.refine(block, self.walk, self.parts, count, accuracy, seed, rounds)
            outside = self._bound_remaining_eigenvalues(block, state.position, config)
            pairs = self._select_ritz_pairs(block, config)
            yield self._to_eigenpairs(state, pairs, outside, config, level)
        if n <= LARGEST_EXACT:
            yield self._decompose(state, config)

    def _select_ritz_pairs(self, block: Block, config: Config) -> RitzPairs:
        """All pairs of a block and of the parts that are of use."""
        width = block.psi.shape[1] + min(self.parts.count - 1, config.n_components + 1)
        return blocks.select_pairs(block, self.walk, self.parts, max(config.n_pairs, width))

    def _to_eigenpairs(
        self, state: State, ritz: RitzPairs, outside: Outside, config: Config, refinement: str
    ) -> Eigenpairs:
        """Ritz pairs as `Eigenpairs`, as many as are carried."""
        n_kept = min(config.n_pairs, int(np.count_nonzero(ritz.values > NEGLIGIBLE)))
        products = ritz.products[:n_kept, :n_kept]
        # in units of the residuals, of which one may be a millionth of another
        units = np.sqrt(np.maximum(products.diagonal(), TINY))
        squares, turn = descending_eigh(products / np.outer(units, units))
        return Eigenpairs(
            ritz.values[:n_kept],
            ritz.vectors[:, :n_kept],
            np.sqrt(np.maximum(squares, 0.0))[:, None] * turn.T * units,
            outside,
            self.compute_normalisation(state, config),
            ROUNDING,
            refinement,
        )

    def _bound_remaining_eigenvalues(self, block: Block, position: int, config: Config) -> Outside:
        """A bound on the eigenvalues that are not published, by a random vector; 1 if it fails."""
        walk, parts, k = self.walk, self.parts, config.n_components
        ritz = self._select_ritz_pairs(block, config)
        values, products = ritz.values, ritz.products
        nothing = _bound_next_eigenvalue(ritz, 1.0, k)
        allowed = _choose_tolerance(config) * float(values[:1].max(initial=0.0))
        residual = float(np.sqrt(products.diagonal()[:k].max(initial=0.0)))
        if residual + ROUNDING > allowed or parts.count - 1 > ritz.exact:
            return nothing  # with more parts than are shown, the next eigenvalue is 1
        last = float(values[k - 1]) if len(values) >= k else 0.0
        limit = last + max(ALLOWANCE * allowed, ROUNDING)
        target = limit - AIM * (limit - nothing.estimate)
        # rough guards would hide modes that they are not orthogonal to
        rough = SMOOTH * np.maximum(limit - values, 0.0) * (limit - target)
        is_used = products.diagonal() <= rough
        is_used[: k + 1] = True
        basis = ritz.vectors[:, is_used][:, ritz.exact :]
        if parts.count <= FEW:
            basis = np.concatenate([parts.basis.toarray(), basis], axis=1)

        def project_out(columns: Floats) -> Floats:
            rest = columns - basis @ (basis.T @ columns)
            return rest if parts.count <= FEW else parts.deflate(rest[:, None])[:, 0]

        generator = np.random.default_rng((config.seed, position, len(basis)))
        beyond = bound_largest(
            lambda column: project_out(walk.apply(column)),
            project_out(generator.standard_normal(len(basis))),
            target,
            PRODUCTS,
        )
        coupling = products[np.ix_(is_used, is_used)]
        outside = bound_next_eigenvalue(values[is_used], coupling, beyond, k, ROUNDING)
        return _bound_next_eigenvalue(ritz, outside.bound, k)

    def _decompose(self, state: State, config: Config) -> Eigenpairs:
        """Every pair at once. O(n^3)."""
        normal = self.compute_normalisation(state, config)
        dense = self.walk.operator.toarray()
        dense -= np.outer(normal.constant, normal.constant)
        values, vectors = descending_eigh(dense)
        return Eigenpairs.of_dense(dense, values, vectors, normal, ROUNDING, NEGLIGIBLE, config)


def _bound_next_eigenvalue(ritz: RitzPairs, bound: float, k: int) -> Outside:
    """What a block shows of lambda_(k+1), and a bound on it."""
    estimate = max(float(ritz.values[k : k + 1].max(initial=0.0)), 0.0)
    return Outside(estimate, max(bound, estimate), ritz.values[:k])


def _choose_tolerance(config: Config) -> float:
    return USUAL_TOLERANCE if config.tolerance is None else config.tolerance
