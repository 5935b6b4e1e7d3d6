"""The base of estimators of maps: an engine of one method as a mini-batch transformer for river.

Events are points, dicts of distances by id, or, with a function of two, any objects. The objects
that the engine holds are kept beside it, by the positions that are their ids; an event costs one
call of the function for each of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, dataclass_transform

import numpy as np

from streamembed.data import batch, precomputed
from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.data.impute import FeatureRows
from streamembed.data.output_format import name_columns, to_table
from streamembed.data.table import check_point, with_text_keys
from streamembed.data.values import NO_NULLS
from streamembed.engine.engine import PARAMETERS, Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, NotReadyError, ParameterError, quote
from streamembed.estimators.estimator import ColdStartTransformer
from streamembed.estimators.event_times import EventTimes, split_times
from streamembed.methods.engine_parameters import METHODS, POSITION, describe_applicability
from streamembed.methods.options import DEFAULTS, Config
from streamembed.numeric.arrays import LARGEST_VALUE, Bools, Floats
from streamembed.parameters import Class, declare_parameters, parse_parameter_texts
from streamembed.validation import check_choice

# Distances there and back, and to itself, may differ by this share: those of float32 vectors do.
UNEVEN = 1e-6


@dataclass(eq=False, repr=False)
class MapEstimator(ColdStartTransformer):
    """An engine of one method as a river transformer.

    ``learn_many`` in any split and ``learn_one`` n times give the same state, bit for bit. Three
    policies are specific to estimators; the engine inside is strict:

    - *Cold start.* Until the warm-up ends ``transform_one`` returns zeros, of the final width.
    - *Features.* The features are those seen during the warm-up, ordered by name, or by position
      for arrays. The warm-up begins with the first event that has a number. A feature that appears
      later is ignored, and counted in ``ignored``. Columns named like ids, times or targets are
      left out with a warning. If features have names, arrays are refused.
    - *Missing values.* A feature that is absent, null, NaN, infinite, too large or not a number is
      replaced by its mean over the stream so far, 0 before anything was seen, and counted in
      ``imputed``.

    A snapshot is made when ``transform_one`` first needs it after a chunk was learned: a few
    milliseconds for a window of 2,000, certified. If you transform after every event, use a larger
    ``chunk_size`` or ``tolerance=None``.

    Parameters
    ----------
    metric
        What events are: "euclidean", points; "cosine", points that are divided by their lengths;
        "precomputed", distances; or a callable d(a, b). "precomputed": an event is a dict
        ``{id: distance}`` to the objects before it (see `learn_one`). Of a callable events are any
        objects. It is called once for every object held, and must be symmetric and 0 for an object
        and itself.

    Raises
    ------
    ParameterError
        A parameter cannot have that value, alone or in combination with others.
    """

    method: ClassVar[str]
    _largest, _smallest = LARGEST_VALUE, 0.0
    _title = "this embedding"

    n_components: int = 2
    _: KW_ONLY
    memory: str = "window"
    size: int = 2000
    half_life: float | None = None
    clock: str = POSITION
    max_skew: float | None = None
    axes: str = "auto"
    tolerance: float | None = 3e-3
    chunk_size: int | str = "auto"
    warm_up: int | None = None
    scaling: str | None = "standard"
    seed: int = 0
    metric: str | Callable[[Any, Any], float] = "euclidean"

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        self._check_metric()
        self._warm_up_events = self._build_config().warm_up_events
        self._engine: Engine | None = None
        self._objects: dict[int, Any] = {}
        self._times = EventTimes()
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 14, "chunk_size": 4, "size": 48}

    def _check_metric(self) -> None:
        if self._function is None:
            words = ("euclidean", "cosine", "precomputed")
            check_choice("metric", self.metric, words, " or a callable d(a, b)")
        if self._takes_points:
            return
        if METHODS[self.method].alternative:
            raise ParameterError(
                f"metric={quote(self.metric)} must be 'euclidean' or 'cosine': "
                f"{type(self).__name__} needs coordinates, which distances do not tell; try Isomap "
                "or LaplacianEigenmaps"
            )
        if self.clock != POSITION:
            raise ParameterError(
                f"clock={self.clock!r} needs points with times: leave it out where events are "
                "distances or objects"
            )

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the warm-up is over and outputs are not zeros."""
        return self._engine is not None and self._engine.ready

    @property
    def engine(self) -> Engine:
        """The engine inside, once the warm-up is over; NotReadyError before."""
        if self._engine is None:
            raise NotReadyError(
                f"the warm-up takes {self._warm_up_events} events and {len(self._early)} have "
                "arrived: the features are not known yet"
            )
        return self._engine

    def snapshot(self) -> Snapshot:
        """The engine's snapshot; NotReadyError before the warm-up ends."""
        return self.engine.snapshot()

    def transform_one(self, x: Any) -> dict[Any, Any]:
        """Coordinates of a point or object, by names such as ``isomap_0``; zeros in the warm-up."""
        if self._takes_points:
            return super().transform_one(x)
        if self._function is None:
            with_text_keys(check_point(x))
        return self._name_coordinates(self._place_objects([x]))

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are called as the keys of `transform_one`. Of a sequence of objects an
        array, a row each.
        """
        if self._takes_points:
            return super().transform_many(X)
        coordinates = self._place_objects(self._list_objects(X))
        if self._function is not None:
            return coordinates
        return to_table(coordinates, X, name_columns(self.prefix, self.n_components))

    @property
    def prefix(self) -> str:
        """What coordinates are called after: the method."""
        return self.method

    def _compute_coordinates(self, rows: FeatureRows) -> Floats:
        """Coordinates of points, (n, n_components)."""
        if not self.ready:
            return np.zeros((len(rows), self.n_components))
        points, unknown = rows.arrange(self._names)
        if unknown or np.isnan(points).any():
            points = self._fill(self._count_missing((points, unknown)))
        features = Features.of_names(self._names)
        placed: Floats = self._choose_snapshot().transform(Batch.of_points(points, features))
        return placed

    def _place_objects(self, objects: Sequence[Any]) -> Floats:
        """Coordinates of objects by their distances to the snapshot's objects."""
        if not self.ready:
            return np.zeros((len(objects), self.n_components))
        shown = self._choose_snapshot()
        if self._function is None:
            rows = precomputed.read_distances([_drop_missing(x) for x in objects], shown.ids)
        else:
            support = [self._objects[key] for key in shown.ids.tolist()]
            between = [[self._measure_distance(x, other) for other in support] for x in objects]
            rows = np.array(between).reshape(len(objects), len(support))
        return shown.transform_distances(rows)

    def _choose_snapshot(self) -> Snapshot | Picture:
        """What new points are placed in."""
        return self.snapshot()

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Any) -> None:
        """Learn one event of the stream: a point, or, with a callable metric, any object.

        With ``metric="precomputed"`` x holds the distances to all objects in the engine
        (``engine.distance_row_ids``), by id, and 0 to its own id. If the first event is an
        empty dict, objects have no ids but their positions, and x has no distance to itself.
        With ``clock="event_time"`` the key ``event_time`` of x has its time, and is no feature.

        Raises
        ------
        InputError
            With ``metric="precomputed"``: an id is missing, unknown or forgotten, or a distance is
            invalid. With a callable: it gives no finite number, or not 0 for an object and itself,
            or, of the objects of the warm-up, not the same there and back. With
            ``clock="event_time"``: the time is missing, or no time. Nothing was learned.
        """
        if not self._takes_points:
            self._learn_object(x)
        elif self.clock == POSITION:
            self._learn_rows(self._read_point(x))
        else:
            self.learn_many([check_point(x)])  # one row of a column of times

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: narwhals eager frame, Arrow table, record batch, array, or dicts.

        With a callable metric a sequence of objects, of which those before a bad one are learned.
        Times as in `learn_one`, or a column.
        """
        if not self._takes_points:
            for x in self._list_objects(X):
                self._learn_object(x)
        else:
            points, times = self._split(X)
            rows = self._read_rows(points)
            if self.clock != POSITION:
                start = self._statistics.count_before(rows)
                rows = rows.take(slice(start, None))
                times = None if times is None else times[start:]
                before = self._times.trim(self._n_learned, self._n_learned + len(self._early))
                self._times = before.append(times, len(rows), self.max_skew)
            self._learn_rows(rows)

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Raises
        ------
        NotReadyError
            Before the warm-up ends: a warm-up is never cut short.
        """
        self.engine.flush()

    def _read_point(self, x: Any) -> FeatureRows:
        timed = self.clock != POSITION
        return self._read_rows([check_point(x)]) if timed else super()._read_point(x)

    def _read_rows(self, X: Any, name: str = "X") -> FeatureRows:
        return super()._read_rows(self._split(X)[0], name)

    def _split(self, X: Any) -> tuple[Any, Any]:
        """A mini-batch as points and times."""
        return (X, None) if self.clock == POSITION else split_times(X)

    def _build_config(self) -> Config:
        return Config(**self._get_parameters())

    def _get_parameters(self) -> dict[str, Any]:
        """Those of the engine inside."""
        own = {name: value for name, value in self._get_params().items() if name in DEFAULTS}
        points = {"metric": self.metric if self._takes_points else "euclidean"}
        return {"method": self.method, **own, **points}

    def _create_engine(self) -> Engine:
        return Engine(**self._build_config().as_dict())

    @property
    def _n_learned(self) -> int:
        return 0 if self._engine is None else self._engine.position

    def _learn_rows(self, rows: FeatureRows) -> None:
        self._learn_imputed(rows, self._warm_up_events)

    def _learn(self, points: Floats, names: tuple[str, ...], is_filled: Bools) -> None:
        engine = self._engine or self._create_engine()
        features = Features.of_names(names, engine.config.metric)
        rows = batch.check_table(points, features, NO_NULLS, {}, None, "raise")
        times = self._times.select(self._n_learned, self._n_learned + len(points))
        engine.learn(rows, times=None if self.clock == POSITION else times)
        self._engine = engine

    # ------------------------------------------------------------------ objects

    def _learn_object(self, x: Any) -> None:
        """Learn one object by its distances to the objects before it."""
        engine = self._engine or self._create_engine()
        row, own_id = (self._read_row if self._function is None else self._measure_row)(x, engine)
        engine.learn_distances([row], None if own_id is None else [own_id])
        self._engine = engine

    def _read_row(self, x: Mapping[Any, Any], engine: Engine) -> tuple[Floats, Any]:
        """The distances of an event, in the engine's order, and its id; None without ids."""
        x = _drop_missing(x)
        has_ids = bool(engine.has_ids if engine.position else x)
        row, own_id = precomputed.order_distances(x, engine.distance_row_ids, has_ids)
        has_numbers = engine.position > 0 and engine.distance_row_ids.dtype.kind == "i"
        if has_numbers and isinstance(own_id, str) and own_id.lstrip("-").isdigit():
            own_id = int(own_id)  # frames have string columns
        return row, own_id

    @property
    def _function(self) -> Callable[[Any, Any], Any] | None:
        """What is called with two objects; None where events are none."""
        return self.metric if callable(self.metric) else None

    @property
    def _takes_points(self) -> bool:
        """Whether events are points, not distances or objects."""
        return self._function is None and self.metric in ("euclidean", "cosine")

    def _list_objects(self, X: Any) -> Sequence[Any]:
        """The objects of a mini-batch."""
        if self._function is None:
            return precomputed.read_objects(X)
        if isinstance(X, str | bytes) or not isinstance(X, Iterable):
            raise InputError(
                f"X is {quote(X)}, one object: use learn_one or transform_one, or give a list of "
                "them"
            )
        return list(X)

    def _measure_distance(self, a: Any, b: Any) -> float:
        """What the function says of two objects; InputError where that is no finite number."""
        assert self._function is not None
        result = self._function(a, b)
        try:
            number = float(result)
        except (TypeError, ValueError, OverflowError):
            number = np.nan
        if not np.isfinite(number):
            raise InputError(
                f"the function of {quote(a)} and {quote(b)} is {quote(result)}; it must be a "
                "finite number"
            )
        return number

    def _measure_row(self, x: Any, engine: Engine) -> tuple[Floats, None]:
        """Distances to the objects that the engine holds; keeps the new one beside it."""
        keys = engine.distance_row_ids.tolist()
        row = np.array(
            [self._measure_distance(x, self._objects[key]) for key in keys], dtype=np.float64
        )
        if (row < -UNEVEN * row.max(initial=0.0)).any():
            raise InputError(f"the distance to {quote(x)} is negative: {quote(float(row.min()))}")
        row = np.maximum(row, 0.0)
        if not engine.ready:
            self._check_symmetry(x, [self._objects[key] for key in keys], row)
        # one more than the engine has, if the call fails: `_list_held_objects` leaves it out
        self._objects = {**self._list_held_objects(), engine.position: x}
        return row, None

    def _list_held_objects(self) -> dict[int, Any]:
        """Objects of the engine's events, by position."""
        engine = self._engine
        if engine is None:
            return {}
        retained = set(engine.distance_row_ids.tolist())
        # a window's snapshot has those of its last chunk, which may be no neighbours any more
        if engine.ready:
            retained.update(engine.support_ids.tolist())
        return {key: value for key, value in self._objects.items() if key in retained}

    def _check_symmetry(self, x: Any, others: Sequence[Any], row: Floats) -> None:
        """Refuse a function that is no distance, by the events of the warm-up."""
        scale = max(float(row.max(initial=0.0)), 1e-300)
        for other, there in zip([x, *others], [0.0, *row.tolist()], strict=True):
            back = self._measure_distance(other, x)
            if abs(back - there) > UNEVEN * scale:
                raise InputError(
                    f"metric({quote(other)}, {quote(x)}) is {back!r} and must be {there!r}: 0 of "
                    "an object and itself, and symmetric"
                )

    def __getstate__(self) -> dict[str, Any]:
        learned = self._n_learned
        return {
            **super().__getstate__(),
            "_objects": self._list_held_objects(),
            "_times": self._times.trim(learned, learned + len(self._early)),
        }


def _drop_missing(x: Mapping[Any, Any]) -> dict[Any, Any]:
    """The distances that are not None; InputError for anything but a dict of them."""
    return {key: value for key, value in check_point(x).items() if value is not None}


@dataclass_transform(eq_default=False)
def declare_map(cls: Class) -> Class:
    """Class decorator: give a map its `__init__` by annotated parameters, and document them."""
    return declare_parameters(
        {**PARAMETERS, **parse_parameter_texts(MapEstimator.__doc__)},
        lambda name, cls: "" if name == "spread" else describe_applicability(name, cls.method),
        MapEstimator.__doc__,
    )(cls)
