"""The layout between two chunks, and its update with a chunk.

A first layout is computed from scratch. With every chunk newcomers are placed, rows whose
neighbours have changed come to rest where they are, and every ten events all points take one small
step together, the global displacement: without it a cluster that grows could not push its
neighbours away. (`streamembed.methods.picture_updates` says when a layout is spread out again, a
few steps with every chunk, or computed from scratch.)

Source: nothing published keeps such a layout up to date; the objective is that of
`streamembed.layout.forces`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from streamembed.geometry.lists import NeighborLists, Slots
from streamembed.layout import measures
from streamembed.layout.forces import Links, compute_affinities
from streamembed.layout.placing import place_newcomers
from streamembed.layout.relaxation import (
    SPREADING_STEPS,
    count_due_steps,
    displace_all,
    relax,
    relax_from_scratch,
    select_displaced_rows,
    spread,
)
from streamembed.numeric.arrays import Floats, Ints, freeze, pad
from streamembed.numeric.codec import NOT_SAVED, Count, Within

# Events of the stream for which all points take one step.
EVENTS_PER_STEP = 10
# Points of the support for every neighbour that attracts a point.
LEAST_OTHERS = 3
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Places of all slots in the plane: a value whose arrays are never written."""

    # Where every slot is, and its last global displacement: the step that it took with all others;
    # while all come to rest together, its velocity.
    places: Annotated[Floats, "slots 2"]
    breath: Annotated[Floats, "slots 2"]
    # How far the last chunk has moved it; 0 for what the chunk brought.
    moved: Annotated[Floats, "slots"]
    # Strength of the repulsion, frozen when all have come to rest together.
    gamma: float
    # Slots when they last began to, steps that they still have to take, and chunks since the last.
    laid_out: Annotated[int, "positive"]
    steps_left: Annotated[int, Within(0, SPREADING_STEPS)]
    age: Count
    epoch: Count  # how often it began to spread out, or was laid out again
    kept_then: float  # mean share of neighbours that were kept when all had come to rest together
    lists: NeighborLists | None  # nearest neighbours; None where the method has lists of its own
    p: Annotated[Floats, "n k"] = field(metadata=NOT_SAVED)  # affinities of the neighbours

    def __len__(self) -> int:
        return len(self.places)


def init(
    lists: NeighborLists,
    own: bool,
    columns: Floats,
    arrivals: Ints,
    rho: float,
    duplicates: Ints | None = None,
) -> Layout:
    """A layout from scratch.

    Parameters
    ----------
    lists
        Nearest neighbours of all slots; kept with the layout if they are its ``own``.
    columns
        Shape (n, k): coordinates whose ranks are the first places.
    arrivals
        Arrival positions, shape (n,), unique: they order equal coordinates.
    duplicates
        See `streamembed.layout.measures.measure_kept`.
    """
    near, d2 = select_neighbors(lists)
    p = compute_affinities(d2)
    places, gamma = relax_from_scratch(Links.of(near, p), _spread_ranks(columns, arrivals), rho)
    zeros = np.zeros_like(places)
    preserved = float(measures.measure_kept(places, near, duplicates).mean())
    return Layout(
        places=freeze(places),
        breath=freeze(zeros),
        moved=freeze(zeros[:, 0].copy()),
        gamma=gamma,
        laid_out=len(places),
        steps_left=0,
        age=0,
        epoch=0,
        kept_then=preserved,
        lists=lists if own else None,
        p=freeze(p),
    )


def start_epoch(layout: Layout, new: Layout, shared: Ints) -> Layout:
    """A layout from scratch as the next epoch of another, aligned to it by the shared slots."""
    places, moved = new.places, np.zeros(len(new.places))
    if len(shared) > 1:
        places = measures.align(places, layout.places, shared)
    moved[shared] = _compute_lengths(places[shared] - layout.places[shared])
    return replace(new, places=freeze(places), moved=freeze(moved), epoch=layout.epoch + 1)


