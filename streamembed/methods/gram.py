"""Classical scaling, kernel PCA and PCA of a support: a matrix without its mean, and its pairs.

What is kept and updated is that of `streamembed.methods.trial_map`: trial functions with their
products, and no matrix. The spectrum has both signs, so that functions are kept by the size of
their values. Entries are differences of large numbers: all is in double precision.

Everything is measured in units of a norm that is at least twice the largest value: the
certificate's inequalities are about operators with a spectrum below 1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from streamembed.geometry import kernel
from streamembed.geometry.kernel_weights import iterate_slot_tiles, multiply_rows
from streamembed.geometry.pairwise import SquaredDistances
from streamembed.geometry.scaling import Scaling, measure_rounding
from streamembed.methods.eigenpairs import LARGEST_EXACT, Eigenpairs
from streamembed.methods.extension import Extension
from streamembed.methods.options import Config
from streamembed.methods.placement import (
    CentredExtension,
    LinearExtension,
    ScalingExtension,
    measure_neighbor_distance,
)
from streamembed.methods.refinement import Weights
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.methods.state import (
    BuildInput,
    ExtensionFactory,
    State,
    UpdateInput,
    WeightSummary,
)
from streamembed.methods.trial_map import (
    LARGEST_WHOLE,
    REBUILD_SHARE,
    SMALL_CHUNK,
    TrialMap,
    build_dense,
    start_space,
)
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate, operator
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import CENTRED_CUT, Normalisation, Operator
from streamembed.spectral.sketched_view import KnownProducts

# Of the norm of H: sums of a thousand products in doubles.
ROUNDING = 1e-13
# By how much kept products may be off, in units of the precision and of the largest row so far.
KEPT_LOSS = 64.0
# Rows whose sums are made again with every chunk, at most; and by what share of the sum of sizes
# kept ones may be off.
SAMPLED, LARGEST_DRIFT = 4, 1e-10
# Entries of H above this have squares of which a sum is not finite.
LARGEST_TRACKED = 1e150
# Squares below this are no normal numbers soon; differences of points so near to one another are
# rounding.
NEGLIGIBLE = 1e-280
TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, slots=True, eq=False)
class GramRows:
    """H, whose rows are computed when they are needed."""

    distances: SquaredDistances
    bandwidth: float
    config: Config

    def __len__(self) -> int:
        return len(self.distances)

    @property
    def dtype(self) -> np.dtype:
        """Of entries."""
        return np.dtype(np.float64)

    def rows(self, slots: Ints) -> Floats:
        """H between ``slots`` and all, shape (b, n)."""
        distances, config = self.distances, self.config
        if config.method == "classical_mds":
            rows = -0.5 * distances.rows(slots)
            rows[rows > -NEGLIGIBLE] = 0.0
            rows[np.arange(len(slots)), slots] = 0.0
        elif config.kernel_function.kernel == "gaussian":
            rows = kernel.gaussian(distances.rows(slots) / self.bandwidth**2, 1.0)
        else:
            rows = config.kernel_function.between(distances.points[slots], distances.points)
        rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
        return rows

    def product(self, block: Array) -> Array:
        """H @ block, shape (n, m). O(n^2 (d + m))."""
        return multiply_rows(self.rows, len(self), block)


def create_extension(snapshot: SnapshotContents) -> Extension:
    """The extension of a snapshot to new points."""
    kinds = {"classical_mds": ScalingExtension, "pca": LinearExtension}
    return kinds.get(snapshot.method, CentredExtension)(snapshot)


def scale_by_root_eigenvalues(psi: Floats, eigenvalues: Floats, masses: Floats) -> Floats:
    """V sqrt(v) / sqrt(m) = psi sqrt(v / M). Source: Gower (1966)."""
    return psi * np.sqrt(np.maximum(eigenvalues, 0.0) / float(masses.sum()))


@dataclass(frozen=True, eq=False)
class GramMap(TrialMap):
    """The map of a centred method."""

    # No entry of H was larger since products were made from scratch.
    largest: float
    has_resolution = False
    extension: ClassVar[ExtensionFactory] = create_extension

    def compute_coordinates(
        self, psi: Floats, eigenvalues: Floats, state: State, config: Config
    ) -> Floats:
        """Principal coordinates."""
        return scale_by_root_eigenvalues(psi, eigenvalues, state.support.masses)

    @classmethod
    def build(cls, inputs: BuildInput, config: Config) -> tuple[Self, Scaling]:
        """From scratch."""
        return cls._from_scratch(inputs, inputs.scaling, config), inputs.scaling

    @classmethod
    def _from_scratch(
        cls, inputs: BuildInput | UpdateInput, scaling: Scaling, config: Config
    ) -> Self:
        """By the support alone."""
        masses, n = inputs.support.masses, len(inputs.support)
        rows = GramRows(inputs.squares, scaling.bandwidth, config)
        matrix, space, products = None, None, 0
        if n <= LARGEST_EXACT:
            matrix = rows.rows(np.arange(n))
            largest, degrees = float(np.abs(matrix).max()), matrix @ masses
        else:
            largest = max(float(np.abs(rows.rows(part)).max()) for part in iterate_slot_tiles(n))
            degrees = rows.product(masses[:, None])[:, 0]
        if n > LARGEST_WHOLE and largest <= LARGEST_TRACKED:
            space, products = start_space(rows, matrix, degrees, masses, config)
        return cls(degrees, space, largest, products=products)

    def update(self, inputs: UpdateInput, config: Config) -> tuple[TrialMap, int]:
        """After a chunk: rows of its slots."""
        slots, scaling, n = inputs.slots, inputs.state.scaling, len(inputs.support)
        rows = GramRows(inputs.squares, scaling.bandwidth, config)
        updated: TrialMap | None = None
        if self.space is not None and len(slots) < max(REBUILD_SHARE * n, SMALL_CHUNK):
            arriving, before = rows.rows(slots), inputs.squares_before
            largest = max(self.largest, float(np.abs(arriving).max(initial=0.0)))
            leaving = GramRows(before, scaling.bandwidth, config).rows(slots[slots < len(before)])
            if largest <= LARGEST_TRACKED:
                updated = replace(self, largest=largest).replace_rows(
                    rows, leaving, arriving, slots, inputs, config
                )
        if updated is None or _has_lost_digits(updated.degrees, rows, inputs):
            built = self._from_scratch(inputs, scaling, config)
            updated = replace(built, products=self.products + built.products)
        return updated, len(slots)

    def bind_weights(self, state: State, config: Config) -> GramRows:
        """Rows of H."""
        return GramRows(state.squares, state.scaling.bandwidth, config)

    def bind_operator(
        self, weights: Weights, normal: Normalisation, unit: float
    ) -> tuple[Operator, float]:
        """S, without the mean, in a unit of which a value is half at most.

        Each kept product has gained and lost rows, whose entries were at most the largest.
        """
        largest, dtype = float(np.abs(self.degrees).max()), np.dtype(np.float64)
        rounding = ROUNDING * (largest * float(normal.scaling.max() ** 2) + unit) / unit
        masses = normal.scaling**2
        size = self.largest * float(np.sqrt(masses.sum() * masses.max()))
        loss = rounding + KEPT_LOSS * float(np.finfo(float).eps) * size / unit
        # a unit may itself be of rounding alone
        return Operator(weights.product, normal, dtype, rounding, True, unit, floor=0.0), loss

    def compute_matrix(self, state: State, config: Config) -> Floats:
        """H."""
        return self.bind_weights(state, config).rows(np.arange(len(state.support)))

    def decompose(self, state: State, config: Config) -> Eigenpairs:
        """Every pair at once. O(n^3)."""
        return decompose(self.compute_matrix(state, config), state.support.masses, config)

    def find_rounding_floor(self, values: Floats) -> float:
        """A share of the largest size."""
        return CENTRED_CUT * float(np.abs(values).max(initial=0.0))

    def complete_certificate(
        self, claim: Certificate, values: Floats, pairs: Eigenpairs, state: State, config: Config
    ) -> tuple[Certificate, Floats]:
        """In the units of the data; of learned distances with their sign."""
        claim = certificate.scale_certificate(claim, pairs.unit)
        values = values * pairs.unit
        if state.distances is None:  # a kernel of points
            return claim, values
        mass = pairs.negative_mass
        if mass is None and self.space is not None and not state.coincide:
            normal = self.estimate_normalisation(state.support.masses, config)
            if len(self.degrees) <= LARGEST_EXACT:
                matrix = self.bind_weights(state, config).rows(np.arange(len(self.degrees)))
                mass = compute_negative_share(np.linalg.eigvalsh(build_dense(matrix, normal, True)))
            else:
                known = KnownProducts.of(self.space, normal, self.degrees)
                mass = bound_negative_share(known, normal, self.degrees)
        return replace(claim, negative_mass=mass or 0.0), values  # of equal points 0

    def bound_operator_rounding(self, state: State, config: Config, unit: float) -> float:
        """How far the rounding of squared distances may change the operator.

        The rounding of inner products is less than that of their sums.
        """
        support, largest = state.support, 1.0
        if state.distances is not None or config.method == "pca":
            return 0.0
        if config.method == "kernel_pca" and config.kernel != "gaussian":
            return 0.0
        if config.method == "kernel_pca":  # a point that nothing is near to has no exponents
            has_near = self.degrees > (1.0 + CENTRED_CUT) * support.masses
            lengths = np.where(has_near, state.scaling.bandwidth, 0.0)
        else:
            largest = 2.0 * self.largest
            lengths = np.full(len(support), np.sqrt(largest))
        total = float(support.masses.sum())
        return total * largest * measure_rounding(support.scaled, lengths) / unit

    def summarise_weights(self, state: State, config: Config, pairs: Eigenpairs) -> WeightSummary:
        """Without widths; such a matrix has no parts."""
        return replace(super().summarise_weights(state, config, pairs), degrees=self.degrees)

    def measure_typical_coverage(self, d2: Floats, masses: Floats, config: Config) -> float:
        """The median distance to the last neighbour."""
        return measure_neighbor_distance(d2, config.n_neighbors)


def _has_lost_digits(degrees: Floats, rows: GramRows, inputs: UpdateInput) -> bool:
    """Whether sums of some rows, of others with each chunk, lost digits to what has left."""
    masses, n = inputs.support.masses, len(rows)
    sample = (inputs.position + np.arange(0, n, -(-n // SAMPLED))) % n
    exact = rows.rows(sample)
    errors = np.abs(degrees[sample] - exact @ masses)
    return bool((errors > LARGEST_DRIFT * (np.abs(exact) @ masses)).any())


def decompose(matrix: Floats, masses: Floats, config: Config) -> Eigenpairs:
    """Every pair of a matrix H at once. O(n^3)."""
    normal = operator.weigh_equally(masses)
    dense = build_dense(matrix, normal, True)
    values, vectors = descending_eigh(dense)
    loss = ROUNDING * len(values) * float(np.abs(matrix).max() * masses.max())
    unit = max(2.0 * float(np.abs(values).max(initial=0.0)), 2.0 * loss, TINY)
    values, dense, rounding = values / unit, dense / unit, loss / unit
    cut = max(CENTRED_CUT, rounding)
    pairs = Eigenpairs.of_dense(dense, values, vectors, normal, rounding, cut, config)
    return replace(
        pairs, unit=unit, floor=CENTRED_CUT, negative_mass=compute_negative_share(values)
    )


def compute_negative_share(values: Array) -> float:
    """The share of negative eigenvalues in the sum of all sizes."""
    total = float(np.abs(values).sum())
    return float(np.maximum(-values, 0.0).sum()) / total if total > 0.0 else 0.0


def bound_negative_share(known: KnownProducts, normal: Normalisation, degrees: Floats) -> float:
    """The share of negative eigenvalues in the sum of all sizes, at least.

    It is N / (trace + 2 N), where N is the negative part of the trial functions' values alone; the
    trace is exact.
    """
    masses = normal.scaling**2
    negative = float(np.maximum(-known.compute_view(normal.constant, 0).ritz, 0.0).sum())
    trace = -float(masses @ degrees) / float(masses.sum()) / known.unit
    return negative / (trace + 2.0 * negative) if trace > 0.0 else 0.0
