"""What metrics learn from, in the order of the stream: labelled points, and given pairs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np

from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.moments import drop_rounding

# Codes of events that are no labelled points; a class has its index, from 0.
SIMILAR, DISSIMILAR, NOT_LEARNED = -1, -2, -3


@dataclass(frozen=True, slots=True, eq=False)
class Examples:
    """Events in the order of the stream."""

    # The point, or both ends of the pair; ``second`` is 0 for labelled points.
    first: Annotated[Floats, "n d"]
    second: Annotated[Floats, "n d"]
    # Index of the class, -1 for a similar pair, -2 for a dissimilar one.
    codes: Annotated[Ints, "n"]
    # Events before these; and the random seed.
    position: int
    seed: int

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def points(self) -> Floats:
        """The labelled points, (m, d)."""
        return self.first[self.codes >= 0]

    @property
    def classes(self) -> Ints:
        """Their classes, (m,)."""
        return self.codes[self.codes >= 0]

    @property
    def differences(self) -> Floats:
        """Differences of the given pairs, (p, d), without rounding."""
        is_pair = self.codes < 0
        first = self.first[is_pair]
        return drop_rounding(first - self.second[is_pair], first)

    @property
    def similar(self) -> Bools:
        """Of which kind they are, (p,)."""
        similar: Bools = self.codes[self.codes < 0] == SIMILAR
        return similar

    @property
    def ends(self) -> Floats:
        """Every point, with both ends of the given pairs, in order: (n + p, d)."""
        both = np.stack([self.first, self.second], axis=1)
        is_present = np.stack([np.ones(len(self), dtype=bool), self.codes < 0], axis=1)
        points: Floats = both[is_present]
        return points

    def generator(self) -> np.random.Generator:
        """The random generator of (seed, position); the same at every call."""
        return np.random.default_rng((self.seed, self.position))

    def scaled(self, scale: Floats) -> Examples:
        """The same events with every feature divided by its scale (d,)."""
        return replace(self, first=self.first / scale, second=self.second / scale)

    @classmethod
    def joined(cls, parts: Sequence[Examples]) -> Self:
        """The same events in one piece, at the position of the first."""
        return cls(
            np.concatenate([part.first for part in parts]),
            np.concatenate([part.second for part in parts]),
            np.concatenate([part.codes for part in parts]),
            parts[0].position,
            parts[0].seed,
        )

    @classmethod
    def empty(cls, n_features: int, position: int, seed: int) -> Self:
        """No event yet."""
        no_points = np.zeros((0, n_features))
        return cls(no_points, no_points, np.zeros(0, dtype=np.int64), position, seed)


def remap_codes(codes: Ints, indices: Ints) -> Ints:
    """Codes of another stream in this one's classes: class c is ``indices[c]``."""
    remapped = codes.copy()
    remapped[codes >= 0] = indices[codes[codes >= 0]]
    return remapped
