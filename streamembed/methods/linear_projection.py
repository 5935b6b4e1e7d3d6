"""Linear eigenmaps (locality preserving projections): the smoothest linear functions of a graph.

Symbols: S, pi = the walk on the graph of neighbours (`streamembed.spectral.neighbor_walk`); Z =
points on the axes, without their mean under pi; B = diag(pi)^1/2 Z = T diag(s) V^T;
h = s^2 / (s^2 + rho), rho = RIDGE times the mean of s^2; H = T diag(h) T^T, the ridge regression on
linear functions.

Published are the leading eigenpairs of H^1/2 S H^1/2: psi = diag(pi)^-1/2 v is linear in the
features, psi(x) = (x - mean) loadings. The problem has as many rows as there are axes, and is
solved whole when you ask for a snapshot: no pair is tracked, and the certificate is rounding.

Source: He & Niyogi (2003), "Locality preserving projections". Differs: 1. They solve
X L X' a = mu X D X' a, with a ridge on the right: a direction in which hardly anything varies then
has the smallest mu of all, and comes first. Here the ridge shrinks what such a direction has of S:
it comes last. 2. They take principal axes first. Here that is for more than MOST_FEATURES features
only, and they are those of the points that are held.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import scipy.linalg

from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.methods.eigenpairs import Eigenpairs
from streamembed.methods.neighbor_graph import WalkMap, build_fields
from streamembed.methods.options import Config
from streamembed.methods.placement import LinearExtension
from streamembed.methods.state import BuildInput, Pairs, State, UpdateInput
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import Normalisation

# Share of the mean variance of an axis, below which what varies along one hardly counts.
RIDGE = 1e-3
# More features than the first are reduced to as many principal axes as the second.
MOST_FEATURES, N_AXES = 60, 50
# Axes along which the spread is this share of the largest are rounding; and all, where it is this
# share of the values themselves.
NEGLIGIBLE_SPREAD, SMALLEST_SPREAD = 1e-10, 1e-14
# Eigenvalues up to this are rounding.
NEGLIGIBLE = 1e-13
# Share in pi of a point that nothing joins: it has a place, but no say.
FAINT_SHARE = 1e-30
# Sums of doubles; and what is added per inverse share of the spread of an axis, near that at which
# it is left out: three times what was seen.
ROUNDING, ROUNDING_OF_SPREADS = 1e-12, 1e-21


@dataclass(frozen=True, eq=False)
class LinearMap(WalkMap):
    """The map by linear functions: a walk among neighbours."""

    extension = LinearExtension

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch."""
        parts, scaling = build_fields(inputs, config)
        return cls(**parts), scaling

    def update(self, inputs: UpdateInput, config: Config) -> tuple[Self, int]:
        """After a chunk."""
        return replace(self, **self.replace_slots(inputs)), len(inputs.slots)

    def compute_normalisation(self, state: State, config: Config) -> Normalisation:
        """The normalisation of the walk, with a share for points that nothing joins."""
        degrees, masses = self.walk.degrees, state.support.masses
        least = FAINT_SHARE * float(degrees.max(initial=0.0)) or 1.0
        weights = np.maximum(degrees, least)
        scaling = np.sqrt(masses / weights)
        return Normalisation(np.ones_like(masses), scaling, weights / weights.sum())

    def estimate_eigenpairs(
        self, state: State, normal: Normalisation, count: int, config: Config
    ) -> Pairs:
        """The leading pairs, solved: nothing is tracked."""
        pairs = self.solve(state, normal, count, count)
        return pairs.values, normal.eigenfunctions(pairs.vectors)

    def refine_eigenpairs(self, state: State, config: Config) -> Iterator[Eigenpairs]:
        """Solved."""
        normal = self.compute_normalisation(state, config)
        yield self.solve(
            state, normal, config.n_components, config.n_pairs, tolerance=config.tolerance or 0.0
        )

    def solve(
        self,
        state: State,
        normal: Normalisation,
        n_shown: int,
        n_pairs: int,
        tolerance: float = 0.0,
    ) -> Eigenpairs:
        """The leading ``n_pairs`` of all pairs, of which ``n_shown`` are published. O(N c^2)."""
        root = normal.constant
        points = state.support.scaled
        centred = _centre(points, normal.stationary)
        largest = float(np.abs(centred).max(initial=0.0))
        if largest <= SMALLEST_SPREAD * float(np.abs(points).max(initial=0.0)):
            return Eigenpairs.none(normal)  # nothing differs
        axes = find_axes(state.support)
        n_axes = len(axes) if len(axes) <= MOST_FEATURES else N_AXES
        centred = (centred / largest) @ axes
        basis, triangle = np.linalg.qr(root[:, None] * centred)
        left, spreads, right = np.linalg.svd(triangle, full_matrices=False)
        n_real = int(np.count_nonzero(spreads > NEGLIGIBLE_SPREAD * spreads[:1]))
        if not n_real or not self.walk.graph.nnz:
            return Eigenpairs.none(normal)
        shares = spreads / spreads[0]
        # what an axis that is left out would have of S: the root of its h
        left_out = float(shares[n_real:].max(initial=0.0)) * np.sqrt(n_axes / RIDGE)
        rounding = ROUNDING + ROUNDING_OF_SPREADS / float(shares[n_real - 1]) + left_out
        basis, spreads = basis @ left[:, :n_real], spreads[:n_real]
        ridge = RIDGE * float((spreads**2).sum()) / n_axes
        shrinkage = spreads / np.sqrt(spreads**2 + ridge)
        inside = shrinkage[:, None] * (basis.T @ self.walk.apply(basis)) * shrinkage
        inside = 0.5 * (inside + inside.T)
        values, mix = descending_eigh(inside)
        n_kept = min(n_pairs, int(np.count_nonzero(values > max(NEGLIGIBLE, rounding))))
        following = float(values[n_shown : n_shown + 1].max(initial=0.0))
        mix = mix[:, :n_kept]
        on_axes = right[:n_real].T @ (mix / spreads[:, None])
        vectors = basis @ mix
        # their rows are below the rounding of the others
        isolated = self.parts.isolated
        vectors[isolated] = root[isolated, None] * (centred[isolated] @ on_axes)
        return Eigenpairs(
            values[:n_kept],
            vectors,
            basis @ (inside @ mix - mix * values[:n_kept]),
            Outside(following, following, values[: min(n_kept, n_shown)]),
            normal,
            rounding,
            "view",
            # without a component, relative to the largest of the negative eigenvalues
            floor=max(certificate.NEGLIGIBLE, tolerance * float(np.abs(values).max())),
            loadings=axes @ on_axes / largest,
        )


def find_axes(support: Support) -> Floats:
    """The axes, shape (d, c): the features themselves, or the principal axes of many."""
    points, d = support.scaled, support.scaled.shape[1]
    if d <= MOST_FEATURES:
        return np.eye(d)
    masses = support.masses / support.masses.sum()
    centred = _centre(points, masses)
    largest = float(np.abs(centred).max(initial=0.0)) or 1.0
    centred = (centred / largest) * np.sqrt(masses)[:, None]
    if len(centred) < d:  # the same axes by the smaller of two products
        values, vectors = descending_eigh(centred @ centred.T)
        n_real = int(np.count_nonzero(values > NEGLIGIBLE * values[:1].max(initial=0.0)))
        n_axes = min(N_AXES, n_real)
        axes: Floats = centred.T @ (vectors[:, :n_axes] / np.sqrt(values[:n_axes]))
        return axes
    product = centred.T @ centred
    return np.ascontiguousarray(
        scipy.linalg.eigh(product, subset_by_index=[d - N_AXES, d - 1])[1][:, ::-1]
    )


def _centre(points: Floats, shares: Floats) -> Floats:
    """Points without their mean, however far it is from 0: it is known to its own rounding."""
    centred = points - shares @ points
    centred -= shares @ centred
    return centred
