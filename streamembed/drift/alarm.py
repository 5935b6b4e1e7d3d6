"""An alarm: the stream has left its reference; since when, and in what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

# Names of earlier versions, which counted from 1.
_OLD_NAME = re.compile(r"^(spread of )?(coordinate|eigenvalue|axis|label score) (\d+)$")
_OLD_SENTENCE = re.compile(r"(most along |distribution of )(coordinate|axis) (\d+)\b")
_NEW_NAMES = {
    "coordinate": "component",
    "eigenvalue": "eigenvalue",
    "axis": "feature_axis",
    "label score": "label_score",
}


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


def rename_components(alarm: Mapping[str, Any]) -> dict[str, Any]:
    """An alarm as `Alarm.as_dict` returns it, with the names of today; features keep theirs."""
    features = {name for name, *_ in alarm["features"]}

    def rename(name: str) -> str:
        match = _OLD_NAME.match(name)
        if match is None or name.removeprefix("spread of ") in features:
            return name
        spread, what, number = match.groups()
        return f"{spread or ''}{_NEW_NAMES[what]}_{int(number) - 1}"

    def rename_words(match: re.Match[str]) -> str:
        before, what, number = match.groups()
        if f"{what} {number}" in features:
            return match[0]
        return f"{before}{_NEW_NAMES[what].replace('_', ' ')} {int(number) - 1}"

    return {
        **alarm,
        "components": [[rename(name), share] for name, share in alarm["components"]],
        "sentence": _OLD_SENTENCE.sub(rename_words, alarm["sentence"]),
    }
