"""What an id is, and which ids are retained.

An id must be unique among the events that the support may still hold.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Integral
from types import NoneType
from typing import Any, Literal
from uuid import UUID

import numpy as np

from streamembed.data.values import to_list
from streamembed.errors import InputError, quote
from streamembed.numeric.arrays import Array, Ints

# How events are identified.
IdsKind = Literal["positions", "numbers", "strings"]


def classify_ids(ids: Array | None) -> IdsKind:
    """How events are identified: by "positions", "numbers" or "strings"."""
    if ids is None:
        return "positions"
    return "numbers" if ids.dtype.kind == "i" else "strings"


@dataclass(frozen=True, slots=True, eq=False)
class RetainedIds:
    """Ids with the stream positions of their events, as far back as ``window`` events reach.

    An immutable value: the next one shares its large part and copies its small part.
    """

    window: int | None  # None for a window that never ends
    # Positions by id; where both have one, the recent one counts.
    older: dict[Hashable, int]
    recent: dict[Hashable, int]

    def add(self, keys: Sequence[Hashable], position: int) -> tuple[list[int], RetainedIds]:
        """Indices of the keys that are retained already, and the ids with all others added.

        ``position`` is the stream position of the first new key.
        """
        repeated = []
        older, recent = self.older, self.recent.copy()
        for i, key in enumerate(keys):
            last = recent.get(key, older.get(key))
            if last is not None and (self.window is None or position - last < self.window):
                repeated.append(i)
                continue
            recent[key] = position
            position += 1
        # Copying both costs least where the small part is about the root of the large one.
        if len(recent) > 64 and len(recent) ** 2 > len(older):
            older, recent = {**older, **recent}, {}
            if self.window is not None and len(older) > 4 * self.window + 64:
                oldest = position - self.window
                older = {key: last for key, last in older.items() if last > oldest}
        return repeated, RetainedIds(self.window, older, recent)


def read_ids(ids: Any, n: int) -> Array | None:
    """The ids as an array of int64 or of objects (str or int, None), or None.

    Raises
    ------
    InputError
        Not one id a row, or ids that are neither all strings or UUIDs, nor all whole numbers
        of 64 bits.
    """
    if ids is None:
        return None
    if type(ids) is np.ndarray and ids.dtype.kind == "i" and ids.ndim == 1 and len(ids) == n:
        return ids.astype(np.int64)
    entries = to_list(ids, n, "ids")
    if not set(map(type, entries)) <= {int, str, NoneType}:
        entries = [_to_plain_id(key) for key in entries]
    present = [key for key in entries if key is not None]
    kinds = set(map(type, present))
    if len(kinds) > 1:
        raise InputError(
            "ids mixes whole numbers and strings, which look the same once written (1 and '1'); "
            "use only strings, or only numbers"
        )
    try:
        if kinds == {str}:  # half of a pair of surrogates can stand in no file
            "".join(present).encode()
        elif kinds:
            numbers = np.array(present, dtype=np.int64)
            if len(present) == n:
                return numbers
    except UnicodeEncodeError as error:
        raise InputError(f"ids has text that is not valid Unicode ({error})") from error
    except OverflowError as error:
        large = max(present, key=abs)
        raise InputError(
            f"ids has {quote(large)}; whole numbers must fit into signed 64 bits: use strings for "
            "larger ones"
        ) from error
    keys = np.empty(n, dtype=object)
    keys[:] = entries
    return keys


def _to_plain_id(key: Any) -> int | str | None:
    """A whole number or text as Python's own type."""
    if key is None or isinstance(key, (str, UUID)):
        return None if key is None else str(key)
    if isinstance(key, Integral) and not isinstance(key, (bool, np.timedelta64)):
        return int(key)
    raise InputError(
        f"ids has {quote(key)}; ids must be all strings (or UUIDs), or all whole numbers"
    )


def select_ids(ids: Array | None, rows: Ints) -> Array | None:
    """The ids of the accepted rows, as int64, or as objects that are all str."""
    if ids is None:
        return None
    chosen: Array = ids[rows]
    if chosen.dtype == object and len(chosen) and not isinstance(chosen[0], str):
        return chosen.astype(np.int64)
    return chosen
