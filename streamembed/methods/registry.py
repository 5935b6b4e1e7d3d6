"""Rows of the matrices that methods are made of, and their normalisation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from streamembed.geometry import kernel, self_tuning
from streamembed.geometry.kernel import KernelFunction
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import LocalWidths, WidthRule
from streamembed.geometry.support import Support
from streamembed.methods.options import Config
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


def normalise(
    degrees: Floats,
    masses: Floats,
    config: Config,
    product: Product,
    slots: Ints | slice = EVERYWHERE,
) -> Normalisation:
    """The normalisation of some slots, by one ``product`` with W at most: alpha 0 needs none.

    Of a walk the sampling density is taken out to the power alpha, and the rows are made to sum to
    1; of a centred method every event weighs the same.
    """
    if config.is_centred:
        normal = operator.weigh_equally(masses)
        return Normalisation(normal.density[slots], normal.scaling[slots], normal.stationary[slots])
    density = operator.compute_density_weights(degrees, config.correction)
    spread = degrees[slots] if config.correction == 0.0 else product(masses * density)
    return operator.normalise(density[slots], masses[slots], spread)


def choose_rows(config: Config) -> Callable[[KernelInput, Ints, npt.DTypeLike], Array]:
    """(input, slots, dtype) -> rows of the H of a centred method, shape (b, n): symmetric."""
    if config.method == "classical_mds":
        return compute_gram_rows
    return partial(compute_feature_rows, config.kernel_function)


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


# ---------------------------------------------------------------------- kernel PCA


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
