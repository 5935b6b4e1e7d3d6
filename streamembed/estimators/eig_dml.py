"""`EigDML`: the metric that keeps the nearest dissimilar pairs far apart."""

from __future__ import annotations

from typing import Any, Literal, cast

import numpy as np

from streamembed import parameters
from streamembed.estimators.merging import MergeableMetric
from streamembed.learners.eig_dml import EigInfo, EigLearner
from streamembed.metric_learning.eig_dml import Settings

__all__ = ["EigDML", "EigInfo"]


class EigDML(MergeableMetric):
    """Maximise the smallest squared distance of dissimilar pairs, by Frank-Wolfe steps.

    The mean squared distance of similar pairs is held at the number of features. Each labelled
    point makes up to two pairs, with a remembered point of its class and with one of another. The
    answer does not depend on the units of the features: nothing is scaled. Before there are
    similar pairs the metric is the identity, before there are dissimilar ones the inverse of their
    scatter.

    `info.gap` bounds how far the metric is from the best for the dissimilar pairs remembered. Near
    to the optimum is not the same as accurate: a ``smoothing`` of 0.5 or 2 weighs more pairs than
    the nearest and bears wrong labels. On letter it is less accurate than Euclidean distance.

    Parameters
    ----------
    smoothing
        Of the minimum, relative to the smallest squared distance; positive. 0.02 comes within 7 %
        of the optimum.
    buffer
        Dissimilar pairs remembered, at least 2.
    policy
        "hard" remembers the nearest, and a sample of the rest; "recent" the newest, as do the
        samples of the classes, for streams that drift.
    steps
        Frank-Wolfe steps a chunk.
    step_cap
        Steps are never shorter than 2 / (step_cap + 2): smaller follows drift faster.
    decay
        Weight of a pair after each later one, in (0, 1), for streams that drift; None: 1.
    chunk_size
        Events per update. Chunks are cut at multiples of it in the stream, never by the call; the
        first one has at least 20 events. `metric` is as of the last whole chunk.
    seed
        Of what is drawn, together with the position.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = EigDML()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.info.status, model.info.n_far > 150
    ('gap open', True)
    """

    def __init__(
        self,
        smoothing: float = 0.5,
        buffer: int = 1000,
        policy: str = "hard",
        steps: int = 10,
        step_cap: int = 300,
        decay: float | None = None,
        chunk_size: int = 50,
        seed: int = 0,
    ) -> None:
        self.smoothing = smoothing
        self.buffer = buffer
        self.policy = policy
        self.steps = steps
        self.step_cap = step_cap
        self.decay = decay
        self.chunk_size = chunk_size
        self.seed = seed
        parameters.real("smoothing", smoothing, 0.0, np.inf, opened=True)
        parameters.whole("buffer", buffer, 2)
        parameters.one_of("policy", policy, ("hard", "recent"))
        parameters.whole("steps", steps, 0)
        parameters.whole("step_cap", step_cap, 1)
        if decay is not None:
            parameters.real("decay", decay, 0.0, 1.0, " or None", opened=True)
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 2, "policy": "recent", "decay": 0.99, "buffer": 60}

    def _make_learner(self) -> EigLearner:
        return EigLearner(
            Settings(
                smoothing=float(self.smoothing),
                buffer=int(self.buffer),
                policy=cast(Literal["hard", "recent"], self.policy),
                steps=int(self.steps),
                step_cap=int(self.step_cap),
                decay=None if self.decay is None else float(self.decay),
                seed=int(self.seed),
            )
        )
