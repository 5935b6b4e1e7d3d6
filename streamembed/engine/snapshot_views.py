"""Views of a snapshot: tables, a plot, what a notebook shows, and neighbours of new points."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.spatial import cKDTree

from streamembed.data import batch, column_roles, distance_rows
from streamembed.data.features import Features
from streamembed.data.output_format import name_columns
from streamembed.engine import drawing
from streamembed.engine.picture import PREFIX, Picture
from streamembed.errors import FeatureError, ParameterError, quote
from streamembed.methods.extension import Extension
from streamembed.methods.maps import MAPS
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.notebook import write_table
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.validation import check_choice, check_whole

# Squares of differences up to here have a finite sum.
FARTHEST = 1e145
SPACES = ("map", "picture", "features")


class SnapshotViews(SnapshotContents):
    """What `streamembed.Snapshot` gives out about its support as a whole."""

    @cached_property
    def features(self) -> Features:
        """Names of the features, in the order of the columns of ``points``."""
        return Features(self.feature_names, self.ordered)

    @cached_property
    def picture(self) -> Picture | None:
        """Places in the plane, with ``picture=True``."""
        return None if self.picture_contents is None else Picture(self.picture_contents, self)

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
            ("refinement", self.rung),
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
            self._trees[space] = cKDTree(support)
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

    def _read_rows(self, rows: Any) -> Floats:
        """Distances to every item of the support, checked."""
        return distance_rows.read_support_distances(rows, self.ids)

    @cached_property
    def _extension(self) -> Extension:
        return MAPS[self.method].extension(self)

    def _read(self, X: Any, of_distances: str = "transform_distances") -> Floats:
        """Points in the caller's units, checked, columns in order."""
        if batch.are_usable(X, self.features):
            points: Floats = X
            return points
        if not self.feature_names:
            raise FeatureError(
                "this snapshot was learned from distances and has no features: use "
                f"{of_distances}, with distances to its ids"
            )
        remedy = "nothing was transformed: fix or drop them"
        table = column_roles.split(X, self.feature_names).points
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


def _name_arrays(prefix: str, values: Floats) -> dict[str, Any]:
    names = name_columns(prefix, values.shape[1])
    return {name: pa.array(values[:, j]) for j, name in enumerate(names)}
