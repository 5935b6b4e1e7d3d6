"""What the faces that learn without labels share: features settled early, gaps filled by means."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from river import base

from streamembed.data import impute, roles
from streamembed.data.impute import Rows
from streamembed.data.table import in_order
from streamembed.numeric.arrays import Floats
from streamembed.transformers.face import Face

__all__ = ["SettlingTransformer"]


class SettlingTransformer(Face, base.MiniBatchTransformer):
    """A face whose features are those of the first events; missing values become means.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became the mean so far of their feature, and values of
        features that the first events did not show.
    """

    def _begin(self) -> None:
        self.imputed = 0
        self.ignored = 0
        self._early: list[dict[str, float]] = []  # rows until the features are settled
        self._names: tuple[str, ...] = ()
        self._means: Floats = np.zeros(0)
        self._counts: Floats = np.zeros(0)

    @property
    def _seen(self) -> tuple[str, ...]:
        """The features, or those seen so far."""
        return self._names or in_order({name for row in self._early for name in row})

    def _complete(self, rows: Rows, events: int) -> Iterator[Floats]:
        """Points to learn, each (1, d): the first ``events`` rows come once they are all there.

        The means know of a point once the next is asked for.
        """
        for i in range(len(rows)):
            if self._names:
                yield from self._impute(rows.take(slice(i, None)))
                return
            self._early.append(rows.row(i))
            if len(self._early) == events:
                self._names = self._seen or ("0",)
                self._means, self._counts = np.zeros((2, len(self._names)))
                early, self._early = self._early, []
                first = impute.read(early, math.inf, 0.0)
                self._suspects = roles.suspects(self._names, first.arrange(self._names)[0])
                yield from self._impute(first)

    def _impute(self, rows: Rows) -> Iterator[Floats]:
        values, unknown = rows.arrange(self._names)
        for row in values:
            seen = ~np.isnan(row)
            yield self._fill(row[None])
            self._counts += seen
            # by steps: the mean of a constant feature is that constant, to the last bit
            self._means += np.where(seen, row - self._means, 0.0) / np.maximum(self._counts, 1.0)
            self.imputed += len(seen) - int(seen.sum())
        self.ignored += unknown

    def _fill(self, values: Floats) -> Floats:
        """Missing values by the means so far."""
        return np.where(np.isnan(values), self._means, values)
