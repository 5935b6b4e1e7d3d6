"""A snapshot: the immutable embedding of one support, with its certificate and transform."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles, distance_rows
from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.data.output_format import read_frame, to_input_format
from streamembed.engine import snapshot_contents
from streamembed.engine.comparison import Comparison, compare
from streamembed.engine.picture import Immutable, Picture, PictureContents, PictureNeighbours
from streamembed.engine.snapshot_contents import ARRAYS, COLUMNS, FACTS, IN_HEADER, check
from streamembed.engine.snapshot_views import SnapshotViews
from streamembed.errors import FeatureError, InputError, quote
from streamembed.layout.layout import select_neighbors
from streamembed.methods import frame_reference, picture_updates
from streamembed.methods.eigenpairs import Paths, PublishedColumns
from streamembed.methods.extension import Extension
from streamembed.methods.geodesic_gram import extend_from_landmarks
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.options import Config
from streamembed.methods.registry import METHODS
from streamembed.methods.state import FrameReference, State
from streamembed.metric_learners import metrics as learners
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.metric_learning.metric_certificate import MetricCertificate
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array, Floats, Ints, freeze
from streamembed.spectral.alignment import FrameMovement
from streamembed.spectral.certificate import Certificate
from streamembed.spectral.operator import Normalisation
from streamembed.storage import archive
from streamembed.storage.saved_object import SavedObject
from streamembed.validation import check_whole


@dataclass(frozen=True, slots=True)
class Frame:
    """How far the axes of a snapshot are those of earlier ones; see `docs/algorithms/frames.md`.

    Coordinates are turned onto those that the support had when the frame was last renewed, which
    is when half of it is new.

    Attributes
    ----------
    epoch : int
        Axes are kept within an epoch. Another begins where scaling was taken again, and where, at
        a renewal of the frame, fidelity is below 0.95 or price above 0.1. Fidelity weighs axes by
        their spread: a faint one may be lost while the epoch goes on.
    since : int
        Stream position at which the epoch began.
    lost : tuple of int
        Axes, counted from 0, that could not be kept: where the epoch began, or within it.
    kept_since : tuple of int
        Stream position since which each axis is what it is: where it was lost for the last time.
    fidelity : float
        1 - the squared movement of the points shared with the frame, relative to their squared
        length: 1 where nothing moved. Where the frame has just been renewed: of the frame against
        the one before.
    price : float
        Share of the spread of the leading ``n_components`` coordinates that is not shown, because
        axes were kept.
    correlations : tuple of float
        Of each axis with itself in the frame, likewise; empty without a frame.
    """

    epoch: int
    since: int
    lost: tuple[int, ...]
    kept_since: tuple[int, ...]
    fidelity: float
    price: float
    correlations: tuple[float, ...]


class Snapshot(SnapshotViews, Immutable, SavedObject):
    """The immutable embedding of the support after some event of the stream.

    Assigning or deleting an attribute raises `dataclasses.FrozenInstanceError`, an AttributeError;
    arrays are read-only, also after unpickling; a copy is the snapshot itself.

    Attributes
    ----------
    coordinates : (N, n_components)
        (lambda**t psi) ``rotation``, oldest first, as are ``ids``, ``masses`` and ``points``.
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
    features : Features
        Their names are ``feature_names``, too.
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
        Places in the plane, with ``picture=True``.
    rung : str
        Refinement level (`streamembed.methods.refinement`) of this snapshot: view, polish (not of
        diffusion maps), refresh, or exact (batch for more than 1,000 points).
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
    coordinates: Floats
    eigenvalues: Floats
    ids: Array
    masses: Floats
    stationary: Floats
    density_weights: Floats
    degrees: Floats
    psi: Floats
    spare_psi: Floats
    spare_eigenvalues: Floats
    rotation: Floats
    feature_loadings: Floats
    method: str
    position: int
    points: Floats
    lengths: Floats
    features: Features
    kernel: str
    bandwidth: float
    widths: Floats
    reaches: Floats
    radius: float
    n_neighbors: int
    width: float
    least_width: float
    typical_coverage: float
    center: Floats
    scale: Floats
    alpha: float
    diffusion_time: float
    degree: int
    coef0: float
    gamma: float
    reg: float
    certificate: Certificate
    frame: Frame
    rung: str
    resolution: float
    n_connected: int
    picture: Picture | None
    _tracked: Floats  # lambda**t psi of every tracked pair, shape (N, r), oldest first
    _metrics: dict[str, Mahalanobis]

    def __init__(
        self,
        arrays: Mapping[str, Array],
        numbers: Mapping[str, Any],
        drawn: PictureContents | None = None,
        makers: Mapping[str, Callable[[], Any]] = MappingProxyType({}),
    ) -> None:
        """Use `Engine.snapshot` or `Snapshot.load`.

        ``makers`` make what is in neither arrays nor numbers, when it is first asked for.
        """
        # attributes are set once, past `__setattr__`
        vars(self).update({name: freeze(array) for name, array in arrays.items()})
        facts = FACTS.keys() - makers.keys()
        vars(self).update({name: FACTS[name][0](numbers[name]) for name in facts})
        features = Features(tuple(numbers["feature_names"]), bool(numbers["ordered"]))
        vars(self).update(features=features, _metrics=dict(numbers["metrics"]), _makers=makers)
        vars(self).update(picture=None if drawn is None else Picture(drawn, self))

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            maker = vars(self).get("_makers", {}).get(name)
            if maker is None:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(message, name=name, obj=self)
            value = maker()
            vars(self)[name] = freeze(value) if isinstance(value, np.ndarray) else value
            return value

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts; read-only again afterwards."""
        arrays = {name: getattr(self, name) for name in (*ARRAYS, "_tracked")}
        numbers = {name: getattr(self, name) for name in FACTS}
        numbers.update(ordered=self.features.ordered, metrics=self._metrics)
        drawn = None if self.picture is None else self.picture._counted()
        return type(self), (arrays, numbers, drawn)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features, in the order of the columns of ``points``."""
        return self.features.names

    @property
    def metrics(self) -> Mapping[str, Mahalanobis]:
        """The learned metrics by name, in the caller's units, each with its certificate.

        They take frames by name where the engine learned named features, and arrays in the order
        of their ``feature_names``.
        """
        return MappingProxyType(self._metrics)

    @classmethod
    def of(
        cls, state: State, columns: PublishedColumns, config: Config, features: Features
    ) -> Self:
        """The snapshot of a state and its published columns."""
        order, eigenvalues = state.support.oldest_first, columns.eigenvalues
        kernel, counting = state.map.describe_weights(state, config), state.active_masses
        coordinates, k = columns.coordinates, config.n_components
        degrees, lengths = state.degrees, np.zeros((len(order), 0))
        if columns.paths is not None:
            shown = frame_reference.embed(columns.psi, eigenvalues, state, config)
            extended = extend_from_landmarks(shown, eigenvalues, counting, columns.paths)
            coordinates = extended @ columns.rotation
            degrees, lengths = _select_paths(columns.paths, counting, order)
        by_slot: dict[str, Array] = {
            "coordinates": coordinates,
            "psi": columns.psi[:, :k],
            "spare_psi": columns.psi[:, k:],
            "ids": state.support.ids,
            "masses": state.support.masses,
            "stationary": columns.normal.stationary,
            "density_weights": columns.normal.density,
            "degrees": degrees,
            "widths": kernel.widths,
            "reaches": kernel.reaches,
            "points": state.support.points,
        }
        makers: dict[str, Callable[[], Any]] = {
            name: partial(array.take, order, axis=0)  # three times as fast as an index
            for name, array in by_slot.items()
        }
        arrays: dict[str, Array] = {
            "eigenvalues": eigenvalues[:k].copy(),
            "spare_eigenvalues": eigenvalues[k:].copy(),
            "rotation": columns.rotation.copy(),
            "feature_loadings": columns.loadings,
            "lengths": lengths,
            "center": state.scaling.center.copy(),
            "scale": state.scaling.scale.copy(),
        }
        numbers = {
            "ordered": features.ordered,
            "feature_names": features.names,
            "method": config.method,
            "position": state.position,
            "kernel": kernel.name,
            "bandwidth": state.scaling.bandwidth,
            "radius": config.radius or 0.0,
            "n_neighbors": config.n_neighbors,
            "width": kernel.width,
            "typical_coverage": state.typical_coverage(config),
            # where no two points differed, nothing is least
            "least_width": kernel.least or float(kernel.widths.min()),
            "alpha": config.correction,
            "diffusion_time": config.time,
            "degree": config.degree,
            "coef0": config.coef0,
            "reg": config.reg,
            "gamma": config.kernel_function.gamma_of(state.support.points.shape[1]),
            "certificate": columns.certificate,
            "rung": columns.refinement,
            "resolution": state.resolution(config.size),
            "n_connected": columns.n_connected,
            "metrics": {},
        }
        if state.metrics is not None:
            numbers["metrics"] = {
                name: one.named(features.given_names)
                for name, one in learners.publish(state.metrics, state.scaling.scale).items()
            }
        drawn = None if state.picture is None else _build_picture_contents(state, order, config)
        # none of these arrays is ever written to, so they can be shared until they are needed
        makers["frame"] = partial(_build_frame, state.frame, state.position, columns.measure)
        makers["_tracked"] = makers["coordinates"]
        if isinstance(state.map, KernelMap):
            makers["_tracked"] = partial(_track_pairs, state, columns.normal, order, config.time)
        return cls(arrays, numbers, drawn, makers)

    def __repr__(self) -> str:
        n, k = self.coordinates.shape
        d, picture = len(self.feature_names), self.picture
        return (
            f"<Snapshot at {self.position:,}: {n:,} points, {k} components of "
            f"{f'{d:,} features' if d else 'distances'}, residual {self.certificate.residual:.1e}, "
            f"met={self.certificate.met}{self._describe_bound_age()}"
            f"{'' if picture is None else f', a picture {picture.age:,} chunks old'}>"
        )

    def _describe_bound_age(self) -> str:
        age = self.certificate.bound_age
        return f", a bound {age:,} events old" if age else ""

    @cached_property
    def carried_psi(self) -> Floats:
        """psi of all pairs that coordinates are made of, shape (N, n_components + s)."""
        return freeze(np.concatenate([self.psi, self.spare_psi], axis=1))

    @cached_property
    def carried_eigenvalues(self) -> Floats:
        """Their eigenvalues, shape (n_components + s,)."""
        return freeze(np.concatenate([self.eigenvalues, self.spare_eigenvalues]))

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
            return self._extension.coordinates(X.points)  # it is checked
        read = read_frame(X)
        return to_input_format(self._extension.coordinates(self._read(read)), X, read, self.method)

    def coverage(self, X: Any) -> Floats:
        """How well the support covers new points: min(1, q(x) / median q), shape (n,).

        1 is as dense as a typical support point, 0 means that nothing similar is in the support;
        q(x) is the kernel mass around x. The median is over the support; above 256 points it is
        over 256 of them, evenly spaced by age, unless the kernel is Gaussian or a graph.
        """
        return self._extension.with_coverage(self._read(X, "coverage_distances"))[1]

    def _compute_coverage(self, points: Floats) -> Floats:
        """`coverage` of points that are checked."""
        return self._extension.with_coverage(points)[1]

    def transform_with_coverage(self, X: Any) -> tuple[Any, Floats]:
        """`transform` and `coverage` in one pass."""
        read = read_frame(X)
        coordinates, coverage = self._extension.with_coverage(self._read(read))
        return to_input_format(coordinates, X, read, self.method), coverage

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
        return self._extension.from_distances(self._read_rows(rows))[0]

    def coverage_distances(self, rows: Any) -> Floats:
        """`coverage` of new objects, from their distances to the support."""
        return self._extension.from_distances(self._read_rows(rows))[1]

    def _read_rows(self, rows: Any) -> Floats:
        """Distances to every item of the support, checked."""
        return distance_rows.read_support_distances(rows, self.ids)

    @cached_property
    def _extension(self) -> Extension:
        return METHODS[self.method].extend(self)

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

    def leading_ids(self, component: int, count: int = 10) -> list[Any]:
        """Ids of the points that carry a component most, the first of them most of all.

        Parameters
        ----------
        component
            0 to n_components - 1.
        count
            At most this many.
        """
        k = self.psi.shape[1]
        j = check_whole("component", component, 0, high=k - 1)
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
        powers = np.sqrt(self.stationary @ self._tracked**2)  # lambda**t, since psi has norm 1
        kept = powers > 0.0
        return self._tracked[:, kept] / powers[kept], powers[kept] ** (1.0 / self.diffusion_time)

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
        return compare(earlier, later)

    # ------------------------------------------------------------------ distances

    def diffusion_distances(self) -> Floats:
        """Diffusion distances between all support points, over all tracked pairs; not squared.

        Shape (N, N), ||Psi_t(i) - Psi_t(j)|| with every tracked eigenpair, not only the published
        ones; rows as in ``coordinates``. Of other methods: distances between ``coordinates``.

        Source: Jain, eq. (8). Differs: (8) is the squared distance.
        """
        columns = self._tracked
        squares = np.einsum("ij,ij->i", columns, columns)
        d2 = squares[:, None] + squares - 2.0 * (columns @ columns.T)
        np.fill_diagonal(d2, 0.0)
        distances: Floats = np.sqrt(np.maximum(d2, 0.0))
        return distances

    # ------------------------------------------------------------------ files

    def _to_file(self) -> tuple[Any, dict[str, Any]]:
        columns = {"tracked": archive.to_list_column(self._tracked)}
        for name, column in COLUMNS.items():
            array = getattr(self, name)
            if array.shape[1:] != (0,):
                columns[column] = snapshot_contents.to_column(array)
        drawn = None
        if self.picture is not None:
            places, drawn = snapshot_contents.pack_picture(self.picture._counted())
            columns |= places
        header = {
            "picture": drawn,
            **{name: getattr(self, name) for name in FACTS},
            **{name: getattr(self, name).tolist() for name in IN_HEADER},
            "ordered": self.features.ordered,
            "certificate": codec.pack(self.certificate)[1],
            "frame": codec.pack(self.frame)[1],
            "metrics": {
                name: {
                    "matrix": one.matrix.tolist(),
                    "factor": one.factor.tolist(),
                    "certificate": one.certificate.as_dict(),
                    "feature_names": one.feature_names,
                }
                for name, one in self.metrics.items()
            },
        }
        return pa.table(columns), header

    @classmethod
    def _of_file(cls, table: Any, header: dict[str, Any]) -> Self:
        arrays = {name: np.array(header[name], dtype=np.float64) for name in IN_HEADER}
        if header["feature_loadings"] == []:
            arrays["feature_loadings"] = np.zeros((0, len(arrays["eigenvalues"])))
        for name, column in COLUMNS.items():
            if column in table.column_names:
                arrays[name] = snapshot_contents.to_array(table.column(column))
        for name in ("points", "lengths", "spare_psi"):
            arrays.setdefault(name, np.zeros((len(arrays["ids"]), 0)))
        numbers = {
            **header,
            "certificate": codec.unpack(Certificate, {}, header["certificate"]),
            "frame": codec.unpack(Frame, {}, header["frame"]),
            "metrics": {
                name: Mahalanobis(
                    freeze(np.array(one["matrix"], dtype=np.float64)),
                    freeze(np.array(one["factor"], np.float64).reshape(-1, len(one["matrix"]))),
                    MetricCertificate(one["certificate"]),
                    None if one["feature_names"] is None else tuple(one["feature_names"]),
                )
                for name, one in header["metrics"].items()
            },
        }
        tracked = archive.to_matrix(table.column("tracked"))
        check(arrays, numbers, tracked)
        drawn = snapshot_contents.unpack_picture(table, header["picture"], len(tracked))
        return cls({**arrays, "_tracked": tracked}, numbers, drawn)


