"""Learners whose state is sums, exact and mergeable, of which the metric is a closed form.

Nothing is sampled: from labels, all pairs of the stream count, by way of class moments
(`streamembed.metrics.scatter`); given pairs count beside them. So neither the order of the
events nor their chunks matter, and the metric includes what waits for its chunk.
"""

from __future__ import annotations

import abc
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from streamembed.metrics import contrast, discriminant, drawn_pairs, fenn, must_link, scatter
from streamembed.metrics.contrast import ContrastInfo, PairSums
from streamembed.metrics.examples import Examples
from streamembed.metrics.fenn import FennInfo, MuChoice, Spectrum
from streamembed.metrics.learner import MeasuredMetric, MetricLearner
from streamembed.metrics.scatter import ClassMoments, Scatters
from streamembed.metrics.totals import NO_UPDATES, Totals
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.pencil import SHARE_FLOOR, generalised_eigh, scaled_identity
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs
from streamembed.validation import (
    check_choice,
    check_optional,
    check_real,
    check_whole,
    set_fields,
)

# Labelled points that FENN(mu="cv") tries temperatures on: 41 of them in 90 ms at 16 features.
SAMPLE = 400


@dataclass(frozen=True, slots=True, eq=False)
class MomentState:
    """Moments of every class, sums over the given pairs, and a labelled sample."""

    moments: ClassMoments
    pairs: PairSums
    sample: Reservoirs | None


class _MomentLearner(MetricLearner):
    """A metric that is a closed form of class moments and pair sums."""

    additive: ClassVar[bool] = True
    seed: int = 0

    @property
    def keeps_sample(self) -> bool:
        """Whether a labelled sample is kept."""
        return False

    def init(self, examples: Examples, scale: Floats) -> MomentState:
        """The sums over nothing."""
        sample = reservoir.init(drawn_pairs.CAPACITY) if self.keeps_sample else None
        return MomentState(scatter.init(len(scale)), contrast.init(len(scale)), sample)

    def update(self, state: MomentState, examples: Examples) -> tuple[MomentState, str]:
        """The sums with these events."""
        sample, points, classes = state.sample, examples.points, examples.classes
        if sample is not None:
            sample, _ = reservoir.update(sample, points, classes, examples.generator())
        after = MomentState(
            scatter.update(state.moments, points, classes),
            contrast.update(state.pairs, examples.differences, examples.similar),
            sample,
        )
        return after, "added"

    def merge(self, left: MomentState, right: MomentState, indices: Ints) -> MomentState:
        """The sums over the events of both."""
        n_right = right.moments.n_classes
        n_classes = max(left.moments.n_classes, int(indices[:n_right].max(initial=-1)) + 1)
        renumbered = scatter.renumber(right.moments, indices[:n_right], n_classes)
        sample = left.sample
        if sample is not None and right.sample is not None:
            sample = drawn_pairs.merge_samples(sample, right.sample, indices, self.seed)
        return MomentState(
            scatter.merge(left.moments, renumbered), contrast.merge(left.pairs, right.pairs), sample
        )


# ------------------------------------------------------------------ sums over pairs


class _PairSumLearner(_MomentLearner):
    """Metrics of the sums over all similar and all dissimilar pairs, of standardised features."""

    def measure(self, state: MomentState, scale: Floats) -> MeasuredMetric:
        """The metric of features in deviations."""
        sums = sum_pairs(state)
        size = np.outer(scale, scale)
        matrix, info = self.solve(
            PairSums(sums.close / size, sums.far / size, sums.n_close, sums.n_far)
        )
        return MeasuredMetric(matrix, scale, info, info)

    @abc.abstractmethod
    def solve(self, sums: PairSums) -> tuple[Floats, ContrastInfo]:
        """The metric of scaled features."""


def sum_pairs(state: MomentState) -> PairSums:
    """The sums over all pairs of labelled points, and over the given pairs."""
    return contrast.merge(contrast.from_classes(state.moments), state.pairs)


@dataclass(frozen=True)
class ContrastLearner(_PairSumLearner):
    """See `streamembed.estimators.ContrastMetric`."""

    alpha: float = 0.01

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, alpha=check_real("alpha", self.alpha, 1e-12, 1e12))

    def solve(self, sums: PairSums) -> tuple[Floats, ContrastInfo]:
        return contrast.contrast_metric(sums, self.alpha)


@dataclass(frozen=True)
class GeometricMeanLearner(_PairSumLearner):
    """See `streamembed.estimators.GeometricMeanMetric`."""

    t: float = 0.25

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, t=check_real("t", self.t, 0.0, 1.0))

    def solve(self, sums: PairSums) -> tuple[Floats, ContrastInfo]:
        return contrast.geometric_mean_metric(sums, self.t)


