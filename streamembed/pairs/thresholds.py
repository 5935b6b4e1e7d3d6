"""Similar and dissimilar pairs without labels, by squared distances in an embedding.

Symbols: N = support points, m = coordinates, d = features; p = squared distance of a pair in the
embedding; t_s, t_d = thresholds on p: similar where p <= t_s, dissimilar where p >= t_d.

Pairs of the present support are drawn from (seed, position); their p go into a histogram, whose
5th and 95th percentiles are the thresholds; a pair beyond either is remembered with its evidence,
and judged again whenever the embedding has changed.

Source: Jain, section 1.3. Differs: 1. pairs are a sample, not all N^2; 2. the coordinates may be
lambda^t psi (`weight_columns`); 3. pairs of equal events, or of equal coordinates, are dropped:
they satisfy every metric, or none; 4. a pair whose event has left the support cannot be judged any
more, and is dropped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from streamembed import validation
from streamembed.errors import InputError, ParameterError
from streamembed.numeric import histogram
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.histogram import Histogram
from streamembed.pairs.pair_memory import Pairs, State, join
from streamembed.validation import (
    LARGEST_D2,
    LARGEST_SEED,
    check_flag,
    check_optional,
    check_real,
    check_whole,
    set_fields,
)

# Coordinates that differ by less than this share of the largest are equal: eigenvectors are known
# to 1e-13 or so. It is squared where squared distances are compared.
EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class PairSettings:
    """How many pairs are drawn, what makes them similar, and how many are remembered.

    Raises
    ------
    ParameterError
        A value out of range.
    """

    candidates: int = 500  # pairs drawn a call, at least 1; one in ten is kept
    buffer: int = 1000  # the most pairs remembered, at least 2: half of each kind, the newest
    # Of the squared distances: t_s and t_d, in (0, 100), the first below the second.
    percentiles: tuple[float, float] = (5.0, 95.0)
    # t_s and t_d by hand, on squared distances in the embedding; None: by the percentiles.
    similar_below: float | None = None
    dissimilar_above: float | None = None
    # Draw events by their masses, without replacement; False: every support point is equally
    # likely.
    by_mass: bool = False
    # Weight, in (0, 1], of the distances of earlier calls at every call: the embedding moves, and
    # old distances belong to another one. 0.9 remembers about ten calls.
    decay: float = 0.9
    seed: int = 0  # random seed; a call uses (seed, position) and keeps no generator

    def __post_init__(self) -> None:
        """Check every value, and keep it as a plain Python one."""
        above = self.dissimilar_above
        set_fields(
            self,
            candidates=check_whole("candidates", self.candidates, 1),
            buffer=check_whole("buffer", self.buffer, 2),
            percentiles=validation.check_percentiles("percentiles", self.percentiles),
            similar_below=check_optional(
                check_real, "similar_below", self.similar_below, 0.0, LARGEST_D2
            ),
            dissimilar_above=check_optional(check_real, "dissimilar_above", above, 0.0, LARGEST_D2),
            by_mass=check_flag("by_mass", self.by_mass),
            decay=check_real("decay", self.decay, 1e-12, 1.0),
            seed=check_whole("seed", self.seed, 0, high=LARGEST_SEED),
        )
        low, high = self.similar_below, self.dissimilar_above
        if low is not None and high is not None and not low < high:
            raise ParameterError(f"similar_below={low} must be below dissimilar_above={high}")


def weight_columns(psi: Floats, eigenvalues: Floats, diffusion_time: float | None = 16.0) -> Floats:
    """Embedding coordinates in which pairs are judged, shape (N, m).

    Parameters
    ----------
    psi
        Right eigenvectors of P, shape (N, m).
    eigenvalues
        Of P, descending, shape (m,).
    diffusion_time
        t of (lambda / lambda_1)^t psi; None: psi as it is, the source's Laplacian eigenmap.

    Notes
    -----
    Differs: divided by lambda_1^t, which changes no judgement of one map, and keeps distances of
    consecutive maps comparable: at t = 16 a lambda_1 of .85 in place of .9 would shrink squared
    distances 6 times.

    Examples
    --------
    >>> import numpy as np
    >>> weight_columns(np.ones((1, 2)), np.array([0.8, 0.4]), 2.0).tolist()
    [[1.0, 0.25]]
    """
    if diffusion_time is None or len(eigenvalues) == 0 or eigenvalues[0] <= 0:
        return psi
    with np.errstate(under="ignore"):
        result: Floats = psi * np.maximum(eigenvalues / eigenvalues[0], 0.0) ** diffusion_time
    return result


def compute_thresholds(state: State, settings: PairSettings) -> tuple[float, float]:
    """t_s and t_d now: as set, or from the histogram; NaN without either."""
    low, high = (histogram.quantile(state.embedded, p / 100.0) for p in settings.percentiles)
    low = low if settings.similar_below is None else settings.similar_below
    high = high if settings.dissimilar_above is None else settings.dissimilar_above
    return float(low), float(high)


def update(
    state: State,
    coordinates: Floats,
    points: Floats,
    arrivals: Ints,
    masses: Floats,
    position: int,
    settings: PairSettings,
) -> State:
    """Draw pairs of the support, remember the clear ones, and judge all that are remembered.

    The same as `draw_pairs` and then `rejudge`, whose parameters it has.
    """
    state = draw_pairs(state, coordinates, points, arrivals, masses, position, settings)
    return rejudge(state, coordinates, arrivals, settings)


def draw_pairs(
    state: State,
    coordinates: Floats,
    points: Floats,
    arrivals: Ints,
    masses: Floats,
    position: int,
    settings: PairSettings,
) -> State:
    """Draw pairs of the support, learn the thresholds, and remember those beyond them.

    Parameters
    ----------
    coordinates
        Of the support in the embedding, shape (N, m), finite; see `weight_columns`.
    points
        The same in input space, in the units of the metric, shape (N, d), finite.
    arrivals
        Arrival position of each, shape (N,), distinct. The order of the slots does not matter.
    masses
        Shape (N,), positive.
    position
        Events learned: with the seed, it determines the draws.

    Raises
    ------
    InputError
        Shapes that do not fit, values that are not finite, repeated arrival positions.

    Notes
    -----
    With fewer than two points nothing is drawn. O(n (m + d) + (n + B) log(n + B)).
    """
    arrivals = _check_support(
        coordinates, points, arrivals, masses, state.pairs.differences.shape[1]
    )
    counts, previous = state.counts, state.pairs
    state = replace(state, position=position)
    if len(arrivals) < 2:
        return state
    order = np.argsort(arrivals, kind="stable")
    left, right = _draw(masses[order], position, settings)
    left, right = order[np.minimum(left, right)], order[np.maximum(left, right)]

    differences = points[left] - points[right]
    d2 = _compute_squares(coordinates[left] - coordinates[right])
    inputs = _compute_squares(differences)
    is_valid = (d2 > _compute_equality_limit(coordinates)) & (inputs >= np.finfo(np.float64).tiny)
    state = replace(
        state,
        embedded=_add_distances(state.embedded, d2[is_valid], settings.decay),
        inputs=_add_distances(state.inputs, inputs[is_valid], settings.decay),
    )

    low, high = compute_thresholds(state, settings)
    ends = np.column_stack([arrivals[left], arrivals[right]])
    is_new = _find_new(ends[is_valid], previous.births)
    chosen = np.flatnonzero(is_valid)[is_new]
    similar, dissimilar = _judge(d2[chosen], low, high)
    is_clear = similar | dissimilar
    n, n_kept = len(left), int(is_clear.sum())
    clear = chosen[is_clear]
    new = Pairs(
        ends[clear],
        differences[clear],
        similar[is_clear],
        d2[clear],
        np.full(n_kept, low),
        np.full(n_kept, high),
        np.full(n_kept, position, np.int64),
    )
    pairs = _limit(join(previous, new), settings)
    degenerate = n - int(is_valid.sum())
    duplicates = int(is_valid.sum()) - len(chosen)
    undecided = len(chosen) - n_kept
    evicted = len(previous) + n_kept - len(pairs)
    counts = counts.add(
        candidates=n,
        kept=n_kept,
        undecided=undecided,
        duplicates=duplicates,
        degenerate=degenerate,
        evicted=evicted,
    )
    return replace(state, pairs=pairs, counts=counts)


def rejudge(state: State, coordinates: Floats, arrivals: Ints, settings: PairSettings) -> State:
    """The remembered pairs under new coordinates: kept, flipped, or dropped.

    Parameters
    ----------
    coordinates, arrivals
        Of the present support, as in `draw_pairs`. Thresholds are those of the histogram now: call
        that first, so that it has the new embedding.

    Notes
    -----
    Judging twice in the same embedding changes nothing. O(B (m + log N) + N log N).
    """
    pairs = state.pairs
    order = np.argsort(arrivals, kind="stable")
    ranks = np.searchsorted(arrivals[order], pairs.births)
    slots = order[np.minimum(ranks, len(order) - 1)] if len(order) else np.zeros_like(ranks)
    is_present = np.zeros(len(pairs), dtype=bool)
    if len(order):
        is_present = (arrivals[slots] == pairs.births).all(axis=1)
    pairs, slots = pairs.take(is_present), slots[is_present]
    low, high = compute_thresholds(state, settings)
    d2 = _compute_squares(coordinates[slots[:, 0]] - coordinates[slots[:, 1]])
    similar, dissimilar = _judge(d2, low, high)
    is_clear = (similar | dissimilar) & (d2 > _compute_equality_limit(coordinates))
    flipped = int(np.count_nonzero(is_clear & (similar != pairs.similar)))
    after = replace(
        pairs,
        similar=similar,
        d2=d2,
        similar_below=np.full(len(d2), low),
        dissimilar_above=np.full(len(d2), high),
        positions=np.full(len(d2), state.position, np.int64),
    ).take(is_clear)
    counts = state.counts.add(
        flipped=flipped, faded=len(pairs) - len(after), gone=len(is_present) - len(pairs)
    )
    return replace(state, pairs=after, counts=counts)


def _check_support(
    coordinates: Floats, points: Floats, arrivals: Ints, masses: Floats, width: int
) -> Ints:
    """The arrival positions, if all shapes and values are valid."""
    n = len(arrivals)
    if coordinates.ndim != 2 or len(coordinates) != n:
        raise InputError(
            f"coordinates have shape {coordinates.shape}; they must be ({n}, m): one row per event"
        )
    if points.shape != (n, width):
        raise InputError(f"points have shape {points.shape}; they must be ({n}, {width})")
    if masses.shape != (n,):
        raise InputError(f"masses have shape {masses.shape}; they must be ({n},): one per event")
    for name, array in (("coordinates", coordinates), ("points", points), ("masses", masses)):
        if not np.isfinite(array).all():
            raise InputError(f"{name} have NaN or infinities; they must be finite")
    if not (masses > 0).all():
        raise InputError(f"the smallest mass is {masses.min()}; masses must be positive")
    if len(np.unique(arrivals)) < n:
        raise InputError(
            "arrivals are repeated; each event of the support must have its own position"
        )
    return arrivals


def _draw(masses: Floats, position: int, settings: PairSettings) -> tuple[Ints, Ints]:
    """Two distinct slots for every candidate, as indices into ``masses``."""
    generator = np.random.default_rng((settings.seed, position))
    n, count = len(masses), settings.candidates
    if not settings.by_mass:
        left = generator.integers(0, n, count)
        right = generator.integers(0, n - 1, count)
        return left, right + (right >= left)
    ends = np.cumsum(masses)
    first, second = generator.random((2, count))
    left = np.searchsorted(ends, first * ends[-1], side="right").clip(max=n - 1)
    begins = ends[left] - masses[left]
    rest = second * (ends[-1] - masses[left])  # along the masses, the left one cut out
    rest = rest + np.where(rest >= begins, masses[left], 0.0)
    right = np.searchsorted(ends, rest, side="right").clip(max=n - 1)
    return left, np.where(right == left, (left + 1) % n, right)  # by rounding, at an edge


def _compute_squares(rows: Floats) -> Floats:
    """Squared length of every row."""
    squares: Floats = np.einsum("ij,ij->i", rows, rows)
    return squares


def _compute_equality_limit(coordinates: Floats) -> float:
    """The squared distance up to which coordinates are equal."""
    return EQUAL**2 * float(_compute_squares(coordinates).max(initial=0.0))


def _judge(d2: Floats, low: float, high: float) -> tuple[Bools, Bools]:
    """Which are similar and which dissimilar; none where the thresholds are not apart."""
    if not low < high:
        none = np.zeros(len(d2), dtype=bool)
        return none, none
    return d2 <= low, d2 >= high


def _add_distances(distances: Histogram, values: Floats, decay: float) -> Histogram:
    """The histogram with these values in it, earlier ones faded."""
    return histogram.update(histogram.decay(distances, decay), values)


def _find_new(ends: Ints, remembered: Ints) -> Bools:
    """Which pairs are new: neither among ``remembered`` nor earlier in ``ends``."""
    joined = np.concatenate([remembered, ends])
    first = np.unique(joined, axis=0, return_index=True)[1]
    is_new = np.zeros(len(joined), dtype=bool)
    is_new[first] = True
    return is_new[len(remembered) :]


def _limit(pairs: Pairs, settings: PairSettings) -> Pairs:
    """The newest half a buffer of each kind."""
    n_newer = np.zeros(len(pairs), dtype=np.int64)  # of the same kind
    for kind in (True, False):
        of_kind = np.flatnonzero(pairs.similar == kind)
        n_newer[of_kind] = np.arange(len(of_kind))[::-1]
    keep = n_newer < settings.buffer // 2
    return pairs if keep.all() else pairs.take(keep)
