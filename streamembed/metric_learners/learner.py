"""What a learner is, and what is known of every metric, whoever made it.

A learner is the rule of one metric: settings, and four verbs on states that it does not keep.
`streamembed.metric_learners.training_stream` feeds it chunk by chunk, for an estimator and for an
engine alike; so a metric of one name has one answer.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from streamembed.metric_learners.labelled_examples import Examples
from streamembed.metric_learning import balance
from streamembed.metric_learning.mahalanobis import Mahalanobis
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["NO_UPDATES", "Learner", "Measured", "Totals", "certificate", "metric_of", "widened"]


@dataclass(frozen=True, slots=True)
class Totals:
    """What became of a learner's updates since the first event.

    Attributes
    ----------
    updates : int
        Chunks handed to it.
    refused : int
        Those that would have left the range of floating point numbers: nothing of them was learned.
    refused_events : int
        Labelled points and pairs in these.
    by_status : dict
        How many updates ended with which status; what refused ones say is ``refused``.
    """

    updates: int = 0
    refused: int = 0
    refused_events: int = 0
    by_status: Mapping[str, int] = field(default_factory=dict)

    def plus(self, status: str, refused_events: int = 0) -> Totals:
        """With one more update."""
        by_status = {**self.by_status, status: self.by_status.get(status, 0) + 1}
        return Totals(
            self.updates + 1,
            self.refused + (status == "refused"),
            self.refused_events + refused_events,
            by_status,
        )

    def merged(self, other: Totals) -> Totals:
        """Of two streams."""
        statuses = sorted({*self.by_status, *other.by_status})
        return Totals(
            self.updates + other.updates,
            self.refused + other.refused,
            self.refused_events + other.refused_events,
            {name: self.by_status.get(name, 0) + other.by_status.get(name, 0) for name in statuses},
        )


NO_UPDATES = Totals()


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """What a learner's state says.

    Attributes
    ----------
    matrix : (d, d)
        The metric of features that were divided by ``scale``.
    scale : (d,)
        1 where nothing was scaled.
    info : dataclass
        What the core tells of it; has a ``status`` and ``totals``.
    told : dataclass
        The part of it that a certificate holds: without what fills pages.
    """

    matrix: Floats
    scale: Floats
    info: Any
    told: Any


class Learner(abc.ABC):
    """The rule of one metric: pure verbs, settings as fields.

    Attributes
    ----------
    additive : bool
        Whether the state is a sum over events, so that how they are cut into chunks does not
        matter. What waits for its chunk is then shown by the metric too.
    """

    additive: ClassVar[bool] = False

    @abc.abstractmethod
    def init(self, examples: Examples, scale: Floats) -> Any:
        """The state before the first chunk, which is at hand, as are the features' deviations."""

    @abc.abstractmethod
    def update(self, state: Any, examples: Examples) -> tuple[Any, Any]:
        """A new state after a chunk, and an Info with a ``status``; the old one stays as it is.

        Where the status is ``refused``, or `numpy.linalg.LinAlgError` is raised, or the new state
        is not finite, nothing of the chunk is learned.
        """

    @abc.abstractmethod
    def measure(self, state: Any, scale: Floats) -> Measured:
        """The metric, ``scale`` (d,) being the deviations of all that was seen. Pure."""

    def merge(self, left: Any, right: Any, indices: Ints) -> Any:
        """Two states as one; class c of the right one is class ``indices[c]`` of the left.

        Those of estimators that can be merged have it.
        """
        raise NotImplementedError


def certificate(source: str, totals: Totals, told: Any, **counts: Any) -> dict[str, Any]:
    """What is known of a metric, with the same keys whoever made it; as JSON would have it.

    Parameters
    ----------
    source
        ``labels``; ``given``, pairs that somebody knows, alone or among labels; ``generated``,
        pairs that a map tells apart.
    totals
        Gives ``updates``, ``refused``, ``refused_events``, ``by_status``.
    told
        The maker's own numbers, a dataclass with a ``status``; what is not finite becomes None.
    counts
        ``labelled`` and ``pairs``: how many of each the metric has seen, refused ones too; of
        generated pairs ``reproduced`` as well.
    """
    own = {f.name: getattr(told, f.name) for f in fields(told) if f.name != "totals"}
    known: dict[str, Any] = _plain({"source": source, **counts, **asdict(totals), **own})
    return known


def metric_of(measured: Measured, told: Mapping[str, Any]) -> Mahalanobis:
    """The metric in the caller's units."""
    return balance.hand_out(measured.matrix, told, measured.scale)


def widened(kind: Any, info: Any) -> Any:
    """An Info as one of a class that has more fields, all with defaults."""
    return kind(**{f.name: getattr(info, f.name) for f in fields(info)})


def _plain(value: Any) -> Any:
    """Numbers, text, lists and dicts in the place of everything else; None for NaN and infinity."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
