"""The pairs that ITML remembers: which of them stay, and how many others each stands for.

Symbols as in `itml`; q = places of a kind, similar or dissimilar; n = pairs seen of the kind;
m = those of them that came alone.

Half of the buffer is for either kind; what one does not use is lent to the other. A dual is right
only beside those of the other kind. So a pair is remembered in one of two ways:

- While the buffer holds both kinds, a new pair is one of the *recent*. The oldest leaves, its
  dual stays in S and A stays as it is.
- A pair that comes *alone*, without enough of the other kind, is drawn into a sample of all such
  pairs. What is left of the sample stands for all of them: its price is gamma times their number
  over that of the sample. A pair that leaves takes its dual along.

The sample has q m / n places. It holds the pairs with the smallest keys, uniform numbers that are
drawn when a pair comes: at any moment, and for any number of places, a uniform sample. Forgetting
divides keys by 1 - rho, so that a pair's chance falls with its age.

Source: docs/algorithms/itml.md; N. Duffield, C. Lund and M. Thorup (2007), Priority sampling for
estimation of arbitrary subset sums, J. ACM 54(6). Differs: weights are m over the pairs sampled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np

from streamembed.metrics import bregman
from streamembed.metrics.bregman import Constraints
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

# Both kinds are there where each is at least this share of the buffer and the new pairs.
LEAST_SHARE = 0.1
# Pairs of a kind in the reference. With 100, one of 16 sorted streams with a buffer of 50 ended
# 1.29 times above the prior's objective, with 200 none.
N_REFERENCE = 200
# A key that never leaves the range of double precision, whatever is forgotten.
LARGEST_KEY = 1e100
# Duals of pairs that stay may be too large without those of pairs that leave: they shrink by this
# factor until A is definite, or nothing is left of them.
SHRINK, N_SHRINKS = 0.7, 100
# Share of its limit that a dual may have after its price has fallen.
BELOW_LIMIT = 0.999


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A uniform sample of all pairs of either kind, which no sweep reads."""

    differences: Annotated[Floats, "m d"]
    similar: Annotated[Bools, "m"]
    bounds: Annotated[Floats, "m"]
    keys: Annotated[Floats, "m"]
    seen: Annotated[Floats, "2"]  # similar and dissimilar pairs that came, less what is forgotten

    @property
    def constraints(self) -> Constraints:
        """The pairs of the sample."""
        return Constraints(self.differences, self.similar, self.bounds)

    @property
    def weights(self) -> Floats:
        """How many pairs each stands for, shape (m,)."""
        shares = self.seen / np.maximum(count_kinds(self.similar), 1)
        return per_pair(shares, self.similar)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What persists between two calls. Memory O(B d + d^2)."""

    # A_0 and its inverse.
    prior: Annotated[Floats, "d d"]
    precision: Annotated[Floats, "d d"]
    absorbed: Annotated[Floats, "d d"]  # S
    matrix: Annotated[Floats, "d d"]  # A, positive definite, exactly symmetric
    # v, s = +1, xi_0 and lambda of the pairs remembered, oldest first.
    differences: Annotated[Floats, "n d"]
    similar: Annotated[Bools, "n"]
    bounds: Annotated[Floats, "n"]
    duals: Annotated[Floats, "n"]
    keys: Annotated[Floats, "n"]  # positive in the sample of pairs that came alone; 0: recent
    alone: Annotated[Floats, "2"]  # similar and dissimilar pairs that the sample stands for
    reference: Reference
    gamma: float  # price of moving a bound
    # Pairs that came; those of equal points among them; calls of `update`.
    seen: int
    dropped: int
    calls: int

    def __len__(self) -> int:
        return len(self.duals)

    @property
    def constraints(self) -> Constraints:
        """The pairs remembered."""
        return Constraints(self.differences, self.similar, self.bounds)

    @property
    def prices(self) -> Floats:
        """Gamma times how many pairs each stands for, at least 1; shape (n,)."""
        is_sampled = self.keys > 0
        shares = self.alone / np.maximum(count_kinds(self.similar[is_sampled]), 1)
        weights = np.where(is_sampled, np.maximum(per_pair(shares, self.similar), 1.0), 1.0)
        prices: Floats = self.gamma * weights
        return prices

    @property
    def is_complete(self) -> bool:
        """Whether every pair that came is remembered."""
        return len(self) == self.seen - self.dropped


def count_kinds(similar: Bools) -> Ints:
    """How many are similar, and how many are not."""
    n_similar = int(np.count_nonzero(similar))
    return np.array([n_similar, len(similar) - n_similar])


def per_pair(values: Floats, similar: Bools) -> Floats:
    """The value of each pair's kind, of (similar, dissimilar)."""
    result: Floats = values[np.where(similar, 0, 1)]
    return result


