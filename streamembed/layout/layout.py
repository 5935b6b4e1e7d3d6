"""The picture between two chunks, and what a chunk makes of it.

A first picture is laid out from scratch. With every chunk newcomers are placed, rows whose
neighbours have changed come to rest where they are, and every ten events all points take one small
step together: the breath, without which a cluster that grows could not push its neighbours away.
(`streamembed.methods.picture_updates` says when a picture is spread out again, or laid out anew.)

Source: nothing published keeps such a layout up to date; the objective is that of
`streamembed.layout.forces`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np

from streamembed.geometry.lists import Lists, Slots
from streamembed.layout import measures
from streamembed.layout.forces import Links, affinities
from streamembed.layout.placing import place_newcomers
from streamembed.layout.relaxation import breathe, lay_out, relax, spread_out
from streamembed.numeric.arrays import Floats, Ints, frozen
from streamembed.numeric.codec import NOT_KEPT

__all__ = ["Layout", "again", "anew", "follow", "linked", "respread"]

# Events of the stream for which all points take one step.
BREATH = 10
# Rows of such a step: of a larger support a share, in turn, so that it costs O(n).
BREATHING = 2000
# Points for every neighbour that attracts one.
LEAST_OTHERS = 3
GOLDEN = (np.sqrt(5.0) - 1.0) / 2.0


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """Places of all slots in the plane: a value, whose arrays are never written.

    Attributes
    ----------
    places, breath : (n, 2)
        Where every slot is, and the last step that it took with all others.
    moved : (n,)
        How far the last chunk has moved it; 0 for what the chunk brought.
    gamma : float
        Strength of the repulsion, frozen when the picture was spread out.
    laid_out, age : int
        Slots that there were then, and chunks since.
    epoch : int
        How often it was spread out or laid out again.
    kept_then : float
        Mean share of neighbours that were kept when it was last spread out.
    lists : Lists or None
        Nearest neighbours; None where the method has lists of its own.
    p : (n, K)
        Affinities of the neighbours.
    """

    places: Annotated[Floats, "n 2"]
    breath: Annotated[Floats, "n 2"]
    moved: Annotated[Floats, "n"]
    gamma: float
    laid_out: int
    age: int
    epoch: int
    kept_then: float
    lists: Lists | None
    p: Annotated[Floats, "n k"] = field(metadata=NOT_KEPT)

    def __len__(self) -> int:
        return len(self.places)


def anew(
    lists: Lists,
    own: bool,
    columns: Floats,
    births: Ints,
    rho: float,
    twins: Ints | None = None,
) -> Layout:
    """A picture from scratch.

    Parameters
    ----------
    lists
        Nearest neighbours of all slots; kept with the picture if they are its ``own``.
    columns
        Shape (n, k): coordinates by which the points are put in order, to begin with.
    births
        Shape (n,), unique: their order decides between equals.
    twins
        See `streamembed.layout.measures.kept`.
    """
    near, d2 = linked(lists)
    p = affinities(d2)
    places, gamma = lay_out(Links.of(near, p), _in_order(columns, births), rho)
    still = np.zeros_like(places)
    kept = float(measures.kept(places, near, twins).mean())
    return Layout(
        frozen(places),
        frozen(still),
        frozen(still[:, 0].copy()),
        gamma,
        len(places),
        0,
        0,
        kept,
        lists if own else None,
        frozen(p),
    )


def again(layout: Layout, fresh: Layout, shared: Ints) -> Layout:
    """A picture from scratch as the next epoch of another, turned as that by the slots shared."""
    places, moved = fresh.places, np.zeros(len(fresh.places))
    if len(shared) > 1:
        places = measures.align(places, layout.places, shared)
    moved[shared] = _lengths(places[shared] - layout.places[shared])
    return replace(fresh, places=frozen(places), moved=frozen(moved), epoch=layout.epoch + 1)


def respread(layout: Layout, lists: Lists, rho: float, twins: Ints | None = None) -> Layout:
    """The picture after all its points have come to rest together, under other lists perhaps."""
    near, d2 = linked(lists)
    p = affinities(d2)
    places, gamma = spread_out(Links.of(near, p), layout.places, rho)
    return replace(
        layout,
        places=frozen(places),
        breath=frozen(np.zeros_like(places)),
        moved=frozen(_lengths(places - layout.places)),
        gamma=gamma,
        laid_out=len(places),
        age=0,
        epoch=layout.epoch + 1,
        kept_then=float(measures.kept(places, near, twins).mean()),
        lists=None if layout.lists is None else lists,
        p=frozen(p),
    )


def follow(
    layout: Layout,
    before: Lists,
    lists: Lists,
    slots: Ints,
    births: Ints,
    positions: tuple[int, int],
    rho: float,
) -> Layout:
    """The picture after a chunk.

    Parameters
    ----------
    before, lists
        Nearest neighbours before the chunk and after it.
    slots
        Shape (b,): those that the chunk has filled.
    births
        Shape (n,), of all slots: the stream positions that they hold.
    positions
        Of the stream, before and after the chunk.
    """
    (near, d2), n = linked(lists), len(lists)
    changed = lists.changed_since(before, slots)
    if layout.p.shape[1] == near.shape[1]:
        p = _grown(layout.p, n)
        p[changed] = affinities(d2[changed])
    else:  # the support has grown so far that more are linked
        p, changed = affinities(d2), np.arange(n)
    links = Links.of(near, p)
    home, breath = _grown(layout.places, n), _grown(layout.breath, n)
    breath[slots] = 0.0
    places = place_newcomers(links, home, slots, births, rho, layout.gamma)
    places = relax(links, places, changed, slots, rho, layout.gamma)
    for number in range(positions[0] // BREATH, positions[1] // BREATH):
        rows = _breathing(n, number)
        places, breath = breathe(links, places, breath, rows, rho, layout.gamma)
    moved = _lengths(places - home)
    moved[slots] = 0.0
    return replace(
        layout,
        places=frozen(places),
        breath=frozen(breath),
        moved=frozen(moved),
        age=layout.age + 1,
        lists=None if layout.lists is None else lists,
        p=frozen(p),
    )


def linked(lists: Lists) -> tuple[Slots, Floats]:
    """The neighbours that attract a point, and their d2: K, but of few points no more than a third.

    Where all attract all, there is no picture but a dot.
    """
    near, d2 = lists.nearest
    k = max(1, min(near.shape[1], (len(near) - 1) // LEAST_OTHERS))
    return near[:, :k], d2[:, :k]


def _breathing(n: int, number: int) -> Ints:
    """The rows of one step: all, or of many every so manieth, each in its turn."""
    turns = -(-n // BREATHING)
    return np.arange(number % turns, n, turns)


def _in_order(columns: Floats, births: Ints) -> Floats:
    """Ranks in two columns, evenly spaced with variance 1, shape (n, 2).

    Whatever outliers and equal values do to columns, no two points begin in one place.
    """
    n = len(births)
    start = np.empty((n, 2))
    for j in range(2):
        keys = [births] if j >= columns.shape[1] else [births, columns[:, j]]
        if j == 1 and columns.shape[1] < 2:  # any order but that of the other column
            keys = [births, (births * GOLDEN) % 1.0]
        start[np.lexsort(keys), j] = (np.arange(n) + 0.5) / n - 0.5
    start *= np.sqrt(12.0)
    return start


def _grown(array: Floats, n: int) -> Floats:
    """A copy with rows of zeros behind its own."""
    grown = np.zeros((n, array.shape[1]))
    grown[: len(array)] = array
    return grown


def _lengths(steps: Floats) -> Floats:
    lengths: Floats = np.sqrt(steps[:, 0] * steps[:, 0] + steps[:, 1] * steps[:, 1])
    return lengths
