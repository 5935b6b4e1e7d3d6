"""The embeddings by name: the one place that asks which of them it is.

An embedding is a symmetric matrix W over the support, made of rows; the operator S that its
normalisation makes of W; coordinates, from the leading eigenpairs of S; and the extension, which
gives new points theirs. What keeps S up to date and certifies it knows none of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamembed.geometry import kernel
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.support import Support
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral import operator
from streamembed.spectral.extension import Extension
from streamembed.spectral.operator import Normalisation

__all__ = ["EVERYWHERE", "METHODS", "Embedded", "Method", "Product"]

# W x for one x, shape (n,): by the ring, by the factor, or of some rows of W alone.
Product = Callable[[Floats], Floats]
# All slots of a support.
EVERYWHERE = slice(None)


class Embedded(Protocol):
    """What an extension may ask of a snapshot; see `streamembed.Snapshot`."""

    points: Floats
    masses: Floats
    density_weights: Floats
    degrees: Floats
    psi: Floats
    eigenvalues: Floats
    bandwidth: float
    center: Floats
    scale: Floats
    diffusion_time: float


@dataclass(frozen=True, slots=True)
class Method:
    """What is particular to one embedding.

    Attributes
    ----------
    rows
        (support, d, slots, scaling, dtype) -> rows of W, shape (b, n): symmetric, with ones on the
        diagonal, exactly. ``d`` are unsquared distances (b, n), None where there are points.
    matrix
        (support, d, scaling) -> all of W anew, shape (n, n) in float64.
    normalise
        (degrees, masses, alpha, product, slots) -> the normalisation of those slots, by one
        ``product`` with W.
    coordinates
        (psi, eigenvalues, diffusion_time) -> what a snapshot shows, shape (n, k).
    extend
        snapshot -> its extension to new points.
    """

    rows: Callable[[Support, Floats | None, Ints, Scaling, npt.DTypeLike], Array]
    matrix: Callable[[Support, Floats | None, Scaling], Floats]
    normalise: Callable[[Floats, Floats, float, Product, Ints | slice], Normalisation]
    coordinates: Callable[[Floats, Floats, float], Floats]
    extend: Callable[[Embedded], Extension]


# ---------------------------------------------------------------------- diffusion map


def kernel_rows(
    support: Support, d: Floats | None, slots: Ints, scaling: Scaling, dtype: npt.DTypeLike
) -> Array:
    """Gaussian weights of ``slots`` against the whole support."""
    if d is None:
        points = support.scaled
        rows = kernel.gaussian_rows(points[slots], points, scaling.bandwidth, dtype)
    else:
        rows = kernel.gaussian((d * d / scaling.bandwidth**2).astype(dtype, copy=False), 1.0)
    rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
    rows[np.arange(len(slots)), slots] = 1.0
    return rows


def kernel_matrix(support: Support, d: Floats | None, scaling: Scaling) -> Floats:
    """All Gaussian weights, from the points of the support or its distances."""
    if d is None:
        weights = kernel.gaussian_rows(support.scaled, support.scaled, scaling.bandwidth)
    else:
        weights = kernel.gaussian(d * d / scaling.bandwidth**2, 1.0)
    np.fill_diagonal(weights, 1.0)
    return weights


def normalise_density(
    degrees: Floats, masses: Floats, alpha: float, product: Product, slots: Ints | slice
) -> Normalisation:
    """The sampling density taken out to the power alpha, and the rows made to sum to 1."""
    density = operator.density_weights(degrees, alpha)
    return operator.normalise(density[slots], masses[slots], product(masses * density))


def diffuse(psi: Floats, eigenvalues: Floats, diffusion_time: float) -> Floats:
    """lambda**t psi. Source: Jain, eq. (8)."""
    coordinates: Floats = psi * eigenvalues**diffusion_time
    return coordinates


def extend_eigenfunctions(snapshot: Embedded) -> Extension:
    """psi(x) = sum_i P(x, x_i) psi(x_i) / lambda, times lambda**t."""
    values, masses = snapshot.eigenvalues, snapshot.masses
    weights = masses * snapshot.density_weights
    known = values > 0
    safe = np.where(known, values, 1.0)
    powers = np.where(known, safe ** (snapshot.diffusion_time - 1.0), 0.0)
    return Extension.of(
        points=(snapshot.points - snapshot.center) / snapshot.scale,
        bandwidth=snapshot.bandwidth,
        targets=np.column_stack([weights[:, None] * snapshot.psi * powers, weights, masses]),
        typical=float(np.median(snapshot.degrees)),
        center=snapshot.center,
        scale=snapshot.scale,
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "diffusion_map": Method(
            rows=kernel_rows,
            matrix=kernel_matrix,
            normalise=normalise_density,
            coordinates=diffuse,
            extend=extend_eigenfunctions,
        )
    }
)
