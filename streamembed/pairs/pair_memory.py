"""The pairs that are remembered: which two events, of which kind, and by which distance.

Source: docs/algorithms/pairs.md. The verbs are in `streamembed.pairs.thresholds`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated

import numpy as np

from streamembed.numeric import histogram
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.histogram import Histogram


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs with the evidence for what they are, oldest first."""

    # Arrival positions of the two events, int64, the older one first.
    births: Annotated[Ints, "n 2"]
    differences: Annotated[Floats, "n d"]  # older minus younger, as the points were given
    similar: Annotated[Bools, "n"]  # True for similar pairs, False for dissimilar ones
    # Squared distance in the embedding by which it was last judged, and the thresholds on it.
    d2: Annotated[Floats, "n"]
    similar_below: Annotated[Floats, "n"]
    dissimilar_above: Annotated[Floats, "n"]
    positions: Annotated[Ints, "n"]  # stream position at which it was last judged, int64

    def __len__(self) -> int:
        return len(self.d2)

    @property
    def has_both_kinds(self) -> bool:
        """Whether there are similar and dissimilar ones."""
        return bool(self.similar.any() and not self.similar.all())

    def take(self, chosen: Array) -> Pairs:
        """The pairs selected by index or mask."""
        return Pairs(*(getattr(self, field.name)[chosen] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class PairCounts:
    """What became of all pairs since the first call."""

    candidates: int = 0  # pairs drawn: the sum of kept, undecided, duplicates and degenerate
    # Beyond a threshold, or between the two.
    kept: int = 0
    undecided: int = 0
    duplicates: int = 0  # the same two events again, in one call or beside the remembered ones
    degenerate: int = 0  # without a difference in input space, or in the embedding
    evicted: int = 0  # dropped for newer ones
    # When judged again: of the other kind now; between the thresholds; with an event that has left
    # the support. The last two are dropped.
    flipped: int = 0
    faded: int = 0
    gone: int = 0

    def add(self, **more: int) -> PairCounts:
        """The counts with these added."""
        return replace(self, **{name: getattr(self, name) + n for name, n in more.items()})


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """What persists between two calls. Memory O(B d) for a buffer of B pairs."""

    pairs: Pairs  # those remembered
    # Squared distances of the candidates in the embedding, and between the points themselves.
    embedded: Histogram
    inputs: Histogram
    position: int  # stream position of the last call
    counts: PairCounts


def init(n_features: int) -> State:
    """The state before any pair."""
    pairs = Pairs(
        np.zeros((0, 2), np.int64),
        np.zeros((0, n_features)),
        np.zeros(0, bool),
        np.zeros(0),
        np.zeros(0),
        np.zeros(0),
        np.zeros(0, np.int64),
    )
    return State(pairs, histogram.init(), histogram.init(), 0, PairCounts())


def compare(before: Pairs, after: Pairs) -> tuple[Bools, Bools]:
    """Which pairs of ``after`` are new, and which are of the other kind than before; both (n,)."""
    kinds = dict(zip(map(tuple, before.births.tolist()), before.similar.tolist(), strict=True))
    earlier = [kinds.get((left, right)) for left, right in after.births.tolist()]
    is_new = np.array([kind is None for kind in earlier], dtype=bool)
    return is_new, ~is_new & (np.array(earlier, dtype=bool) != after.similar)


def join(left: Pairs, right: Pairs) -> Pairs:
    """Both, the left ones first."""
    names = [field.name for field in fields(left)]
    return Pairs(*(np.concatenate([getattr(left, n), getattr(right, n)]) for n in names))
