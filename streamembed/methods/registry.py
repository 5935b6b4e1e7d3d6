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
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths, WidthRule
from streamembed.geometry.support import Support
from streamembed.methods.engine_parameters import KERNELS_OF, OPTIONS_OF
from streamembed.methods.extension import Extension, GraphExtension, SelfTuningExtension
from streamembed.methods.gaussian_extension import GaussianExtension
from streamembed.methods.placement import (
    BarycentricExtension,
    CentredExtension,
    GeodesicExtension,
    LinearExtension,
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


def extend_eigenfunctions(snapshot: SnapshotContents) -> Extension:
    """psi(x) = sum_i P(x, x_i) psi(x_i) / lambda, times lambda**t, turned."""
    masses = snapshot.masses
    weights = masses * snapshot.density_weights
    columns = [weights[:, None] * _divide_by_eigenvalues(snapshot), weights]
    if snapshot.kernel == "gaussian":
        return GaussianExtension(
            **_scale_points(snapshot),
            targets=np.column_stack([*columns, masses]),
            typical=float(np.median(snapshot.degrees)),
            bandwidth2=snapshot.bandwidth**2,
        )
    return SelfTuningExtension(
        **_scale_points(snapshot),
        targets=np.column_stack([*columns, np.ones(len(masses))]),
        typical=snapshot.typical_coverage,
        finest=snapshot.width * snapshot.least_width**2,
        widths=snapshot.widths,
        least=snapshot.least_width,
        rule=WidthRule(snapshot.n_neighbors, snapshot.width),
        masses=masses,
    )


def _scale_points(snapshot: SnapshotContents) -> dict[str, Floats]:
    """The points of a snapshot as distances see them, and what made them so."""
    center, scale = snapshot.center, snapshot.scale
    return {"points": (snapshot.points - center) / scale, "center": center, "scale": scale}


def _divide_by_eigenvalues(snapshot: SnapshotContents) -> Floats:
    """lambda**(t - 1) psi of all carried pairs, turned as coordinates are, shape (N, k)."""
    values = snapshot.carried_eigenvalues
    is_positive = values > 0
    safe = np.where(is_positive, values, 1.0)
    powers = np.where(is_positive, safe ** (snapshot.diffusion_time - 1.0), 0.0)
    targets: Floats = (snapshot.carried_psi * powers) @ snapshot.rotation
    return targets


# ---------------------------------------------------------------------- laplacian eigenmaps


def extend_by_neighbours(snapshot: SnapshotContents) -> Extension:
    """psi(x) = sum_i w(x, x_i) psi(x_i) / (lambda sum_i w(x, x_i)), over neighbours, likewise."""
    reaches2 = snapshot.reaches**2
    positive = reaches2[reaches2 > 0]
    typical = float(np.median(positive)) if len(positive) else 1.0
    if snapshot.radius:
        typical = float(np.median(snapshot.degrees)) or 1.0
    return GraphExtension(
        **_scale_points(snapshot),
        finest=float(positive.min()) if len(positive) else 1.0,
        reaches2=reaches2,
        weights=snapshot.kernel,
        widths=snapshot.widths,
        least=snapshot.least_width,
        width=snapshot.width,
        n_neighbors=snapshot.n_neighbors,
        radius2=snapshot.radius**2,
        targets=_divide_by_eigenvalues(snapshot),
        support=snapshot.coordinates,
        masses=snapshot.masses,
        typical=typical,
    )


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


def extend_by_distances(snapshot: SnapshotContents) -> Extension:
    """y(x) = sum_i m_i h(x, x_i) y_i / v, h centred: scaling of one more point.

    Of points it is linear, as |x|^2 is in all h(x, x_i): a difference of squares would lose the
    digits of points that are far away.
    """
    centred = _extend_centred(snapshot, lambda points, d2: -0.5 * d2)
    if not snapshot.points.shape[1]:
        return centred
    targets = (centred.points - centred.shares @ centred.points).T @ centred.targets
    return _extend_linearly(snapshot, targets, centred.shares, centred)


def _extend_centred(
    snapshot: SnapshotContents, rows: Callable[[Floats, Floats], Floats]
) -> CentredExtension:
    masses = snapshot.masses
    return CentredExtension(
        **_scale_points(snapshot),
        rows=rows,
        mean_row=snapshot.degrees / masses.sum(),
        shares=masses / masses.sum(),
        targets=_compute_dual(snapshot, masses),
        n_neighbors=snapshot.n_neighbors,
        typical=snapshot.typical_coverage,
    )


def _compute_dual(snapshot: SnapshotContents, masses: Floats) -> Floats:
    """diag(m) Y / v, 0 for the columns that are none, turned as coordinates are."""
    values = snapshot.carried_eigenvalues
    safe = np.where(values > 0, values, np.inf)
    columns = scale_by_root_eigenvalues(snapshot.carried_psi, values, 0.0, float(masses.sum()))
    dual: Floats = (masses[:, None] * columns / safe) @ snapshot.rotation
    return dual


# ---------------------------------------------------------------------- linear functions


def extend_linearly(snapshot: SnapshotContents) -> Extension:
    """y(x) = (x - mean) loadings, with the mean under the stationary measure. O(d k) a point."""
    targets = snapshot.feature_loadings * snapshot.scale[:, None]
    return _extend_linearly(snapshot, targets, snapshot.stationary)


def _extend_linearly(
    snapshot: SnapshotContents,
    targets: Floats,
    shares: Floats,
    by_distances: CentredExtension | None = None,
) -> Extension:
    scaled = _scale_points(snapshot)
    return LinearExtension(
        **scaled,
        targets=targets,
        offset=shares @ (scaled["points"] @ targets),
        n_neighbors=snapshot.n_neighbors,
        typical=0.0 if by_distances is None else by_distances.typical,
        by_distances=by_distances,
    )


# ---------------------------------------------------------------------- kernel PCA


@dataclass(frozen=True, slots=True)
class KernelFunction:
    """A kernel by its name and numbers: gaussian, polynomial or cosine."""

    kernel: str
    degree: int
    coef0: float
    gamma: float | None

    def gamma_of(self, n_features: int) -> float:
        """What products are multiplied by: 1 / n_features unless it was given."""
        return 1.0 / max(n_features, 1) if self.gamma is None else self.gamma

    def between(self, left: Floats, right: Floats) -> Floats:
        """Rows of the kernel of inner products between points, shape (a, b)."""
        if self.kernel == "cosine":
            return kernel.cosine_rows(left, right)
        gamma = self.gamma_of(left.shape[1])
        return kernel.polynomial_rows(left, right, self.degree, self.coef0, gamma)


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


def extend_by_kernel(snapshot: SnapshotContents) -> Extension:
    """The same with a kernel in the place of -d^2 / 2."""
    if snapshot.kernel == "gaussian":
        return _extend_centred(
            snapshot, lambda points, d2: kernel.gaussian(d2 / snapshot.bandwidth**2, 1.0)
        )
    function = KernelFunction(snapshot.kernel, snapshot.degree, snapshot.coef0, snapshot.gamma)
    support = _scale_points(snapshot)["points"]
    return _extend_centred(snapshot, lambda points, d2: function.between(points, support))


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


def extend_by_weights(snapshot: SnapshotContents) -> Extension:
    """y(x) = sum_i w_i y_i, by the weights that reconstruct x from its neighbours."""
    return BarycentricExtension(
        **_scale_points(snapshot),
        targets=snapshot.coordinates,
        n_neighbors=snapshot.n_neighbors,
        reg=snapshot.reg,
        typical=0.0,
    )


# ---------------------------------------------------------------------- isomap


def extend_by_paths(snapshot: SnapshotContents) -> Extension:
    """Classical scaling of one more point, by its shortest paths over its neighbours."""
    masses = snapshot.masses * (snapshot.stationary > 0)
    ends = slice(None) if snapshot.lengths.shape[1] == len(masses) else masses > 0
    return GeodesicExtension(
        **_scale_points(snapshot),
        lengths=snapshot.lengths,
        mean_row=snapshot.degrees[ends] / masses.sum(),
        shares=snapshot.stationary[ends],
        targets=_compute_dual(snapshot, masses)[ends],
        n_neighbors=snapshot.n_neighbors,
        radius=snapshot.radius,
        typical=snapshot.typical_coverage,
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "diffusion_map": Method(
            family="kernel",
            rows=compute_kernel_rows,
            normalise=normalise_density,
            coordinates=scale_by_eigenvalue_powers,
            extend=extend_eigenfunctions,
            options=OPTIONS_OF["diffusion_map"],
            kernels=KERNELS_OF["diffusion_map"],
        ),
        "laplacian_eigenmaps": Method(
            family="graph",
            coordinates=scale_by_eigenvalue_powers,
            extend=extend_by_neighbours,
            options=OPTIONS_OF["laplacian_eigenmaps"],
        ),
        "linear_eigenmap": Method(
            family="linear",
            coordinates=scale_by_eigenvalue_powers,
            extend=extend_linearly,
            options=OPTIONS_OF["linear_eigenmap"],
            linear=True,
            alternative="method='laplacian_eigenmaps'",
        ),
        "classical_mds": Method(
            family="gram",
            rows=compute_gram_rows,
            coordinates=scale_by_root_eigenvalues,
            extend=extend_by_distances,
            options=OPTIONS_OF["classical_mds"],
        ),
        "pca": Method(
            family="gram",
            rows=bind_kernel(PRODUCTS),
            coordinates=scale_by_root_eigenvalues,
            extend=extend_linearly,
            options=OPTIONS_OF["pca"],
            linear=True,
            alternative="method='classical_mds', which is PCA where the distances are Euclidean",
        ),
        "kernel_pca": Method(
            family="gram",
            rows=bind_kernel(KernelFunction("gaussian", 3, 1.0, None)),
            coordinates=scale_by_root_eigenvalues,
            extend=extend_by_kernel,
            options=OPTIONS_OF["kernel_pca"],
            kernels=KERNELS_OF["kernel_pca"],
        ),
        "lle": Method(
            family="alignment",
            coordinates=normalise_columns,
            extend=extend_by_weights,
            options=OPTIONS_OF["lle"],
            alternative="method='isomap' or 'laplacian_eigenmaps'",
        ),
        "isomap": Method(
            family="geodesic",
            coordinates=scale_by_root_eigenvalues,
            extend=extend_by_paths,
            options=OPTIONS_OF["isomap"],
        ),
    }
)
