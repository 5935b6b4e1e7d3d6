"""The picture of a snapshot: places in the plane, and exact quality measures of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np

from streamembed.data.distance_rows import read_support_distances
from streamembed.data.output_format import name_columns, to_input_format
from streamembed.engine import drawing
from streamembed.engine.clusters import Clusters, follow_clusters
from streamembed.errors import InputError
from streamembed.layout import measures
from streamembed.layout.forces import Links, compute_affinities
from streamembed.layout.hdbscan import find_clusters
from streamembed.methods.placement import PictureExtension
from streamembed.methods.snapshot_contents import Immutable, PictureContents, SnapshotContents
from streamembed.numeric.arrays import Array, Floats, Ints, freeze
from streamembed.validation import check_whole

T = TypeVar("T")

# A picture has aged when this share fewer neighbours are kept than when it was laid out.
AGED = 0.05
# Points of the smallest cluster, and the same as a share of all.
SMALLEST_CLUSTER, CLUSTER_SHARE = 5, 0.03
# See `streamembed.layout.hdbscan`.
MIN_SAMPLES = 10
# Prefix of the columns of transformed points.
PREFIX = "live_map"
PLACES = name_columns(PREFIX, 2)


def choose_smallest_cluster(n: int) -> int:
    """Points of the smallest cluster of a picture of n points."""
    return max(SMALLEST_CLUSTER, round(CLUSTER_SHARE * n))


@dataclass(frozen=True, slots=True)
class Movement:
    """How far a picture has moved from an earlier one, as they are: not turned, not shifted.

    Attributes
    ----------
    mean, largest : float
        Displacement of the points that are in both, in units of the earlier picture's radius; NaN
        where there are none.
    shared : float
        Their share in the later picture.
    """

    mean: float
    largest: float
    shared: float


class Picture(Immutable):
    """Places in the plane that keep neighbours together, and that keep still. Immutable.

    It stands beside the coordinates of its snapshot and is not certified: the best picture is
    unknown. What can be counted is exact: ``kept`` and ``balance`` say how far each point is to be
    trusted. Distances between islands, and the sizes of these, mean nothing.

    Attributes
    ----------
    coordinates : (N, 2)
        Places of the points ``ids``, oldest first, as in the snapshot.
    ids : (N,)
    moved : (N,)
        How far the last chunk has moved each point; 0 for those that came with it.
    age : int
        Chunks since all points last came to rest together: when the picture was laid out, and while
        the support grew, whenever there were twice as many, and when it was full. 0 while they do,
        over the chunks that follow.
    epoch : int
        How often that was begun since the first time: places of two epochs cannot be compared.
    kept_then : float
        Mean of ``kept`` when they last had come to rest.
    n_neighbors : int
        Nearest neighbours that attract a point, and are counted; of few points a third at most.
    spread : float
        Attraction beside that of t-SNE.
    gamma : float
        Strength of the repulsion, frozen since all points came to rest together.
    """

    coordinates: Floats
    ids: Array
    moved: Floats
    age: int
    epoch: int
    kept_then: float
    n_neighbors: int
    spread: float
    gamma: float
    _contents: PictureContents
    _snapshot: Any  # whose module uses this one
    _measured: dict[str, Any]  # held by the snapshot, too, which does not hold the picture

    def __init__(
        self, contents: PictureContents, snapshot: SnapshotContents, measured: dict[str, Any]
    ) -> None:
        """Use ``snapshot.picture``."""
        # attributes are set once, past `__setattr__`
        parts = {field.name: getattr(contents, field.name) for field in fields(contents)}
        del parts["kept"], parts["balance"], parts["neighbours"], parts["duplicates"]
        vars(self).update(
            parts, ids=snapshot.ids, _contents=contents, _snapshot=snapshot, _measured=measured
        )
        freeze(contents.coordinates)
        freeze(contents.moved)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its snapshot."""
        return attrgetter("picture"), (self._snapshot,)

    def __repr__(self) -> str:
        return (
            f"<Picture of {len(self.coordinates)} points, {self.age} chunks old, "
            f"{self.kept.mean():.0%} of neighbours kept>"
        )

    # ------------------------------------------------------------------ what can be counted

    def _measure_once(self, name: str, measure: Callable[[], T]) -> T:
        if name not in self._measured:
            self._measured[name] = measure()
        value: T = self._measured[name]
        return value

    @property
    def kept(self) -> Floats:
        """Of each point, the share of its nearest neighbours that are nearest here, shape (N,).

        1: all around it are its neighbours, and all its neighbours are around it. Points of a value
        below 1/3 or so are drawn where only few of their neighbours are.
        """
        return self._measure_once("kept", self._measure_kept)

    def _measure_kept(self) -> Floats:
        contents = self._contents
        if contents.kept is not None:
            return freeze(contents.kept)
        assert contents.neighbours is not None
        near = contents.neighbours.near
        return freeze(measures.measure_kept(self.coordinates, near, self._duplicates))

    @property
    def balance(self) -> Floats:
        """How far each point would still go if all others stayed, shape (N,): 0 is settled."""
        return self._measure_once("balance", self._measure_balance)

    def _measure_balance(self) -> Floats:
        contents = self._contents
        if contents.balance is not None:
            return freeze(contents.balance)
        assert contents.neighbours is not None
        links = Links.of(contents.neighbours.near, compute_affinities(contents.neighbours.d2))
        return freeze(measures.measure_balance(links, self.coordinates, self.spread, self.gamma))

    @property
    def _duplicates(self) -> Ints:
        """A label for every point, one for equal points, shape (N,)."""
        if self._contents.duplicates is not None:
            return self._contents.duplicates
        points = self._snapshot.points
        return self._measure_once("duplicates", lambda: measures.label_duplicates(points))

    @property
    def radius(self) -> float:
        """Root mean square distance of the points from their mean."""
        return measures.compute_radius(self.coordinates)

    @property
    def aged(self) -> bool:
        """Whether .05 less of the neighbours are kept than when all points came to rest together.

        The picture may be worn, or the data harder to draw: `Engine.relayout` on a copy of the
        engine tells which.
        """
        return bool(self.kept.mean() < self.kept_then - AGED)

    def moved_since(self, earlier: Picture) -> Movement:
        """How far the points have moved that are in an earlier picture of the same engine, too.

        Raises
        ------
        InputError
            All points were laid out again in between (see ``epoch``), or it is no picture.
        """
        if not isinstance(earlier, Picture):
            raise InputError(f"earlier is a {type(earlier).__name__}; it must be a Picture")
        if earlier.epoch != self.epoch:
            raise InputError(
                f"earlier is of epoch {earlier.epoch} and this picture of epoch {self.epoch}: all "
                "points came to rest again in between, and places of two epochs cannot be compared"
            )
        if earlier.ids.dtype.kind != self.ids.dtype.kind:
            raise InputError(
                "earlier has ids of another kind than this picture: it must be of the same engine"
            )
        _, here, there = np.intersect1d(self.ids, earlier.ids, return_indices=True)
        if not len(here):
            return Movement(np.nan, np.nan, 0.0)
        steps = self.coordinates[here] - earlier.coordinates[there]
        far = np.sqrt((steps**2).sum(axis=1)) / (earlier.radius or 1.0)
        return Movement(float(far.mean()), float(far.max()), len(here) / len(self.ids))

    # ------------------------------------------------------------------ clusters

    def clusters(
        self, earlier: Clusters | None = None, *, min_cluster_size: int | None = None
    ) -> Clusters:
        """Dense groups of points, by HDBSCAN, with the ids that they have in ``earlier``.

        Equal rows are at one place, the mean of theirs, wherever they are drawn: no cluster divides
        them. Hand the clusters of one picture to the next. Clusters are matched by the points that
        are in both pictures, at least half of the smaller cluster's; where they could be matched
        differently, so that they share the most points, then by the oldest ids. A change counts
        only once it has lasted for three pictures: until then points of a new cluster keep the id
        that they had, and a cluster that is missing keeps its points. A cluster without points
        ends at once. Nothing is kept in the engine. O(N**2) time, O(N) memory.

        Parameters
        ----------
        earlier
            Clusters of an earlier picture of the same engine, of any epoch; None to begin, where
            every cluster has an id at once. There must be points that are in both pictures, so at
            least two pictures to a turnover of the window, better ten.
        min_cluster_size
            Points of the smallest cluster, at least 2; None: 3 % of all, at least 5.

        Raises
        ------
        InputError
            ``earlier`` is not `Clusters`, is of a later position, or has ids of another kind.
        ParameterError
            ``min_cluster_size`` is not a whole number, at least 2.
        """
        if earlier is not None and not isinstance(earlier, Clusters):
            raise InputError(
                f"earlier is a {type(earlier).__name__}; it must be what clusters() of an earlier "
                "picture returned, or None"
            )
        n = len(self.ids)
        if min_cluster_size is None:
            least = choose_smallest_cluster(n)
        else:
            least = check_whole("min_cluster_size", min_cluster_size, 2)
        places = measures.unite_duplicates(self.coordinates, self._duplicates)
        groups = find_clusters(places, least, MIN_SAMPLES)
        return follow_clusters(groups, self.ids, self._snapshot.position, earlier)

    # ------------------------------------------------------------------ new points

    def transform(self, X: Any) -> Any:
        """Places of new points, each by itself, shape (n, 2), as `Snapshot.transform` has them.

        A point comes to rest among its nearest neighbours, which stay where they are. Far from
        the support that says nothing: see `Snapshot.coverage`. O(N (d + n_neighbors)) a point.

        Raises
        ------
        FeatureError, BadRowError
            As in `Engine.learn`.
        """
        return to_input_format(self._extension.coordinates(self._snapshot._read(X)), X, PLACES)

    def transform_distances(self, rows: Any) -> Floats:
        """Places of new objects, by their distances to the support; see `Snapshot`."""
        return self._extension.coordinates_from_distances(read_support_distances(rows, self.ids))[0]

    @property
    def _extension(self) -> PictureExtension:
        numbers = self._snapshot, self.coordinates, self.n_neighbors, self.spread, self.gamma
        return self._measure_once("extension", lambda: PictureExtension(*numbers))

    # ------------------------------------------------------------------ drawing

    def plot(self, color: Any = None, ax: Any = None, halo: bool = True, new: int = 10) -> Any:
        """Draw the points with matplotlib (extra ``pictures``), in colours for all eyes.

        Parameters
        ----------
        color
            One value a point, in the order of ``ids``: labels (None or NaN: grey), or numbers.
            None: by age, the youngest lightest. "kept": how far each is to be trusted.
        ax
            Axes to draw on; None for new ones.
        halo
            A grey halo around points that keep less than a third of their neighbours, but no more
            than a fifth of all points.
        new
            Number of youngest points that get a black rim.

        Returns
        -------
        The axes.

        Raises
        ------
        ParameterError
            Not one value a point; or matplotlib is not installed.
        """
        n, new = len(self.coordinates), check_whole("new", new, 0)
        drawing.check_axes(ax)
        name = color if isinstance(color, str) and color in ("kept", "balance") else ""
        given = getattr(self, name) if name else color
        values = drawing.read_colors(given, n, "'kept', 'balance', ")
        label = "age" if color is None else name
        return drawing.draw_picture(self.coordinates, self.kept, values, ax, halo, new, label)

    # ------------------------------------------------------------------ files

    def _build_measured_contents(self) -> PictureContents:
        """The contents with `kept` and `balance` measured, without neighbours."""
        return replace(self._contents, kept=self.kept, balance=self.balance, neighbours=None)
