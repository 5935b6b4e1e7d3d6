"""Leading pairs on their way to a certificate: what every rung of either room gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.methods.options import TOLERANCE_SHARE, Config
from streamembed.numeric.arrays import Floats
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral import certificate
from streamembed.spectral.alignment import Residuals
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import Normalisation

__all__ = ["LARGEST_EXACT", "SMALLEST_FACTORED", "Pairs", "bound_following"]

# Supports up to the first are decomposed at once (0.4 ms); up to the second as a last resort
# (0.25 s).
SMALLEST_FACTORED = 64
LARGEST_EXACT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Up to k + 1 leading pairs with their residual block, and what is known of all others.

    Attributes
    ----------
    values, vectors, errors : (c,), (n, c), (n, c)
        lambda, V and E = S V - V diag(lambda), descending.
    outside : Outside
        lambda_(k+1) of S, whatever the pairs are.
    normal : Normalisation
    rounding : float
        See `certificate.certify`.
    rung : str
    unit : float
        What values, errors and all else here are in units of.
    floor : float
        See `certificate.certify`.
    negative_mass : float or None
        See `Certificate`, where all eigenvalues are known.
    """

    values: Floats
    vectors: Floats
    errors: Floats
    outside: Outside
    normal: Normalisation
    rounding: float
    rung: str
    unit: float = 1.0
    floor: float = certificate.NOTHING
    negative_mass: float | None = None

    @property
    def residuals(self) -> Residuals:
        """What turning needs to know."""
        errors = self.errors
        return Residuals(self.values, self.vectors.T @ errors, errors.T @ errors)

    def worst(self, k: int) -> float:
        """The largest residual norm among the first k."""
        norms = np.sqrt(np.einsum("ij,ij->j", self.errors[:, :k], self.errors[:, :k]))
        return float(norms.max(initial=0.0))

    def room(self, config: Config) -> float:
        """The tolerance as a residual norm: relative to the first eigenvalue."""
        assert config.tolerance is not None
        return config.tolerance * float(self.values[:1].max(initial=0.0))

    def level(self, config: Config) -> float:
        """What lambda_(k+1) must stay below: lambda_k, and what turning leaves of the tolerance."""
        k = config.n_components
        last = float(self.values[k - 1]) if len(self.values) >= k else 0.0
        left = 0.5 * (1.0 - TOLERANCE_SHARE) * self.room(config)
        return last + max(left, self.rounding)

    def lacks(self, config: Config) -> bool:
        """True where a leading eigenvalue was seen that is not among these."""
        k, leading = config.n_components, self.outside.leading
        found = np.concatenate([self.values[:k], np.zeros(k)])[: len(leading)]
        room = max(self.room(config), self.rounding)
        short = float((leading - found).max(initial=0.0))
        return short > room or self.outside.known > self.level(config)

    def fits(self, config: Config) -> bool:
        """True where the k published columns are within the tolerance, before any turning."""
        if len(self.values) == 0:
            return True
        return self.worst(config.n_components) + self.rounding <= self.room(config)


def bound_following(
    block: Floats, image: Floats, beyond: float, published: int, rounding: float
) -> Outside:
    """lambda_(k+1) from a block, its product, and a bound on the rest."""
    inside = block.T @ image
    ritz, turn = descending_eigh(inside)
    coupling = turn.T @ (image.T @ image - inside.T @ inside) @ turn
    return certificate.following(ritz, coupling, beyond, published, rounding)
