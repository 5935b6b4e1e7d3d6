"""A learned metric, handed out: distances, the space they are Euclidean in, and what proves it.

Symbols: A = the metric, (d, d), symmetric, positive semidefinite; L = its factor, (r, d), with
A = L^T L; d(x, y) = ||L x - L y||; D = diag of the scales that features were divided by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

from streamembed.core.arrays import Floats, frozen
from streamembed.core.linalg import descending_eigh, symmetric
from streamembed.errors import FeatureError, InputError, ParameterError

__all__ = ["Mahalanobis"]

# Eigenvalues below this share of the largest are rounding, and left out of the factor.
RANK_CUT = 1e-12
# Asymmetry, and negative eigenvalues, up to this share of the largest entry or eigenvalue are
# rounding of whoever made the matrix; beyond it the matrix is no metric.
ROUNDING = 1e-8
# Pairs nearer than 1e-5 of their points' norms keep fewer than 11 digits when mapped one by one:
# their difference is taken first.
NEAR = 1e-10
# Near pairs at a time: memory of the second look stays below 10^4 d numbers.
CHUNK = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Mahalanobis:
    """An immutable Mahalanobis metric; make one with `Mahalanobis.of`.

    Attributes
    ----------
    matrix : (d, d)
        A, read-only, in the coordinates of the points that are passed in.
    factor : (r, d)
        L, read-only; rows in descending order of eigenvalues, the largest entry of each positive.
    certificate : object
        What its maker proves of it; None where nothing.

    Examples
    --------
    >>> import numpy as np
    >>> metric = Mahalanobis.of(np.diag([4.0, 1.0]))
    >>> X = np.array([[0.0, 0.0], [3.0, 0.0]])
    >>> metric.distances(X, X).tolist()
    [[0.0, 6.0], [6.0, 0.0]]
    >>> metric.rank, metric.transform(X).shape
    (2, (2, 2))
    >>> Mahalanobis.of(np.diag([4.0, 1.0])) == metric
    True
    """

    matrix: Floats
    factor: Floats
    certificate: Any = None

    @classmethod
    def of(
        cls, matrix: npt.ArrayLike, rank: int | None = None, certificate: Any = None
    ) -> Mahalanobis:
        """The metric of a positive semidefinite matrix.

        Parameters
        ----------
        matrix
            A, shape (d, d), finite, symmetric up to rounding.
        rank
            The most rows of the factor; fewer where A has a smaller rank. The matrix then is that
            of the factor: the best of this rank. None: as A is.
        certificate
            Kept as it is.

        Raises
        ------
        InputError
            The matrix is not square, not finite, not symmetric or not positive semidefinite.
        ParameterError
            ``rank`` is not a positive whole number.

        Notes
        -----
        The factor's rank is counted from eigenvalues above 1e-12 of the largest. Where features
        have units far apart, make the metric in scaled ones and use `unscaled`: it keeps the rank.
        O(d^3).
        """
        A = _checked(matrix)
        if rank is not None and (isinstance(rank, bool) or int(rank) != rank or rank < 1):
            raise ParameterError(
                f"rank is {rank}; it must be a whole number of at least 1, or None"
            )
        values, vectors = descending_eigh(A)
        if values[-1] < -ROUNDING * max(values[0], 0.0):
            raise InputError(
                f"matrix has the eigenvalue {values[-1]:.3g} beside {values[0]:.3g}; it must be "
                "positive semidefinite: clip the negative ones"
            )
        kept = slice(0, min(int(np.count_nonzero(values > RANK_CUT * values[0])), rank or len(A)))
        rows = vectors[:, kept].T
        largest = np.abs(rows).argmax(axis=1)
        signs = np.where(rows[np.arange(len(rows)), largest] < 0, -1.0, 1.0)
        factor = rows * (signs * np.sqrt(values[kept]))[:, None]
        if rank is not None and rank < len(A):
            A = symmetric(factor.T @ factor)
        return cls._frozen(A, factor, certificate)

    @classmethod
    def _frozen(cls, matrix: Floats, factor: Floats, certificate: Any) -> Mahalanobis:
        """The metric with arrays that nobody else writes to; + 0 makes an end of -0."""
        return cls(frozen(matrix + 0.0), frozen(factor + 0.0), certificate)

    @property
    def rank(self) -> int:
        """r: the dimension of the space that `transform` maps to."""
        return len(self.factor)

    @property
    def n_features(self) -> int:
        """d."""
        return len(self.matrix)

    def transform(self, X: npt.ArrayLike) -> Floats:
        """X L^T, shape (n, r): points whose Euclidean distances are the metric's. O(n d r).

        Raises
        ------
        FeatureError
            X has not d columns.
        InputError
            X is not a table of finite numbers.
        """
        mapped: Floats = self._points(X, "X") @ self.factor.T
        return mapped

    def distances(self, X: npt.ArrayLike, Y: npt.ArrayLike) -> Floats:
        """d of every row of X to every row of Y, unsquared: shape (n, m).

        Raises
        ------
        FeatureError, InputError
            As `transform`.
        """
        roots: Floats = np.sqrt(self.squared_distances(X, Y))
        return roots

    def squared_distances(self, X: npt.ArrayLike, Y: npt.ArrayLike) -> Floats:
        """d2 of every row of X to every row of Y: shape (n, m); exactly 0 for equal points.

        Raises
        ------
        FeatureError, InputError
            As `transform`.

        Notes
        -----
        By differences of mapped points, taken from the first row of Y, so that an offset common to
        all costs no digits. For pairs that are still near to each other for their norms the
        points are subtracted first. O(n m r + (n + m) d r).
        """
        left, right = self._points(X, "X"), self._points(Y, "Y")
        if len(left) == 0 or len(right) == 0 or self.rank == 0:
            return np.zeros((len(left), len(right)))
        mapped_left = (left - right[0]) @ self.factor.T
        mapped_right = (right - right[0]) @ self.factor.T
        d2: Floats = cdist(mapped_left, mapped_right, "sqeuclidean")
        norms = [np.einsum("ij,ij->i", part, part) for part in (mapped_left, mapped_right)]
        rows, columns = np.nonzero(d2 <= NEAR * (norms[0][:, None] + norms[1]))
        for start in range(0, len(rows), CHUNK):
            i, j = rows[start : start + CHUNK], columns[start : start + CHUNK]
            step = (left[i] - right[j]) @ self.factor.T
            d2[i, j] = np.einsum("ij,ij->i", step, step)
        return d2

    def unscaled(self, scale: npt.ArrayLike) -> Mahalanobis:
        """The same metric for points that have not been divided by ``scale``.

        A_raw = D^-1 A D^-1 and L_raw = L D^-1, of the same rank: no eigenvalue is cut again, though
        units may be far apart.

        Parameters
        ----------
        scale
            What each feature was divided by, shape (d,), positive; or one number for all.

        Raises
        ------
        ParameterError
            A scale is not positive and finite, or their number is not d.

        Examples
        --------
        >>> import numpy as np
        >>> Mahalanobis.of(np.eye(2)).unscaled([1.0, 0.5]).matrix.tolist()
        [[1.0, 0.0], [0.0, 4.0]]
        """
        s = np.asarray(scale, dtype=np.float64)
        if s.shape not in ((), (self.n_features,)) or not (np.isfinite(s) & (s > 0)).all():
            raise ParameterError(
                f"scale, of shape {s.shape}, must be {self.n_features} positive finite numbers, or "
                "one; give constant features the scale 1"
            )
        s = np.broadcast_to(s, self.n_features)
        return self._frozen(self.matrix / s / s[:, None], self.factor / s, self.certificate)

    def _points(self, X: npt.ArrayLike, name: str) -> Floats:
        """X as a table of finite numbers with d columns."""
        points = np.asarray(X, dtype=np.float64)
        if points.ndim != 2:
            raise InputError(
                f"{name} has the shape {points.shape}; it must be (n, {self.n_features}): for one "
                "point x pass [x]"
            )
        if points.shape[1] != self.n_features:
            raise FeatureError(
                f"{name} has {points.shape[1]} features; the metric was learned from "
                f"{self.n_features}"
            )
        if not np.isfinite(points).all():
            raise InputError(
                f"{name} holds NaN or infinities; it must be finite: leave such rows out"
            )
        return points

    def __eq__(self, other: object) -> bool:
        """Equal bits of matrix and factor, and equal certificates."""
        if not isinstance(other, Mahalanobis):
            return NotImplemented
        return (
            np.array_equal(self.matrix, other.matrix)
            and np.array_equal(self.factor, other.factor)
            and bool(self.certificate == other.certificate)
        )

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes(), self.factor.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts; read-only again afterwards."""
        return Mahalanobis._frozen, (self.matrix, self.factor, self.certificate)


def _checked(matrix: npt.ArrayLike) -> Floats:
    """A, exactly symmetric."""
    A = np.asarray(matrix, dtype=np.float64)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or len(A) == 0:
        raise InputError(f"matrix has the shape {A.shape}; it must be (d, d) with d at least 1")
    if not np.isfinite(A).all():
        raise InputError("matrix holds NaN or infinities; it must be finite")
    if np.abs(A - A.T).max() > ROUNDING * np.abs(A).max():
        raise InputError(
            f"matrix differs from its transpose by {np.abs(A - A.T).max():.3g}; it must be "
            "symmetric: take (A + A^T) / 2 if that is meant"
        )
    return symmetric(A)
