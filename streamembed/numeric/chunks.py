"""Chunks of a stream: where they end, and events that wait for the end of their chunk.

Engines, training streams of metrics and the pipeline without labels all learn by chunks, and all by
this rule: chunks end at positions of the stream, so that calls do not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar


class Concatenable(Protocol):
    """Some events in the order of the stream."""

    def __len__(self) -> int: ...

    @classmethod
    def joined(cls, parts: Sequence[Any]) -> Self:
        """The same events in one array each."""
        ...


Part = TypeVar("Part", bound=Concatenable)


@dataclass(frozen=True, slots=True)
class Chunks:
    """Where chunks end: after the first events of all, then at every multiple of a size.

    Examples
    --------
    >>> chunks = Chunks(size=10, first=25)
    >>> chunks.next_cut(0), chunks.next_cut(25), chunks.next_cut(30)
    (25, 30, 40)
    >>> list(chunks.split(learned=0, waiting=20, count=13))
    [(slice(0, 5, None), True), (slice(5, 10, None), True), (slice(10, 13, None), False)]
    """

    # Events a chunk, at least 1; fewer where ``first`` or a flush ended between two multiples.
    size: int
    first: int  # events of the first chunk, at least 1

    def next_cut(self, learned: int) -> int:
        """The position at which the chunk after ``learned`` events ends."""
        return (learned // self.size + 1) * self.size if learned else self.first

    def split(self, learned: int, waiting: int, count: int) -> Iterator[tuple[slice, bool]]:
        """How events that arrive fall into chunks.

        Parameters
        ----------
        learned, waiting
            Events in whole chunks, and those behind them that wait.
        count
            Events that arrive.

        Yields
        ------
        Consecutive slices of them, and whether a chunk is whole with each.
        """
        start, position = 0, learned + waiting
        while start < count:
            n_missing = max(0, self.next_cut(learned) - position)
            stop = min(count, start + n_missing)
            position += stop - start
            is_whole = stop - start == n_missing
            learned = position if is_whole else learned
            yield slice(start, stop), is_whole
            start = stop


@dataclass(frozen=True, slots=True, eq=False)
class PendingParts(Generic[Part]):
    """Events whose chunk is not whole yet."""

    parts: tuple[Part, ...] = ()  # as they came, each of one event or more; none is ever written to
    count: int = 0  # events in all of them

    def followed_by(self, part: Part) -> PendingParts[Part]:
        """These events and another part."""
        return PendingParts((*self.parts, part), self.count + len(part))

    def __pack__(self) -> PendingParts[Part]:
        """Saved in one piece, so that calls do not matter."""
        if not self.parts:
            return self
        return PendingParts((type(self.parts[0]).joined(self.parts),), self.count)

    @staticmethod
    def __unpack__(packed: PendingParts[Part]) -> PendingParts[Part]:
        """ValueError for more parts than one, or of another size."""
        if (packed.count, len(packed.parts)) != (sum(map(len, packed.parts)), min(packed.count, 1)):
            raise ValueError(f"{packed.count} events wait in {len(packed.parts)} parts")
        return packed

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled in one piece, too."""
        packed = self.__pack__()
        return PendingParts, (packed.parts, packed.count)
