"""Metrics from moments of classes and of pairs, exact and mergeable: FENN, discriminant analysis.

Nothing is sampled: from labels, all pairs of the stream count, by way of class moments
(`streamembed.core.scatter`); pairs that were given count beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamembed import reservoir
from streamembed.core import contrast, fenn, scatter
from streamembed.core.arrays import Floats, Ints
from streamembed.core.contrast import PairSums
from streamembed.core.fenn import FennInfo, MuChoice, Spectrum
from streamembed.core.mahalanobis import Mahalanobis
from streamembed.core.pencil import SHARE_FLOOR, generalised_eigh
from streamembed.core.scatter import ClassMoments, Scatters
from streamembed.estimators import paired, parameters
from streamembed.estimators.balance import handed_out
from streamembed.estimators.events import Chunk
from streamembed.estimators.merging import MergeableMetric
from streamembed.estimators.spread import Spread
from streamembed.reservoir import Reservoirs

__all__ = [
    "FENN",
    "DiscriminantAnalysis",
    "DiscriminantInfo",
    "FromMoments",
    "MomentState",
    "TemperedInfo",
]

# Labelled points that FENN(mu="cv") tries temperatures on: 41 of them in 90 ms at 16 features.
SAMPLE = 400


@dataclass(frozen=True, slots=True, eq=False)
class MomentState:
    """Moments of every class, sums over the pairs that were given, and a labelled sample."""

    moments: ClassMoments
    pairs: PairSums
    sample: Reservoirs | None


class FromMoments(MergeableMetric):
    """A metric whose state is sums, of which it is a closed form."""

    @property
    def _samples(self) -> bool:
        """Whether a labelled sample is kept."""
        return False

    def _start(self, chunk: Chunk, seen: Spread) -> MomentState:
        d = len(seen.means)
        sample = reservoir.init(paired.CAPACITY) if self._samples else None
        return MomentState(scatter.init(d), contrast.init(d), sample)

    def _push(self, state: MomentState, chunk: Chunk, seen: Spread) -> MomentState:
        sample = state.sample
        if sample is not None:
            sample, _ = reservoir.update(sample, chunk.points, chunk.classes, chunk.generator())
        return MomentState(
            scatter.update(state.moments, chunk.points, chunk.classes),
            contrast.update(state.pairs, chunk.differences, chunk.similar),
            sample,
        )

    def _joined(self, left: MomentState, right: MomentState, indices: Ints) -> MomentState:
        known = right.moments.n_classes
        n_classes = max(left.moments.n_classes, int(indices[:known].max(initial=-1)) + 1)
        moved = scatter.renumber(right.moments, indices[:known], n_classes)
        sample = left.sample
        if sample is not None and right.sample is not None:
            sample = paired.merged(sample, right.sample, indices, int(self.seed))
        return MomentState(
            scatter.merge(left.moments, moved), contrast.merge(left.pairs, right.pairs), sample
        )


@dataclass(frozen=True, slots=True, eq=False)
class TemperedInfo:
    """What FENN tells: the state of equilibrium, its directions, and how mu was chosen.

    Attributes
    ----------
    equilibrium : FennInfo
        Weights, energies, entropy, and the status.
    spectrum : Spectrum
        Directions, and which are informative (`fenn.display` makes a picture of them).
    choice : MuChoice or None
        With ``mu="cv"``: the temperatures tried.
    """

    equilibrium: FennInfo
    spectrum: Spectrum
    choice: MuChoice | None

    @property
    def status(self) -> str:
        """``measured``, or what is missing: see `FennInfo`."""
        return self.equilibrium.status


class FENN(FromMoments):
    """The metric of least free energy: similar pairs near, at a temperature that keeps it broad.

    Every class, and every pair of classes, counts the same, however many points it has. Distances
    do not change under a linear map of the data: nothing is scaled. Until two classes have two
    points each the metric is standardised Euclidean distance, and `info.status` says so.

    Pairs that were given make within and between scatter of their own; beside labels, a pair weighs
    as much as a point.

    Parameters
    ----------
    mu
        Temperature: "heat_capacity", the one of the largest heat capacity; "cv", the one under
        which a sample of 400 labelled points finds its classes best (more accurate, and a tenth of
        a second for each chunk after which the metric is read); or a positive number.
    chunk_size, seed
        See `GeometricMeanMetric`; the seed is that of the sample.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = FENN()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.info.status, model.info.spectrum.n_informative
    ('measured', 1)
    """

    def __init__(
        self, mu: float | str = "heat_capacity", chunk_size: int = 50, seed: int = 0
    ) -> None:
        self.mu = mu
        self.chunk_size = chunk_size
        self.seed = seed
        if isinstance(mu, str):
            parameters.one_of("mu", mu, ("heat_capacity", "cv"), " or a positive number")
        else:
            parameters.real("mu", mu, 1e-12, 1e12, " or 'heat_capacity' or 'cv'")
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}
        yield {"chunk_size": 10, "mu": "cv"}
        yield {"chunk_size": 5, "mu": 0.1}

    @property
    def _samples(self) -> bool:
        return self.mu == "cv"

    def _measure(self, state: MomentState, seen: Spread) -> tuple[Mahalanobis, TemperedInfo]:
        found = fenn.spectrum(_scatters(state))
        choice = None
        mu = fenn.by_heat_capacity(found.energies) if isinstance(self.mu, str) else float(self.mu)
        if state.sample is not None and len(state.sample.samples):
            points, classes = reservoir.sample(state.sample, SAMPLE)
            choice = fenn.by_cross_validation(points, classes, found)
            mu = choice.mu
        matrix, equilibrium = fenn.measure(found, mu)
        info = TemperedInfo(equilibrium, found, choice)
        return handed_out(matrix, equilibrium), info


@dataclass(frozen=True, slots=True, eq=False)
class DiscriminantInfo:
    """Directions that part the classes.

    Attributes
    ----------
    directions : (d, k)
        Best first, with u^T W u = 1; the metric is the sum of u u^T.
    ratios : (k,)
        Spread between over spread within, descending.
    status : str
        As of `Discriminant`; ``pairs`` where pairs were given too.
    """

    directions: Floats
    ratios: Floats
    status: Literal["measured", "no spread within", "one class", "equal means", "pairs"]


class DiscriminantAnalysis(FromMoments):
    """Linear discriminant analysis: the directions in which classes part, and distance along them.

    (`river` calls something else LDA: latent Dirichlet allocation.) The metric has the rank of the
    classes less one; `transform_one` gives the discriminant coordinates, best first, and zeros for
    the rest. Nothing is scaled: the directions do not depend on the units of the features.

    With one class, or equal means, the metric is standardised Euclidean distance. Pairs that were
    given make within and between scatter of their own; beside labels, a pair weighs as much as a
    point.

    Parameters
    ----------
    chunk_size, seed
        See `GeometricMeanMetric`.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> from river import datasets
    >>> model = DiscriminantAnalysis()
    >>> for x, y in datasets.Phishing().take(200):
    ...     model.learn_one(x, y)
    >>> model.info.status, model.metric.rank
    ('measured', 1)
    """

    def __init__(self, chunk_size: int = 50, seed: int = 0) -> None:
        self.chunk_size = chunk_size
        self.seed = seed
        self._begin()

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"chunk_size": 4}

    def _measure(self, state: MomentState, seen: Spread) -> tuple[Mahalanobis, DiscriminantInfo]:
        if state.pairs.n_close + state.pairs.n_far == 0:
            matrix, of_classes = scatter.discriminant_metric(state.moments)
            info = DiscriminantInfo(of_classes.directions, of_classes.ratios, of_classes.status)
            return handed_out(matrix, info), info
        found = fenn.spectrum(_scatters(state))
        k = found.n_informative
        shares = np.maximum(found.energies[:k], SHARE_FLOOR)
        parting = shares < 1.0 - SHARE_FLOOR
        directions = (found.directions[:, :k] / np.sqrt(shares))[:, parting]
        info = DiscriminantInfo(directions, 1.0 / shares[parting] - 1.0, "pairs")
        matrix = directions @ directions.T
        if directions.shape[1] == 0:
            matrix, _ = fenn.measure(found, 1.0)
        return handed_out(matrix, info), info

    def _columns(self, metric: Mahalanobis, info: DiscriminantInfo) -> Floats:
        if info.directions.shape[1] == 0:
            return super()._columns(metric, info)
        missing = info.directions.shape[0] - info.directions.shape[1]
        return np.pad(info.directions, ((0, 0), (0, missing)))


def _scatters(state: MomentState) -> Scatters:
    """Within and between scatter of labels and pairs; a pair weighs as much as a point.

    Half the mean over similar pairs is a scatter within, as half the mean over dissimilar ones is
    within plus between (`scatter.measure`); of the difference the positive part is taken, in the
    basis of both, so that units and linear maps of the data do not matter.
    """
    labelled = scatter.measure(state.moments)
    sums = state.pairs
    if sums.n_close + sums.n_far == 0:
        return labelled
    mass = float(state.moments.masses.sum()) if labelled.n_classes else 0.0
    close = 0.5 * sums.close / (sums.n_close or 1.0)
    far = 0.5 * sums.far / (sums.n_far or 1.0)
    total = mass + sums.n_close
    within = (mass * labelled.within + sums.n_close * close) / total if total else far
    offsets = np.zeros((0, len(within)))  # (p, d)
    if sums.n_close and sums.n_far:
        shares, vectors, _ = generalised_eigh(close, close + far)
        parting = shares < 0.5
        offsets = np.sqrt(1.0 - 2.0 * shares[parting])[:, None] * (
            vectors[:, parting].T @ (close + far)
        )
    mass = mass if labelled.n_classes >= 2 else 0.0
    total = mass + (sums.n_far if sums.n_close else 0.0)
    joined = np.concatenate(
        [
            np.sqrt(mass / (total or 1.0)) * labelled.offsets,
            np.sqrt(1.0 - mass / (total or 1.0)) * offsets,
            np.zeros((1, len(within))),  # p directions are those of p + 1 classes
        ]
    )
    rank = len(offsets) + max(labelled.n_classes - 1, 0)
    return Scatters(within, joined, min(rank, len(within)) + 1, labelled.n_thin)
