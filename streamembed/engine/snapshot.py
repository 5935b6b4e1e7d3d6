"""A snapshot: the immutable embedding of one support, with its certificate and transform."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.data.output_format import name_columns, to_input_format
from streamembed.engine import saved_snapshot
from streamembed.engine.comparison import Comparison, compare
from streamembed.engine.snapshot_parts import collect_parts
from streamembed.engine.snapshot_views import SnapshotViews
from streamembed.errors import FeatureError, InputError, quote
from streamembed.methods.eigenpairs import PublishedColumns
from streamembed.methods.options import Config
from streamembed.methods.snapshot_contents import Frame as Frame
from streamembed.methods.state import State
from streamembed.numeric import codec
from streamembed.numeric.arrays import Floats
from streamembed.storage.saved_object import SavedObject
from streamembed.validation import check_whole


class Snapshot(SnapshotViews, SavedObject):
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

    @classmethod
    def of(
        cls, state: State, columns: PublishedColumns, config: Config, features: Features
    ) -> Self:
        """The snapshot of a state and its published columns."""
        return cls(**collect_parts(state, columns, config, features))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as it is saved."""
        return SnapshotViews.__reduce__(self._count_picture())

    def _count_picture(self) -> Self:
        """The same with all that is counted of a picture, without what that is made of."""
        return (
            self
            if self.picture is None
            else replace(self, picture_contents=self.picture._counted())
        )

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
        coordinates = self._extension.coordinates(self._read(X))
        return to_input_format(coordinates, X, name_columns(self.method, coordinates.shape[1]))

    def coverage(self, X: Any) -> Floats:
        """How well the support covers new points: min(1, q(x) / median q), shape (n,).

        1 is as dense as a typical support point, 0 means that nothing similar is in the support;
        q(x) is the kernel mass around x. The median is over the support; above 256 points it is
        over 256 of them, evenly spaced by age, unless the kernel is Gaussian or a graph.
        """
        return self._extension.with_coverage(self._read(X, "coverage_distances"))[1]

    def transform_with_coverage(self, X: Any) -> tuple[Any, Floats]:
        """`transform` and `coverage` in one pass."""
        coordinates, coverage = self._extension.with_coverage(self._read(X))
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
        return self._extension.from_distances(self._read_rows(rows))[0]

    def coverage_distances(self, rows: Any) -> Floats:
        """`coverage` of new objects, from their distances to the support."""
        return self._extension.from_distances(self._read_rows(rows))[1]

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
        return compare(earlier, later)

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

    # ------------------------------------------------------------------ files

    def _to_file(self) -> tuple[Any, dict[str, Any]]:
        return saved_snapshot.pack(self._count_picture())

    @classmethod
    def _of_file(cls, table: Any, header: dict[str, Any]) -> Self:
        return saved_snapshot.unpack(cls, table, header)


codec.prepare(Snapshot)