def _build_frame(
    frame: FrameReference, position: int, measure: Callable[[], FrameMovement]
) -> Frame:
    moved = measure()
    fidelity, correlations = moved.fidelity, tuple(moved.correlations.tolist())
    if frame.position == position and frame.fidelity is not None:
        # it has just been renewed, from these columns: what counts is the one before
        fidelity, correlations = frame.fidelity, frame.correlations
    kept = frame.epoch, frame.since, frame.lost, frame.kept_since
    return Frame(*kept, fidelity, moved.price, correlations)


def _track_pairs(state: State, normal: Normalisation, order: Ints, time: float) -> Floats:
    values, psi = state.map.view(state, normal, len(order))
    tracked: Floats = (psi * np.clip(values, 0.0, 1.0) ** time)[order]
    return tracked


def _build_picture_contents(state: State, order: Ints, config: Config) -> PictureContents:
    """What the picture is made of, oldest first."""
    assert state.picture is not None
    layout, lists = state.picture, picture_updates.select_lists(state)
    rank = np.empty(len(order), dtype=np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    near, d2 = select_neighbors(lists)
    # points can be compared later, should anybody ask
    duplicates = None if state.distances is None else picture_updates.label_duplicates(state)
    return PictureContents(
        coordinates=layout.places[order],
        moved=layout.moved[order],
        kept=None,
        balance=None,
        neighbours=PictureNeighbours(
            np.where(near >= 0, rank[near], -1)[order],
            d2[order],
            None if duplicates is None else duplicates[order],
        ),
        gamma=layout.gamma,
        spread=config.spread,
        kept_then=layout.kept_then,
        n_neighbors=near.shape[1],
        age=layout.age,
        epoch=layout.epoch,
    )


def _select_paths(paths: Paths, counting: Floats, order: Ints) -> tuple[Floats, Floats]:
    """Sums of rows of -G^2 / 2 by slot, weighted by mass, without what there is no path to; and G.

    Rows of G, and its columns too, come oldest first.
    """
    finite = np.where(np.isfinite(paths.lengths), paths.lengths, 0.0)
    sums: Floats = -0.5 * (finite**2 @ counting[paths.ends])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    # rows, then columns: twice as fast as an index of both
    return sums, paths.lengths.take(order, axis=0).take(np.argsort(rank[paths.ends]), axis=1)


codec.prepare(Certificate, Frame, PictureContents)
