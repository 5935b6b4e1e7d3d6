"""`DiffusionMap`: the engine as a mini-batch transformer for river."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from streamembed.data import batch, impute, precomputed
from streamembed.data.batch import LARGEST_VALUE, Batch
from streamembed.data.features import Features
from streamembed.data.impute import FeatureRows
from streamembed.data.output_format import name_columns, to_table
from streamembed.data.table import are_positions, check_point, with_text_keys
from streamembed.data.values import NO_NULLS
from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import NotReadyError
from streamembed.estimators.cold_start import ColdStartTransformer
from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats
from streamembed.validation import check_choice, check_optional, check_whole


class DiffusionMap(ColdStartTransformer):
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
    method, n_components, memory, size, half_life, kernel, n_neighbors, width, weights, radius
        See `streamembed.Engine`.
    degree, coef0, gamma, reg, n_landmarks
        See `streamembed.Engine`.
    bandwidth, alpha, diffusion_time, rank, tolerance, chunk_size, warm_up, scaling, seed
        See `streamembed.Engine`.
    hold
        Events for which new points are placed in one and the same snapshot, so that you can
        compare their coordinates: a new snapshot is taken where the stream comes to a
        multiple of it, and ``renewals`` counts how often. None: always the newest.
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
    ['diffusion_map_0', 'diffusion_map_1']
    >>> model.snapshot().certificate.met
    True
    """

    _largest = LARGEST_VALUE

    def __init__(
        self,
        method: str = "diffusion_map",
        n_components: int = 2,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        kernel: Any = "self_tuning",
        n_neighbors: int = 15,
        width: float | str = "auto",
        weights: str = "self_tuning",
        radius: float | None = None,
        bandwidth: float | str = "auto",
        alpha: float | str = "auto",
        diffusion_time: float = 1.0,
        degree: int = 3,
        coef0: float = 1.0,
        gamma: float | None = None,
        reg: float = 1e-3,
        n_landmarks: int | None = None,
        rank: int | str = "auto",
        tolerance: float | None = 3e-3,
        chunk_size: int = 10,
        warm_up: int | None = None,
        scaling: str | None = "standard",
        seed: int = 0,
        hold: int | None = None,
        metric: Any = "euclidean",
    ) -> None:
        self.method = method
        self.n_components = n_components
        self.memory = memory
        self.size = size
        self.half_life = half_life
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.width = width
        self.weights = weights
        self.radius = radius
        self.bandwidth = bandwidth
        self.alpha = alpha
        self.diffusion_time = diffusion_time
        self.degree = degree
        self.coef0 = coef0
        self.gamma = gamma
        self.reg = reg
        self.n_landmarks = n_landmarks
        self.rank = rank
        self.tolerance = tolerance
        self.chunk_size = chunk_size
        self.warm_up = warm_up
        self.scaling = scaling
        self.seed = seed
        self.hold = check_optional(check_whole, "hold", hold, 1)
        self.metric = metric
        self._held: tuple[Snapshot | None, int] = None, 0  # and how often one was taken
        self._check_metric(metric)
        self._warm_up_events = self._config().warm_up_events
        self._engine: Engine | None = None
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"warm_up": 12, "chunk_size": 4, "size": 64, "n_components": 2}
        yield {"warm_up": 15, "chunk_size": 5, "memory": "all", "tolerance": None}

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

    @property
    def renewals(self) -> int:
        """How often the snapshot that is held was taken; 0 without ``hold``."""
        return self._renewed()[1]

    def snapshot(self) -> Snapshot:
        """The engine's snapshot; NotReadyError before the warm-up ends."""
        return self.engine.snapshot()

    def transform_one(self, x: Mapping[Any, Any]) -> dict[Any, Any]:
        """Coordinates of one point, by names such as ``isomap_0``; zeros in the warm-up."""
        if self.metric == "precomputed":
            with_text_keys(check_point(x))
            return self._name_coordinates(self._place_objects_by_distances([x]))
        return super().transform_one(x)

    def transform_many(self, X: Any) -> Any:
        """Coordinates of a mini-batch, as the same kind of data frame (pandas with its index).

        Arrays come back as arrays, lists of dicts as lists of dicts, record batches as record
        batches. Columns are called as the keys of `transform_one`.
        """
        if self.metric == "precomputed":
            objects, frame = precomputed.read_objects(X)
            coordinates = self._place_objects_by_distances(objects)
            return to_table(coordinates, X, frame, name_columns(self.prefix, self.n_components))
        return super().transform_many(X)

    @property
    def prefix(self) -> str:
        """What coordinates are called after: the method."""
        return self.method

    def _place(self, rows: FeatureRows) -> Floats:
        """Coordinates of points, (n, n_components)."""
        if not self.ready:
            return np.zeros((len(rows), self.n_components))
        points, unknown = rows.arrange(self._names)
        if unknown or np.isnan(points).any():
            points = self._fill(self._count_missing((points, unknown)))
        features = self.engine.features
        assert features is not None
        placed: Floats = self._shown().transform(Batch.of_points(points, features))
        return placed

    def _place_objects_by_distances(self, objects: Sequence[Mapping[Any, Any]]) -> Floats:
        """Coordinates of objects by their distances to the snapshot's objects."""
        if not self.ready:
            return np.zeros((len(objects), self.n_components))
        snapshot = self._shown()
        distances = [_drop_missing(x) for x in objects]
        return snapshot.transform_distances(precomputed.read_distances(distances, snapshot.ids))

    def _shown(self) -> Snapshot | Picture:
        """What new points are placed in."""
        snapshot = self._renewed()[0]
        return self.snapshot() if snapshot is None else snapshot

    def _renewed(self) -> tuple[Snapshot | None, int]:
        """The snapshot that is held: a new one where the stream has come to a multiple of ``hold``.

        It is taken whenever it is asked for, and kept before more is learned: not after learning,
        where an interrupt may come between the two.
        """
        engine, (snapshot, count) = self._engine, self._held
        if self.hold is None or engine is None or not engine.ready:
            return snapshot, count
        if snapshot is None or engine.learned // self.hold > snapshot.position // self.hold:
            return engine.publish(), count + 1
        return snapshot, count

    # ------------------------------------------------------------------ learning

    def learn_one(self, x: Mapping[Any, Any]) -> None:
        """Learn one event of the stream.

        With ``metric="precomputed"`` x holds the distances to all objects in the engine
        (``engine.distance_row_ids``), by id, and 0 to its own id. If the first event is an
        empty dict, objects have no ids but their positions, and x has no distance to itself.

        Raises
        ------
        InputError
            Only with ``metric="precomputed"``: an id is missing, unknown or forgotten, or a
            distance is invalid; nothing was learned.
        """
        if self.metric == "precomputed":
            self._learn_object_by_distances(x)
        else:
            self._take(self._read_point(x))

    def learn_many(self, X: Any) -> None:
        """Learn a mini-batch: narwhals eager frame, Arrow table, record batch, array, or dicts."""
        if self.metric == "precomputed":
            for x in precomputed.read_objects(X)[0]:
                self._learn_object_by_distances(x)
        else:
            self._take(self._read_rows(X))

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Raises
        ------
        NotReadyError
            Before the warm-up ends: a warm-up is never cut short.
        """
        self._held = self._renewed()
        self.engine.flush()

    def _check_metric(self, metric: Any) -> None:
        check_choice("metric", metric, ("euclidean", "precomputed"))

    def _read_point(self, x: Any) -> FeatureRows:
        return impute.read_point(x, self._largest, 0.0)

    def _read_rows(self, X: Any) -> FeatureRows:
        """Rows of a mini-batch; arrays only where features are known by their places."""
        rows = impute.read(X, self._largest, 0.0)
        is_settled = bool(self._names) and len(rows) > 0
        if rows.ordered and (is_settled or not are_positions(self._observed_names)):
            rows.check(self._observed_names, "this embedding")
        return rows

    def _config(self) -> Config:
        return Config(**self._parameters())

    def _parameters(self) -> dict[str, Any]:
        """Those of the engine that this class has."""
        names = (field.name for field in fields(Config))
        return {name: vars(self)[name] for name in names if name in vars(self)}

    @property
    def _learned(self) -> int:
        return 0 if self._engine is None else self._engine.position

    def _take(self, rows: FeatureRows) -> None:
        self._complete(rows, self._warm_up_events)

    def _learn(self, points: Floats, names: tuple[str, ...]) -> None:
        self._held = self._renewed()
        engine = self._engine or Engine(**self._config().as_dict())
        engine.admit(
            batch.check_table(points, Features.of_names(names), NO_NULLS, {}, None, "raise")
        )
        self._engine = engine

    def _learn_object_by_distances(self, x: Mapping[Any, Any]) -> None:
        """Learn one object by its distances to the objects before it."""
        x = _drop_missing(x)
        self._held = self._renewed()
        engine = self._engine or Engine(**self._config().as_dict())
        has_ids = bool(engine.has_ids if engine.position else x)
        row, own_id = precomputed.order_distances(x, engine.distance_row_ids, has_ids)
        if (
            isinstance(own_id, str)
            and engine.distance_row_ids.dtype.kind == "i"
            and engine.position
        ):
            own_id = (
                int(own_id) if own_id.lstrip("-").isdigit() else own_id
            )  # frames have string columns
        engine.admit_distances([row], None if own_id is None else [own_id], "raise")
        self._engine = engine

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_held": self._renewed()}


def _drop_missing(x: Mapping[Any, Any]) -> dict[Any, Any]:
    """The distances that are not None; InputError for anything but a dict of them."""
    return {key: value for key, value in check_point(x).items() if value is not None}
