"""The state of an engine between two chunks: everything that must persist, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from streamembed.embedding.extension import cover, sampled
from streamembed.embedding.methods import Seen
from streamembed.embedding.metrics import Learners
from streamembed.geometry.landmarks import Cover
from streamembed.geometry.lists import Lists
from streamembed.geometry.ring import Graph
from streamembed.geometry.scaling import Scaling
from streamembed.geometry.self_tuning import Rule, Scales
from streamembed.geometry.support import Support
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral.tracker import Factor

__all__ = ["Counts", "FrameReference", "State"]


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
    refilled : int
        Slots filled again because their width had drifted, since the first event.
    """

    refreshes: int
    rebuilds: int
    rows_since_refresh: int
    rows_since_frame: float
    refilled: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """The engine's state between two chunks.

    Attributes
    ----------
    position : int
        Events learned.
    scaling : Scaling
    scales : Scales or None
        Where every slot has a width of its own: these.
    lists : Lists or None
        And its nearest neighbours, from which they come.
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
    apart : (float, float)
        Among landmarks with widths of their own: of the last events, the sum of their squared
        distances to the nearest landmark, in its widths, and how many they are.
    metrics : Learners or None
        None where no metric is learned.
    """

    position: int
    scaling: Scaling
    scales: Scales | None
    lists: Lists | None
    support: Support
    cover: Cover | None
    distances: Graph | None
    graph: Graph
    degrees: Floats
    factor: Factor
    frame: FrameReference
    counts: Counts
    apart: tuple[float, float] = (0.0, 0.0)
    metrics: Learners | None = None

    def seen(self, rule: Rule | None) -> Seen:
        """What the kernel sees."""
        return Seen(self.support, self.known_distances(), self.scaling, self.scales, rule)

    def known_distances(self) -> Callable[[Ints], Floats] | None:
        """slots -> their unsquared distances to all, (b, n), for things without coordinates."""
        ring = self.distances
        return None if ring is None else lambda slots: ring.rows(slots).astype(np.float64)

    def typical_coverage(self, rule: Rule | None) -> float:
        """Of things without coordinates with widths of their own; 0 where points can tell."""
        known = self.known_distances()
        if known is None or self.scales is None or rule is None:
            return 0.0
        d = known(self.support.oldest_first[sampled(len(self.support))])
        sums = cover(d * d, self.scales.widths, self.support.masses, rule)
        return float(np.median(sums))

    def resolution(self, size: int) -> float:
        """How coarse the cover of ``size`` landmarks is for the kernel; 0 for other memories."""
        if self.cover is None:
            return 0.0
        if self.scales is not None:
            total, weight = self.apart
            return float(np.sqrt(total / weight)) if weight else 0.0
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

    @classmethod
    def __unpack__(cls, kept: State) -> State:
        """With the scaled points, which follow from the rest and are not kept."""
        support = kept.support
        scaled = kept.scaling.apply(support.points)
        return replace(kept, support=replace(support, scaled=scaled))
