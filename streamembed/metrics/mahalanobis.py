"""A learned metric: distances, the space in which they are Euclidean, and a certificate.

Symbols: A = the metric, (d, d), symmetric, positive semidefinite; L = its factor, (r, d), with
A = L^T L; d(x, y) = ||L x - L y||; D = diag of the scales that features were divided by.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import scipy

from streamembed.errors import (
    FeatureError,
    InputError,
    ParameterError,
    StreamembedError,
    describe_feature_mismatch,
    quote,
)
from streamembed.metrics.metric_certificate import MetricCertificate
from streamembed.numeric.arrays import Floats, Unchanging, freeze
from streamembed.numeric.codec import AS_NUMBERS
from streamembed.numeric.linalg import descending_eigh, symmetrise
from streamembed.validation import check_optional, check_whole

# Eigenvalues below this share of the largest are rounding, and left out of the factor.
RANK_CUT = 1e-12
# Asymmetry, and negative eigenvalues, up to this share of the largest entry or eigenvalue are
# rounding of the matrix's source; beyond it the matrix is no metric.
ROUNDING = 1e-8
# Pairs nearer than 1e-5 of their points' norms keep fewer than 11 digits when mapped one by one:
# their difference is taken first.
NEAR = 1e-10
# Near pairs at a time: memory of the second pass stays below 10^4 d numbers.
CHUNK = 10_000


@dataclass(frozen=True, slots=True, eq=False)
class Mahalanobis(Unchanging):
    """An immutable Mahalanobis metric; make one with `Mahalanobis.of`.

    Attributes
    ----------
    matrix : (d, d)
        A, read-only, in the coordinates of the points that are passed in.
    factor : (r, d)
        L, read-only; rows in descending order of eigenvalues, the largest entry of each positive.
    certificate : MetricCertificate
        What its learner proves of it, under the same keys for every learner.
    feature_names : tuple of str or None
        Of the d columns; None where features are known by position: made from a bare matrix, or
        learned from arrays.

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

    matrix: Annotated[Floats, "d d"] = field(metadata=AS_NUMBERS)
    factor: Annotated[Floats, "r d"] = field(metadata=AS_NUMBERS)
    certificate: MetricCertificate = field(default_factory=MetricCertificate)
    feature_names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        certificate, d = self.certificate, len(self.matrix)
        origin = f"from {certificate['source']}" if certificate["source"] else "as given"
        if certificate.fitted is False:
            origin = "nothing learned yet: it is the metric that its learner starts from"
        return f"<Mahalanobis of {d} feature{'s' * (d > 1)}, rank {len(self.factor)}: {origin}>"

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
            What is proved of it: a mapping, a dataclass or None; kept as a `MetricCertificate`.

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
        A = _to_symmetric(matrix)
        rank = check_optional(check_whole, "rank", rank, 1)
        values, vectors = descending_eigh(A)
        if values[-1] < -ROUNDING * max(values[0], 0.0):
            raise InputError(
                f"matrix has the eigenvalue {values[-1]:.3g} (the largest is {values[0]:.3g}); it "
                "must be positive semidefinite: clip the negative ones"
            )
        retained = slice(
            0, min(int(np.count_nonzero(values > RANK_CUT * values[0])), rank or len(A))
        )
        rows = vectors[:, retained].T
        largest = np.abs(rows).argmax(axis=1)
        signs = np.where(rows[np.arange(len(rows)), largest] < 0, -1.0, 1.0)
        factor = rows * (signs * np.sqrt(values[retained]))[:, None]
        if rank is not None and rank < len(A):
            A = symmetrise(factor.T @ factor)
        return cls._create_frozen(A, factor, certificate)

    @classmethod
    def _create_frozen(
        cls,
        matrix: Floats,
        factor: Floats,
        certificate: Any,
        feature_names: tuple[str, ...] | None = None,
    ) -> Mahalanobis:
        """The metric with read-only arrays; + 0.0 turns -0.0 into 0.0."""
        if not isinstance(certificate, MetricCertificate):
            certificate = MetricCertificate(certificate)
        return cls(freeze(matrix + 0.0), freeze(factor + 0.0), certificate, feature_names)

    def named(self, feature_names: Sequence[str] | None) -> Mahalanobis:
        """The same metric of columns with these names; None: they are known by position.

        Raises
        ------
        ParameterError
            They are not d different names.

        Examples
        --------
        >>> import numpy as np
        >>> Mahalanobis.of(np.eye(2)).named(["height", "width"]).feature_names
        ('height', 'width')
        """
        if feature_names is None:
            return replace(self, feature_names=None)
        names = () if isinstance(feature_names, str) else tuple(feature_names)
        texts = all(isinstance(name, str) for name in names)
        if not texts or len(names) != self.n_features or len(set(names)) != len(names):
            raise ParameterError(
                f"feature_names={quote(feature_names)} must be {self.n_features} different names, "
                "one per column, or None"
            )
        return replace(self, feature_names=names)

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

        Parameters
        ----------
        X
            Shape (n, d). A frame of pandas or polars, or an Arrow table or record batch, is taken
            by name, in any order; an array has its columns in the order of ``feature_names``.

        Raises
        ------
        FeatureError
            X does not have d columns, has other names, or has names while ``feature_names`` is
            None.
        InputError
            X is not a table of finite numbers.
        """
        return self._read_points(X, "X") @ self.factor.T

    def distances(self, X: npt.ArrayLike, Y: npt.ArrayLike) -> Floats:
        """d of every row of X to every row of Y, unsquared: shape (n, m).

        Raises
        ------
        FeatureError, InputError
            As `transform`.
        """
        return np.sqrt(self.squared_distances(X, Y))

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
        left, right = self._read_points(X, "X"), self._read_points(Y, "Y")
        if len(left) == 0 or len(right) == 0 or self.rank == 0:
            return np.zeros((len(left), len(right)))
        mapped_left = (left - right[0]) @ self.factor.T
        mapped_right = (right - right[0]) @ self.factor.T
        d2: Floats = scipy.spatial.distance.cdist(mapped_left, mapped_right, "sqeuclidean")
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
        s = parse_numbers(scale, "scale", ParameterError)
        if s.shape not in ((), (self.n_features,)) or not (np.isfinite(s) & (s > 0)).all():
            raise ParameterError(
                f"scale, of shape {s.shape}, must be {self.n_features} positive finite numbers, or "
                "a single one; give constant features the scale 1"
            )
        s = np.broadcast_to(s, self.n_features)
        with np.errstate(over="ignore"):
            matrix, factor = self.matrix / s / s[:, None], self.factor / s
        if not (np.isfinite(matrix).all() and np.isfinite(factor).all()):
            raise ParameterError(
                f"scale is as small as {s.min():g}: the metric would exceed floating-point range; "
                "use a larger scale"
            )
        return self._create_frozen(matrix, factor, self.certificate, self.feature_names)

    def _read_points(self, X: npt.ArrayLike, name: str) -> Floats:
        """X as a table of finite numbers with d columns in the metric's order."""
        place = None if type(X) is np.ndarray else self._find_column_order(X, name)
        points = parse_numbers(X, name, InputError)
        if points.ndim != 2:
            raise InputError(
                f"{name} has shape {points.shape}; it must be (n, {self.n_features}): for a single "
                "point x pass [x]"
            )
        if points.shape[1] != self.n_features:
            raise FeatureError(
                f"{name} has {points.shape[1]} features; the metric was learned from "
                f"{self.n_features}"
            )
        if not np.isfinite(points).all():
            raise InputError(f"{name} has NaN or infinities; it must be finite: drop such rows")
        return points if place is None else points[:, place]

    def _find_column_order(self, X: Any, name: str) -> list[int] | None:
        """Where the columns of a named table are; None for what has no names."""
        if hasattr(X, "collect"):
            raise InputError(f"{name} is a lazy data frame: pass {name}.collect()")
        columns = getattr(X, "column_names", None)  # of Arrow, whose columns are the data
        columns = getattr(X, "columns", None) if columns is None else columns
        if columns is None or callable(columns):
            return None
        names = [str(label) for label in columns]
        if self.feature_names is None:
            raise FeatureError(
                f"{name} has the columns {quote(names)}, but this metric knows its "
                f"{self.n_features} features by position only: pass an array with the columns in "
                f"the order in which they were learned, such as {name}.to_numpy()"
            )
        if len(set(names)) < len(names):
            raise FeatureError(f"{name} has duplicate column names: {quote(names)}")
        if set(names) != set(self.feature_names):
            raise FeatureError(describe_feature_mismatch(name, names, self.feature_names))
        position = {label: j for j, label in enumerate(names)}
        return [position[label] for label in self.feature_names]

    def __eq__(self, other: object) -> bool:
        """Equal bits of matrix and factor, equal certificates and equal names."""
        if not isinstance(other, Mahalanobis):
            return NotImplemented
        return (
            np.array_equal(self.matrix, other.matrix)
            and np.array_equal(self.factor, other.factor)
            and bool(self.certificate == other.certificate)
            and self.feature_names == other.feature_names
        )

    def __hash__(self) -> int:
        return hash((self.matrix.shape, self.matrix.tobytes(), self.factor.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts; read-only again afterwards."""
        parts = (self.matrix, self.factor, self.certificate, self.feature_names)
        return Mahalanobis._create_frozen, parts


def parse_numbers(values: npt.ArrayLike, name: str, error: type[StreamembedError]) -> Floats:
    """An array of any shape as float64, NaN where it is masked; an error if it is not numeric."""
    if type(values) is np.ndarray and values.dtype == np.float64:
        return values
    try:
        array = np.asanyarray(values)
    except MemoryError:
        raise
    except Exception as cause:  # a foreign array type may raise anything
        raise error(f"{name}={quote(values)} must be numbers of one shape") from cause
    mask = np.ma.getmaskarray(array) if np.ma.is_masked(array) else None
    data = np.asarray(array)
    if data.dtype.kind == "O" and all(isinstance(v, (int, float)) for v in data.ravel().tolist()):
        data = np.array([_to_float(v) for v in data.ravel().tolist()]).reshape(data.shape)
    if data.dtype.kind not in "biuf":
        raise error(f"{name} has dtype {data.dtype}; it must be numeric")
    with np.errstate(over="ignore"):  # infinite then, and refused as such
        result = data.astype(np.float64)
    if mask is not None:
        result[mask] = np.nan
    return result


def _to_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return np.inf


def _to_symmetric(matrix: npt.ArrayLike) -> Floats:
    """A, exactly symmetric."""
    A = parse_numbers(matrix, "matrix", InputError)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or len(A) == 0:
        raise InputError(f"matrix has shape {A.shape}; it must be (d, d) with d at least 1")
    if not np.isfinite(A).all():
        raise InputError("matrix has NaN or infinities; it must be finite")
    if np.abs(A - A.T).max() > ROUNDING * np.abs(A).max():
        raise InputError(
            f"matrix differs from its transpose by {np.abs(A - A.T).max():.3g}; it must be "
            "symmetric: use (A + A^T) / 2 if that is intended"
        )
    return symmetrise(A)
