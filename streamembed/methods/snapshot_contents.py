"""What a snapshot consists of: one frozen dataclass, whose fields are its file, too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from streamembed.geometry.kernel import LARGEST_DEGREE
from streamembed.geometry.lists import LARGEST_NEIGHBORS, Slots
from streamembed.metrics.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Array, Floats, Ints, Unchanging, freeze
from streamembed.numeric.codec import AS_NUMBERS, Count, Within
from streamembed.spectral.certificate import Certificate

TINY, LARGEST = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).max)

Neighbors = Annotated[int, Within(1, LARGEST_NEIGHBORS)]


class Immutable(Unchanging):
    """A value whose attributes are set once, in ``vars``."""

    def __setattr__(self, name: str, value: object) -> None:
        kind = type(self).__name__.lower()
        raise FrozenInstanceError(f"cannot assign to {name!r}: a {kind} never changes")

    def __delattr__(self, name: str) -> None:
        kind = type(self).__name__.lower()
        raise FrozenInstanceError(f"cannot delete {name!r}: a {kind} never changes")


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
        Axes, counted from 0, that could not be kept: where the epoch began, or within it, or that
        have turned out of the frame now (a correlation below .95).
    kept_since : tuple of int
        Stream position since which each axis is what it is: where it was lost for the last time;
        that of the snapshot for an axis that has turned out of the frame.
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

    epoch: Count
    since: Count
    lost: tuple[Count, ...]
    kept_since: tuple[Count, ...]
    fidelity: float
    price: float
    correlations: tuple[float, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PictureNeighbours:
    """Neighbours that the quality measures of a picture are computed from."""

    # (N, K): the nearest of every point, oldest first, -1 behind the end of a list.
    near: Slots
    d2: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PictureContents:
    """The contents of a picture; points in the order of the snapshot."""

    coordinates: Annotated[Floats, "n 2"]
    moved: Annotated[Floats, "n"]
    # None where they are still to be counted.
    kept: Annotated[Floats, "n"] | None
    balance: Annotated[Floats, "n"] | None
    neighbours: PictureNeighbours | None  # by which they are
    # The same for equal objects; None where the points of the snapshot tell.
    duplicates: Annotated[Ints, "n"] | None
    gamma: float
    spread: float
    kept_then: float
    n_neighbors: Neighbors
    age: Count
    epoch: Count


@dataclass(frozen=True, eq=False, repr=False)
class SnapshotContents(Immutable):
    """The fields of `streamembed.Snapshot`, which says what they are.

    A field may be given as a `functools.partial` that makes it when it is first asked for. n
    points, k components, s spare and c carried ones, d features, l those of linear maps, w points
    that paths lead to, r tracked pairs.
    """

    ids: Annotated[Array, "n", "int64 or text", "different"]
    masses: Annotated[Floats, "n"]
    coordinates: Annotated[Floats, "n k"]
    psi: Annotated[Floats, "n k"]
    spare_psi: Annotated[Floats, "n s"]
    stationary: Annotated[Floats, "n"]
    density_weights: Annotated[Floats, "n"]
    degrees: Annotated[Floats, "n"]
    widths: Annotated[Floats, "n"]
    reaches: Annotated[Floats, "n"]
    points: Annotated[Floats, "n d"]
    lengths: Annotated[Floats, "n w"]  # inf between parts
    # lambda**t psi of every tracked pair, published or not.
    tracked: Annotated[Floats, "n r"]
    eigenvalues: Annotated[Floats, "k"] = field(metadata=AS_NUMBERS)
    spare_eigenvalues: Annotated[Floats, "s"] = field(metadata=AS_NUMBERS)
    rotation: Annotated[Floats, "c k"] = field(metadata=AS_NUMBERS)
    feature_loadings: Annotated[Floats, "l k"] = field(metadata=AS_NUMBERS)
    center: Annotated[Floats, "d"] = field(metadata=AS_NUMBERS)
    scale: Annotated[Floats, "d"] = field(metadata=AS_NUMBERS)
    method: str
    position: Annotated[int, "positive"]
    feature_names: Annotated[tuple[str, ...], "different"]
    ordered: bool  # whether features are named by their place
    metric: str
    kernel: str
    bandwidth: float
    radius: float
    n_neighbors: Neighbors
    width: float
    least_width: float
    typical_coverage: float
    alpha: float
    diffusion_time: float
    degree: Annotated[int, Within(1, LARGEST_DEGREE)]
    coef0: float
    gamma: float
    reg: float
    certificate: Certificate
    frame: Frame
    refinement: str
    resolution: float
    n_connected: Annotated[int, "positive"]
    metrics: Mapping[str, Mahalanobis]
    picture_contents: PictureContents | None

    def __post_init__(self) -> None:
        """Freeze what is given, and set what makes the rest aside."""
        parts, makers = vars(self), {}
        for name, value in [*parts.items()]:
            if isinstance(value, np.ndarray):
                freeze(value)
            elif isinstance(value, partial):
                makers[name] = parts.pop(name)
        parts.update(metrics=MappingProxyType(dict(self.metrics)), _makers=makers)

    if not TYPE_CHECKING:  # a type checker knows the attributes

        def __getattr__(self, name: str) -> Any:
            maker = vars(self).get("_makers", {}).get(name)
            if maker is None:
                message = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(message, name=name, obj=self)
            value = maker()
            vars(self)[name] = freeze(value) if isinstance(value, np.ndarray) else value
            return value

    @cached_property
    def carried_psi(self) -> Floats:
        """psi of all pairs that coordinates are made of, shape (N, n_components + s)."""
        return freeze(np.concatenate([self.psi, self.spare_psi], axis=1))

    @cached_property
    def carried_eigenvalues(self) -> Floats:
        """Their eigenvalues, shape (n_components + s,)."""
        return freeze(np.concatenate([self.eigenvalues, self.spare_eigenvalues]))
