"""The embedding methods by name, and the operations in which they differ.

An embedding is a symmetric matrix W over the support, made of rows; the operator S that its
normalisation makes of W; coordinates, from the leading eigenpairs of S; and the extension, which
gives new points theirs. The code that updates and certifies S depends on none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from streamembed.geometry import kernel, self_tuning
from streamembed.geometry.kernel import KernelFunction
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths, WidthRule
from streamembed.geometry.support import Support
from streamembed.methods.engine_parameters import KERNELS_OF, OPTIONS_OF
from streamembed.methods.extension import Extension, GraphExtension, KernelExtension
from streamembed.methods.placement import (
    BarycentricExtension,
    CentredExtension,
    GeodesicExtension,
    LinearExtension,
    ScalingExtension,
)
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import squared_distances
from streamembed.spectral import operator
from streamembed.spectral.operator import Normalisation

# W x for one x, shape (n,): by all weights, by trial functions, or of some rows of W alone.
Product = Callable[[Floats], Floats]
# All slots of a support.
EVERYWHERE = slice(None)


@dataclass(frozen=True, slots=True, eq=False)
class KernelInput:
    """The input of a kernel: a support, its distances and widths."""

    support: Support
    # slots -> their unsquared distances to all, (b, n), for objects without coordinates.
    distances: Callable[[Ints], Floats] | None
    scaling: Scaling
    scales: LocalWidths | None  # where every slot has a width of its own, chosen by the ``rule``
    rule: WidthRule | None
    # Slots whose squared distances are computed already, and these.
    computed: tuple[Ints, Floats] | None = None

    def squares(self, slots: Ints, dtype: npt.DTypeLike = np.float64) -> Floats:
        """Squared distances of ``slots`` to all, shape (b, n), in float64.

        As exact as weights in ``dtype`` ask for, whatever the widths.
        """
        if self.computed is not None and np.array_equal(slots, self.computed[0]):
            return self.computed[1]
        if self.distances is not None:
            d = self.distances(slots)
            return d * d
        loss = 0.0
        if np.dtype(dtype) == np.float32 and self.scales is not None and self.rule is not None:
            least = self_tuning.LEAST_WIDTH * self.scales.median
            loss = float(np.finfo(np.float32).eps) * self.rule.width * least**2
        points = self.support.scaled
        with np.errstate(over="ignore", under="ignore"):
            return squared_distances(points[slots], points, loss)


def refuse_rows(*_: object) -> Array:
    """Of a method without rows of weights."""
    raise NotImplementedError


def weigh_equally(
    degrees: Floats, masses: Floats, alpha: float, product: Product, slots: Ints | slice
) -> Normalisation:
    """No normalisation: every event weighs the same."""
    normal = operator.weigh_equally(masses)
    return Normalisation(normal.density[slots], normal.scaling[slots], normal.stationary[slots])


@dataclass(frozen=True, slots=True)
class Method:
    """The options of one embedding method, and what is its own beside that of its family."""

    # What is kept, updated and solved: a map of `streamembed.methods.maps`.
    family: str
    # (psi, eigenvalues, diffusion_time, events) -> a snapshot's coordinates, shape (n, k), where
    # the support stands for that many events.
    coordinates: Callable[[Floats, Floats, float, float], Floats]
    extend: Callable[[SnapshotContents], Extension]  # snapshot -> its extension to new points
    options: frozenset[str]  # parameters of an engine that not every method has, and this one does
    kernels: tuple[str, ...] = ()  # what ``kernel`` may be, the default first
    # Of kernels and rings: (input, slots, dtype) -> rows of W, shape (b, n): symmetric, exactly.
    rows: Callable[[KernelInput, Ints, npt.DTypeLike], Array] = refuse_rows
    # Of a kernel: (degrees, masses, alpha, product, slots) -> the normalisation of those slots, by
    # one ``product`` with W at most: alpha 0 needs none.
    normalise: Callable[[Floats, Floats, float, Product, Ints | slice], Normalisation] = (
        weigh_equally
    )
    linear: bool = False  # whether coordinates are linear functions of the features
    alternative: str = ""  # of a method that needs coordinates: the method for distances


# ---------------------------------------------------------------------- diffusion map


def compute_kernel_rows(inputs: KernelInput, slots: Ints, dtype: npt.DTypeLike) -> Array:
    """Weights of ``slots`` against the whole support."""
    scales, bandwidth = inputs.scales, inputs.scaling.bandwidth
    if scales is None and inputs.distances is None:
        points = inputs.support.scaled
        rows = kernel.gaussian_rows(points[slots], points, bandwidth, dtype)
    elif scales is None:
        with np.errstate(over="ignore"):  # far beyond the bandwidth: the weight is 0
            d2 = (inputs.squares(slots) / bandwidth**2).astype(dtype, copy=False)
        rows = kernel.gaussian(d2, 1.0)
    else:
        assert inputs.rule is not None
        d2, width = inputs.squares(slots, dtype), inputs.rule.width
        rows = self_tuning.weigh(d2, scales.widths[slots], scales.widths, width, dtype)
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    rows[np.arange(len(slots)), slots] = 1.0
    return rows


def compute_kernel_matrix(inputs: KernelInput) -> Floats:
    """All weights, in float64."""
    return compute_kernel_rows(inputs, np.arange(len(inputs.support)), np.float64)


def normalise_density(
    degrees: Floats, masses: Floats, alpha: float, product: Product, slots: Ints | slice
) -> Normalisation:
    """The sampling density taken out to the power alpha, and the rows made to sum to 1."""
    density = operator.compute_density_weights(degrees, alpha)
    spread = degrees[slots] if alpha == 0.0 else product(masses * density)
    return operator.normalise(density[slots], masses[slots], spread)


def scale_by_eigenvalue_powers(
    psi: Floats, eigenvalues: Floats, diffusion_time: float, events: float
) -> Floats:
    """lambda**t psi. Source: Jain, eq. (8)."""
    return psi * eigenvalues**diffusion_time


# ---------------------------------------------------------------------- classical scaling


# Squares below this are no normal numbers soon; differences of points so near to one another are
# rounding.
NEGLIGIBLE = 1e-280


def compute_gram_rows(inputs: KernelInput, slots: Ints, dtype: npt.DTypeLike) -> Array:
    """-d^2 / 2 of ``slots`` to the whole support."""
    rows = -0.5 * inputs.squares(slots, dtype)
    rows[rows > -NEGLIGIBLE] = 0.0
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    rows[np.arange(len(slots)), slots] = 0.0
    return rows.astype(dtype, copy=False)


def scale_by_root_eigenvalues(
    psi: Floats, eigenvalues: Floats, diffusion_time: float, events: float
) -> Floats:
    """V sqrt(v) / sqrt(m) = psi sqrt(v / M). Source: Gower (1966)."""
    return psi * np.sqrt(np.maximum(eigenvalues, 0.0) / events)


# ---------------------------------------------------------------------- kernel PCA


# Of principal components: the products themselves.
PRODUCTS = KernelFunction("polynomial", 1, 0.0, 1.0)


def compute_feature_rows(
    function: KernelFunction, inputs: KernelInput, slots: Ints, dtype: npt.DTypeLike
) -> Array:
    """Rows of a kernel, whatever its diagonal."""
    if function.kernel == "gaussian":
        rows: Array = kernel.gaussian(
            inputs.squares(slots, dtype) / inputs.scaling.bandwidth**2, 1.0
        )
    else:
        points = inputs.support.scaled
        rows = function.between(points[slots], points)
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    return rows.astype(dtype, copy=False)


def bind_kernel(function: KernelFunction) -> Callable[[KernelInput, Ints, npt.DTypeLike], Array]:
    """`compute_feature_rows` of one kernel."""
    return partial(compute_feature_rows, function)


# ---------------------------------------------------------------------- locally linear


def normalise_columns(
    psi: Floats, eigenvalues: Floats, diffusion_time: float, events: float
) -> Floats:
    """Z = psi / sqrt(M), with Z^T diag(m) Z = 1. Source: Roweis & Saul (2000)."""
    coordinates: Floats = psi / np.sqrt(events)
    return coordinates


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "diffusion_map": Method(
            family="kernel",
            rows=compute_kernel_rows,
            normalise=normalise_density,
            coordinates=scale_by_eigenvalue_powers,
            extend=KernelExtension,
            options=OPTIONS_OF["diffusion_map"],
            kernels=KERNELS_OF["diffusion_map"],
        ),
        "laplacian_eigenmaps": Method(
            family="graph",
            coordinates=scale_by_eigenvalue_powers,
            extend=GraphExtension,
            options=OPTIONS_OF["laplacian_eigenmaps"],
        ),
        "linear_eigenmap": Method(
            family="linear",
            coordinates=scale_by_eigenvalue_powers,
            extend=LinearExtension,
            options=OPTIONS_OF["linear_eigenmap"],
            linear=True,
            alternative="method='laplacian_eigenmaps'",
        ),
        "classical_mds": Method(
            family="gram",
            rows=compute_gram_rows,
            coordinates=scale_by_root_eigenvalues,
            extend=ScalingExtension,
            options=OPTIONS_OF["classical_mds"],
        ),
        "pca": Method(
            family="gram",
            rows=bind_kernel(PRODUCTS),
            coordinates=scale_by_root_eigenvalues,
            extend=LinearExtension,
            options=OPTIONS_OF["pca"],
            linear=True,
            alternative="method='classical_mds', which is PCA where the distances are Euclidean",
        ),
        "kernel_pca": Method(
            family="gram",
            rows=bind_kernel(KernelFunction("gaussian", 3, 1.0, None)),
            coordinates=scale_by_root_eigenvalues,
            extend=CentredExtension,
            options=OPTIONS_OF["kernel_pca"],
            kernels=KERNELS_OF["kernel_pca"],
        ),
        "lle": Method(
            family="alignment",
            coordinates=normalise_columns,
            extend=BarycentricExtension,
            options=OPTIONS_OF["lle"],
            alternative="method='isomap' or 'laplacian_eigenmaps'",
        ),
        "isomap": Method(
            family="geodesic",
            coordinates=scale_by_root_eigenvalues,
            extend=GeodesicExtension,
            options=OPTIONS_OF["isomap"],
        ),
    }
)
