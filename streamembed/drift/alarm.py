"""An alarm: the stream has left its reference; since when, in what, and what follows from it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamembed.notebook import write_table

NO_LEAVE = ("missing", "repeated")  # channels whose alarms leave no reference


@dataclass(frozen=True, slots=True)
class Alarm:
    """The stream has left its reference; or, by its kind, what follows from that.

    Attributes
    ----------
    kind : str
        "alarm"; the others are in `Monitor.records`. "explained": the same alarm, explained from
        more events. "cut": the events behind an alarm change again, and those before are left
        out. "returned": the stream is like a reference that it left. "recovered": like home, with
        ``policy="hold"``. "acknowledged" and "reset": such a call.
    number : int
        Of the alarm, from 0; of the other kinds: of the alarm before.
    position : int
        Events of the stream when it was raised.
    onset : int
        Since about this event.
    reference : int
        Number of the reference that was left, or returned to.
    channel : str
        The strongest: "coverage", "coordinates", "features", "spread", "labels", "pairs", or
        "missing": more rows have a missing value than in the reference, which is not left; or
        "repeated": one vector came many times while a reference was collected. Empty for kinds
        without one, as are the following.
    memory : int
        Events over which it was detected: 40 is abrupt, 640 slow (of vectors 2,560), times what
        is averaged; 0 for pairs and missing.
    run_length : float
        Events in which such a value is expected once without drift; a thousand times ``ert`` at
        most, because a reference cannot show more.
    revision : int
        0 at the alarm; 1 and 2 for its explanation 50 and 200 events later.
    explanation : Explanation or None
        What has changed, by the statistic that shows it best.
    features : tuple of (str, float, float)
        Name, how far its mean has moved in standard deviations of the reference, and the smallest p
        of tests of its mean, spread and rate (corrected for their number), most changed first.
    events : tuple of (int or str, int, float)
        Id, number in the stream and contribution of the ten strongest.
    carriers : int
        Without so many of these there is no alarm; 0 where that is not a few.
    sentence : str
        The alarm as a sentence.
    """

    kind: str
    number: int
    position: int
    onset: int
    reference: int
    sentence: str
    channel: str = ""
    memory: int = 0
    run_length: float = 0.0
    revision: int = 0
    explanation: Explanation | None = None
    features: tuple[tuple[str, float, float], ...] = ()
    events: tuple[tuple[int | str, int, float], ...] = ()
    carriers: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; an infinite run length is 1e308."""
        return {**asdict(self), "run_length": min(self.run_length, 1e308)}

    def _repr_html_(self) -> str:
        """What notebooks show: the sentence, and what it is made of."""
        names = ("kind", "position", "onset", "channel", "memory", "run_length")
        rows: list[tuple[str, object]] = [(name, getattr(self, name)) for name in names]
        changes = (f"{name} {moved:+.2g} sd, p {p:.1g}" for name, moved, p in self.features)
        events = (f"{event} ({share:.2g})" for event, _, share in self.events)
        rows += [("features", "; ".join(changes)), ("events", ", ".join(events))]
        return write_table(self.sentence, rows)


@dataclass(frozen=True, slots=True)
class Explanation:
    """What has changed, as far as the events since tell.

    Attributes
    ----------
    kind : str
        "mean", "spread" or "rate" of a feature; "pair", the correlation of two; "all", a change
        that most features share; "constant", a feature that was constant or is now; "value", one
        that has another constant value; "outliers", a few events and nothing else; "missing", more
        rows with missing values; of an alarm of the channel "labels", "label share", how often a
        label comes, or "label mean", the mean of a feature among its events; "" where none can be
        named yet. Of vectors (more than 32 features without names) no feature is named, but a group
        of events: "region", more frequent than in the reference, or "new region", at most 1 % of
        it; "repeated event", one value many times; "encoder", all groups moved or scaled at once.
    names : tuple of str
        The features; empty where none is named.
    before, after : float
        Mean (0 before) in deviations, ratio of spreads (1 before), rate (0 before of a value that
        is new), share, correlation or value; of "all" the median shift or ratio; of "constant" 1
        where the feature varied, 0 where not; of a region and a repeated event shares of events;
        of "encoder" how many times as far events are from the reference.
    p : float
        Of the test, corrected for all that were made.
    events : int
        Events that it is from, the last ones; where these are more than those since the onset, the
        sentence says so.
    labels : tuple of str
        Those that have changed, most significant first; the figures are of the first.
    members : tuple of int or str
        Ids of the events of a region since the onset, of the half nearest to its middle; or of the
        copies of a repeated event.
    exemplars : tuple of int or str
        The three most typical of them.
    """

    kind: str
    names: tuple[str, ...]
    before: float
    after: float
    p: float
    events: int
    labels: tuple[str, ...] = ()
    members: tuple[int | str, ...] = ()
    exemplars: tuple[int | str, ...] = ()
