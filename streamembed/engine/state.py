"""The state of an engine between two chunks: everything that must persist, nothing else."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamembed.engine.metrics import Learners
from streamembed.geometry.landmarks import Cover
from streamembed.geometry.ring import Graph
from streamembed.geometry.support import Support
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.spectral.tracker import Factor

__all__ = ["Counts", "FrameReference", "Scaling", "State"]


@dataclass(frozen=True, slots=True, eq=False)
class Scaling:
    """What the kernel sees: (x - center) / scale, at this bandwidth.

    Attributes
    ----------
    center, scale : (d,)
        In the caller's units; the scale is 1 where a feature is constant, or nothing is scaled.
    bandwidth : float
        sigma of exp(-d2 / sigma**2), in scaled units.
    """

    center: Floats
    scale: Floats
    bandwidth: float

    def scaled(self, points: Floats) -> Floats:
        """Points (n, d) as the kernel sees them."""
        with np.errstate(over="ignore", under="ignore"):
            result: Floats = (points - self.center) / self.scale
        return result


@dataclass(frozen=True, slots=True, eq=False)
class FrameReference:
    """The columns with which later snapshots are aligned.

    Attributes
    ----------
    columns : (n, c)
        psi of n_components and one more, as they were published, by slot.
    eigenvalues : (c,)
        Of these columns, by the plain view.
    births : (n,)
        Which event was in each slot then.
    position : int
        Stream position at which they were taken.
    epoch : int
        Raised whenever the axes start anew: at the first snapshot, and at every rescaling.
    restless : bool
        True where the columns turn so fast that the frame must be renewed with every chunk.
    displacement, movement : float
        What turning took out of these columns when they were made, and what it left.
    """

    columns: Floats
    eigenvalues: Floats
    births: Ints
    position: int
    epoch: int
    restless: bool
    displacement: float
    movement: float


@dataclass(frozen=True, slots=True)
class Counts:
    """How often the state was made more exact than by bordering.

    Attributes
    ----------
    refreshes, rebuilds : int
        One-product refreshes, and factors made from scratch, since the first event.
    rows_since_refresh : int
        Slots filled since the last refresh.
    rows_since_frame : float
        By how many rows the support has changed since the frame was taken; among landmarks the
        mass that moved counts too.
    """

    refreshes: int
    rebuilds: int
    rows_since_refresh: int
    rows_since_frame: float


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The engine's state between two chunks.

    Attributes
    ----------
    position : int
        Events learned.
    scaling : Scaling
    support : Support
    cover : Cover or None
        Nearest neighbours of the landmarks; None for other memories.
    distances : Graph or None
        The ring of unsquared distances, for things without coordinates; written in place like the
        kernel ring. Of a window it has the precision of that ring: only rescaling reads it.
    graph : Graph
        The kernel rows. Those of the next state lie in the same ring: once that state is settled,
        it alone can be read.
    degrees : (n,)
        q = W m, kept exactly.
    factor : Factor
    frame : FrameReference
    counts : Counts
    metrics : Learners or None
        None where no metric is learned.
    """

    position: int
    scaling: Scaling
    support: Support
    cover: Cover | None
    distances: Graph | None
    graph: Graph
    degrees: Floats
    factor: Factor
    frame: FrameReference
    counts: Counts
    metrics: Learners | None = None

    def resolution(self, size: int) -> float:
        """Radius of the cover of ``size`` landmarks over the bandwidth; 0 for other memories."""
        if self.cover is None:
            return 0.0
        return float(np.sqrt(self.cover.radius2(size))) / self.scaling.bandwidth

    def settle(self) -> None:
        """Forget the way back to the state before; see `Graph.settle`."""
        self.graph.settle()
        if self.distances is not None:
            self.distances.settle()

    def on_its_own(self) -> State:
        """The same state on rings of its own, so that learning from it leaves this one whole."""
        distances = None if self.distances is None else self.distances.copy()
        return replace(self, graph=self.graph.copy(), distances=distances)

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Every array and every number, by name; `from_arrays` is the inverse, bit for bit.

        The rings are copied, for the next chunk will be written into them.
        """
        arrays: dict[str, Array] = {
            "scaling.center": self.scaling.center,
            "scaling.scale": self.scaling.scale,
            "support.points": self.support.points,
            "support.births": self.support.births,
            "support.masses": self.support.masses,
            "support.ids": self.support.ids,
            "graph.weights": self.graph.weights.copy(),
            "degrees": self.degrees,
            "factor.vectors": self.factor.vectors,
            "factor.values": self.factor.values,
            "factor.scaling": self.factor.scaling,
            "frame.columns": self.frame.columns,
            "frame.eigenvalues": self.frame.eigenvalues,
            "frame.births": self.frame.births,
        }
        if self.cover is not None:
            arrays["cover.nearest"] = self.cover.nearest
            arrays["cover.nearest_d2"] = self.cover.nearest_d2
        if self.distances is not None:
            arrays["distances"] = self.distances.weights.copy()
        numbers: dict[str, Any] = {
            "position": self.position,
            "bandwidth": self.scaling.bandwidth,
            "capacity": self.graph.capacity,
            "frame_position": self.frame.position,
            "frame_epoch": self.frame.epoch,
            "frame_restless": self.frame.restless,
            "frame_displacement": self.frame.displacement,
            "frame_movement": self.frame.movement,
            "refreshes": self.counts.refreshes,
            "rebuilds": self.counts.rebuilds,
            "rows_since_refresh": self.counts.rows_since_refresh,
            "rows_since_frame": self.counts.rows_since_frame,
        }
        if self.metrics is not None:
            inside, numbers["metrics"] = self.metrics.to_arrays()
            arrays.update({"metrics." + name: array for name, array in inside.items()})
        return arrays, numbers

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], numbers: dict[str, Any]) -> State:
        """The state that `to_arrays` took apart."""
        scaling = Scaling(arrays["scaling.center"], arrays["scaling.scale"], numbers["bandwidth"])
        points = arrays["support.points"]
        cover = distances = None
        if "cover.nearest" in arrays:
            cover = Cover(arrays["cover.nearest"], arrays["cover.nearest_d2"])
        metrics = None
        if "metrics" in numbers:
            inside = {k[8:]: a for k, a in arrays.items() if k.startswith("metrics.")}
            metrics = Learners.from_arrays(inside, numbers["metrics"])
        if "distances" in arrays:
            distances = Graph.of(arrays["distances"], numbers["capacity"])
        return cls(
            position=numbers["position"],
            scaling=scaling,
            support=Support(
                points,
                scaling.scaled(points),
                arrays["support.ids"],
                arrays["support.births"],
                arrays["support.masses"],
            ),
            cover=cover,
            distances=distances,
            graph=Graph.of(arrays["graph.weights"], numbers["capacity"]),
            degrees=arrays["degrees"],
            factor=Factor(
                arrays["factor.vectors"], arrays["factor.values"], arrays["factor.scaling"]
            ),
            frame=FrameReference(
                arrays["frame.columns"],
                arrays["frame.eigenvalues"],
                arrays["frame.births"],
                numbers["frame_position"],
                numbers["frame_epoch"],
                numbers["frame_restless"],
                numbers["frame_displacement"],
                numbers["frame_movement"],
            ),
            counts=Counts(
                numbers["refreshes"],
                numbers["rebuilds"],
                numbers["rows_since_refresh"],
                numbers["rows_since_frame"],
            ),
            metrics=metrics,
        )
