"""Which ids are held: an id must be unique among the events that the support may still hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass

from streamembed.numeric.arrays import Array

__all__ = ["HeldIds", "kind_of"]


def kind_of(ids: Array | None) -> str:
    """How events are told apart: "positions", "numbers" or "strings"."""
    if ids is None:
        return "positions"
    return "numbers" if ids.dtype.kind == "i" else "strings"


@dataclass(frozen=True, slots=True, eq=False)
class HeldIds:
    """Ids with the stream positions of their events, as far back as ``window`` events reach.

    A value, of a part that is shared from one to the next and a small one that is copied.

    Attributes
    ----------
    window : int or None
        None for a window that never ends.
    settled, recent : dict
        Positions by id; where both have one, the recent one counts.
    """

    window: int | None
    settled: dict[Hashable, int]
    recent: dict[Hashable, int]

    @classmethod
    def of(cls, held: Iterable[tuple[Hashable, int]], window: int | None) -> HeldIds:
        """Ids and positions."""
        return cls(window, dict(held), {})

    def sift(self, keys: Sequence[Hashable], position: int) -> tuple[list[int], HeldIds]:
        """Indices of the keys that are held already, and what is held with all the others.

        ``position`` is that of the first key that is not.
        """
        repeated = []
        settled, recent = self.settled, self.recent.copy()
        for i, key in enumerate(keys):
            last = recent.get(key, settled.get(key))
            if last is not None and (self.window is None or position - last < self.window):
                repeated.append(i)
                continue
            recent[key] = position
            position += 1
        # Copying both costs least where the small part is about the root of the large one.
        if len(recent) > 64 and len(recent) ** 2 > len(settled):
            settled, recent = {**settled, **recent}, {}
            if self.window is not None and len(settled) > 4 * self.window + 64:
                oldest = position - self.window
                settled = {key: last for key, last in settled.items() if last > oldest}
        return repeated, HeldIds(self.window, settled, recent)
