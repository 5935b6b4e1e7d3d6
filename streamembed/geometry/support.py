"""The points of the support: their slots, ids, arrivals and masses.

A support is a set of slots. Each holds a raw point, the id and the stream position (its arrival) of
the event that it came from, and a mass: how many events it stands for (1 for a window). Slots are
reused, so that a full support is a fixed set of arrays.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.numeric.arrays import Array, Floats, Ints, pad
from streamembed.numeric.codec import NOT_SAVED


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The slots in use."""

    points: Annotated[Floats, "slots d"]  # raw points, in the caller's units
    scaled: Floats = field(metadata=NOT_SAVED)  # (n, d): the same as the kernel sees them
    ids: Annotated[Array, "slots", "int64 or text", "different"]
    # Stream position of the event in each slot, int64: unique, and the slot's identity.
    births: Annotated[Ints, "slots", "at least 0", "different"]
    masses: Annotated[Floats, "slots"]  # positive

    @classmethod
    def empty(cls, width: int, ids_dtype: npt.DTypeLike) -> Support:
        """A support without slots, for points of ``width`` features."""
        return cls(
            np.zeros((0, width)),
            np.zeros((0, width)),
            np.zeros(0, dtype=ids_dtype),
            np.zeros(0, dtype=np.int64),
            np.zeros(0),
        )

    def __len__(self) -> int:
        return len(self.births)

    @property
    def oldest_first(self) -> Ints:
        """Slots in the order of arrival, shape (n,)."""
        return np.argsort(self.births, kind="stable")


def fill(
    support: Support,
    slots: Ints,
    points: Floats,
    scaled: Floats,
    ids: Array,
    positions: Ints,
    masses: Floats,
) -> Support:
    """The support with ``slots`` refilled; slots from n on are new, and follow without a hole.

    ``masses`` are those of all slots afterwards.
    """
    if not len(slots):
        return replace(support, masses=masses)
    filled = {}
    new = {"points": points, "scaled": scaled, "ids": ids, "births": positions}
    for name, values in new.items():
        old = getattr(support, name)
        dtype = np.promote_types(old.dtype, values.dtype)
        filled[name] = pad(old.astype(dtype, copy=False), len(masses))
        filled[name][slots] = values
    return replace(support, masses=masses, **filled)
