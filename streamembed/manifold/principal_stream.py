"""Principal axes of a stream: chunks by position, a window or a half-life, a frame.

Rows wait until their chunk of ten is whole, so that calls do not matter; a reader sees them
joined. A window keeps its rows, in blocks as they were learned, and removes them from the moments
one by one, or from an SVD with two sides. After every turn of the window, and where rows left that
carried nearly all the scatter, the state is computed from scratch from the rows of the window, so
that rounding does not add up.

Source: docs/algorithms/pca.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed.manifold import principal
from streamembed.manifold.principal import Moments, OneSided, PrincipalState, PrincipalView
from streamembed.manifold.two_sided import TwoSided
from streamembed.numeric import moments as spread
from streamembed.numeric.arrays import Floats
from streamembed.numeric.chunks import Chunks
from streamembed.numeric.moments import FeatureMoments

# Events per chunk. A larger one is cheaper to learn, and costs more to read before it is whole.
CHUNK = 10
# Events of the first chunk, which settle the features.
SETTLING = 20
# Events between two solutions for the reference of the frame, each of which costs about four
# chunks. Every chunk in between updates it by one product.
RENEWAL = 100
# Where the scatter has shrunk by this factor since it was last exact, rounding of the rows that
# left is 1e-12 of the rest.
LARGEST_SHRINKAGE = 1e4


@dataclass(frozen=True, slots=True)
class PrincipalSettings:
    """The options: ``solver`` is "moments" or "svd"."""

    n_components: int
    solver: str
    rank: int  # columns of an SVD
    window: int | None  # events that count
    half_life: float | None  # events after which one counts half


@dataclass(frozen=True, slots=True, eq=False)
class PrincipalStream:
    """The state of a stream."""

    # Means of the features over all whole chunks, with which gaps are filled.
    spread: FeatureMoments
    waiting: Floats  # (b, d): rows of the chunk that is filling, NaN where a value is missing
    learned: int  # events in whole chunks
    state: PrincipalState
    reference: Floats  # (d, m): axes that views are aligned to; m is 0 before the first chunk
    blocks: tuple[Floats, ...] = ()  # (b, d) each: a window's rows, oldest first, without gaps
    gone: int = 0  # rows of the first block that have left
    turned: int = 0  # rows that have left since the moments were last computed from scratch
    peak: float = 0.0  # largest trace of the scatter since then

    @property
    def position(self) -> int:
        """Events so far, learned and waiting."""
        return self.learned + len(self.waiting)


def init(n_features: int, settings: PrincipalSettings) -> PrincipalStream:
    """Before any event."""
    state: PrincipalState
    if settings.solver == "moments":
        state = Moments.init(n_features)
    elif settings.window is None:
        state = OneSided.init(n_features, settings.rank)
    else:
        state = TwoSided.init(n_features, settings.rank)
    no_rows = np.zeros((0, n_features))
    return PrincipalStream(spread.init(n_features), no_rows, 0, state, no_rows.T)


def extend(stream: PrincipalStream, rows: Floats, settings: PrincipalSettings) -> PrincipalStream:
    """With these rows (n, d) too, NaN where a value is missing; whole chunks are learned.

    Moments: O(d^2) a row, twice that in a window; one-sided: O(d (r + 10)^2) a chunk.
    """
    chunks = Chunks(CHUNK, SETTLING)
    for part, is_whole in chunks.split(stream.learned, len(stream.waiting), len(rows)):
        stream = replace(stream, waiting=np.concatenate([stream.waiting, rows[part]]))
        stream = flush(stream, settings) if is_whole else stream
    return stream


def flush(stream: PrincipalStream, settings: PrincipalSettings) -> PrincipalStream:
    """Learn the waiting rows, as a short chunk if it is not whole."""
    after = _join_waiting(stream, settings)
    if after is stream:
        return after
    reference, k = _get_reference(stream), settings.n_components
    if reference is None or after.learned % RENEWAL == 0:
        new_reference = principal.compute_reference(after.state, k, reference)
    else:
        new_reference = principal.track_axes(after.state, k, reference)
    return replace(after, reference=np.ascontiguousarray(new_reference))


def read_means_and_axes(
    stream: PrincipalStream, settings: PrincipalSettings, start: tuple[int, Floats] | None = None
) -> tuple[FeatureMoments, PrincipalView, tuple[int, Floats] | None]:
    """Means of the features, and the axes, over all events, waiting ones included; and a start.

    The start of an earlier reading saves work, and changes nothing: events in whole chunks, and
    the axes (d, m) of these.
    """
    reference, k = _get_reference(stream), settings.n_components
    if reference is not None and len(reference) > principal.SMALL:
        if start is None or start[0] != stream.learned:
            start = stream.learned, principal.compute_reference(stream.state, k, reference)
        reference = start[1]
    current = _join_waiting(stream, settings)
    rows = current.spread.fill_gaps(stream.waiting) - current.state.mean
    return current.spread, principal.compute_axes(current.state, k, reference, rows), start


def _get_reference(stream: PrincipalStream) -> Floats | None:
    return stream.reference if stream.reference.shape[1] else None


def _join_waiting(stream: PrincipalStream, settings: PrincipalSettings) -> PrincipalStream:
    """Join the waiting rows to the rest; the frame does not change."""
    if not len(stream.waiting):
        return stream
    observed = spread.update(stream.spread, stream.waiting)
    rows = observed.fill_gaps(stream.waiting)
    after = replace(stream, spread=observed, waiting=rows[:0].copy(), learned=stream.position)
    if settings.window is not None:
        return _slide(after, rows, settings.window)
    state = stream.state
    assert not isinstance(state, TwoSided)
    if settings.half_life is not None:
        factor = 0.5 ** (1.0 / settings.half_life)
        ages = np.arange(len(rows) - 1, -1, -1)
        state = state.forget(factor ** len(rows)).join(rows, factor**ages)
    else:
        state = state.join(rows)
    return replace(after, state=state)


def _slide(stream: PrincipalStream, rows: Floats, window: int) -> PrincipalStream:
    """Join rows to the window, and remove the oldest."""
    assert not isinstance(stream.state, OneSided)
    n_rows = int(stream.state.count)
    n_leaving = max(0, n_rows + len(rows) - window)
    if n_leaving >= n_rows:  # all old rows leave, and perhaps some of the new ones
        rows = rows[-window:].copy()
        return _recompute(replace(stream, blocks=(rows,), gone=0))
    leaving_blocks, n_removed = [], n_leaving + stream.gone
    blocks = [*stream.blocks, rows]
    while n_removed and n_removed >= len(blocks[0]):
        n_removed -= len(blocks[0])
        leaving_blocks.append(blocks.pop(0))
    leaving_blocks.append(blocks[0][:n_removed])
    state = stream.state.slide(rows, np.concatenate(leaving_blocks)[stream.gone :])
    peak = max(stream.peak, stream.state.total, state.total)
    n_left = stream.turned + n_leaving
    after = replace(
        stream, state=state, blocks=tuple(blocks), gone=n_removed, turned=n_left, peak=peak
    )
    has_shrunk = state.total * LARGEST_SHRINKAGE < peak
    return _recompute(after, has_shrunk) if has_shrunk or n_left >= window else after


def _recompute(stream: PrincipalStream, has_shrunk: bool = True) -> PrincipalStream:
    """The state of the window, from its rows. O(window d^2); of two sides O(window d rank)."""
    rows = np.concatenate(stream.blocks)[stream.gone :]
    state = stream.state
    if isinstance(state, TwoSided) and not has_shrunk:
        state = state.refresh(rows)
    else:
        state = _build(state, rows)
    return replace(stream, state=state, turned=0, peak=state.total)


def _build(like: PrincipalState, rows: Floats) -> PrincipalState:
    """A state of the same kind, of these rows alone."""
    if isinstance(like, Moments):
        return Moments.init(rows.shape[1]).join(rows)
    assert isinstance(like, TwoSided)
    state = TwoSided.init(rows.shape[1], like.rank)
    for start in range(0, len(rows), CHUNK):
        state = state.slide(rows[start : start + CHUNK], rows[:0])
    return state


def merge(
    left: PrincipalStream, right: PrincipalStream, settings: PrincipalSettings
) -> PrincipalStream:
    """Both streams as one, as if they had run side by side; what waits in either is learned.

    The frame is that of ``left``. Without a window.
    """
    left, right = _join_waiting(left, settings), _join_waiting(right, settings)
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
