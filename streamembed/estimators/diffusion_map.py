"""`DiffusionMap`: the engine as a mini-batch transformer for river."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from river import base
from river.utils.dataframe import to_native_frame

from streamembed.data import batch, impute, precomputed
from streamembed.data.batch import Batch
from streamembed.engine.config import Config
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, InputError, NotReadyError, shown
from streamembed.numeric.arrays import Floats
from streamembed.parameters import one_of

__all__ = ["DiffusionMap"]

_NO_NULLS = np.zeros((0, 0), dtype=bool)


class DiffusionMap(base.MiniBatchTransformer):
    """Diffusion coordinates of a stream, kept up to date, as a river transformer.

    The parameters are those of `streamembed.Engine`, with its defaults. ``learn_many`` in any split
    and ``learn_one`` n times give the same state, bit for bit. Three policies are specific to this
    class; the engine inside is strict:

    - *Cold start.* Until the warm-up ends ``transform_one`` returns zeros, of the final width.
    - *Features.* The features are those seen during the warm-up, ordered by name, or by position
      for arrays. A feature that appears later is ignored, and counted in ``ignored``. If features
      have names, arrays are refused.
    - *Missing values.* A feature that is absent, null, NaN, infinite, too large or not a number is
      replaced by its mean over the stream so far, 0 before anything was seen, and counted in
      ``imputed``.

    A snapshot is made when ``transform_one`` first needs it after a chunk was learned: a few
    milliseconds for a window of 2,000, certified. If you transform after every event, use a larger
    ``chunk_size`` or ``tolerance=None``.

    Parameters
    ----------
    method, n_components, memory, size, half_life, kernel, bandwidth, alpha, diffusion_time
        See `streamembed.Engine`.
    rank, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.
    metric
        "euclidean": events are points; "precomputed": an event is a dict ``{id: distance}`` to the
        objects before it (see `learn_one`).

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = DiffusionMap(n_components=2, warm_up=50)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    [0, 1]
    >>> model.snapshot().certificate.met
    True
    """

    def __init__(
        self,
        method: str = "diffusion_map",
        n_components: int = 2,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        kernel: str = "gaussian",
        bandwidth: float | str = "auto",
        alpha: float = 1.0,
        diffusion_time: float = 1.0,
        rank: int | str = "auto",
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
        metric: str = "euclidean",
    ) -> None:
        self.method = method
        self.n_components = n_components
        self.memory = memory
        self.size = size
        self.half_life = half_life
        self.kernel = kernel
        self.bandwidth = bandwidth
        self.alpha = alpha
        self.diffusion_time = diffusion_time
        self.rank = rank
        self.tolerance = tolerance
        self.chunk_size = chunk_size
        self.warm_up = warm_up
        self.scaling = scaling
        self.seed = seed
        self.metric = metric
        self.imputed = 0
        self.ignored = 0
        one_of("metric", metric, ("euclidean", "precomputed"))
        self._warm_up_events = self._config().warm_up_events
        self._early: list[dict[str, float]] = []  # rows of the warm-up, until the schema is settled
        self._engine: Engine | None = None
        self._names: tuple[str, ...] = ()
        self._sums: Floats = np.zeros(0)
        self._counts: Floats = np.zeros(0)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
        yield {"warm_up": 15, "chunk_size": 1, "memory": "all", "tolerance": None}

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
                "come: the features are not settled yet"
            )
        return self._engine

    def snapshot(self) -> Snapshot:
        """The engine's snapshot; NotReadyError before the warm-up ends."""
        return self.engine.snapshot()

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Coordinates of one point, keys 0 to n_components - 1; zeros before the warm-up ends."""
        named = batch.row_by_name(impute.one_point(x))
        if self._engine is None or not self._engine.ready:
            return dict.fromkeys(range(self.n_components), 0.0)
        if self.metric == "precomputed":
            return dict(enumerate(self._placed([x])[0].tolist()))
        row = self._row(named)[0]
        return dict(enumerate(self._transformed(row[None])[0].tolist()))

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are 0 to n_components - 1, as strings where frames must have strings.
        """
        given, frame = self._read(X)
        if self._engine is None or not self._engine.ready:
            coordinates = np.zeros((len(given), self.n_components))
        elif self.metric == "precomputed":
            coordinates = self._placed(given)
        else:
            points = np.empty((len(given), len(self._names)))
            for i, row in enumerate(given):
                points[i] = self._row(row)[0]
            coordinates = self._transformed(points)
        columns = list(range(self.n_components))
        if _is_array(X):
            return coordinates
        if isinstance(X, pa.RecordBatch):
            return pa.record_batch({str(j): coordinates[:, j] for j in columns})
        if frame is None:
            return [dict(zip(columns, row, strict=True)) for row in coordinates.tolist()]
        return to_native_frame({j: coordinates[:, j] for j in columns}, like=frame)

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn one event of the stream.

        With ``metric="precomputed"`` x holds the distances to all objects in the engine
        (``engine.row_ids``), by id, and 0 to its own id. If the first event of the stream is an
        empty dict, objects have no ids but their positions, and x has no distance to itself.

        Raises
        ------
        InputError
            Only with ``metric="precomputed"``: an id is missing, unknown or forgotten, or a
            distance is invalid; nothing was learned.
        """
        x = impute.one_point(x)
        self._learn(x if self.metric == "precomputed" else batch.row_by_name(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: narwhals eager frame, Arrow table, record batch, array, or dicts."""
        for row in self._read(X)[0]:
            self._learn(row)

    def _read(self, X: Any) -> tuple[Sequence[Mapping[Any, Any]], Any]:
        """Rows of a mini-batch; arrays only where features are known by their places."""
        is_array = _is_array(X)
        if self.metric == "precomputed" and isinstance(X, Sequence) and not is_array:
            return X, None  # keys as they are: ids may be numbers
        given, frame = _rows(X)
        known = self._names or {name for row in self._early for name in row}
        if is_array and known and not impute.are_places(known):
            raise FeatureError(
                f"X has no feature names, and those that are known are {shown(sorted(known))}: "
                "pass a frame or dicts, so that columns cannot be mixed up"
            )
        if is_array and self._names and given and len(given[0]) != len(self._names):
            raise FeatureError(
                f"X has {len(given[0])} columns; this map learns {len(self._names)} features"
            )
        return given, frame

    def _transformed(self, points: Floats) -> Floats:
        """Coordinates of points whose columns are in order."""
        assert self._engine is not None
        index = np.arange(len(points), dtype=np.int64)
        checked = Batch(points, self._names, impute.are_places(self._names), None, index, ())
        return self._engine.snapshot().transform(checked)

    def _config(self) -> Config:
        return Config(
            method=self.method,
            n_components=self.n_components,
            memory=self.memory,
            size=self.size,
            half_life=self.half_life,
            kernel=self.kernel,
            bandwidth=self.bandwidth,
            alpha=self.alpha,
            diffusion_time=self.diffusion_time,
            rank=self.rank,
            tolerance=self.tolerance,
            chunk_size=self.chunk_size,
            warm_up=self.warm_up,
            scaling=self.scaling,
            seed=self.seed,
        )

    def _learn(self, row: Mapping[Any, Any]) -> None:
        if self.metric == "precomputed":
            self._learn_distances(row)
            return
        if self._engine is not None:
            self._push(row)
            return
        usable = {name: _number(value) for name, value in row.items()}
        self._early.append(usable)
        if len(self._early) < self._warm_up_events:
            return
        names = {name for early in self._early for name in early}
        self._names = impute.in_order(names) or ("0",)
        self._sums = np.zeros(len(self._names))
        self._counts = np.zeros(len(self._names))
        self._engine = Engine(**self._config().as_dict())
        early, self._early = self._early, []
        for each in early:
            self._push(each)

    def _learn_distances(self, x: Mapping[Any, Any]) -> None:
        engine = self._engine or Engine(**self._config().as_dict())
        x = {key: value for key, value in impute.one_point(x).items() if value is not None}
        named = bool(engine.names_things if engine.position else x)
        row, own = precomputed.row_of(x, engine.row_ids, named)
        if isinstance(own, str) and engine.row_ids.dtype.kind == "i" and engine.position:
            own = int(own) if own.lstrip("-").isdigit() else own  # frames have string columns
        engine.admit_distances([row], None if own is None else [own], "raise")
        self._engine = engine

    def _placed(self, given: Sequence[Mapping[Any, Any]]) -> Floats:
        """Coordinates of things by their distances to what the snapshot holds."""
        snapshot = self.snapshot()
        known = [
            {key: value for key, value in impute.one_point(x).items() if value is not None}
            for x in given
        ]
        return snapshot.transform_distances(precomputed.distances_to(known, snapshot.ids))

    def _push(self, row: Mapping[str, Any]) -> None:
        """Impute by the means so far, learn, and let the means know what was seen."""
        assert self._engine is not None
        values, seen = self._row(row)
        ordered = impute.are_places(self._names)
        self._engine.admit(
            batch.checked(values[None], self._names, ordered, _NO_NULLS, {}, None, "raise")
        )
        self._sums += np.where(seen, values, 0.0)
        self._counts += seen
        self.imputed += len(seen) - int(seen.sum())
        self.ignored += len(row.keys() - set(self._names))

    def _row(self, row: Mapping[str, Any]) -> tuple[Floats, Any]:
        """The features in order, missing ones by their mean, shape (d,), and which were there."""
        values = np.array([_number(row.get(name, math.nan)) for name in self._names])
        seen = values == values
        if not seen.all():
            means = self._sums / np.maximum(self._counts, 1.0)
            values = np.where(seen, values, means)
        return values, seen


