"""What the faces that learn without labels share: features settled early, gaps filled by means."""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from river import base

from streamembed.data import column_roles, impute
from streamembed.data.impute import Rows
from streamembed.data.table import in_order
from streamembed.estimators.estimator import Face
from streamembed.numeric.arrays import Floats

__all__ = ["SettlingTransformer"]


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What is known of the features once the learner has so many events.

    Attributes
    ----------
    events : int
        Of the learner.
    began : int
        Events of the learner when the last call began.
    early : tuple of dict
        Rows until the features are settled.
    names : tuple of str
        The features; empty until then.
    means, counts : (d,)
        Of the values that were not missing.
    imputed, ignored : int
    """

    events: int = 0
    began: int = 0
    early: tuple[dict[str, float], ...] = ()
    names: tuple[str, ...] = ()
    means: Floats = field(default_factory=lambda: np.zeros(0))
    counts: Floats = field(default_factory=lambda: np.zeros(0))
    imputed: int = 0
    ignored: int = 0

    def followed_by(self, rows: Rows, events: int) -> tuple[_Known, Floats]:
        """What is known after some rows, and these as points (n, d), missing values imputed."""
        values, unknown = rows.arrange(self.names)
        points, means, counts = values.copy(), self.means.copy(), self.counts.copy()
        for row, point in zip(values, points, strict=True):
            seen = ~np.isnan(row)
            point[~seen] = means[~seen]
            counts += seen
            # by steps: the mean of a constant feature is that constant, to the last bit
            means += np.where(seen, row - means, 0.0) / np.maximum(counts, 1.0)
        after = replace(
            self,
            events=events + len(rows),
            means=means,
            counts=counts,
            imputed=self.imputed + int(np.isnan(values).sum()),
            ignored=self.ignored + unknown,
        )
        return after, points


class SettlingTransformer(Face, base.MiniBatchTransformer):
    """A face whose features are those of the first events; missing values become means.

    The learner inside takes an event by one assignment. What is known of the features after it is
    assigned before, beside what is known without it, and the learner's position says which of the
    two holds: a call that is interrupted, at whatever line, leaves none without the other.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became the mean so far of their feature, and values of
        features that the first events did not show.
    """

    def _begin(self) -> None:
        self._around = (_Known(), _Known())  # without and with the last events for the learner

    @property
    @abc.abstractmethod
    def _learned(self) -> int:
        """Events that the learner has."""

    @abc.abstractmethod
    def _learn(self, points: Floats, names: tuple[str, ...]) -> None:
        """Give the learner points (n, d), all or none: one event, or the first ones."""

    @property
    def _known(self) -> _Known:
        without, after = self._around
        return after if self._learned >= after.events else without

    @property
    def _since(self) -> int:
        """What is saved for ``began``: the same, however the stream was cut into calls."""
        return self._known.events

    @property
    def imputed(self) -> int:
        """Missing or unusable values that became the mean so far of their feature."""
        return self._known.imputed

    @property
    def ignored(self) -> int:
        """Values of features that the first events did not show."""
        return self._known.ignored

    @property
    def _names(self) -> tuple[str, ...]:
        return self._known.names

    @property
    def _early(self) -> tuple[dict[str, float], ...]:
        return self._known.early

    @property
    def _seen(self) -> tuple[str, ...]:
        """The features, or those seen so far."""
        return self._names or in_order({name for row in self._early for name in row})

    def _complete(self, rows: Rows, first: int) -> None:
        """Learn rows one by one; the ``first`` events, together, once they are all there."""
        began = self._learned
        for i in range(len(rows)):
            before = replace(self._known, began=began)
            row = rows.take(slice(i, i + 1))
            if not before.names:
                early = (*before.early, row.row(0))
                if len(early) < first:
                    self._around = (replace(before, early=early),) * 2
                    continue
                before, row = self._settled(before, early)
            after, points = before.followed_by(row, self._learned)
            self._around = self._known, after
            self._learn(points, after.names)
        if not len(rows):
            self._around = (replace(self._known, began=began),) * 2
        self._tell_suspects()

    def _settled(self, before: _Known, early: tuple[dict[str, float], ...]) -> tuple[_Known, Rows]:
        """The features of the first events, with nothing learned, and these events."""
        names = in_order({name for row in early for name in row}) or ("0",)
        rows = impute.read(list(early), math.inf, 0.0)
        self._suspects = column_roles.suspects(names, rows.arrange(names)[0], self._largest)
        none = np.zeros(len(names))
        return replace(before, early=(), names=names, means=none, counts=none), rows

    def _fill(self, values: Floats) -> Floats:
        """Missing values by the means so far."""
        return np.where(np.isnan(values), self._known.means, values)

    def __getstate__(self) -> dict[str, Any]:
        known = replace(self._known, began=self._since)
        return {**super().__getstate__(), "_around": (known, known)}
