"""A snapshot: the immutable embedding of one support, with its certificate and transform."""

from __future__ import annotations

import weakref
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import scipy

from streamembed.data import batch, split_table
from streamembed.data.batch import Batch
from streamembed.data.distance_rows import read_support_distances
from streamembed.data.features import Features
from streamembed.data.output_format import name_columns, to_input_format
from streamembed.engine import drawing
from streamembed.engine.comparison import Comparison, compare
from streamembed.engine.picture import PREFIX, Picture
from streamembed.errors import FeatureError, InputError, ParameterError, quote
from streamembed.methods import publish
from streamembed.methods.extension import Extension
from streamembed.methods.maps import MAPS
from streamembed.methods.options import Config
from streamembed.methods.snapshot_contents import Frame as Frame
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.methods.state import State
from streamembed.metrics import engine_metrics as metrics
from streamembed.notebook import write_table
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.storage import archive
from streamembed.storage.archive import require
from streamembed.storage.saved_object import SavedObject
from streamembed.validation import check_choice, check_whole

# Squares of differences up to here have a finite sum.
FARTHEST = 1e145
SPACES = ("map", "picture", "features")


class Snapshot(SnapshotContents, SavedObject):
    """The immutable embedding of the support after some event of the stream.

    Assigning or deleting an attribute raises `dataclasses.FrozenInstanceError`, an AttributeError;
    arrays are read-only, also after unpickling; a copy is the snapshot itself.

    Attributes
    ----------
    coordinates : (N, n_components)
        (lambda**t psi) ``rotation``, oldest first, as are ``ids``, ``masses`` and ``points``. The
        certificate is that of ``psi``: these mix in spare pairs, unless ``axes="eigen"``.
    eigenvalues : (n_components,)
        Descending, of P (not of P**t), in [0, 1]; the constant eigenvector is not among them.
    ids : (N,)
        int64 (stream positions if none were given), or all str.
    masses : (N,)
        Events that each point stands for; 1 in a window.
    stationary : (N,)
        pi, sum 1: sum(pi psi**2) = 1 for every component of positive eigenvalue.
    psi : (N, n_components)
        Right eigenvectors of P, as they are; the certificate is theirs.
    spare_psi, spare_eigenvalues : (N, s), (s,)
        The pairs that follow, not certified: ``coordinates`` are made of these, too, where that
        keeps their axes; s is 3, and 0 of methods that keep distances and with ``axes="eigen"``.
    rotation : (n_components + s, n_components)
        Orthonormal columns: what turns lambda**t psi of all these pairs into ``coordinates``.
    feature_loadings : (d, n_components)
        Of linear_eigenmap and pca: by how much each coordinate grows per unit of each feature,
        everywhere; (0, n_components) of other methods.
    density_weights, degrees : (N,)
        q**-alpha and q, the kernel mass around each point.
    method : str
        Which embedding it is, see `streamembed.Engine`.
    position : int
        Events learned.
    points : (N, d)
        In the caller's units, columns in the order of ``feature_names``; (N, 0) if distances
        were learned.
    lengths : (N, N)
        Of Isomap: shortest paths; with ``n_landmarks`` those to the landmarks of the largest part,
        which are the points of positive ``stationary``; (N, 0) of other methods.
    metric : str
        "cosine" if rows are divided by their lengths, else "euclidean".
    features : Features
        Their names are ``feature_names``, too; ``ordered`` says whether they are places.
    kernel : str
        "self_tuning", "gaussian", "polynomial" or "cosine"; of a graph of neighbours its weights:
        "self_tuning", "binary" or "heat"; of classical scaling "distance".
    bandwidth : float
        sigma of exp(-d2 / sigma**2), in scaled units. Self-tuning: the typical one, sqrt(width)
        times the median of ``widths`` when the scaling was taken.
    widths : (N,)
        s of exp(-d2 / (width s_i s_j)), in scaled units; gaussian: the bandwidth.
    reaches : (N,)
        Distance to the last neighbour that counts, in scaled units; 0 where none does.
    radius : float
        Of a graph that joins all within it; 0 elsewhere.
    n_neighbors, width : int, float
        Of the self-tuning kernel, or the graph; a gaussian kernel has width 1.
    least_width : float
        What the width of a new point is at least.
    typical_coverage : float
        What coverage is relative to, where distances were learned and widths are self-tuned; 0
        where the points tell.
    center, scale : (d,)
        The kernel saw (x - center) / scale.
    alpha, diffusion_time : float
    degree, coef0, gamma : int, float, float
        Of a polynomial kernel.
    reg : float
        Of locally linear embedding: the ridge of the weights.
    certificate : Certificate
    frame : Frame
    picture : Picture or None
        Places in the plane, with ``picture=True``; made of ``picture_contents``.
    tracked : (N, r)
        lambda**t psi of all tracked pairs; see `tracked_pairs`.
    refinement : str
        Refinement level (`streamembed.methods.refinement`) of this snapshot: view, refresh or
        exact; of graphs and locally linear embedding also polish or batch.
    resolution : float
        How far events are from the nearest landmark, in widths of that one (root mean square over
        the last thousand or so): above 0.7 the landmarks are too sparse for the kernel. Gaussian:
        distance of the closest pair of landmarks, divided by the bandwidth; above 0.5 they are too
        sparse. 0 if every event has its own slot.
    n_connected : int
        Connected components of the kernel's graph (parts that share no weight above 2e-16), which
        is the multiplicity of the eigenvalue 1, the constant included.
    """

    _kind: ClassVar[str] = "snapshot"

    @classmethod
    def of(cls, state: State, config: Config, features: Features) -> Self:
        """The embedding of an engine's state."""
        scale = state.scaling.scale
        learned = {} if state.metrics is None else metrics.publish(state.metrics, scale)
        return cls(
            **publish.publish(state, config),
            feature_names=features.names,
            ordered=features.ordered,
            metric=features.metric,
            metrics={name: one.named(features.given_names) for name, one in learned.items()},
        )

    def __repr__(self) -> str:
        n, k = self.coordinates.shape
        d, picture, age = len(self.feature_names), self.picture, self.certificate.bound_age
        return (
            f"<Snapshot at {self.position:,}: {n:,} points, {k} components of "
            f"{f'{d:,} features' if d else 'distances'}, residual {self.certificate.residual:.1e}, "
            f"met={self.certificate.met}{f', a bound {age:,} events old' if age else ''}"
            f"{'' if picture is None else f', a picture {picture.age:,} chunks old'}>"
        )

    @cached_property
    def features(self) -> Features:
        """Names of the features, in the order of the columns of ``points``."""
        return Features(self.feature_names, self.ordered, self.metric)

    @property
    def picture(self) -> Picture | None:
        """Places in the plane, with ``picture=True``."""
        if self.picture_contents is None:
            return None
        picture: Picture | None = self._picture_measures.get("picture", lambda: None)()
        if picture is None:
            picture = Picture(self.picture_contents, self, self._picture_measures)
            self._picture_measures["picture"] = weakref.ref(picture)
        return picture

    @cached_property
    def _picture_measures(self) -> dict[str, Any]:
        """What was measured of the picture; a picture holds its snapshot, so not the reverse."""
        return {}

    # ------------------------------------------------------------------ new points

    def transform(self, X: Any) -> Any:
        """Coordinates of new points, by extension of the eigenfunctions.

        Parameters
        ----------
        X
            As in `Engine.learn`: an array only if the engine learned arrays, so that columns cannot
            be mixed up. Or a checked `streamembed.data.batch.Batch`, used as it is.

        Returns
        -------
        Shape (n, n_components): a data frame or Arrow table as its kind (pandas with its index),
        with columns called after the method, such as ``isomap_0``; anything else as an array.
        At points of the support these are ``coordinates`` up to the certificate's residual (of
        duplicates those of the oldest, for their ``widths`` may differ); far from the support they
        tend to a mean over its near side (gaussian: to those of the nearest point). Rows are
        independent of one another.
        O(N (d + n_components)) per point.

        Raises
        ------
        FeatureError, BadRowError
            As in `Engine.learn`; see also `coverage`.
        """
        if isinstance(X, Batch) and X.features.names == self.features.names != ():
            points = X.with_metric(self.metric, "raise", "fix them").points  # it is checked
            return self._extension.coordinates(points)
        coordinates = self._extension.coordinates(self._read(X))
        return to_input_format(coordinates, X, name_columns(self.method, coordinates.shape[1]))

    def coverage(self, X: Any) -> Floats:
        """How well the support covers new points: min(1, q(x) / median q), shape (n,).

        1 is as dense as a typical support point, 0 means that nothing similar is in the support;
        q(x) is the kernel mass around x. The median is over the support; above 256 points it is
        over 256 of them, evenly spaced by age, unless the kernel is Gaussian or a graph.
        """
        return self._extension.coordinates_and_coverage(self._read(X, "coverage_distances"))[1]

    def transform_with_coverage(self, X: Any) -> tuple[Any, Floats]:
        """`transform` and `coverage` in one pass."""
        coordinates, coverage = self._extension.coordinates_and_coverage(self._read(X))
        names = name_columns(self.method, coordinates.shape[1])
        return to_input_format(coordinates, X, names), coverage

    def transform_distances(self, rows: Any) -> Floats:
        """Coordinates of new objects, from their distances to the support.

        Parameters
        ----------
        rows
            Shape (n, N): unsquared distances to the objects ``ids``, in that order; inf if a
            distance is unknown, which gives that object no weight. For a snapshot of points:
            distances in scaled units.

        Returns
        -------
        Shape (n, n_components), as in `transform`. O(N n_components) per row.

        Raises
        ------
        BadRowError
            A row of the wrong length, or with a distance that is negative or NaN, or none finite.
        """
        return self._extension.coordinates_from_distances(read_support_distances(rows, self.ids))[0]

    def coverage_distances(self, rows: Any) -> Floats:
        """`coverage` of new objects, from their distances to the support."""
        return self._extension.coordinates_from_distances(read_support_distances(rows, self.ids))[1]

    def leading_ids(self, component: int, count: int = 10) -> list[Any]:
        """Ids of the points that carry a component most, the first of them most of all.

        Parameters
        ----------
        component
            0 to n_components - 1.
        count
            At most this many.
        """
        j = check_whole("component", component, 0, high=self.psi.shape[1] - 1)
        shares = self.stationary * self.psi[:, j] ** 2
        first = np.argsort(-shares, kind="stable")[: check_whole("count", count, 1)]
        ids: list[Any] = self.ids[first].tolist()
        return ids

    def tracked_pairs(self) -> tuple[Floats, Floats]:
        """psi, shape (N, r), and eigenvalues (r,), of all tracked pairs, published or not.

        Only the published ones of other methods than "diffusion_map", and with ``diffusion_time``
        0: other eigenvalues are not kept.
        """
        if self.method != "diffusion_map" or self.diffusion_time == 0.0:
            return self.psi, self.eigenvalues
        powers = np.sqrt(self.stationary @ self.tracked**2)  # lambda**t, since psi has norm 1
        kept = powers > 0.0
        return self.tracked[:, kept] / powers[kept], powers[kept] ** (1.0 / self.diffusion_time)

    def compare(self, other: Snapshot) -> Comparison:
        """What changed between an earlier snapshot of the same engine and this one.

        Parameters
        ----------
        other
            The earlier snapshot (of two, the later by its position is taken for the later one).

        Returns
        -------
        Comparison
            Events in both, which axes were kept since when and which are lost, the movement after
            the best rotation, the correlation of each axis with itself, how well the earlier
            snapshot covered what is new, and which components went and came. Its ``repr`` says it
            in words.

        Raises
        ------
        InputError
            It is no snapshot, of another method, or with ids of another kind.
        FeatureError
            It has other features.

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed import Engine
        >>> engine, X = Engine(size=100), np.random.default_rng(0).standard_normal((150, 2))
        >>> engine.learn(X[:100]).accepted
        100
        >>> earlier = engine.snapshot()
        >>> engine.learn(X[100:]).accepted
        50
        >>> engine.snapshot().compare(earlier).shared
        50
        """
        if not isinstance(other, Snapshot):
            raise InputError(f"other is a {type(other).__name__}; it must be a Snapshot")
        if other.feature_names != self.feature_names:
            raise FeatureError(
                f"other has the features {quote(list(other.feature_names))} and this snapshot "
                f"{quote(list(self.feature_names))}: they must be of the same engine"
            )
        earlier, later = sorted((other, self), key=lambda one: one.position)
        return compare(earlier, later, earlier._extension.coordinates_and_coverage)

    # ------------------------------------------------------------------ distances

    def diffusion_distances(self) -> Floats:
        """Diffusion distances between all support points, over all tracked pairs; not squared.

        Shape (N, N), ||Psi_t(i) - Psi_t(j)|| with every tracked eigenpair, not only the published
        ones; rows as in ``coordinates``. Of other methods: distances between ``coordinates``.

        Source: Jain, eq. (8). Differs: (8) is the squared distance.
        """
        columns = self.tracked
        squares = np.einsum("ij,ij->i", columns, columns)
        d2 = squares[:, None] + squares - 2.0 * (columns @ columns.T)
        np.fill_diagonal(d2, 0.0)
        distances: Floats = np.sqrt(np.maximum(d2, 0.0))
        return distances

    # ------------------------------------------------------------------ tables

    def to_arrow(self) -> Any:
        """The support as an Arrow table: one row a point, oldest first.

        Returns
        -------
        pyarrow.Table
            ``id`` and ``mass``; the coordinates, called as in `transform`; ``live_map_0`` and
            ``live_map_1`` where there is a picture; and the features by name, in the caller's
            units ("0", "1", ... where they are known by position; none where distances were
            learned). A feature with the name of another column gets the prefix ``feature_``.

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed import Engine
        >>> engine = Engine(size=100)
        >>> _ = engine.learn(np.random.default_rng(0).standard_normal((150, 2)))
        >>> table = engine.snapshot().to_arrow()
        >>> table.num_rows, table.column_names
        (100, ['id', 'mass', 'diffusion_map_0', 'diffusion_map_1', '0', '1'])
        """
        columns = {"id": pa.array(self.ids), "mass": pa.array(self.masses)}
        columns |= _name_arrays(self.method, self.coordinates)
        if self.picture is not None:
            columns |= _name_arrays(PREFIX, self.picture.coordinates)
        taken = {*columns, *self.feature_names}
        for j, name in enumerate(self.feature_names):
            if name in columns:
                while name in taken:
                    name = f"feature_{name}"
                taken.add(name)
            columns[name] = pa.array(self.points[:, j])
        return pa.table(columns)

    def to_pandas(self) -> Any:
        """`to_arrow` as a pandas data frame, whose index is the ids.

        Raises
        ------
        ParameterError
            pandas is not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed import Engine
        >>> engine = Engine(size=100)
        >>> _ = engine.learn(np.random.default_rng(0).standard_normal((150, 2)))
        >>> frame = engine.snapshot().to_pandas()
        >>> frame.index.name, int(frame.index[0]), frame.shape
        ('id', 50, (100, 5))
        """
        try:
            return self.to_arrow().to_pandas().set_index("id")
        except ImportError as error:
            raise ParameterError(
                "to_pandas needs pandas: install it, or use to_arrow, which needs nothing more"
            ) from error

    # ------------------------------------------------------------------ pictures

    def plot(self, components: Any = (0, 1), color: Any = None, ax: Any = None) -> Any:
        """Draw two coordinates of the support with matplotlib (extra ``pictures``).

        Both axes have one scale, so that distances are those of the map. `Picture.plot` draws the
        picture.

        Parameters
        ----------
        components
            Two different components, 0 to n_components - 1: across, and upwards.
        color
            One value a point, in the order of ``ids``: labels (None or NaN: grey), or numbers.
            None: by age, the youngest lightest.
        ax
            Axes to draw on; None for new ones.

        Returns
        -------
        The axes.

        Raises
        ------
        ParameterError
            The snapshot does not have these components, not one value a point, or matplotlib is
            not installed.

        Examples
        --------
        >>> import numpy as np
        >>> from matplotlib.figure import Figure
        >>> from streamembed import Engine
        >>> X = np.random.default_rng(0).standard_normal((150, 2))
        >>> engine = Engine(size=100, n_components=3)
        >>> _ = engine.learn(X)
        >>> snapshot = engine.snapshot()
        >>> labels = np.where(X[:, 0] > 0, "right", "left")
        >>> ax = snapshot.plot((0, 2), labels[snapshot.ids], Figure().subplots())
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('diffusion_map_0', 'diffusion_map_2')
        """
        n, k = self.coordinates.shape
        pair = list(components) if isinstance(components, (tuple, list, np.ndarray)) else []
        if len(pair) != 2:
            raise ParameterError(f"components={quote(components)} must be two, such as (0, 1)")
        if k < 2:
            raise ParameterError(
                "plot needs two components, and this snapshot has one: create the engine with "
                "n_components=2"
            )
        first, second = (check_whole("components", j, 0, high=k - 1) for j in pair)
        if first == second:
            raise ParameterError(f"components={quote(components)} must be two different ones")
        drawing.check_axes(ax)
        values = drawing.read_colors(color, n, "")
        label = "age" if color is None else ""
        ax = drawing.draw_points(self.coordinates[:, [first, second]], values, ax, label)
        names = name_columns(self.method, k)
        ax.set_xlabel(names[first])
        ax.set_ylabel(names[second])
        return ax

    def _repr_html_(self) -> str:
        """What notebooks show: its facts; `plot` draws it."""
        (n, k), d, picture = self.coordinates.shape, len(self.feature_names), self.picture
        certificate = self.certificate
        rows: list[tuple[str, object]] = [
            ("method", self.method),
            ("points", n),
            ("ids", " to ".join(quote(one) for one in self.ids[[0, -1]].tolist())),
            ("events in them", float(self.masses.sum())),
            ("features", f"{d:,}: {', '.join(self.feature_names)}" if d else "distances"),
            ("components", k),
            ("eigenvalues", tuple(self.eigenvalues.tolist())),
            ("residual", certificate.residual),
            ("tolerance met", certificate.met),
            ("refinement", self.refinement),
            ("metrics", tuple(self.metrics)),
        ]
        if picture is not None:
            rows.append(("picture", f"{picture.age:,} chunks old"))
        return write_table(f"Snapshot at event {self.position:,}", rows)

    # ------------------------------------------------------------------ neighbours

    def neighbors(self, X: Any, k: int = 10, space: str = "map") -> tuple[Array, Floats]:
        """The points of the support that are nearest to new points.

        Parameters
        ----------
        X
            As in `transform`.
        k
            How many for each, 1 to N.
        space
            Where distances are taken: "map", between coordinates; "picture", between places in the
            picture; "features", between points in scaled units; or the name of a learned metric.

        Returns
        -------
        ids, distances : (n, k), (n, k)
            Nearest first; of equally near ones the oldest first. Distances are not squared. A point
            of the support is where the snapshot has it (of equal rows, the oldest), and finds
            itself at distance 0, behind older rows that are equal: nothing is excluded.

        Raises
        ------
        ParameterError
            ``k`` is out of range, there is no such space, or the snapshot has no picture.
        FeatureError, BadRowError
            As in `Engine.learn`; or distances were learned, which are what you ask for.

        Notes
        -----
        The cost of `transform`, and O(k log N) a point in few dimensions. The first call in a space
        builds a tree, O(N log N).

        Examples
        --------
        >>> import numpy as np
        >>> from streamembed import Engine
        >>> X = np.random.default_rng(0).standard_normal((150, 2))
        >>> engine = Engine(size=100)
        >>> _ = engine.learn(X)
        >>> ids, distances = engine.snapshot().neighbors(X[-2:], k=5)
        >>> ids.shape, ids[:, 0].tolist(), distances[:, 0].tolist()
        ((2, 5), [148, 149], [0.0, 0.0])
        """
        other = "" if self.metrics else " (this snapshot has no learned metrics)"
        space = check_choice("space", space, (*SPACES, *self.metrics), other)
        k = check_whole("k", k, 1, f": the snapshot has {len(self.ids):,} points", len(self.ids))
        if space == "picture" and self.picture is None:
            raise ParameterError(
                "space='picture': this snapshot has no picture; create the engine with picture=True"
            )
        if not self.feature_names:
            raise FeatureError(
                "this snapshot was learned from distances and has no features: the nearest are "
                "those with the smallest distances to its ids"
            )
        rows, distances = self._search(self._locate(self._read(X), space), k, space)
        return self.ids[rows], distances

    def _search(self, places: Floats, k: int, space: str) -> tuple[Ints, Floats]:
        """Rows of the nearest points of the support, and their distances, both (n, k)."""
        support = self._locate_support(space)
        if space not in self._trees:
            self._trees[space] = scipy.spatial.cKDTree(support)
        n_asked = min(k + 1, len(support))
        distances, rows = self._trees[space].query(places, np.arange(1, n_asked + 1))
        # which of equally near points a tree finds last is a matter of chance
        for i in np.flatnonzero(distances[:, k - 1] == distances[:, -1]) if n_asked > k else ():
            d = np.sqrt(((support - places[i]) ** 2).sum(axis=1))
            rows[i, :k] = np.argsort(d, kind="stable")[:k]
            distances[i, :k] = d[rows[i, :k]]
        distances, rows = distances[:, :k], rows[:, :k]
        order = np.lexsort((rows, distances))
        return (
            np.take_along_axis(rows, order, axis=1),
            np.take_along_axis(distances, order, axis=1),
        )

    def _locate(self, points: Floats, space: str) -> Floats:
        """Where points in the caller's units are in a space whose distances are Euclidean."""
        if space in ("map", "picture"):
            picture = self.picture if space == "picture" else None
            extension = self._extension if picture is None else picture._extension
            places = np.array(extension.coordinates(points))
            # where an extension puts them is near to their places, not there
            rows = np.array([self._row_of.get(row.tobytes(), -1) for row in points + 0.0], np.int64)
            places[rows >= 0] = self._locate_support(space)[rows[rows >= 0]]
            return places
        if space == "features":
            places = (points - self.center) / self.scale
        else:
            factor = self.metrics[space].factor
            # to a metric of rank 0 all points are equal
            columns = factor.T if len(factor) else np.zeros((len(self.center), 1))
            places = (points - self.center) @ columns
        return np.clip(places, -FARTHEST, FARTHEST)

    def _locate_support(self, space: str) -> Floats:
        """Where the points of the support are."""
        if space == "map":
            return self.coordinates
        if space == "picture":
            assert self.picture is not None
            return self.picture.coordinates
        return self._locate(self.points, space)

    @cached_property
    def _extension(self) -> Extension:
        return MAPS[self.method].extension(self)

    def _read(self, X: Any, of_distances: str = "transform_distances") -> Floats:
        """Points in the caller's units, checked, columns in order."""
        if batch.is_usable_as_is(X, self.features):
            points: Floats = X
            return points
        if not self.feature_names:
            raise FeatureError(
                "this snapshot was learned from distances and has no features: use "
                f"{of_distances}, with distances to its ids"
            )
        remedy = "nothing was transformed: fix or drop them"
        table = split_table.split(X, self.feature_names).points
        return batch.read(table, None, self.features, remedy=remedy).points

    @cached_property
    def _trees(self) -> dict[str, Any]:
        """By space."""
        return {}

    @cached_property
    def _row_of(self) -> dict[bytes, int]:
        """The oldest row of every point, by its bytes."""
        rows = enumerate(self.points + 0.0)  # -0.0 is 0.0
        return {row.tobytes(): i for i, row in reversed(list(rows))}

    # ------------------------------------------------------------------ files

    def _to_file(self) -> tuple[Any, dict[str, Any]]:
        """A column for each array with a row for each point, named by its path."""
        picture = None if self.picture is None else self.picture._build_measured_contents()
        arrays, header = codec.pack(replace(self, picture_contents=picture))
        columns = {
            path: archive.to_list_column(array) if array.ndim == 2 else array
            for path, array in arrays.items()
            if array.shape[1:] != (0,)
        }
        return pa.table(columns), header

    @classmethod
    def _of_file(cls, table: Any, header: dict[str, Any]) -> Self:
        arrays = {path: _to_array(table.column(path)) for path in table.column_names}
        empty = np.zeros((table.num_rows, 0))
        missing = [path for path in header if header[path] == codec.ARRAY and path not in arrays]
        snapshot: Self = codec.unpack(cls, {**dict.fromkeys(missing, empty), **arrays}, header)
        n, k = snapshot.coordinates.shape
        require(n >= 1 and k >= 1, "it has no points")
        require(len(snapshot.rotation) == k + len(snapshot.spare_eigenvalues), "rotation")
        require(len(snapshot.feature_names) == len(snapshot.center), "names of the features")
        require(snapshot.method in MAPS, f"method is {snapshot.method!r}")
        if (picture := snapshot.picture_contents) is not None:
            require(picture.neighbours is None, "a picture with neighbours")
            require(
                picture.kept is not None and picture.balance is not None, "an unmeasured picture"
            )
            require(len(picture.coordinates) == n, "a picture of other points")
        return snapshot


def _to_array(column: Any) -> Array:
    """The array of a column, a copy."""
    require(not column.null_count, "a column with nulls")
    lists = pa.types.is_fixed_size_list(column.type)
    return archive.to_matrix(column) if lists else column.to_numpy().copy()


def _name_arrays(prefix: str, values: Floats) -> dict[str, Any]:
    names = name_columns(prefix, values.shape[1])
    return {name: pa.array(values[:, j]) for j, name in enumerate(names)}


codec.preload_types(Snapshot)
