"""The base of river estimators of points: tables in and out, and counts of missing values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from streamembed.data import impute
from streamembed.data.impute import FeatureRows
from streamembed.data.output_format import derive_prefix, name_columns, to_table
from streamembed.errors import ColumnWarning, warn
from streamembed.numeric.arrays import Floats
from streamembed.parameters import HintedAttributes, check_names


class PointEstimator(HintedAttributes):
    """A river transformer of points.

    Attributes
    ----------
    imputed_in_transform, ignored_in_transform : int
        The same as ``imputed`` and ``ignored`` of the points that were transformed, once the
        features are settled. They are no part of what was learned: a copy by pickle begins at 0.
    """

    imputed_in_transform = 0
    ignored_in_transform = 0
    _suspects: str | None = None
    _largest: ClassVar[float] = impute.LARGEST  # values beyond it are missing
    _hints: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fit", "partial_fit", "learn"), "learn_many(X)"),
        **dict.fromkeys(("transform", "predict", "predict_one"), "transform_many(X)"),
        "fit_transform": "learn_many(X), then transform_many(X)",
    }

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__init__" in vars(cls):
            check_names(cls)

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Coordinates of one point, by names such as ``pca_0``: see `prefix`."""
        return self._name_coordinates(self._place(self._read_point(x)))

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are called as the keys of `transform_one`.
        """
        rows = self._read_rows(X)
        coordinates = self._place(rows)
        return to_table(coordinates, X, rows.frame, name_columns(self.prefix, coordinates.shape[1]))

    @property
    def prefix(self) -> str:
        """The prefix of coordinate names, before their number: ``pca_0`` and ``pca_1``."""
        return derive_prefix(type(self).__name__)

    def _name_coordinates(self, coordinates: Floats) -> dict[Any, Any]:
        """The first row of coordinates, by name."""
        names = name_columns(self.prefix, coordinates.shape[1])
        return dict(zip(names, coordinates[0].tolist(), strict=True))

    def _read_point(self, x: Any) -> FeatureRows:
        """One point, a dict of its features."""
        return impute.read_point(x)

    def _read_rows(self, X: Any) -> FeatureRows:
        """A mini-batch."""
        return impute.read(X)

    def _place(self, rows: FeatureRows) -> Floats:
        """Coordinates (n, m) of rows."""
        raise NotImplementedError

    def _count_missing(self, arranged: tuple[Floats, int]) -> Floats:
        """Points to transform in the order of the features, counted: (n, d), NaN where missing."""
        values, unknown = arranged
        gaps = int(np.count_nonzero(np.isnan(values)))
        if gaps or unknown:
            self.imputed_in_transform += gaps
            self.ignored_in_transform += unknown
        return values

    def _warn_of_suspects(self) -> None:
        """Warn once, after their events are learned, of features that look like ids or times."""
        message, self._suspects = self._suspects, None
        if message is not None:
            warn(message, ColumnWarning)

    def __getstate__(self) -> dict[str, Any]:
        others = ("imputed_in_transform", "ignored_in_transform", "_suspects")
        return {name: value for name, value in vars(self).items() if name not in others}
