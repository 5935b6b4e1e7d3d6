"""An alarm: the stream has left its reference; since when, and in what."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamembed.notebook import write_table


@dataclass(frozen=True, slots=True)
class Alarm:
    """The stream has left its reference.

    Attributes
    ----------
    position : int
        Events of the stream when it was raised.
    onset : int
        Since about this event.
    channel : str
        The strongest: "coverage", "coordinates", "features", "spread", "labels", "spectrum" or
        "metric".
    memory : int
        Events over which it was detected: 40 is abrupt, 640 slow; 0 for spectrum and metric.
    run_length : float
        Events in which such a value is expected once without drift.
    components : tuple of (str, float)
        Components of the channel with their share of the alarm, largest first.
    features : tuple of (str, float, float)
        Name, how far its mean has moved in standard deviations of the reference, and the p of a
        Kolmogorov-Smirnov test between the reference and the events since the onset (corrected for
        the number of features), most changed first.
    events : tuple of (int or str, int, float)
        Id, number in the stream and contribution of the ten strongest.
    sentence : str
        The alarm as a sentence.
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
        return {**asdict(self), "run_length": min(self.run_length, 1e308)}

    def _repr_html_(self) -> str:
        """What notebooks show: the sentence, and what it is made of."""
        changes = (f"{name} {moved:+.2g} sd, p {p:.1g}" for name, moved, p in self.features)
        rows: list[tuple[str, object]] = [
            ("position", self.position),
            ("onset", self.onset),
            ("channel", self.channel),
            ("memory", self.memory),
            ("run length", self.run_length),
            ("components", "; ".join(f"{name} {share:.0%}" for name, share in self.components)),
            ("features", "; ".join(changes)),
            ("events", ", ".join(f"{event} ({share:.2g})" for event, _, share in self.events)),
        ]
        return write_table(self.sentence, rows)
