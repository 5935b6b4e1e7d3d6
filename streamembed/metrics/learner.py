"""The protocol of a metric learner, and the certificate that every metric has.

A learner is the rule of one metric: settings, and four verbs on states that it does not keep.
`streamembed.metrics.training_stream` feeds it chunk by chunk, for an estimator and for an
engine alike: a metric of one name has one answer.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from typing import Any, ClassVar

import numpy as np

from streamembed.metrics.examples import Examples
from streamembed.metrics.totals import Totals
from streamembed.numeric.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredMetric:
    """The metric of a learner's state."""

    matrix: Floats  # (d, d): the metric of features that were divided by ``scale``
    scale: Floats  # (d,): 1 where nothing was scaled
    info: Any  # the core's Info; has a ``status`` and ``totals``
    summary: Any  # the part of it that a certificate holds: without long arrays


class MetricLearner(abc.ABC):
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
        """The state before the first chunk, which is passed in with the features' deviations."""

    @abc.abstractmethod
    def update(self, state: Any, examples: Examples) -> tuple[Any, str]:
        """A new state after a chunk, and the status that counts it; the old one stays as it is.

        Where the status is ``refused``, or `numpy.linalg.LinAlgError` is raised, or the new state
        is not finite, nothing of the chunk is learned.
        """

    @abc.abstractmethod
    def measure(self, state: Any, scale: Floats) -> MeasuredMetric:
        """The metric; ``scale`` (d,) holds the deviations of all that was observed. Pure."""

    def merge(self, left: Any, right: Any, indices: Ints) -> Any:
        """Two states as one; class c of the right one is class ``indices[c]`` of the left.

        Learners of estimators that can be merged have it.
        """
        raise NotImplementedError


def build_certificate(source: str, totals: Totals, summary: Any, **counts: Any) -> dict[str, Any]:
    """The certificate of a metric, JSON-ready, with the same keys for every learner.

    Parameters
    ----------
    source
        ``labels``; ``given``, pairs that the caller knows, alone or among labels;
        ``generated``, pairs that an embedding separates.
    totals
        Gives ``updates``, ``refused``, ``refused_events``, ``by_status``.
    summary
        The learner's own numbers, a dataclass with a ``status``; values that are not finite
        become None.
    counts
        ``labelled`` and ``pairs``: how many of each the metric has received, refused ones too; of
        generated pairs ``reproduced`` as well.
    """
    own = {f.name: getattr(summary, f.name) for f in fields(summary) if f.name != "totals"}
    facts: dict[str, Any] = _to_json({"source": source, **counts, **asdict(totals), **own})
    return facts


def _to_json(value: Any) -> Any:
    """A value as numbers, text, lists and dicts; None for NaN and infinity."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in fields(value)}
    if isinstance(value, Mapping):
        return {name: _to_json(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
