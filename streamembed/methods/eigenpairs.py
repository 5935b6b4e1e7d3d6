"""Leading eigenpairs, the result of every refinement level."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import certificate
from streamembed.spectral.certificate import Outside
from streamembed.spectral.operator import Normalisation, deflate

# Supports up to the first are decomposed at once (0.4 ms); up to the second graphs as a last resort
# (0.25 s).
SMALLEST_FACTORED = 64
LARGEST_EXACT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Paths:
    """The shortest paths of a snapshot."""

    lengths: Floats  # (n, w): from every slot; inf between parts
    ends: Ints  # (w,): to these slots: all, or the landmarks that have a part in the map


@dataclass(frozen=True, slots=True, eq=False)
class Eigenpairs:
    """Up to `Config.n_pairs` leading pairs with their residual block, and bounds on all others.

    The first k are certified; the others are spares, as the refinement level has them.
    """

    # (c,), (n, c): lambda, descending, and V.
    values: Floats
    vectors: Floats
    # (r, c): E = S V - V diag(lambda), or a matrix that is as long in every direction at least.
    errors: Floats
    outside: Outside  # lambda_(k+1) of S, whatever the pairs are
    normal: Normalisation
    rounding: float  # see `certificate.certify`
    refinement: str  # the level that computed them
    method: str = "exact product"  # see `Certificate`
    unit: float = 1.0  # values, errors and everything else here are in units of it
    floor: float = certificate.NEGLIGIBLE  # see `certificate.certify`
    negative_mass: float | None = None  # see `Certificate`, where all eigenvalues are known
    # (d, c): of linear functions, psi = (x - mean) loadings, in scaled units.
    loadings: Floats | None = None
    paths: Paths | None = None  # of Isomap: the shortest paths that were used
    bound_age: int = 0  # how many events ago the bound on unpublished eigenvalues was taken

    @classmethod
    def none(cls, normal: Normalisation) -> Self:
        """Those of points that do not differ: the constant is all there is."""
        empty = np.zeros((len(normal.stationary), 0))
        return cls(np.zeros(0), empty, empty, Outside(0.0, 0.0, np.zeros(0)), normal, 0.0, "view")

    @classmethod
    def of_dense(
        cls,
        dense: Floats,
        values: Floats,
        vectors: Floats,
        normal: Normalisation,
        rounding: float,
        cut: float,
        config: Config,
    ) -> Self:
        """The leading of all pairs of S without its constant, (n, n), descending.

        Eigenvalues up to ``cut`` are rounding, and are not published.
        """
        n_kept = min(config.n_pairs, int(np.count_nonzero(values > cut)))
        leading = deflate(vectors[:, :n_kept], normal.constant)
        errors = dense @ leading - leading * values[:n_kept]
        n_shown = min(n_kept, config.n_components)
        following = float(values[n_shown:].max(initial=0.0))
        following = following if following > rounding else 0.0
        outside = Outside(following, following, values[:n_shown])
        return cls(values[:n_kept], leading, errors, outside, normal, rounding, "exact")

    def largest_residual(self, k: int) -> float:
        """The largest residual norm among the first k."""
        norms = np.sqrt(np.einsum("ij,ij->j", self.errors[:, :k], self.errors[:, :k]))
        return float(norms.max(initial=0.0))

    def tolerated_residual(self, config: Config) -> float:
        """The tolerance as a residual norm: relative to the first eigenvalue."""
        assert config.tolerance is not None
        return config.tolerance * float(self.values[:1].max(initial=0.0))

    def next_eigenvalue_limit(self, config: Config) -> float:
        """Limit on lambda_(k+1): lambda_k, and half of the tolerance."""
        k = config.n_components
        last = float(self.values[k - 1]) if len(self.values) >= k else 0.0
        allowance = 0.5 * self.tolerated_residual(config)
        return last + max(allowance, self.rounding)

    def meets_tolerance(self, config: Config) -> bool:
        """True where the k published columns are within the tolerance."""
        if len(self.values) == 0:
            return True
        return self.largest_residual(
            config.n_components
        ) + self.rounding <= self.tolerated_residual(config)
