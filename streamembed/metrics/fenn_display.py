"""What to look at of a FENN metric: points along the directions that separate the classes.

Symbols: those of `streamembed.metrics.fenn`; n = points; C_m = covariance of class means.

Source: docs/algorithms/fenn.md, "Display"; Inaba et al. (2019), section 3.4 and Fig. 3.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.metrics import fenn
from streamembed.metrics.fenn import Spectrum
from streamembed.numeric.arrays import Floats
from streamembed.numeric.pencil import RANK_CUT


@dataclass(frozen=True, slots=True, eq=False)
class FennDisplay:
    """Coordinates to look at: points along the directions that separate the classes."""

    coordinates: Floats  # (n, k): best direction first; scaled so that distances have the weights
    weights: Floats  # (k,): lambda of these directions, descending, sum 1
    directions: Floats  # (p, k): coordinates are the points times these
    mu: float  # temperature


def choose_by_fisher_information(energies: Floats) -> float:
    """The temperature of the largest local maximum of Var(E) / mu^4 within [E_1, E_r].

    Where there is none, as on eight of ten data sets, that of the heat capacity.

    Source: Inaba et al. (2019), section 3.5, "the local maxima of I(mu)" on "a grid of mu values
    spanning the range of eigenvalues". Differs: it is the Fisher information here; they print
    Var(E) / mu^2.
    """
    if len(energies) == 0 or energies[-1] - energies[0] <= RANK_CUT:
        return 1.0
    coldest = max(float(energies[0]), 10.0**fenn.COLDEST * float(energies[-1]))
    grid = np.geomspace(coldest, energies[-1], fenn.FINE)
    information = fenn.compute_heat_capacity(energies, grid) / grid**2
    middle = information[1:-1]
    is_peak = (middle > information[:-2]) & (middle > information[2:])
    if not is_peak.any():
        return fenn.choose_by_heat_capacity(energies)
    return float(grid[1:-1][np.argmax(np.where(is_peak, middle, -np.inf))])


def compute_display(points: Floats, spectrum: Spectrum, mu: float | None = None) -> FennDisplay:
    """Points (n, p) along the N - 1 informative directions, weighed for the eye.

    Without two classes all r directions are shown, those of the lowest energies first.

    Parameters
    ----------
    mu
        Positive: towards 0 a line is left, towards infinity all directions weigh the same. None:
        `choose_by_fisher_information`, over the energies of all directions.

    Source: Inaba et al. (2019), Fig. 3. Differs: 1. Their n / (n - 1) is over points here, as 1:
    X_D' = X_S + C_m, with which wine has the weights .66 and .34; the figure has .7 and .3, and
    the right factor N / (N - 1) gives .61 and .39. 2. Weights are those of the shown directions
    alone, with sum 1.
    """
    energies, directions = spectrum.energies, spectrum.directions
    k = spectrum.n_informative or len(energies)
    if spectrum.status == "measured":
        share = 1.0 - 1.0 / spectrum.n_classes
        spread = energies + share * (1.0 - energies)  # b^T X_D' b
        energies, directions = energies / spread, directions / np.sqrt(spread)
    mu = choose_by_fisher_information(energies) if mu is None else mu
    if not k:
        return FennDisplay(points[:, :0], np.zeros(0), directions, mu)
    weights = fenn.compute_boltzmann_weights(energies[:k], mu)
    scaled = directions[:, :k] * np.sqrt(weights)
    return FennDisplay(points @ scaled, weights, scaled, mu)