def start_spreading(layout: Layout) -> Layout:
    """The layout before all its points come to rest together, with the chunks that follow."""
    return replace(
        layout,
        breath=freeze(np.zeros_like(layout.places)),
        laid_out=len(layout),
        steps_left=SPREADING_STEPS,
        age=0,
        epoch=layout.epoch + 1,
    )


def record_kept_at_rest(layout: Layout, lists: NeighborLists, duplicates: Ints | None) -> Layout:
    """The layout whose points have just come to rest together, with what it then keeps."""
    near, _ = select_neighbors(lists)
    shares = measures.measure_kept(layout.places, near, duplicates)
    return replace(layout, kept_then=float(shares.mean()))


def update(
    layout: Layout,
    before: NeighborLists,
    lists: NeighborLists,
    slots: Ints,
    arrivals: Ints,
    positions: tuple[int, int],
    rho: float,
) -> Layout:
    """The layout after a chunk.

    Parameters
    ----------
    before, lists
        Nearest neighbours before the chunk and after it.
    slots
        Shape (b,): those that the chunk has filled.
    arrivals
        Shape (n,), of all slots: the arrival positions of their events.
    positions
        Of the stream, before and after the chunk.
    """
    (near, d2), n, gamma = select_neighbors(lists), len(lists), layout.gamma
    changed = lists.find_changed(before, slots)
    if layout.p.shape[1] == near.shape[1]:
        p = pad(layout.p, n)
        p[changed] = compute_affinities(d2[changed])
    else:  # the support has grown so far that more neighbours attract
        p, changed = compute_affinities(d2), np.arange(n)
    links = Links.of(near, p)
    old_places, displacement = pad(layout.places, n), pad(layout.breath, n)
    displacement[slots] = 0.0
    places = place_newcomers(links, old_places, slots, arrivals, rho, gamma)
    places = relax(links, places, changed, slots, rho, gamma)
    if left := layout.steps_left:
        due = min(left, count_due_steps(n, positions))
        places, displacement, gamma = spread(links, places, displacement, rho, gamma, left, due)
        left -= due
    else:
        for number in range(positions[0] // EVENTS_PER_STEP, positions[1] // EVENTS_PER_STEP):
            rows = select_displaced_rows(n, number)
            places, displacement = displace_all(links, places, displacement, rows, rho, gamma)
    moved = _compute_lengths(places - old_places)
    moved[slots] = 0.0
    return replace(
        layout,
        places=freeze(places),
        breath=freeze(displacement),
        moved=freeze(moved),
        gamma=gamma,
        steps_left=left,
        age=0 if layout.steps_left else layout.age + 1,
        lists=None if layout.lists is None else lists,
        p=freeze(p),
    )


def select_neighbors(lists: NeighborLists) -> tuple[Slots, Floats]:
    """The neighbours that attract a point, and their d2: K, but of few points no more than a third.

    Where all attract all, the layout is a dot.
    """
    near, d2 = lists.nearest
    k = max(1, min(near.shape[1], (len(near) - 1) // LEAST_OTHERS))
    return near[:, :k], d2[:, :k]


def _spread_ranks(columns: Floats, arrivals: Ints) -> Floats:
    """Ranks in two columns, evenly spaced with variance 1, shape (n, 2).

    With outliers and equal values too, no two points start in one place.
    """
    n = len(arrivals)
    start = np.empty((n, 2))
    for j in range(2):
        keys = [arrivals] if j >= columns.shape[1] else [arrivals, columns[:, j]]
        if j == 1 and columns.shape[1] < 2:  # any order but that of the other column
            keys = [arrivals, (arrivals * GOLDEN) % 1.0]
        start[np.lexsort(keys), j] = (np.arange(n) + 0.5) / n - 0.5
    start *= np.sqrt(12.0)
    return start


def _compute_lengths(steps: Floats) -> Floats:
    return np.sqrt(steps[:, 0] * steps[:, 0] + steps[:, 1] * steps[:, 1])
