"""What metrics learn from, in the order of the stream: labelled points, and given pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from streamembed.core.arrays import Bools, Floats, Ints

__all__ = ["DISSIMILAR", "NOT_LEARNED", "SIMILAR", "Chunk", "mapped"]

# Codes of events that are no labelled points; a class has its index, from 0.
SIMILAR, DISSIMILAR, NOT_LEARNED = -1, -2, -3


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Events in the order of the stream.

    Attributes
    ----------
    first, second : (n, d)
        The point, or both ends of the pair; ``second`` is 0 for labelled points.
    codes : (n,)
        Index of the class, -1 for a similar pair, -2 for a dissimilar one.
    position, seed : int
        Events before the chunk; and the estimator's seed.
    """

    first: Floats
    second: Floats
    codes: Ints
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
        """Differences of the pairs that were given, (p, d)."""
        given = self.codes < 0
        return self.first[given] - self.second[given]

    @property
    def similar(self) -> Bools:
        """Of which kind they are, (p,)."""
        alike: Bools = self.codes[self.codes < 0] == SIMILAR
        return alike

    def generator(self) -> np.random.Generator:
        """For what is drawn, of (seed, position); the same at every call."""
        return np.random.default_rng((self.seed, self.position))

    def scaled(self, scale: Floats) -> Chunk:
        """The same events with every feature divided by its scale (d,)."""
        return Chunk(self.first / scale, self.second / scale, self.codes, self.position, self.seed)

    def followed_by(self, first: Floats, second: Floats, codes: Ints) -> Self:
        """The chunk with more events at its end."""
        return type(self)(
            np.concatenate([self.first, first]),
            np.concatenate([self.second, second]),
            np.concatenate([self.codes, codes]),
            self.position,
            self.seed,
        )

    @classmethod
    def empty(cls, n_features: int, position: int, seed: int) -> Self:
        """No event yet."""
        nothing = np.zeros((0, n_features))
        return cls(nothing, nothing, np.zeros(0, dtype=np.int64), position, seed)


def mapped(codes: Ints, indices: Ints) -> Ints:
    """Codes of another stream in this one's classes: class c is ``indices[c]``."""
    moved = codes.copy()
    moved[codes >= 0] = indices[codes[codes >= 0]]
    return moved