def share_places(counts: Ints, buffer: int) -> Ints:
    """How many pairs of either kind stay of so many: half each, and what the other leaves."""
    halves = np.array([buffer - buffer // 2, buffer // 2])
    places: Ints = np.minimum(counts, np.maximum(halves, buffer - counts[::-1]))
    return places


def choose(state: State, places: Ints) -> Bools:
    """Which pairs stay where either kind has so many places: the sample's part, and the newest."""
    stays = np.ones(len(state), dtype=np.bool_)
    for kind, is_of_kind in enumerate((state.similar, ~state.similar)):
        sampled = np.flatnonzero(is_of_kind & (state.keys > 0))
        recent = np.flatnonzero(is_of_kind & (state.keys == 0))
        q, n = int(places[kind]), state.reference.seen[kind]
        if len(sampled) + len(recent) <= q:
            continue
        part = round(q * state.alone[kind] / n) if n else 0
        part = min(max(part, q - len(recent)), len(sampled))
        order = np.argsort(state.keys[sampled], kind="stable")
        stays[sampled[order[part:]]] = False
        stays[recent[: len(recent) - (q - part)]] = False
    return stays


def remember(
    state: State, arriving: Constraints, buffer: int, generator: np.random.Generator
) -> tuple[State, int]:
    """The state with these pairs, no more than ``buffer`` in all, and how many had no place.

    A is untouched while only recent pairs leave; duals of new pairs are 0. ``seen`` is the
    caller's.
    """
    counts, draws = count_kinds(arriving.similar), 1.0 - generator.random((2, len(arriving)))
    pairs = bregman.join(state.constraints, arriving)
    is_mixed = count_kinds(pairs.similar).min() >= LEAST_SHARE * len(pairs)
    after = replace(
        state,
        differences=pairs.differences,
        similar=pairs.similar,
        bounds=pairs.bounds,
        duals=np.concatenate([state.duals, np.zeros(len(arriving))]),
        keys=np.concatenate([state.keys, np.zeros(len(arriving)) if is_mixed else draws[0]]),
        alone=state.alone if is_mixed else state.alone + counts,
        reference=_refer(
            bregman.join(state.reference.constraints, arriving),
            np.concatenate([state.reference.keys, draws[1]]),
            state.reference.seen + counts,
        ),
    )
    stays = choose(after, share_places(count_kinds(pairs.similar), buffer))
    absorbed = ~stays & (after.keys == 0)
    if absorbed.any():
        terms = bregman.sum_dual_terms(pairs.take(absorbed), after.duals[absorbed])
        after = replace(after, absorbed=after.absorbed + terms)
    lost = bool(after.duals[~stays & ~absorbed].any())
    return _limit_duals(_take(after, stays), lost), int(np.count_nonzero(~stays))


def forget(state: State, share: float) -> State:
    """Pairs count less by this share, and have a smaller chance to stay than later ones."""
    reference = state.reference
    return replace(
        state,
        keys=_age(state.keys, share),
        alone=(1.0 - share) * state.alone,
        reference=replace(
            reference,
            keys=_age(reference.keys, share),
            seen=(1.0 - share) * reference.seen,
        ),
    )


def merge(left: State, right: State, buffer: int, start: State) -> tuple[State, Floats]:
    """The pairs of both in ``start``, all as a sample of what both have seen; and their own keys.

    Either side gives pairs of a kind in proportion to how many it has seen. Duals are 0. Once they
    are solved, `split_weights` makes them what they were.
    """
    counts = [count_kinds(side.similar) for side in (left, right)]
    seen = left.reference.seen + right.reference.seen
    places = share_places(counts[0] + counts[1], buffer)
    shares = right.reference.seen / np.maximum(seen, np.finfo(np.float64).tiny)
    n_right = np.rint(places * shares).astype(np.int64)
    n_right = np.minimum(np.maximum(n_right, places - counts[0]), counts[1])
    parts = [
        _take(side, choose(side, n)) for side, n in ((left, places - n_right), (right, n_right))
    ]
    # the streams ran side by side: the last pairs of each are the newest
    age = np.concatenate([np.arange(len(part)) / max(len(part), 1) for part in parts])
    order = np.argsort(age, kind="stable")
    pairs = bregman.join(parts[0].constraints, parts[1].constraints).take(order)
    merged = replace(
        start,
        differences=pairs.differences,
        similar=pairs.similar,
        bounds=pairs.bounds,
        duals=np.zeros(len(pairs)),
        keys=np.ones(len(pairs)),
        alone=seen,
        reference=_refer(
            bregman.join(left.reference.constraints, right.reference.constraints),
            np.concatenate([left.reference.keys, right.reference.keys]),
            seen,
        ),
    )
    return merged, np.concatenate([part.keys for part in parts])[order]


def split_weights(state: State, keys: Floats, alone: Floats) -> State:
    """A solved sample as recent pairs, where the key is 0, and a sample of ``alone`` pairs.

    A pair of weight w is w equal pairs with the w-th part of its dual each. Of a recent pair one
    stays, and the others are absorbed: A is the same.
    """
    weights, is_recent = state.prices / state.gamma, keys == 0
    leaving = np.where(is_recent, state.duals * (1.0 - 1.0 / weights), 0.0)
    return _limit_duals(
        replace(
            state,
            keys=keys,
            alone=alone,
            duals=state.duals - leaving,
            absorbed=state.absorbed + bregman.sum_dual_terms(state.constraints, leaving),
        ),
        False,
    )


def build_from_duals(state: State) -> Floats | None:
    """A from the prior and the duals; None where rounding leaves it no inverse."""
    if not has_duals(state):
        return state.prior
    pull = bregman.sum_dual_terms(state.constraints, state.duals)
    return bregman.invert(state.precision + state.absorbed + pull)


def has_duals(state: State) -> bool:
    """Whether any dual is set; otherwise A is A_0, and must not be rounded."""
    return bool(state.duals.any() or state.absorbed.any())


def _limit_duals(state: State, lost: bool) -> State:
    """Duals of similar pairs below price / xi_0; A from the duals where they changed, or ``lost``.

    At the limit 1 / xi = 0. It is reached where a price has fallen.
    """
    limits = np.where(state.similar, state.prices / state.bounds, np.inf)
    is_below = state.duals < limits
    if is_below.all() and not lost:
        return state
    duals = np.where(is_below, state.duals, BELOW_LIMIT * limits)
    return _rebuild(replace(state, duals=duals))


def _rebuild(state: State) -> State:
    """The state with A from its duals, which shrink until there is such a metric."""
    for _ in range(N_SHRINKS):
        matrix = build_from_duals(state)
        if matrix is not None:
            return replace(state, matrix=matrix)
        state = replace(state, duals=SHRINK * state.duals, absorbed=SHRINK * state.absorbed)
    zeros = np.zeros_like(state.absorbed)
    return replace(state, duals=np.zeros(len(state)), absorbed=zeros, matrix=state.prior)


def _refer(pairs: Constraints, keys: Floats, seen: Floats) -> Reference:
    """The pairs of either kind with the smallest keys, as they were in order."""
    chosen = np.zeros(len(pairs), dtype=np.bool_)
    for is_of_kind in (pairs.similar, ~pairs.similar):
        of_kind = np.flatnonzero(is_of_kind)
        chosen[of_kind[np.argsort(keys[of_kind], kind="stable")[:N_REFERENCE]]] = True
    taken = pairs.take(chosen)
    return Reference(taken.differences, taken.similar, taken.bounds, keys[chosen], seen)


def _take(state: State, chosen: Array) -> State:
    """The state with these pairs only; A and S as they are."""
    if chosen.all():
        return state
    pairs = state.constraints.take(chosen)
    return replace(
        state,
        differences=pairs.differences,
        similar=pairs.similar,
        bounds=pairs.bounds,
        duals=state.duals[chosen],
        keys=state.keys[chosen],
    )


def _age(keys: Floats, share: float) -> Floats:
    aged: Floats = np.minimum(keys / (1.0 - share), LARGEST_KEY)
    return aged
