"""The features of points: their names, and whether these are places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Self

import numpy as np

from streamembed.data.table import are_positions, parse_vector_name
from streamembed.numeric.arrays import Floats, freeze


@dataclass(frozen=True)
class Features:
    """The features of points, in the order of their columns."""

    names: tuple[str, ...]  # all different; empty where objects are known by distances
    # True where the columns are named by their place ("0", "1", ...), not by the caller.
    ordered: bool
    # "euclidean", or "cosine": rows are then divided by their lengths when they are read.
    metric: str = "euclidean"

    @classmethod
    def of_names(cls, names: Sequence[str], metric: str = "euclidean") -> Self:
        """Features of these names: ordered where all of them are places."""
        return cls(tuple(names), are_positions(names), metric)

    @property
    def given_names(self) -> tuple[str, ...] | None:
        """The names that the caller gave; None where columns are named by their place."""
        return None if self.ordered else self.names

    @cached_property
    def divisors(self) -> Floats:
        """What divides each feature once it is scaled, (d,): the root of the size of its vector.

        So the numbers of one vector together weigh as one feature.

        Examples
        --------
        >>> Features(("v[0]", "v[1]", "v[2]", "v[3]", "x"), False).divisors.tolist()
        [2.0, 2.0, 2.0, 2.0, 1.0]
        """
        vectors = [parse_vector_name(name) or name for name in self.names]
        sizes = Counter(vectors)
        return freeze(np.sqrt([float(sizes[vector]) for vector in vectors]))

    def __pack__(self) -> tuple[Annotated[tuple[str, ...], "different"], bool, str]:
        """Saved without names of fields."""
        return self.names, self.ordered, self.metric

    @classmethod
    def __unpack__(cls, saved: tuple[tuple[str, ...], bool, str]) -> Self:
        return cls(*saved)


# Of objects that are known by their distances.
NO_FEATURES = Features((), True)
