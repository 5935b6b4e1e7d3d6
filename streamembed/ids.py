"""Which ids are held: an id must be unique among the events that the support may still hold."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from streamembed.core.arrays import Array

__all__ = ["HeldIds", "kind_of"]


def kind_of(ids: Array | None) -> str:
    """How events are told apart: "positions", "numbers" or "strings"."""
    if ids is None:
        return "positions"
    return "numbers" if ids.dtype.kind == "i" else "strings"


class HeldIds:
    """Ids with the stream positions of their events, as far back as ``window`` events reach."""

    def __init__(self, held: Iterable[tuple[Hashable, int]], window: int | None) -> None:
        """None for a window that never ends."""
        self._held = dict(held)
        self._window = window

    def copy(self) -> HeldIds:
        """One that can be tried out."""
        return HeldIds(self._held.items(), self._window)

    def sift(self, keys: list[Hashable], position: int) -> list[int]:
        """Indices of the keys that are held already; the others are held from now on.

        ``position`` is that of the first key that is not.
        """
        repeated = []
        for i, key in enumerate(keys):
            last = self._held.get(key)
            if last is not None and (self._window is None or position - last < self._window):
                repeated.append(i)
                continue
            self._held[key] = position
            position += 1
        if self._window is not None and len(self._held) > 4 * self._window + 64:
            fresh = position - self._window
            self._held = {key: last for key, last in self._held.items() if last > fresh}
        return repeated
