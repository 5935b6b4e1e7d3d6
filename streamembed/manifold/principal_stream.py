"""A stream whose principal axes are followed: chunks by position, a window or a half-life, a frame.

Rows wait until their chunk of ten is whole, so that calls do not matter; whoever reads sees them
joined. A window keeps its rows, in blocks as they were learned, and lets them leave the moments one
by one; after every turn of the window, and where rows left that had carried nearly all there was,
the moments are taken anew from the rows that are held, so that rounding does not add up.

Source: docs/algorithms/pca.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.manifold import principal
from streamembed.manifold.principal import Moments, OneSided, Principal
from streamembed.numeric import moments as spread
from streamembed.numeric.arrays import Floats
from streamembed.numeric.chunks import Chunks
from streamembed.numeric.moments import Spread

__all__ = ["CHUNK", "SETTLING", "Followed", "Settings", "extend", "flush", "init", "merge", "read"]

# Events a chunk. A larger one is cheaper to learn, and dearer to read before it is whole.
CHUNK = 10
# Events of the first chunk, which settle the features.
SETTLING = 20
# Events between two solutions for the reference of the frame, each worth four chunks or so. With
# every chunk in between it follows by one product.
RENEWAL = 100
# Where the scatter has shrunk by this factor since it was last exact, rounding of what has left is
# a part in 1e12 of the rest.
SHRUNK = 1e4


@dataclass(frozen=True, slots=True)
class Settings:
    """What is kept: ``solver`` is "moments" or "svd", and a window takes moments.

    Attributes
    ----------
    n_components : int
    solver : str
    rank : int
        Columns of a one-sided SVD.
    window : int or None
        Events that count.
    half_life : float or None
        Events after which one counts half.
    """

    n_components: int
    solver: str
    rank: int
    window: int | None
    half_life: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Followed:
    """What persists of a stream.

    Attributes
    ----------
    spread : Spread
        Means of the features over all whole chunks: what gaps are filled with.
    waiting : (b, d)
        Rows of the chunk that is filling, NaN where a value is missing.
    learned : int
        Events in whole chunks.
    state : Moments or OneSided
    blocks : tuple of (b, d)
        A window's rows, oldest first, without gaps.
    gone : int
        Rows of the first block that have left.
    turned : int
        Rows that have left since the moments were taken anew.
    peak : float
        Largest trace of the scatter since then.
    reference : (d, m)
        Axes that views are held still against; m is 0 before the first chunk.
    """

    spread: Spread
    waiting: Floats
    learned: int
    state: Moments | OneSided
    blocks: tuple[Floats, ...]
    gone: int
    turned: int
    peak: float
    reference: Floats

    @property
    def position(self) -> int:
        """Events so far, learned and waiting."""
        return self.learned + len(self.waiting)


def init(n_features: int, settings: Settings) -> Followed:
    """Before any event."""
    state = _fresh(n_features, settings)
    none = np.zeros((0, n_features))
    return Followed(spread.init(n_features), none, 0, state, (), 0, 0, 0.0, none.T)


def _fresh(d: int, settings: Settings) -> Moments | OneSided:
    if settings.solver == "moments":
        return Moments.init(d)
    return OneSided.init(d, settings.rank)


def extend(followed: Followed, rows: Floats, settings: Settings) -> Followed:
    """With these rows (n, d) too, NaN where a value is missing; whole chunks are learned.

    Moments: O(d^2) a row, twice that in a window; one-sided: O(d (r + 10)^2) a chunk.
    """
    chunks = Chunks(CHUNK, SETTLING)
    for part, whole in chunks.split(followed.learned, len(followed.waiting), len(rows)):
        followed = replace(followed, waiting=np.concatenate([followed.waiting, rows[part]]))
        followed = flush(followed, settings) if whole else followed
    return followed


def flush(followed: Followed, settings: Settings) -> Followed:
    """What waits is learned, as a short chunk if it is none; an event of the stream."""
    after = _joined(followed, settings)
    if after is followed:
        return after
    earlier, k = _earlier(followed), settings.n_components
    if earlier is None or after.learned % RENEWAL == 0:
        fresh = principal.reference(after.state, k, earlier)
    else:
        fresh = principal.followed(after.state, k, earlier)
    return replace(after, reference=np.ascontiguousarray(fresh))


def read(followed: Followed, settings: Settings) -> tuple[Spread, Principal]:
    """Means of the features, and the axes, over every event that came: those that wait, too."""
    shown = _joined(followed, settings)
    return shown.spread, principal.view(shown.state, settings.n_components, _earlier(followed))


def _earlier(followed: Followed) -> Floats | None:
    return followed.reference if followed.reference.shape[1] else None


def _joined(followed: Followed, settings: Settings) -> Followed:
    """What waits has joined the rest; the frame is as it was."""
    if not len(followed.waiting):
        return followed
    seen = spread.update(followed.spread, followed.waiting)
    rows = seen.fill_gaps(followed.waiting)
    after = replace(followed, spread=seen, waiting=rows[:0].copy(), learned=followed.position)
    if settings.window is not None:
        return _slide(after, rows, settings.window)
    state = followed.state
    if settings.half_life is not None:
        factor = 0.5 ** (1.0 / settings.half_life)
        ages = np.arange(len(rows) - 1, -1, -1)
        state = state.forget(factor ** len(rows)).join(rows, factor**ages)
    else:
        state = state.join(rows)
    return replace(after, state=state)


def _slide(followed: Followed, rows: Floats, window: int) -> Followed:
    """These rows join the window, and the oldest leave it."""
    assert isinstance(followed.state, Moments)
    held = int(followed.state.count)
    leaving = max(0, held + len(rows) - window)
    if leaving >= held:  # whatever was there goes, and perhaps some of the new rows
        rows = rows[-window:].copy()
        return _anew(replace(followed, blocks=(rows,), gone=0))
    old, rest = [], leaving + followed.gone
    blocks = [*followed.blocks, rows]
    while rest and rest >= len(blocks[0]):
        rest -= len(blocks[0])
        old.append(blocks.pop(0))
    old.append(blocks[0][:rest])
    state = followed.state.slide(rows, np.concatenate(old)[followed.gone :])
    peak = max(followed.peak, followed.state.total, state.total)
    turned = followed.turned + leaving
    after = replace(
        followed, state=state, blocks=tuple(blocks), gone=rest, turned=turned, peak=peak
    )
    return _anew(after) if turned >= window or state.total * SHRUNK < peak else after


def _anew(followed: Followed) -> Followed:
    """The moments of the rows that are held, from the rows. O(window d^2)."""
    rows = np.concatenate(followed.blocks)[followed.gone :]
    state = Moments.init(rows.shape[1]).join(rows)
    return replace(followed, state=state, turned=0, peak=state.total)


def merge(left: Followed, right: Followed, settings: Settings) -> Followed:
    """Both streams as one, as if they had run side by side; what waits in either is learned.

    The frame is that of ``left``. Without a window.
    """
    left, right = _joined(left, settings), _joined(right, settings)
    state: Moments | OneSided
    if isinstance(left.state, Moments) and isinstance(right.state, Moments):
        state = left.state.merge(right.state)
    else:
        assert isinstance(left.state, OneSided)
        assert isinstance(right.state, OneSided)
        state = left.state.merge(right.state)
    return replace(
        left,
        spread=spread.merge(left.spread, right.spread),
        learned=left.learned + right.learned,
        state=state,
    )
