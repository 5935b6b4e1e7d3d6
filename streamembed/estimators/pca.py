"""`PCA`: principal axes of a stream as a mini-batch transformer for river."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Self

import numpy as np

from streamembed import validation
from streamembed.data import batch, split_table
from streamembed.data.features import Features
from streamembed.data.impute import FeatureRows
from streamembed.data.output_format import name_columns, to_input_format
from streamembed.data.table import are_positions, read_table, sort_names
from streamembed.errors import (
    DegenerateMapWarning,
    FeatureError,
    InputError,
    NotReadyError,
    ParameterError,
    quote,
    warn,
)
from streamembed.estimators.estimator import ColdStart, StreamTransformer
from streamembed.manifold import principal, principal_stream
from streamembed.manifold.principal import PrincipalView, choose_rank
from streamembed.manifold.principal_stream import (
    CHUNK,
    SETTLING,
    PrincipalSettings,
    PrincipalStream,
)
from streamembed.numeric.arrays import Floats, Unchanging, freeze
from streamembed.numeric.moments import FeatureMoments
from streamembed.parameters import declare_parameters
from streamembed.storage import archive
from streamembed.storage.saved_object import SavedObject
from streamembed.threads import one_blas_thread

# Up to here the moments are kept: 8 MB, and exact.
MOST_MOMENTS = 1000
# Events without which nothing varies.
LEAST_EVENTS = 2
# Axes beyond the features are rows of zeros, and take memory all the same.
MOST_COMPONENTS = 10_000
# Residual up to which axes are those of the moments: what holding near ones still may cost.
TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalAxes(PrincipalView, Unchanging, SavedObject):
    """The immutable principal axes of a stream after some event; see `PCA.snapshot`.

    Attributes
    ----------
    components : (k, d)
        Unit rows, by descending variance, columns in the order of ``feature_names``; zeros for the
        components in ``cut``.
    mean : (d,)
        Of the events that count.
    explained_variance : (k,)
        Squared singular values by count - 1.
    explained_variance_ratio : (k,)
        Shares of ``total_variance``.
    singular_values : (k,)
        Of the centred events, each by the root of its weight.
    total_variance : float
        Of all features together: exact with either solver.
    residual : float or None
        max ||S v - theta v|| / theta_1 over the components, S being the scatter: measured. None
        with solver "svd", which does not hold S.
    tail : float
        Share of the total variance outside of the ``rank`` axes that are followed.
    cut : tuple of int
        Components in whose direction nothing varies.
    met : bool or None
        Whether the residual is at most 1e-3; None where it is not known.
    solver : str
        "moments" or "svd".
    rank : int
        Axes that are followed: all d of moments.
    count : float
        Events that count, those of long ago for less under ``half_life``.
    whiten : bool
        Whether coordinates are divided by their deviations.
    position : int
        Events so far.
    feature_names : tuple of str
    ordered : bool
        Whether features go by their place, as those of an array.
    """

    _kind: ClassVar[str] = "principal axes"

    met: bool | None
    solver: str
    rank: int
    whiten: bool
    position: int
    feature_names: Annotated[tuple[str, ...], "different"]
    ordered: bool

    def __post_init__(self) -> None:
        """Make the arrays read-only."""
        for value in (getattr(self, each.name) for each in fields(self)):
            if isinstance(value, np.ndarray):
                freeze(value)

    @property
    def feature_loadings(self) -> Floats:
        """By how much each coordinate grows per unit of each feature, shape (d, k)."""
        return principal.transform(self, self.mean + np.eye(len(self.mean)), self.whiten)

    def transform(self, X: Any) -> Any:
        """Coordinates of points, shape (n, k). O(d k) a point.

        Parameters
        ----------
        X
            Any table with exactly these features; an array only where an array was learned. A data
            frame or Arrow table comes back as its kind, its columns ``pca_0`` and so on.

        Raises
        ------
        FeatureError, BadRowError
            Other features, or values that are missing: here nothing is imputed.
        """
        remedy = "drop or fill them before transforming"
        table = split_table.split(X, self.feature_names).points
        features = Features(self.feature_names, self.ordered)
        points = batch.read(table, None, features, remedy=remedy).points
        coordinates = principal.transform(self, points, self.whiten)
        return to_input_format(coordinates, X, name_columns("pca", coordinates.shape[1]))

    def inverse_transform(self, coordinates: Any) -> Floats:
        """Points, shape (n, d), of which these are the coordinates (n, k); of all such the nearest.

        Raises
        ------
        FeatureError, InputError
            No matrix of k finite columns.
        """
        given = read_table(coordinates).check_numeric().values
        if given.shape[1] != len(self.components):
            raise FeatureError(
                f"coordinates has {given.shape[1]} columns; it must have {len(self.components)}, "
                "one per component"
            )
        if not np.isfinite(given).all():
            raise InputError("coordinates has NaN or infinities; it must be finite")
        return principal.inverse_transform(self, given, self.whiten)

    @staticmethod
    def __unpack__(axes: PrincipalAxes) -> PrincipalAxes:
        """ValueError for axes that do not fit together."""
        archive.require(len(axes.feature_names) == len(axes.mean), "names of the features")
        archive.require(axes.solver in ("moments", "svd"), "solver")
        archive.require(all(j < len(axes.components) for j in axes.cut), "cut")
        return axes


@declare_parameters({})
class PCA(StreamTransformer):
    """Principal component analysis of a stream, kept up to date, as a river transformer.

    Every event counts at once. ``learn_many`` in any split and ``learn_one`` n times give the same
    state, bit for bit. Axes keep still: their signs are those that they had before, and axes of
    nearly equal variance do not turn among themselves.

    - *Cold start.* Before the second event ``transform_one`` returns zeros, of the final width; so
      it does for components beyond the features (`DegenerateMapWarning`, once the features are
      settled), or in whose direction nothing varies.
    - *Features.* The features are those of the first twenty events, ordered by name, or by place
      for arrays. A feature that appears later is ignored, and counted in ``ignored``. If features
      have names, arrays are refused.
    - *Missing values.* A feature that is absent, null, NaN, infinite, beyond 1e75 or not a number
      is replaced by its mean over the stream so far, and counted in ``imputed``.

    Parameters
    ----------
    n_components
        Axes to show, at most 10,000.
    solver
        "moments": exact; keeps d (d + 1) numbers. "svd": keeps ``rank`` axes, for many features;
        approximate, but for the total variance. "auto": moments up to 1,000 features and for a
        window, svd beyond.
    rank
        Axes that the svd follows, at least n_components. "auto": max(4 n_components,
        n_components + 20). As many as are shown are wrong: what a chunk does not show of an axis
        is lost.
    whiten
        Divide coordinates by their standard deviations.
    window
        Only the last ``window`` events count; their rows are kept. None: all count. With thousands
        of features set solver="svd", too: rows leave it as they came.
    half_life
        Events after which an event counts half; None: events count alike for ever.

    Attributes
    ----------
    imputed, ignored : int
        Missing or unusable values that became a mean, and values of features that the first twenty
        events did not show.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = PCA(n_components=2)
    >>> for x, _ in datasets.Phishing().take(100):
    ...     model.learn_one(x)
    >>> sorted(model.transform_one(x))
    ['pca_0', 'pca_1']
    >>> axes = model.snapshot()
    >>> axes.components.shape, axes.met
    ((2, 9), True)
    >>> bool(0.3 < axes.explained_variance_ratio.sum() < 1.0)
    True
    """

    _title = "this PCA"

    n_components: int = 2
    solver: str = "auto"
    rank: int | str = "auto"
    whiten: bool = False
    window: int | None = None
    half_life: float | None = None

    def __post_init__(self) -> None:
        """Check the parameters, and start with nothing learned."""
        self._cold_start = ColdStart()
        self._followed: PrincipalStream | None = None
        self._read: tuple[PrincipalAxes, FeatureMoments] | None = None
        self._start_axes: tuple[int, Floats] | None = None  # of `read_means_and_axes`
        k = validation.check_whole("n_components", self.n_components, 1, high=MOST_COMPONENTS)
        validation.check_choice("solver", self.solver, ("auto", "moments", "svd"))
        validation.check_flag("whiten", self.whiten)
        validation.check_optional(validation.check_whole, "window", self.window, LEAST_EVENTS)
        validation.check_optional(validation.check_real, "half_life", self.half_life, 1.0, 1e15)
        if isinstance(self.rank, str):
            validation.check_choice("rank", self.rank, ("auto",), " or a whole number")
        else:
            validation.check_whole("rank", self.rank, k, " (n_components), or 'auto'")
            if self.solver == "moments" or (self.window is not None and self.solver == "auto"):
                raise ParameterError(
                    f"rank={quote(self.rank)} is of the svd: with moments, which a window takes by "
                    "itself, nothing is cut off; leave it at 'auto', or set solver='svd'"
                )
        if self.window is not None and self.half_life is not None:
            raise ParameterError(
                f"window={quote(self.window)} and half_life={quote(self.half_life)} both forget: "
                "use one of them"
            )

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"n_components": 2}
        yield {"n_components": 3, "window": 15, "whiten": True}
        yield {"n_components": 2, "solver": "svd", "half_life": 30.0}
        yield {"n_components": 2, "solver": "svd", "window": 25}

    # ------------------------------------------------------------------ reading

    @property
    def ready(self) -> bool:
        """True from the second event on: outputs are no longer zeros."""
        return self.position >= LEAST_EVENTS

    @property
    def position(self) -> int:
        """Events so far; all of them count."""
        return len(self._early) + (0 if self._followed is None else self._followed.position)

    @property
    def pending(self) -> int:
        """Events whose chunk is not complete yet: 20 for the first, then 10. They count, too."""
        return len(self._early) + (0 if self._followed is None else len(self._followed.waiting))

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features in the order of the components' columns, as far as they are known."""
        return self._observed_names

    def snapshot(self) -> PrincipalAxes:
        """The axes of every event so far; the same object until more is learned.

        Raises
        ------
        NotReadyError
            Before the second event.
        """
        if not self.ready:
            raise NotReadyError(
                f"{self.position} events have arrived, and axes need {LEAST_EVENTS}: learn more"
            )
        return self._read_axes()[0]

    def _compute_coordinates(self, rows: FeatureRows) -> Floats:
        """Coordinates of points, (n, n_components)."""
        rows.check(self.feature_names or sort_names(set(rows.names)), "this PCA")
        if not self.ready:
            return np.zeros((len(rows), int(self.n_components)))
        axes, seen = self._read_axes()
        points = seen.fill_gaps(self._count_missing(rows.arrange(axes.feature_names)))
        return principal.transform(axes, points, axes.whiten)

    def _read_axes(self) -> tuple[PrincipalAxes, FeatureMoments]:
        """The axes, and the means that gaps are filled with."""
        if self._read is None:
            with one_blas_thread():
                cold_start, followed = self._cold_start, self._followed
                if followed is None:
                    cold_start, followed = self._start()
                names, d = cold_start.names, len(cold_start.names)
                settings = self._build_settings(d)
                seen, view, self._start_axes = principal_stream.read_means_and_axes(
                    followed, settings, self._start_axes
                )
            axes = PrincipalAxes(
                **{each.name: getattr(view, each.name) for each in fields(view)},
                met=None if view.residual is None else view.residual <= TOLERANCE,
                solver=settings.solver,
                rank=d if settings.solver == "moments" else min(settings.rank, d),
                whiten=bool(self.whiten),
                position=self.position,
                feature_names=names,
                ordered=are_positions(names),
            )
            self._read = axes, seen
        return self._read

    # ------------------------------------------------------------------ learning

    def flush(self) -> None:
        """Learn the pending events as a short chunk; this is itself an event of the stream.

        They count already; what it does is to settle the features, where that is still open.
        """
        with self._compute_on_copy() as after, one_blas_thread():
            after._read = None
            if after._early:
                after._end_cold_start()
            if after._followed is not None:
                settings = after._build_settings(len(after._names))
                after._followed = principal_stream.flush(after._followed, settings)

    def merge(self, other: Self) -> None:
        """Add what another PCA of the same parameters and features has learned.

        ``other`` stays as it is. The streams count as having run side by side, each event with the
        weight that it has in its own; the axes keep still against those of this one. Moments are
        those of both streams, up to rounding; an svd is as good as that of one stream. Where either
        is still among its first twenty events, these are learned after the rest.

        Raises
        ------
        ParameterError
            Itself, another class, other parameters, or a window: two have no common last events.
        FeatureError
            Other features.
        """
        self._check_mergeable(other)
        if self.window is not None:
            raise ParameterError(
                f"window={quote(self.window)}: two streams have no common last events; learn the "
                "rows of both in their order instead"
            )
        mine, theirs = self._followed, other._followed
        merged = self.clone()
        merged._cold_start = self._cold_start.merge(other._cold_start)
        with one_blas_thread():
            if mine is not None and theirs is not None:
                settings = self._build_settings(len(self._names))
                merged._followed = principal_stream.merge(mine, theirs, settings)
            else:
                merged._followed = mine or theirs
        for row in [*self._early, *other._early]:
            merged.learn_one(row)
        vars(self).update(vars(merged))

    def _learn_rows(self, rows: FeatureRows) -> None:
        with self._compute_on_copy() as after:
            after._read, n = None, 0
            while after._followed is None and n < len(rows):
                after._cold_start, n = after._cold_start.add(rows.row(n)), n + 1
                if len(after._early) == SETTLING:
                    after._end_cold_start()
            followed = after._followed
            if followed is not None and n < len(rows):
                after._cold_start, values = after._cold_start.arrange(rows.take(slice(n, None)))
                settings = after._build_settings(len(after._names))
                whole = len(followed.waiting) + len(values) >= CHUNK
                with one_blas_thread() if whole else nullcontext():
                    after._followed = principal_stream.extend(followed, values, settings)

    def _end_cold_start(self) -> None:
        self._cold_start, self._followed = self._start()

    def _start(self) -> tuple[ColdStart, PrincipalStream]:
        """The features of the first events, and these events as a stream. Pure."""
        settled, values = self._cold_start.fix_features()
        settings = self._build_settings(len(settled.names))
        with one_blas_thread():
            begun = principal_stream.init(len(settled.names), settings)
            return settled, principal_stream.extend(begun, values, settings)

    def _warn_of_columns(self, before: ColdStart) -> None:
        k, d = int(self.n_components), len(self._names)
        if k > d > 0 and not before.names:
            warn(
                f"n_components={k} is above the number of features, {d}: {k - d} of {k} components "
                f"are zeros; use n_components={d}",
                DegenerateMapWarning,
            )
        super()._warn_of_columns(before)

    def _build_settings(self, n_features: int) -> PrincipalSettings:
        solver, k = str(self.solver), int(self.n_components)
        if solver == "auto":
            solver = "moments" if self.window is not None or n_features <= MOST_MOMENTS else "svd"
        rank = choose_rank(k) if isinstance(self.rank, str) else int(self.rank)
        window = None if self.window is None else int(self.window)
        half_life = None if self.half_life is None else float(self.half_life)
        return PrincipalSettings(k, solver, rank, window, half_life)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_read": None, "_start_axes": None}
