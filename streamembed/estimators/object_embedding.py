"""Embeddings of any objects by a function of two of them: a stream without coordinates.

The objects that the engine holds are kept beside it, by the positions that are their ids. An event
costs one call for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from streamembed.engine.engine import Engine
from streamembed.errors import InputError, quote
from streamembed.estimators.diffusion_map import DiffusionMap
from streamembed.numeric.arrays import Floats
from streamembed.validation import check_choice

# Distances there and back, and to itself, may differ by this share.
UNEVEN = 1e-9


class ObjectEmbedding(DiffusionMap):
    """A `DiffusionMap` whose ``metric`` may also be a callable of two objects."""

    _objects: dict[int, Any]

    def _check_metric(self, metric: Any) -> None:
        self._objects = {}
        if not callable(metric):
            check_choice("metric", metric, ("euclidean", "precomputed"), " or a callable d(a, b)")

    @property
    def _is_callable_metric(self) -> bool:
        """Whether events are objects."""
        return callable(self.metric)

    def _distance(self, a: Any, b: Any) -> float:
        """d(a, b), as the engine is to see it."""
        return self._number(self.metric, a, b)

    def _number(self, call: Callable[[Any, Any], Any], a: Any, b: Any) -> float:
        result = call(a, b)
        try:
            number = float(result)
        except (TypeError, ValueError):
            number = np.nan
        if not np.isfinite(number):
            raise InputError(
                f"the function of {quote(a)} and {quote(b)} is {quote(result)}; it must be a "
                "finite number"
            )
        return number

    def learn_one(self, x: Any) -> None:
        """Learn one event of the stream; with a callable metric any object.

        Raises
        ------
        InputError
            As in `DiffusionMap.learn_one`; or the function of two objects is no finite number, is
            not 0 for an object and itself or, of the objects of the warm-up, not the same there
            and back. Nothing was learned.
        """
        if self._is_callable_metric:
            self._learn_object(x)
        else:
            super().learn_one(x)

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch; with a callable metric a sequence of objects."""
        if self._is_callable_metric:
            if isinstance(X, str | bytes):
                raise InputError(
                    f"X is the text {quote(X)}, one object: use learn_one, or give a list of them"
                )
            for x in X:
                self._learn_object(x)
        else:
            super().learn_many(X)

    def transform_one(self, x: Any) -> dict[Any, Any]:
        """Coordinates of one point or object, by name."""
        if self._is_callable_metric:
            return self._name_coordinates(self._place_objects([x]))
        return super().transform_one(x)

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch; of a sequence of objects an array, a row each."""
        if self._is_callable_metric:
            return self._place_objects(X)
        return super().transform_many(X)

    def _place_objects(self, objects: Sequence[Any]) -> Floats:
        if not self.ready:
            return np.zeros((len(objects), self.n_components))
        snapshot = self.snapshot()
        support = [self._objects[key] for key in snapshot.ids.tolist()]
        rows = [[self._distance(x, other) for other in support] for x in objects]
        return snapshot.transform_distances(np.array(rows).reshape(len(objects), len(support)))

    def _learn_object(self, x: Any) -> None:
        engine = self._engine or Engine(**self._config().as_dict())
        keys = engine.distance_row_ids.tolist()
        row = np.array([self._distance(x, self._objects[key]) for key in keys], dtype=np.float64)
        if (row < 0).any():
            raise InputError(f"the distance to {quote(x)} is negative: {quote(float(row.min()))}")
        if not engine.ready:
            self._check_laws(x, [self._objects[key] for key in keys], row)
        # one more than the engine has, if the call fails: `_select_objects` leaves it out
        self._objects = {**self._select_objects(), engine.position: x}
        engine.admit_distances([row], None, "raise")
        self._engine = engine

    def _select_objects(self) -> dict[int, Any]:
        """Objects of the engine's events, by position."""
        engine = self._engine
        if engine is None:
            return {}
        retained = set(engine.distance_row_ids.tolist())
        # a window's snapshot has those of its last chunk, which may be no neighbours any more
        if engine.ready:
            retained.update(engine.support_ids.tolist())
        return {key: value for key, value in self._objects.items() if key in retained}

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_objects": self._select_objects()}

    def _check_laws(self, x: Any, others: Sequence[Any], row: Floats) -> None:
        """Refuse a function that is no distance, by the events of the warm-up."""
        scale = max(float(row.max(initial=0.0)), 1e-300)
        own = self._distance(x, x)
        if abs(own) > UNEVEN * scale:
            raise InputError(
                f"metric({quote(x)}, {quote(x)}) is {own!r}: of an object and itself it must be 0"
            )
        for other, there in zip(others, row.tolist(), strict=True):
            back = self._distance(other, x)
            if abs(back - there) > UNEVEN * scale:
                raise InputError(
                    f"metric({quote(x)}, {quote(other)}) is {there!r} and metric({quote(other)}, "
                    f"{quote(x)}) is {back!r}: it must be symmetric"
                )
