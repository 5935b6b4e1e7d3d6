"""A scikit-learn adapter; only this module needs scikit-learn (1.6 or later)."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from river import base
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)

from streamembed.data.column_roles import RENAME, describe_suspicious, find_suspicious
from streamembed.data.output_format import derive_prefix, name_columns
from streamembed.errors import ColumnWarning, InputError, NotReadyError, ParameterError, warn
from streamembed.estimators.estimator import PointEstimator
from streamembed.estimators.label_spreading import LabelSpreading
from streamembed.numeric.arrays import Array, Floats

__all__ = ["LabelSpreadingClassifier", "OnlineTransformer"]

UNLABELLED = -1


class OnlineTransformer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A river estimator as a scikit-learn transformer, for pipelines and grid searches.

    ``partial_fit`` is the estimator's ``learn_many``: rows wait until their chunk is whole, and
    before the warm-up ends a metric leaves points where they are, and a map gives zeros. ``fit``
    starts from scratch and learns to the last row; if there are fewer rows than ``warm_up``, all
    are the warm-up. Input is strict, as in all of scikit-learn: no NaN, no other features than
    before.

    Parameters
    ----------
    estimator
        An estimator of `streamembed.estimators`, untouched: what learns is a copy. Its parameters
        are at hand as ``estimator__name``, for grids.

    Attributes
    ----------
    estimator_
        The copy that learned, with all of its own attributes (``metric``, ``snapshot()``).
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Raises
    ------
    ParameterError
        By ``fit``, where ``estimator`` is no river transformer.
    InputError
        By ``fit``, where there are fewer rows than the least warm-up, for a map n_components + 2,
        or no y for an estimator that learns from labels.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from streamembed.estimators import GeometricMeanMetric
    >>> X = np.random.default_rng(0).standard_normal((200, 3))
    >>> y = X[:, 0] > 0
    >>> model = make_pipeline(OnlineTransformer(GeometricMeanMetric()), KNeighborsClassifier())
    >>> model.fit(X, y).score(X, y) > 0.9
    True
    >>> model[0].get_feature_names_out().tolist()
    ['geometric_mean_metric_0', 'geometric_mean_metric_1', 'geometric_mean_metric_2']
    """

    estimator_: Any

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn all rows, from scratch."""
        self._begin()
        rows = self._read(X, y, reset=True)
        self.estimator_.learn_many(*rows)
        if isinstance(self.estimator_, base.DriftDetector):
            return self  # nothing of it waits
        try:
            self.estimator_.flush()
        except NotReadyError:
            self.estimator_ = self._clone_with_warm_up(len(rows[0]))
            self.estimator_.learn_many(*rows)
            self.estimator_.flush()
        return self

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Learn more rows; any split gives the same bits as one call."""
        first = not hasattr(self, "estimator_")
        if first:
            self._begin()
        self.estimator_.learn_many(*self._read(X, y, reset=first))
        return self

    def transform(self, X: Any) -> Floats:
        """Coordinates of points, shape (n, m)."""
        check_is_fitted(self, "estimator_")
        points = validate_data(self, X, dtype=np.float64, reset=False)
        coordinates: Floats = self.estimator_.transform_many(self._leave_out(points))
        return coordinates

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """What the estimator calls its coordinates: its name and a number."""
        check_is_fitted(self, "estimator_")
        n_features = self.n_features_in_ - len(self._suspicious)
        width = int(getattr(self.estimator_, "n_components", None) or n_features)
        prefix = derive_prefix(type(self.estimator_).__name__)
        if isinstance(self.estimator_, PointEstimator):
            prefix = self.estimator_.prefix
        return np.array(name_columns(prefix, width), dtype=object)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The estimator, and its own parameters as ``estimator__name``."""
        params: dict[str, Any] = {"estimator": self.estimator}
        if deep and isinstance(self.estimator, base.Base):
            parameters = self.estimator._get_params()
            params.update({f"estimator__{name}": value for name, value in parameters.items()})
        return params

    def set_params(self, **params: Any) -> Self:
        """Another estimator, or another with some parameters changed; what was learned stays."""
        self.estimator = params.pop("estimator", self.estimator)
        inner = {name.removeprefix("estimator__"): value for name, value in params.items()}
        unknown = [f"estimator__{name}" for name in inner]
        unknown = [name for name in [*params, *unknown] if name not in self.get_params()]
        if unknown:
            raise ParameterError(
                f"{unknown[0]!r} is not a parameter of {self!r}; it must be one of "
                f"{sorted(self.get_params())}"
            )
        if inner:
            self.estimator = self.estimator.clone(new_params=inner)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(getattr(self.estimator, "_supervised", False))
        return tags

    def _begin(self) -> None:
        """A fresh copy to learn with."""
        if not (isinstance(self.estimator, base.Base) and hasattr(self.estimator, "learn_many")):
            raise ParameterError(
                f"estimator={self.estimator!r} must be an estimator from streamembed.estimators, "
                "such as GeometricMeanMetric()"
            )
        self.estimator_ = self.estimator.clone()

    def _clone_with_warm_up(self, n: int) -> Any:
        """A fresh copy whose warm-up is n events."""
        try:
            return self.estimator.clone(new_params={"warm_up": n})
        except ParameterError as error:
            raise InputError(
                f"X has n_samples = {n}, but {type(self.estimator).__name__} needs more to start: "
                f"{error}; use more rows"
            ) from error

    @property
    def _suspicious(self) -> dict[str, str]:
        """Columns that are left out, and why."""
        return find_suspicious(getattr(self, "feature_names_in_", ()))

    def _leave_out(self, points: Floats) -> Floats:
        suspicious = self._suspicious
        if not suspicious:
            return points
        return points[:, [name not in suspicious for name in self.feature_names_in_]]

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[Any, ...]:
        """What the estimator learns: points, and labels where it takes them."""
        points = validate_data(self, X, dtype=np.float64, reset=reset)
        if reset and self._suspicious:
            warn(describe_suspicious(self._suspicious, RENAME), ColumnWarning)
        points = self._leave_out(points)
        if not self.estimator_._supervised:
            return (points,)
        if y is None:
            raise InputError(
                f"{type(self.estimator_).__name__} learns from labels, and requires y to be "
                "passed, but the target y is None"
            )
        labels = column_or_1d(y, warn=True)
        check_consistent_length(points, labels)
        return points, labels


class LabelSpreadingClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """`LabelSpreading` as a classifier of scikit-learn; a label of -1 or None is no label.

    Parameters
    ----------
    n_neighbors, size, damping, scaling, warm_up
        As of `streamembed.estimators.LabelSpreading`.

    Attributes
    ----------
    estimator_
        The estimator that learned. ``classes_``, ``n_features_in_`` and ``feature_names_in_`` are
        as everywhere in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(0, 1, (100, 2)), rng.normal(6, 1, (100, 2))])
    >>> y = np.full(200, -1)
    >>> y[[0, 100]] = 0, 1
    >>> LabelSpreadingClassifier().fit(X, y).score(X, np.repeat([0, 1], 100))
    1.0
    """

    def __init__(
        self,
        n_neighbors: int = 10,
        size: int = 2000,
        damping: float = 0.9,
        scaling: str | None = "standard",
        warm_up: int = 100,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.size = size
        self.damping = damping
        self.scaling = scaling
        self.warm_up = warm_up

    def fit(self, X: Any, y: Any) -> Self:
        """Learn all rows, from scratch."""
        self.estimator_ = LabelSpreading(**self.get_params())
        return self._learn(X, y, reset=True)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Learn more rows; ``classes`` need not be given."""
        return self._learn(X, y, reset=False) if hasattr(self, "estimator_") else self.fit(X, y)

    def predict(self, X: Any) -> Array:
        """The likeliest label of each row, (n,)."""
        codes = self.predict_proba(X).argmax(axis=1)
        labels: Array = self.classes_[codes]
        return labels

    def predict_proba(self, X: Any) -> Floats:
        """Shares of the scores of ``classes_``, (n, c)."""
        check_is_fitted(self, "estimator_")
        shares = self.estimator_.predict_proba_many(
            validate_data(self, X, dtype=np.float64, reset=False)
        )
        known = list(self.estimator_.classes)
        ordered: Floats = shares[:, [known.index(label) for label in self.classes_.tolist()]]
        return ordered

    def _learn(self, X: Any, y: Any, reset: bool) -> Self:
        points, labels = validate_data(self, X, y, dtype=np.float64, reset=reset)
        is_labelled = np.array([label not in (UNLABELLED, None) for label in labels.tolist()])
        given = np.array(labels[is_labelled].tolist())  # without None labels have a type
        if len(given):
            check_classification_targets(given)
        self.estimator_.learn_many(points, np.where(is_labelled, labels.astype(object), None))
        self.classes_ = np.unique(np.array(self.estimator_.classes))
        if not len(self.classes_):
            raise InputError("y has no label: at least one row needs another than -1 and None")
        return self
