"""Metric estimators whose states can be merged: learned in parallel, as if from one stream."""

from __future__ import annotations

import copy
import hashlib
from typing import Self

import numpy as np

from streamembed.data import impute
from streamembed.errors import FeatureError, ParameterError, quote
from streamembed.estimators.metric_estimator import Early, MetricEstimator
from streamembed.metric_learners import training_stream
from streamembed.metric_learners.labelled_examples import remap_codes
from streamembed.numeric import codec
from streamembed.numeric.arrays import Ints
from streamembed.threads import one_blas_thread


class MergeableMetric(MetricEstimator):
    """A metric estimator whose state can be merged with that of another stream."""

    def merge(self, other: Self) -> None:
        """Add what another estimator of the same parameters and features has learned.

        ``other`` stays as it is. The streams count as having run side by side: merging this one
        into the other gives the same, to the last bit. Where either is still in its warm-up, or
        has events that wait, these are learned after the rest.

        Raises
        ------
        ParameterError
            Itself, another class, or other parameters.
        FeatureError
            Other features.
        """
        if other is self:
            raise ParameterError(
                "other is this estimator itself, so everything it learned would count twice: merge "
                "one that learned another stream"
            )
        self._check_alike(other)
        # in an order of the two that does not depend on which one merges
        first, second = sorted((self, other), key=lambda model: model._digest())
        merged = copy.copy(first)
        merged._classes, merged._labels = dict(first._classes), list(first._labels)
        merged._take_in(second)
        vars(self).update(vars(merged))
        self._warn_of_suspects()

    def _check_alike(self, other: Self) -> None:
        """Refuse another class, other parameters, other features."""
        if type(other) is not type(self):
            raise ParameterError(
                f"other is a {type(other).__name__} and this is a {type(self).__name__}: only "
                "estimators of the same class and parameters can be merged"
            )
        mine, theirs = self._get_params(), other._get_params()
        differ = [name for name in mine if repr(mine[name]) != repr(theirs[name])]
        if differ:
            has, had = (
                ", ".join(f"{name}={quote(given[name])}" for name in differ)
                for given in (theirs, mine)
            )
            raise ParameterError(
                f"other has {has} and this has {had}: only estimators of the same class and "
                "parameters can be merged"
            )
        if self._stream is not None and other._stream is not None and self._names != other._names:
            raise FeatureError(
                f"other has the features {quote(list(other._names))} and this has "
                f"{quote(list(self._names))}: only metrics of the same features can be merged"
            )

    def _take_in(self, other: Self) -> None:
        """This, a copy, becomes the two together."""
        self._read = self._root = None
        for name in ("imputed", "ignored", "unlabelled", "unlearned"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        index_list = []
        for key, label in zip(other._classes, other._labels, strict=True):
            if key not in self._classes:
                self._classes[key] = len(self._labels)
                self._labels.append(label)
            index_list.append(self._classes[key])
        indices = np.array(index_list, dtype=np.int64)
        early, self._early = [*self._early, *_recode(other._early, indices)], []
        if other._stream is not None:
            if self._stream is None:
                self._names = other._names
                self._stream = training_stream.init((self._key,), len(other._names), int(self.seed))
            size = int(self.chunk_size)
            with one_blas_thread():
                self._stream = training_stream.merge(
                    self._stream, other._stream, self._learning, indices, size
                )
        for one, two, code in early:
            ends = impute.read([one]), None if two is None else impute.read([two])
            self._take(*ends, np.array([code]))

    def _digest(self) -> tuple[int, bytes]:
        """Events and a hash of all that was learned: equal only where the streams were."""
        digest = hashlib.blake2b(repr((self._names, self._labels, self._early)).encode())
        if self._stream is not None:
            arrays, numbers = codec.pack(self._stream)
            digest.update(repr(numbers).encode())
            for name, array in sorted(arrays.items()):
                digest.update(name.encode() + array.tobytes())
        return self.position, digest.digest()


def _recode(early: list[Early], indices: Ints) -> list[Early]:
    """Events of another stream's warm-up, in this one's classes."""
    codes = remap_codes(np.array([code for *_, code in early], dtype=np.int64), indices).tolist()
    return [(one, two, code) for (one, two, _), code in zip(early, codes, strict=True)]
