"""What every river face has: points placed in the table they came in, and counts of their gaps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from streamembed.data import impute
from streamembed.data.impute import Rows
from streamembed.data.output_format import column_names, give_back, prefix_of
from streamembed.errors import ColumnWarning, warn
from streamembed.numeric.arrays import Floats

__all__ = ["Face"]


class Face:
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

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Coordinates of one point, by names such as ``pca_0``: see `prefix`."""
        return self._called(self._place(self._row_of(x)))

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are called as the keys of `transform_one`.
        """
        rows = self._rows_of(X)
        placed = self._place(rows)
        return give_back(placed, X, rows.frame, column_names(self.prefix, placed.shape[1]))

    @property
    def prefix(self) -> str:
        """What coordinates are called after, with their number: ``pca_0`` and ``pca_1``."""
        return prefix_of(type(self).__name__)

    def _called(self, placed: Floats) -> dict[Any, Any]:
        """The first row of coordinates, by name."""
        names = column_names(self.prefix, placed.shape[1])
        return dict(zip(names, placed[0].tolist(), strict=True))

    def _row_of(self, x: Any) -> Rows:
        """One point, a dict of its features."""
        return impute.read_one(x)

    def _rows_of(self, X: Any) -> Rows:
        """A mini-batch."""
        return impute.read(X)

    def _place(self, rows: Rows) -> Floats:
        """Coordinates (n, m) of rows."""
        raise NotImplementedError

    def _count_gaps(self, arranged: tuple[Floats, int]) -> Floats:
        """Points to transform in the order of the features, counted: (n, d), NaN where missing."""
        values, unknown = arranged
        gaps = int(np.count_nonzero(np.isnan(values)))
        if gaps or unknown:
            self.imputed_in_transform += gaps
            self.ignored_in_transform += unknown
        return values

    def _tell_suspects(self) -> None:
        """Warn of features that look like none; once, and when their events are learned."""
        told, self._suspects = self._suspects, None
        if told is not None:
            warn(told, ColumnWarning)

    def __getstate__(self) -> dict[str, Any]:
        others = ("imputed_in_transform", "ignored_in_transform", "_suspects")
        return {name: value for name, value in vars(self).items() if name not in others}
