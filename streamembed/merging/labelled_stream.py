"""Labelled points of one part of a stream, and the metrics learned from them: what parts merge.

Metrics based on sums are those of the whole stream, to rounding; others merge what they remember
(`MetricLearner.merge`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from streamembed.data.labels import Label, LabelIndex
from streamembed.metrics import catalog, training_stream
from streamembed.metrics.training_stream import CHUNK_SIZE, TrainingStream
from streamembed.numeric.arrays import Floats


@dataclass(frozen=True, slots=True, eq=False)
class LabelledStream:
    """Labels and what metrics have learned from them."""

    labels: LabelIndex
    stream: TrainingStream


def init(names: tuple[str, ...], n_features: int, seed: int) -> LabelledStream:
    """Before any label."""
    keys = tuple(catalog.create_learners(names, seed))
    return LabelledStream(LabelIndex(), training_stream.init(keys, n_features, seed))


def update(
    before: LabelledStream,
    names: tuple[str, ...],
    points: Floats,
    labels: Sequence[Label | None],
) -> LabelledStream:
    """With points (n, d) in the caller's units and their labels; None is unknown."""
    codes, known = before.labels.encode_labels(labels)
    is_labelled = codes >= 0
    first = points[is_labelled]
    learners = catalog.create_learners(names, before.stream.seed)
    ends = first, np.zeros_like(first), codes[is_labelled]
    return LabelledStream(known, training_stream.extend(before.stream, learners, *ends, CHUNK_SIZE))


def merge(left: LabelledStream, right: LabelledStream, names: tuple[str, ...]) -> LabelledStream:
    """Both as one, whose classes are first those of the left."""
    indices, labels = left.labels.merge(right.labels)
    learners = catalog.create_learners(names, left.stream.seed)
    stream = training_stream.merge(left.stream, right.stream, learners, indices, CHUNK_SIZE)
    return LabelledStream(labels, stream)


def flush(before: LabelledStream, names: tuple[str, ...]) -> LabelledStream:
    """With all pending events learned, as a short chunk."""
    learners = catalog.create_learners(names, before.stream.seed)
    return replace(before, stream=training_stream.flush(before.stream, learners))
