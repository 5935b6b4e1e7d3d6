"""Metric estimators whose states can be merged: learned apart, as of one stream."""

from __future__ import annotations

import abc
from typing import Any, Self

import numpy as np

from streamembed.core.arrays import Ints
from streamembed.errors import FeatureError, ParameterError
from streamembed.estimators import rows, spread
from streamembed.estimators.events import mapped
from streamembed.estimators.metric import Early, MetricEstimator
from streamembed.estimators.spread import Spread
from streamembed.threads import one_blas_thread

__all__ = ["MergeableMetric"]


class MergeableMetric(MetricEstimator):
    """A metric estimator whose state can take in that of another stream."""

    @abc.abstractmethod
    def _joined(self, left: Any, right: Any, indices: Ints) -> Any:
        """Two states as one; class c of the right one is class ``indices[c]`` of the left."""

    def merge(self, other: Self) -> None:
        """Learn what another estimator of the same parameters and features has learned.

        ``other`` stays as it is. Where either is still in its warm-up, or has events that wait,
        these are learned after the rest.

        Raises
        ------
        ParameterError
            Another class, or other parameters.
        FeatureError
            Other features.
        """
        mine, theirs = repr(self._get_params()), repr(getattr(other, "_get_params", dict)())
        if type(other) is not type(self) or mine != theirs:
            raise ParameterError(
                f"other={other!r} cannot be merged with {self!r}: both must be built with the "
                "same class and parameters"
            )
        if self._spread is not None and other._spread is not None and self._names != other._names:
            raise FeatureError(
                f"other learns the features {list(other._names)} and this {list(self._names)}: "
                "only metrics of the same features can be merged"
            )
        with self._whole(keeping=True):
            for name in ("imputed", "ignored", "unlabelled", "unlearned", "refused"):
                setattr(self, name, getattr(self, name) + getattr(other, name))
            indices = np.array(
                [self._classes.setdefault(label, len(self._classes)) for label in other._classes],
                dtype=np.int64,
            )
            early, self._early = [*self._early, *_recoded(other._early, indices)], []
            if other._spread is not None:
                self._take_in(other, other._spread, indices)
            for one, two, code in early:
                ends = rows.read([one]), None if two is None else rows.read([two])
                self._take(*ends, np.array([code]))

    def _take_in(self, other: Self, seen: Spread, indices: Ints) -> None:
        """The state of the other, after its warm-up; its waiting events come after ours."""
        waiting, self._waiting = other._waiting, self._waiting
        assert waiting is not None
        if self._spread is None:
            self._names, self._spread, self._learned = other._names, spread.init(len(seen.means)), 0
            self._state = self._start(waiting, seen)
            self._waiting = self._empty()
        with one_blas_thread(), np.errstate(all="ignore"):
            state = self._joined(self._state, other._state, indices)
            self._spread = spread.merge(self._spread, seen)
        self._state, self._read = state, None
        self._learned += other._learned
        assert self._waiting is not None
        ours, self._waiting = self._waiting, self._empty()
        for part, codes in ((ours, ours.codes), (waiting, mapped(waiting.codes, indices))):
            self._admit(part.first, part.second, codes)


def _recoded(early: list[Early], indices: Ints) -> list[Early]:
    """Events of another stream's warm-up, in this one's classes."""
    codes = mapped(np.array([code for *_, code in early], dtype=np.int64), indices).tolist()
    return [(one, two, code) for (one, two, _), code in zip(early, codes, strict=True)]
