"""The engine: the only mutable object. What a chunk does is in `streamembed.methods.update`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self, TypeVar

import pyarrow as pa

from streamembed.data.features import NO_FEATURES, Features
from streamembed.data.labels import LabelIndex
from streamembed.engine import call as calls
from streamembed.engine import diagnostics, from_landmarks, saved_engine
from streamembed.engine.apply import Steps, apply
from streamembed.engine.call import (
    Call,
    Command,
    Distances,
    Labelled,
    Labels,
    Learned,
    Pairs,
    Points,
)
from streamembed.engine.engine_state import EngineState
from streamembed.engine.saved_engine import SavedEngine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    ConcurrentUseError,
    CostWarning,
    DegenerateMapWarning,
    InputError,
    ParameterError,
    ResolutionWarning,
    ScalingWarning,
    format_count,
    warn,
)
from streamembed.merging import landmark_set
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.merging.landmark_set import LARGEST_PARTITION, LandmarkSet
from streamembed.methods import publish
from streamembed.methods.engine_parameters import (
    METHODS,
    OPTIONS,
    EngineParameters,
    describe_applicability,
)
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.metrics.catalog import STATES
from streamembed.notebook import write_table
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array, Ints
from streamembed.parameters import (
    OWNERS,
    HintedAttributes,
    parse_parameter_texts,
    reject_unknown_parameters,
    write_parameter_texts,
)
from streamembed.storage.saved_object import SavedObject
from streamembed.threads import FairQueue, one_blas_thread
from streamembed.validation import check_flag, check_whole

T = TypeVar("T")
Result = TypeVar("Result")

# What to do before the first snapshot.
EARLY = "learn more, or create the engine with a smaller warm_up"


@reject_unknown_parameters
class Engine(HintedAttributes, SavedObject):
    """An embedding of a stream, updated chunk by chunk, in bounded memory.

    Raises
    ------
    ParameterError
        A parameter cannot have that value, alone or in combination with others.

    Warns
    -----
    CostWarning
        Parameters make every chunk more than ten times as expensive as usual.

    Examples
    --------
    >>> import numpy as np
    >>> engine = Engine(n_components=2, size=100, seed=0)
    >>> angle = np.linspace(0, 6.28, 120)
    >>> engine.learn(np.column_stack([np.cos(angle), np.sin(angle)])).accepted
    120
    >>> snapshot = engine.snapshot()
    >>> snapshot.coordinates.shape, snapshot.certificate.met
    ((100, 2), True)
    """

    _hints: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("fit", "partial_fit", "learn_one", "learn_many", "update"), "learn(X)"),
        **dict.fromkeys(
            ("transform", "transform_one", "transform_many", "predict"), "snapshot().transform(X)"
        ),
        "fit_transform": "learn(X), then snapshot().transform(X)",
        "embedding_": "snapshot().coordinates",
    }

    _kind: ClassVar[str] = "engine"
    _kinds = STATES

    def __init__(
        self,
        method: str = "diffusion_map",
        n_components: int = 2,
        memory: str = "window",
        size: int = 2000,
        half_life: float | None = None,
        clock: str = "position",
        max_skew: float | None = None,
        kernel: str = "self_tuning",
        n_neighbors: int = 15,
        width: float | str = "auto",
        weights: str = "self_tuning",
        radius: float | None = None,
        bandwidth: float | str = "auto",
        alpha: float | str = "auto",
        diffusion_time: float | str = "auto",
        degree: int = 3,
        coef0: float = 1.0,
        gamma: float | None = None,
        reg: float = 1e-3,
        n_landmarks: int | None = 500,
        rank: int | str = "auto",
        axes: str = "auto",
        tolerance: float | None = 3e-3,
        chunk_size: int | str = "auto",
        warm_up: int | None = None,
        metric: str = "euclidean",
        scaling: str | None = "standard",
        metrics: Sequence[str] = (),
        picture: bool = False,
        spread: float = 1.5,
        on_bad_row: str = "raise",
        seed: int = 0,
    ) -> None:
        parameters = dict(locals())
        del parameters["self"]
        self.config = Config(**parameters)
        self._progress = EngineState()  # replaced as a whole, by one assignment
        self._learning, self._rings = FairQueue(waits=False), FairQueue()
        self._published: dict[bool, tuple[State, Snapshot]] = {}  # by whether they are fresh
        self._warned: set[tuple[type[Warning], int]] = set()
        self._scaling_checked = -1  # position of the frame under which it was
        self._warn(diagnostics.describe_chunk_cost(self.config), CostWarning)

    def __repr__(self) -> str:
        progress, config = self._progress, self.config
        memory = {"window": f"window of {config.size:,}", "landmarks": f"{config.size:,} landmarks"}
        extras = [*config.metrics, *(["a picture"] if config.picture else [])]
        missing = config.warm_up_events - progress.position
        state = "ready" if self.ready else f"{missing:,} events before its first snapshot"
        return (
            f"<Engine {config.method} in {format_count(config.n_components, 'component')}, "
            f"{memory.get(config.memory, 'all events')}"
            f"{''.join(', ' + extra for extra in extras)}; at event {progress.position:,}: "
            f"{self._feature_summary}, {state}>"
        )

    def _repr_html_(self) -> str:
        """What notebooks show: settings and progress; no snapshot is made for it."""
        config = self.config
        memory = config.memory if config.memory == "all" else f"{config.memory} of {config.size:,}"
        names = ": " + ", ".join(self.feature_names) if self.feature_names else ""
        missing = config.warm_up_events - self.position
        rows: list[tuple[str, object]] = [
            ("method", config.method),
            ("components", config.n_components),
            ("memory", memory),
            ("features", self._feature_summary + names),
            ("events learned", self.learned),
            ("events a chunk", config.chunks.size),
            ("pending", self.pending),
            ("rejected rows", self.rejected),
            ("ready", self.ready or f"{format_count(missing, 'event')} before the first snapshot"),
            ("metrics", tuple(config.metrics)),
            ("picture", config.picture),
        ]
        return write_table(f"Engine at event {self.position:,}", rows)

    @property
    def _feature_summary(self) -> str:
        """Of what the engine learns, for its repr."""
        if self.learns_distances:
            return "distances"
        count = len(self.feature_names)
        return format_count(count, "feature") if count else "no features yet"

    # ------------------------------------------------------------------ turns

    def _run_in_turn(self, queue: FairQueue, work: Callable[[], T]) -> T:
        """Do work in its turn.

        Of `_learning` if it changes the engine: ConcurrentUseError if another thread does. Of
        `_rings` if it reads them: after the chunk that another thread is learning.
        """
        if self._learning.is_own_turn() or self._rings.is_own_turn():
            raise ConcurrentUseError(
                "this engine is already at work in this thread, and was called again from a signal "
                "handler or a callback: this call had no effect; repeat it when the first call has "
                "returned"
            )
        try:
            return queue.run(work)
        except SystemError as error:
            if _was_interrupted(error):
                raise KeyboardInterrupt from error
            raise

    def _learn(self, read: Callable[[], Call[Result]]) -> Result:
        """In its turn, read a call and become, step by step, what it leads to."""

        def work() -> Result:
            steps = apply(self._progress, read(), self.config)
            while True:
                try:
                    self._rings.run(self._advance, steps)
                except StopIteration as end:
                    result: Result = end.value
                    return result

        return self._run_in_turn(self._learning, work)

    def _advance(self, steps: Steps) -> None:
        self._progress = after = next(steps)
        if after.state is not None and after.state.distances is not None:
            after.state.distances.commit()  # the state before can no longer be read

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True once the warm-up is over: `snapshot` then works."""
        return self._progress.state is not None

    @property
    def position(self) -> int:
        """Events accepted so far, learned and pending."""
        return self._progress.position

    @property
    def learned(self) -> int:
        """Events in whole chunks, or flushed: those that the next snapshot will know of."""
        return self._progress.learned

    @property
    def pending(self) -> int:
        """Accepted events whose chunk is not complete yet."""
        return self._progress.pending

    @property
    def rejected(self) -> int:
        """Rows rejected since the first event."""
        return self._progress.rejected

    @property
    def state_token(self) -> object:
        """Another object after every change: compare it by identity to detect changes."""
        return self._progress

    @property
    def log_offset(self) -> int:
        """Rows of its log that a replay has taken, accepted or not: where to resume; 0 without."""
        return self._progress.log_offset

    @log_offset.setter
    def log_offset(self, rows: int) -> None:
        count = check_whole("log_offset", rows, 0)
        self._run_in_turn(
            self._learning,
            lambda: setattr(self, "_progress", replace(self._progress, log_offset=count)),
        )

    @property
    def unlearned(self) -> int:
        """Events with a label beyond the first 1,000 classes, learned without their label."""
        return self._progress.labels.unlearned

    @property
    def refreshes(self) -> int:
        """Products with all weights so far, without those of snapshots; of graphs and paths 0."""
        state = self._progress.state
        return 0 if state is None else state.counts.refreshes

    @property
    def refilled(self) -> int:
        """Slots filled again, since the first event, because their kernel width had drifted."""
        state = self._progress.state
        return 0 if state is None else state.counts.refilled

    @property
    def features(self) -> Features | None:
        """Names of the features, and whether they are places; None before the first batch."""
        return self._progress.features

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the engine's order; empty before the first batch, and for distances."""
        return self._progress.feature_names

    @property
    def learns_distances(self) -> bool | None:
        """True if the first call brought distances, False for points; None before it."""
        features = self._progress.features
        return None if features is None else not features.names

    @property
    def has_ids(self) -> bool | None:
        """True if events have ids of their own; None before the first event."""
        kind = self._progress.ids_kind
        return None if kind is None else kind != "positions"

    @property
    def support_ids(self) -> Array:
        """Ids of the support, oldest first, shape (N,); empty during the warm-up."""
        return self._progress.support_ids

    @property
    def support_positions(self) -> Ints:
        """Stream positions of the support, in the order of ``support_ids``, shape (N,)."""
        return self._progress.support_positions

    @property
    def distance_row_ids(self) -> Array:
        """Ids to which the next distance row must hold distances, in order, shape (L,)."""
        return self._progress.distance_row_ids(self.config)

    def snapshot(self, fresh: bool = False) -> Snapshot:
        """The embedding of the support after the last complete chunk, with its certificate.

        The same object until the state changes; reading changes nothing. If another thread is
        learning, a new snapshot waits for the chunk being learned.

        Parameters
        ----------
        fresh
            Of a graph of neighbours: bound the eigenvalues that are not published as of now,
            so that ``certificate.bound_age`` is 0. Costs about as much as learning a chunk. Other
            methods always do.

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        ConcurrentUseError
            In a signal handler or callback, while the same thread uses this engine.

        Warns
        -----
        ResolutionWarning
            Once, if landmarks are too far apart for the kernel.
        CostWarning
            Once, if the tolerance required the last refinement level and the snapshot cost more
            than ten times the usual.
        ScalingWarning
            Once, and again after every rescaling, if a feature varies more than 20 times as much,
            or as little, as when its scaling was taken.
        DegenerateMapWarning
            Once, and again after every rescaling, if a component is carried by a few points
            or is all zeros, or all components do nothing but tell separate parts apart.
        """
        snapshot = self.publish(check_flag("fresh", fresh))
        self._warn(diagnostics.describe_coarse_landmarks(snapshot), ResolutionWarning)
        self._warn(diagnostics.describe_snapshot_cost(self.config, snapshot), CostWarning)
        self._warn(diagnostics.describe_degenerate_map(snapshot), DegenerateMapWarning, renews=True)
        return snapshot

    def publish(self, fresh: bool = False) -> Snapshot:
        """`snapshot` with a warning of its scaling alone, for internal use."""
        published = self._published.get(fresh)
        if published is None or published[0] is not self._progress.state:
            published = self._run_in_turn(self._rings, lambda: self._make_snapshot(fresh))
        state, snapshot = published
        if self._scaling_checked != state.frame.position:  # half of the support is new
            self._scaling_checked = state.frame.position
            message = diagnostics.describe_changed_scaling(snapshot, self.config)
            self._warn(message, ScalingWarning, renews=True)
        return snapshot

    def _make_snapshot(self, fresh: bool) -> tuple[State, Snapshot]:
        state = self._progress.need_state(self.config, EARLY)
        known = {kind: one for kind, one in self._published.items() if one[0] is state}
        with one_blas_thread():
            source = publish.renew_eigenvalue_bound(state, self.config) if fresh else state
            differs = source is not state  # from the snapshot that is not fresh
            if differs not in known:
                features = self._progress.features or NO_FEATURES
                known[differs] = state, Snapshot.of(source, self.config, features)
        self._published = {**known, fresh: known[differs]}
        return known[differs]

    def _warn(self, message: str | None, kind: type[Warning], renews: bool = False) -> None:
        """Warn, each kind once; where it renews, once a scaling."""
        state = self._progress.state
        scaling = 0 if state is None or not renews else state.counts.rebuilds
        if message is not None and (kind, scaling) not in self._warned:
            self._warned.add((kind, scaling))
            warn(message, kind)

    # ------------------------------------------------------------------ learning

    def learn(
        self, X: Any, y: Any = None, ids: Any = None, features: Any = None, times: Any = None
    ) -> Learned:
        """Learn more events of the stream; every complete chunk is learned at once.

        Parameters
        ----------
        X
            Points, shape (n, d): ndarray, Arrow record batch, table or array of lists,
            RecordBatchReader or any object with an Arrow capsule, any eager data frame that
            narwhals knows, list of dicts.
            A reader is consumed batch by batch, each batch like a call of its own. Of a table with
            named columns, and of dicts, some are reserved, as in a log: a column ``id`` has the
            ids, ``label`` the labels, if these are not given, and ``event_time`` the times, with
            clock "event_time". Columns named like ids, times or targets (``user_id``,
            ``timestamp``, ``target``; ``y`` without an ``x``) are left out. The others are the
            features; or its only one, of lists of numbers of one length.
        y
            One label per row, for the ``metrics`` of the engine: a string, number or boolean, None
            or NaN if unknown. None if there are no labels.
        ids
            One whole number or string per row; default: the stream positions. The first call
            decides whether events have ids.
        features
            Names or patterns of the columns of a table, or of the keys of dicts, to learn,
            whatever their names; None for all that are not left out. Features once learned are
            features in every later call.
        times
            With clock "event_time": a number or timestamp per row; default: the column
            ``event_time`` of a table.

        Returns
        -------
        Learned

        Raises
        ------
        FeatureError
            The features are not those of the first call, or not numeric, or there are none.
        BadRowError, DuplicateIdError
            With ``on_bad_row="raise"``; nothing of the call was learned.
        ConcurrentUseError
            The engine is learning already: in another thread, or in a call that this one
            interrupts. Nothing of the call was learned.

        Warns
        -----
        ColumnWarning
            In the first call, where nothing was chosen: columns are left out because they are named
            like ids, times or targets.
        """
        if isinstance(X, pa.RecordBatchReader):
            if ids is not None or y is not None or times is not None:
                raise ParameterError(
                    "ids, y and times cannot be combined with a record batch reader: learn its "
                    "batches one by one"
                )
            parts = [self.learn(part, features=features) for part in X]
            rejected = tuple(row for part in parts for row in part.rejected)
            return Learned(sum(part.accepted for part in parts), rejected)
        if isinstance(X, list) and not X:
            return Learned(0, ())
        return self._learn(
            lambda: calls.read_points(self._progress, self.config, X, y, ids, features, times)
        )

    def check(
        self, X: Any, y: Any = None, ids: Any = None, features: Any = None, times: Any = None
    ) -> Points:
        """Check a call of `learn` and learn nothing yet: `apply` does.

        In between you can write the call down (`Call.to_bytes`), so that it can be repeated from
        `Call.from_bytes` if the process dies. `check_distances`, `check_pairs` and `check_labels`
        check calls of the other methods; ``Command("flush")``, ``"rescale"`` and ``"relayout"``
        are those without arguments.

        Parameters
        ----------
        X, y, ids, features, times
            As in `learn`; a reader is read to its end.

        Returns
        -------
        Call

        Raises
        ------
        FeatureError, BadRowError, InputError, ParameterError
            As `learn`. Ids and times are compared with those of earlier events by `apply`.

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed import Call
        >>> engine, X = Engine(size=100), np.random.default_rng(0).standard_normal((150, 2))
        >>> written = engine.check(X).to_bytes()
        >>> engine.position, engine.apply(Call.from_bytes(written)).accepted
        (0, 150)
        """
        call = calls.read_points(self._progress, self.config, X, y, ids, features, times)
        return call._checked(self.config)

    def check_distances(self, rows: Any, ids: Any = None) -> Distances:
        """Check a call of `learn_distances`, as `check`; rows are checked by `apply`."""
        return calls.read_distances(rows, ids)._checked(self.config)

    def check_pairs(self, X1: Any, X2: Any, similar: Any) -> Pairs:
        """Check a call of `learn_pairs`, as `check`."""
        return calls.read_pairs(self._progress, self.config, X1, X2, similar)._checked(self.config)

    def check_labels(self, ids: Any, y: Any) -> Labels:
        """Check a call of `label`, as `check`."""
        return calls.read_labels(self._progress, ids, y)._checked(self.config)

    def apply(self, call: Call[Result]) -> Result:
        """Learn a checked call: what `learn`, `label` and the other methods do after they check.

        Applied in the same order to engines of the same parameters, calls give the same bytes.

        Returns
        -------
        What the method of the call returns.

        Raises
        ------
        DuplicateIdError, BadRowError
            As the method; nothing of the call was learned.
        FeatureError, InputError, ParameterError
            The call is of an engine of other features or parameters.
        NotReadyError
            A "flush", "rescale" or "relayout" before the warm-up ends.
        ConcurrentUseError
            As `learn`.
        """
        if not isinstance(call, Call):
            raise InputError(
                f"call is a {type(call).__name__}; it must be a Call: of engine.check, or "
                "Call.from_bytes"
            )
        return self._learn(lambda: call)

    def learn_pairs(self, X1: Any, X2: Any, similar: Any) -> None:
        """Learn pairs of points stated to be similar or dissimilar; an event of the stream.

        All metrics learn from them as from labelled rows, fifty of both at a time; pairs given
        before the warm-up ends are learned at its end. From the first chunk of fifty on (metrics
        based on sums: from the first pair), generated pairs are not used.

        Parameters
        ----------
        X1, X2
            The points of each pair, shape (p, d), of any kind that `learn` takes.
        similar
            Shape (p,): True for similar, False for dissimilar pairs; or numbers that are exactly 1
            or 0. None and NaN are refused (estimators leave such pairs out, and count them).

        Raises
        ------
        ParameterError
            This engine learns no metrics.
        FeatureError, BadRowError, InputError
            Points that cannot be learned, different numbers of points, or invalid answers; nothing
            was learned.
        """
        self._learn(lambda: calls.read_pairs(self._progress, self.config, X1, X2, similar))

    def label(self, ids: Any, y: Any) -> Labelled:
        """Label events that are still retained; an event of the stream.

        The metrics learn an event of the support with its label at once, as a labelled row, and an
        event that is pending when its chunk is whole, as if it had come with the label. The
        embedding does not change.

        Parameters
        ----------
        ids
            One id per label: those that events came with, or their stream positions.
        y
            The labels, as in `learn`; None or NaN is still unknown, and passed over.

        Returns
        -------
        Labelled
            How many were learned; how many events had a label already, which counts (metrics cannot
            unlearn it); and the ids that are not retained.

        Raises
        ------
        ParameterError
            This engine learns no metrics.
        InputError
            Ids of another kind than the events', or null; as many labels as ids are needed, each a
            string, number or boolean. Nothing was learned.

        Examples
        --------
        >>> import numpy as np
        >>> engine = Engine(size=40, warm_up=20, metrics=("fenn",))
        >>> engine.learn(np.random.default_rng(0).normal(size=(60, 2))).accepted
        60
        >>> engine.label([5, 30, 59], ["a", "b", "a"])   # the window begins at 20
        Labelled(learned=2, repeated=0, not_held=(5,))
        >>> engine.label([59], ["b"])
        Labelled(learned=0, repeated=1, not_held=())
        """
        return self._learn(lambda: calls.read_labels(self._progress, ids, y))

    def learn_distances(self, rows: Any, ids: Any = None) -> Learned:
        """Learn more objects, given their distances to the objects before them.

        Parameters
        ----------
        rows
            One row per object: unsquared distances, oldest first. After t objects, a row covers
            the last min(t, ``size``) with memory "window", and all t with memory "all". With
            memory "landmarks" it covers ``support_ids`` and then the pending objects, or all t.
            Row 0 is empty. Rows are ragged sequences, an Arrow column of lists, or one
            matrix (n, m + n) of distances to the m objects before and to one another. A row covers
            every earlier row of its call; it may end with its own distance, 0.
        ids
            As in `learn`.

        Returns
        -------
        Learned

        Raises
        ------
        InputError
            This engine learns points; rows are not rows.
        BadRowError
            With ``on_bad_row="raise"``: a wrong length, a distance that is negative, NaN, infinite
            or not symmetric, a distance to itself that is not 0; nothing of the call was learned.
        DuplicateIdError
            With ``on_bad_row="raise"``; nothing of the call was learned.

        Examples
        --------
        >>> import numpy as np
        >>> words = np.array([[0.0, 1, 2], [1, 0, 1], [2, 1, 0]])
        >>> engine = Engine(n_components=1, size=10, warm_up=3)
        >>> engine.learn_distances(words, ids=["cat", "cut", "cup"]).accepted
        3
        >>> engine.learn_distances([[2, 1, 1]], ids=["cap"]).accepted
        1
        """
        return self._learn(lambda: calls.read_distances(rows, ids))

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        Labelled rows and pairs pending in the metrics are learned too.

        Raises
        ------
        NotReadyError
            Before the warm-up ends: a warm-up is never cut short.
        """
        self.apply(Command("flush"))

    def rescale(self) -> None:
        """Take scaling, and widths or bandwidth, again from the support; the axes start over.

        An event of the stream: kernel rows, factor and frame are rebuilt, and the frame's epoch
        goes up by one. Otherwise the scaling stays what it was when the window first filled (with
        the Gaussian kernel, scaling and bandwidth what they were after the warm-up).

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        """
        self.apply(Command("rescale"))

    def relayout(self) -> None:
        """Lay the picture out from scratch, turned onto the one before it.

        An event of the stream: the picture's epoch goes up by one, its ``age`` starts at 0, and
        places from before and after cannot be compared. It never happens by itself, unless one
        chunk replaces more than half of the support. (While the support grows, when it is full for
        the first time and by `rescale`, all points come to rest together from where they are:
        another epoch, too.)

        Raises
        ------
        NotReadyError
            Before the warm-up ends.
        ParameterError
            This engine keeps no picture.
        """
        self.apply(Command("relayout"))

    # ------------------------------------------------------------------ merging

    def landmark_set(self, partition: int = 0) -> LandmarkSet:
        """Its landmarks and masses after the last complete chunk, to be merged with others.

        Parameters
        ----------
        partition
            The number of this engine's stream among those that are to be merged, 0 to 65,535.

        Raises
        ------
        ParameterError
            A memory without landmarks; another number.
        InputError
            It learns distances: landmarks of different streams have none to one another.
        NotReadyError
            Before the warm-up ends.
        """
        number = check_whole("partition", partition, 0, high=LARGEST_PARTITION)
        if self.config.memory != "landmarks":
            raise ParameterError(
                f"memory={self.config.memory!r} has no landmarks that could be merged: create the "
                "engine with memory='landmarks'"
            )
        if self.learns_distances:
            raise InputError(
                "this engine learns distances, and landmarks of different streams have no distance "
                "to one another: only points can be merged"
            )
        state = self._progress.need_state(self.config, EARLY)
        return landmark_set.from_state(state, self.config, self.features or NO_FEATURES, number)

    @classmethod
    def of_landmarks(
        cls,
        landmarks: LandmarkSet,
        like: Snapshot | None = None,
        training: LabelledStream | None = None,
        **parameters: Any,
    ) -> Self:
        """An engine that has learned what a set of landmarks stands for, and can learn on.

        Its next snapshot is the map of these landmarks, certified. Ids are numbers: of one
        partition the positions in it, of several partition * 2**47 + position.

        Parameters
        ----------
        landmarks
            As many as a map needs, n_components + 2 at least.
        like
            A snapshot whose axes are to be kept, of any landmarks: its eigenfunctions,
            extended to these, are the frame. Where its axes cannot be kept, the epoch is its
            own and one, and ``frame.lost`` names them.
        training
            Labels of these events and what ``metrics`` have learned from them
            (`streamembed.merging.labelled_stream`); None for metrics that start from
            scratch.
        parameters
            Those of an engine. ``memory``, ``half_life`` and ``clock`` are those of the set;
            ``size`` is by default the number of landmarks where they were thinned, and that of the
            set otherwise; a gaussian ``bandwidth`` that of the set, if it has one, else
            chosen from the landmarks.

        Raises
        ------
        ParameterError
            A parameter has another value than the set, or cannot have that value; ``like`` is not a
            snapshot of a diffusion map with as many components.
        FeatureError
            ``like`` has other features.
        InputError
            There are fewer landmarks than a map needs, or more than ``size``.

        Examples
        --------
        >>> import numpy as np
        >>> engine = Engine(memory="landmarks", size=64, n_components=3)
        >>> engine.learn(np.random.default_rng(0).standard_normal((400, 2))).accepted
        400
        >>> again = Engine.of_landmarks(engine.landmark_set(), n_components=3)
        >>> again.position, again.snapshot().certificate.met
        (400, True)
        """
        engine = cls(**from_landmarks.choose_parameters(landmarks, parameters))
        state, published = from_landmarks.start_state(landmarks, engine.config, like, training)
        if published is not None:
            engine._published = {False: (state, published)}
        labels = LabelIndex() if training is None else training.labels
        engine._progress = EngineState(
            state, features=landmarks.agreement.as_features(), ids_kind="positions", labels=labels
        )
        return engine

    def become(self, other: Engine) -> None:
        """Take over the state of another engine with the same parameters.

        Raises
        ------
        ParameterError
            The other has other parameters.
        """
        if not isinstance(other, Engine) or other.config != self.config:
            raise ParameterError(f"other={other!r} must be an engine of the same parameters")
        adopted = {"_progress": other._progress, "_published": other._published}
        self._run_in_turn(self._learning, lambda: vars(self).update(adopted))

    def __pack__(self) -> SavedEngine:
        """Parameters and progress between two chunks, on rings that no chunk is written into."""
        copied = self._run_in_turn(self._rings, lambda: self._progress.copy())
        return SavedEngine(self.config, copied)

    @classmethod
    def __unpack__(cls, saved: SavedEngine) -> Self:
        """The engine, if it can be one; ValueError otherwise."""
        saved_engine.check(saved)
        engine = cls(**saved.config.as_dict())
        engine._progress = saved.progress
        return engine


def _was_interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is among the causes: a compiled function makes an error of its own of it."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


codec.preload_types(Engine, *STATES.values())

# The words of the parameters, which the estimators and the command line use, too.
PARAMETERS = parse_parameter_texts(EngineParameters.__doc__)
Engine.__doc__ = write_parameter_texts(Engine.__doc__, PARAMETERS, describe_applicability)
OWNERS["Engine"] -= frozenset(OPTIONS)
OWNERS.update({f"Engine(method={name!r})": method.options for name, method in METHODS.items()})
