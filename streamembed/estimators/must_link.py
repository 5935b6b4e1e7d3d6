"""`MustLinkMetric`: must-link and cannot-link pairs by directions, feature weights or roots."""

from __future__ import annotations

from typing import Any

from streamembed import parameters
from streamembed.errors import ParameterError
from streamembed.estimators.merging import MergeableMetric
from streamembed.learners.class_moments import LeadingLearner
from streamembed.learners.learner import Learner
from streamembed.learners.must_link import LinkLearner

__all__ = ["MustLinkMetric"]


class MustLinkMetric(MergeableMetric):
    """Must-link pairs near, cannot-link pairs far: directions by the ratio of their spreads.

    A = sum sqrt(f_i) u_i u_i^T over the directions with F u = f C u and u^T C u = 1, C and F being
    the means of the outer products of differences of must-link and of cannot-link pairs: all pairs
    of labelled points, and the pairs that were given. Exact from sums, and merged exactly. The
    answer does not depend on the units of the features: nothing is scaled. Before there are
    must-link pairs the metric is the identity.

    Two answers to the same question remember the last thousand cannot-link pairs, each labelled
    point making up to two pairs with remembered ones: ``diagonal`` and ``roots``. Among many
    classes the roots stretch few directions: 1-NN on letter falls to 65 %, where the default has
    88 and Euclidean distance 84 (docs/decisions/0009-one-learner-a-metric.md).

    Parameters
    ----------
    rank
        Keep so many directions, those with the largest ratio of cannot-link to must-link spread.
        One direction is useless among many classes. None: all.
    diagonal
        True: weights of the features only, nothing for their correlations, with the largest mean
        (unsquared) distance of cannot-link pairs at a fixed mean squared one of must-link pairs.
    roots
        True: that, over all metrics, the problem of Xing et al.; `info.gap` bounds how far from the
        optimum the metric is.
    chunk_size, seed
        See `EigDML`; without ``diagonal`` and ``roots`` `metric` shows what waits for its chunk.

    Raises
    ------
    ParameterError
        A parameter cannot have that value, or more than one of rank, diagonal and roots is given.

    Examples
    --------
    >>> from river import datasets
    >>> model = MustLinkMetric(diagonal=True)
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.info.status
    'certified'
    """

    def __init__(
        self,
        rank: int | None = None,
        diagonal: bool = False,
        roots: bool = False,
        chunk_size: int = 50,
        seed: int = 0,
    ) -> None:
        self.rank = rank
        self.diagonal = diagonal
        self.roots = roots
        self.chunk_size = chunk_size
        self.seed = seed
        if rank is not None:
            parameters.whole("rank", rank, 1, " or None")
        parameters.flag("diagonal", diagonal)
        parameters.flag("roots", roots)
        if rank is not None and (diagonal or roots):
            other = "diagonal" if diagonal else "roots"
            raise ParameterError(
                f"rank={rank!r} must be None with {other}=True, whose solution has no leading "
                "directions; drop one of them"
            )
        if diagonal and roots:
            raise ParameterError(
                "diagonal=True and roots=True are different metrics; drop one of them"
            )
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 4, "rank": 2}
        yield {"chunk_size": 5, "diagonal": True}
        yield {"chunk_size": 4, "roots": True}

    def _made(self) -> Learner:
        if self.diagonal or self.roots:
            return LinkLearner("diagonal" if self.diagonal else "roots", int(self.seed))
        return LeadingLearner(None if self.rank is None else int(self.rank))
