"""The protocol of a metric learner: what a metric has to be, to be learned from a stream.

A learner is the rule of one metric: parameters, and four verbs on states that it does not keep.
`streamembed.metrics.training_stream` feeds it chunk by chunk, for an estimator and for an
engine alike: a metric of one name has one answer.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from streamembed.metrics.examples import Examples
from streamembed.numeric.arrays import Floats, Ints

# Why some metrics are refused where streams are merged.
NOT_MERGED = (
    "ITML cannot be merged, as its answer depends on the order of its pairs: use a metric of sums, "
    "such as GeometricMeanMetric, or learn in one process"
)


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """The metric of a learner's state."""

    matrix: Floats  # (d, d): the metric of features that were divided by ``scale``
    scale: Floats  # (d,): 1 where nothing was scaled
    facts: Mapping[str, Any]  # what its certificate says of it; one of them is its ``status``


class MetricLearner(abc.ABC):
    """The rule of one metric: pure verbs, parameters as fields.

    Attributes
    ----------
    additive : bool
        Whether the state is a sum over events, so that how they are cut into chunks does not
        matter. What waits for its chunk is then shown by the metric too.
    mergeable : bool
        Whether it has `merge`.
    """

    additive: ClassVar[bool] = False
    mergeable: ClassVar[bool] = True

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
    def compute_metric(self, state: Any, scale: Floats) -> Measured:
        """The metric; ``scale`` (d,) holds the deviations of all that was observed. Pure."""

    def merge(self, left: Any, right: Any, indices: Ints) -> Any:
        """Two states as one; class c of the right one is class ``indices[c]`` of the left."""
        raise NotImplementedError