def _number(value: Any) -> float:
    """A usable float, or NaN for whatever must be imputed."""
    return impute.usable(value, batch.LARGEST_VALUE, 0.0)


def _rows(X: Any) -> tuple[list[dict[str, Any]], Any]:
    """The rows as dicts by feature name, and the narwhals frame they came in, if it was one."""
    if isinstance(X, Mapping):
        raise InputError("X is a dict; one point is learn_one(x), or a list of one dict")
    if isinstance(X, Sequence) and not isinstance(X, (str, bytes, bytearray, memoryview)):
        if all(isinstance(row, Mapping) for row in X):
            return [batch.row_by_name(row) for row in X], None
        X = batch.as_array(X)
    if isinstance(X, (np.ndarray, memoryview)):
        table = np.asanyarray(X)
        if table.ndim != 2 or table.dtype.kind not in "biufO":
            raise FeatureError(
                f"X has shape {table.shape} and dtype {table.dtype}; it must be (n, d), numeric"
            )
        names = list(map(str, range(table.shape[1])))
        return [dict(zip(names, row, strict=True)) for row in table.tolist()], None
    frame = impute.frame_of(X)
    names = [batch.feature_name(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise FeatureError(f"X has columns of the same name: {shown(names)}")
    columns = [frame.get_column(name).to_list() for name in frame.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)], frame


def _is_array(X: Any) -> bool:
    """Whether the columns of a table have no names."""
    if isinstance(X, (np.ndarray, memoryview)):
        return True
    return isinstance(X, Sequence) and not all(isinstance(row, Mapping) for row in X)
