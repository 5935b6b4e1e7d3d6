"""An alarm: that the stream has left its reference, since when, and in what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Alarm"]


@dataclass(frozen=True, slots=True)
class Alarm:
    """That the stream has left its reference.

    Attributes
    ----------
    position : int
        Events of the stream when it was raised.
    onset : int
        Since about this event.
    channel : str
        The loudest: "coverage", "coordinates", "features", "spread", "labels", "spectrum" or
        "metric".
    memory : int
        Events over which it was seen: 40 is abrupt, 640 slow; 0 of spectrum and metric.
    run_length : float
        Such a value comes once in so many events without drift.
    components : tuple of (str, float)
        What the channel is made of, with its share of the alarm, largest first.
    features : tuple of (str, float, float)
        Name, how far its mean has moved in standard deviations of the reference, and the p of a
        Kolmogorov-Smirnov test between the reference and the events since the onset (corrected for
        the number of features), most changed first.
    events : tuple of (int or str, int, float)
        Id, number in the stream and contribution of the ten that speak loudest.
    sentence : str
        All this in words.
    """

    position: int
    onset: int
    channel: str
    memory: int
    run_length: float
    components: tuple[tuple[str, float], ...]
    features: tuple[tuple[str, float, float], ...]
    events: tuple[tuple[int | str, int, float], ...]
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite run length is 1e308."""
        return {
            "position": self.position,
            "onset": self.onset,
            "channel": self.channel,
            "memory": self.memory,
            "run_length": min(self.run_length, 1e308),
            "components": [list(one) for one in self.components],
            "features": [list(one) for one in self.features],
            "events": [list(one) for one in self.events],
            "sentence": self.sentence,
        }