@dataclass(frozen=True)
class LeadingLearner(_MomentLearner):
    """See `streamembed.estimators.MustLinkMetric`: directions by the ratio of their spreads."""

    rank: int | None = None

    def __post_init__(self) -> None:
        """Check the parameter."""
        set_fields(self, rank=check_optional(check_whole, "rank", self.rank, 1))

    def measure(self, state: MomentState, scale: Floats) -> MeasuredMetric:
        """The metric of the means over pairs; units do not matter."""
        sums, d = sum_pairs(state), len(scale)
        matrix, info = must_link.solve_leading(
            sums.close / (sums.n_close or 1.0), sums.far / (sums.n_far or 1.0), self.rank or d
        )
        return MeasuredMetric(matrix, np.ones(d), info, info)


# ------------------------------------------------------------------ class moments


@dataclass(frozen=True, slots=True, eq=False)
class TemperedInfo:
    """The Info of FENN: the state of equilibrium, its directions, and how mu was chosen."""

    equilibrium: FennInfo  # Weights, energies, entropy, and the status
    spectrum: Spectrum  # Directions, and which are informative
    choice: MuChoice | None  # with ``mu="cv"``: the temperatures tried
    totals: Totals = NO_UPDATES  # of all chunks

    @property
    def status(self) -> str:
        """``measured``, or what is missing: see `FennInfo`."""
        return self.equilibrium.status


@dataclass(frozen=True)
class FennLearner(_MomentLearner):
    """See `streamembed.estimators.FENN`; nothing is scaled."""

    mu: float | str = "heat_capacity"
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the temperature."""
        if isinstance(self.mu, str):
            check_choice("mu", self.mu, ("heat_capacity", "cv"), " or a positive number")
        else:
            other = " or 'heat_capacity' or 'cv'"
            set_fields(self, mu=check_real("mu", self.mu, 1e-12, 1e12, other))

    @property
    def keeps_sample(self) -> bool:
        """Cross-validation needs labelled points."""
        return self.mu == "cv"

    def measure(self, state: MomentState, scale: Floats) -> MeasuredMetric:
        """The equilibrium at the temperature asked for."""
        spectrum = fenn.compute_spectrum(join_scatters(state))
        choice = None
        mu = (
            fenn.choose_by_heat_capacity(spectrum.energies) if isinstance(self.mu, str) else self.mu
        )
        if state.sample is not None and len(state.sample.samples):
            points, classes = reservoir.sample(state.sample, SAMPLE)
            choice = fenn.choose_by_cross_validation(points, classes, spectrum)
            mu = choice.mu
        tempered = spectrum
        if isinstance(self.mu, str) and spectrum.status != "measured":
            # no label to choose by; a cold metric of one class loses others (docs: fenn.md)
            tempered = fenn.drop_directions(spectrum)
        matrix, equilibrium = fenn.measure(tempered, mu)
        info = TemperedInfo(equilibrium, spectrum, choice)
        return MeasuredMetric(matrix, np.ones(len(scale)), info, equilibrium)


@dataclass(frozen=True, slots=True, eq=False)
class DiscriminantInfo:
    """Directions that separate the classes."""

    directions: Floats  # (d, k): best first, with u^T W u = 1; the metric is the sum of u u^T
    ratios: Floats  # (k,): spread between over spread within, descending
    # As of `Discriminant`; ``pairs`` if there are given pairs too.
    status: Literal["measured", "no spread within", "one class", "equal means", "pairs"]
    totals: Totals = NO_UPDATES  # of all chunks


@dataclass(frozen=True)
class DiscriminantLearner(_MomentLearner):
    """See `streamembed.estimators.DiscriminantAnalysis`; nothing is scaled."""

    def measure(self, state: MomentState, scale: Floats) -> MeasuredMetric:
        """Distance along the directions that separate the classes."""
        matrix, info = self._solve(state)
        return MeasuredMetric(matrix, np.ones(len(scale)), info, info)

    def _solve(self, state: MomentState) -> tuple[Floats, DiscriminantInfo]:
        if state.pairs.n_close + state.pairs.n_far == 0:
            matrix, discriminant_info = discriminant.compute_metric(state.moments)
            return matrix, DiscriminantInfo(
                discriminant_info.directions, discriminant_info.ratios, discriminant_info.status
            )
        spectrum = fenn.compute_spectrum(join_scatters(state))
        k = spectrum.n_informative
        shares = np.maximum(spectrum.energies[:k], SHARE_FLOOR)
        separating = shares < 1.0 - SHARE_FLOOR
        directions = (spectrum.directions[:, :k] / np.sqrt(shares))[:, separating]
        info = DiscriminantInfo(directions, 1.0 / shares[separating] - 1.0, "pairs")
        if directions.shape[1] == 0:
            return scaled_identity(spectrum.within), info
        return directions @ directions.T, info


def join_scatters(state: MomentState) -> Scatters:
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
        separating = shares < 0.5
        offsets = np.sqrt(1.0 - 2.0 * shares[separating])[:, None] * (
            vectors[:, separating].T @ (close + far)
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
