"""The metric of least free energy: average distance of similar pairs against entropy.

With one class, or without any, all pairs are similar, and the spectrum is that of the features'
correlations.

Symbols: p = features; N = classes; X_S, X_D = `Scatters.within`, `.dissimilar`; B = directions,
(p, r), with B^T X_D B = I and B^T X_S B = diag(E); E = energies, in [0, 1], ascending; mu = the
temperature; lambda = weights, sum 1; F = <E> - mu H, free energy; H = entropy.

Source: docs/algorithms/fenn.md; Inaba, Fakhry, Kulkarni & Zarringhalam (2019), A Free Energy
Based Approach for Distance Metric Learning, KDD '19.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from streamembed.metrics.class_moments import MomentLearner, MomentState, join_scatters
from streamembed.metrics.learner import Measured
from streamembed.metrics.scatter import Scatters
from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import squared_distances
from streamembed.numeric.pencil import RANK_CUT, fix_signs, scaled_identity, whiten
from streamembed.pairs import reservoir
from streamembed.validation import check_choice, check_real, set_fields

# The temperatures that matter, as powers of ten of the spread of the energies: below 1e-2 all
# weight is on the lowest energy (the next has exp(-100)), above 1e2 weights are equal to 1 %.
COLDEST, HOTTEST = -2.0, 2.0
# Points of the grid for the heat capacity (2.3 % a step) and of the one for cross-validation (26 %:
# the narrowest observed peak, that of tic-tac-toe, is 40 % wide).
FINE, COARSE = 401, 41
# With fewer points than this many times the directions, the metric fits their labels perfectly.
LEAST_POINTS = 3
# Labelled points that cross-validation tries temperatures on: 41 of them in 90 ms at 16 features.
SAMPLE = 400
# Rows of distances at a time: a few megabytes for a sample of thousands.
BLOCK = 256
# Distances within this share of the k-th smallest are the k-th smallest too.
DISTANCE_TIE = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Spectrum:
    """Energies and directions of the whitened within scatter, the Hamiltonian of the source."""

    # (r,): E, ascending, in [0, 1]: the share of a direction's spread that lies within the classes.
    # All but the first ``n_informative`` are 1. Without two classes: eigenvalues of the correlation
    # matrix, of mean 1 over the features that vary.
    energies: Floats
    directions: Floats  # (p, r): B, in the units of the caller, largest scaled loading positive
    n_informative: int  # min(r, N - 1): the directions in which class means differ
    # Classes that count, classes of fewer than two points, features without spread.
    n_classes: int
    n_thin: int
    n_constant: int
    within: Floats  # (p, p): X_S
    # ``measured``; ``one class`` or ``no class`` (with at least two points): all points count as
    # one; ``no spread``: there are no directions, and the metric is the Euclidean one.
    status: Literal["measured", "one class", "no class", "no spread"]


def compute_spectrum(scatters: Scatters) -> Spectrum:
    """The energies E_i and directions b_i with X_S b = E X_D b, b^T X_D b = 1; all r of them.

    Without two classes X_D does not exist, and diag(X_S) takes its place: the average distance of
    all pairs, of standardised features. Never fails: constant features, more features than points
    and a single class are statuses.

    Notes
    -----
    X_D is scaled to a unit diagonal and whitened (`pencil.whiten`). The class offsets in that
    basis have singular values sigma_j, and E_j = 1 - sigma_j^2: so the uninformative energies
    are 1 to rounding squared, whatever the condition of X_D. O(p^3 + N p r).

    Source: Inaba et al. (2019), Theorems 3.2 and 3.5; section 3.3 for a single class. Differs:
    1. Where X_D is singular its range is used in place of X_D + delta I. 2. Columns are scaled
    before the rank is judged. 3. With a single class they take X_S itself for the Hamiltonian, in
    the units of the features; here the features are standardised. Directions in which nothing
    varies, of energy 0, are left out: all of the weight would be on them.
    """
    whitening = whiten(scatters.dissimilar)
    n, d, rank = scatters.n_classes, len(whitening.scale), whitening.rank
    counts = n, scatters.n_thin, whitening.n_constant, scatters.within
    if rank == 0:
        status: Literal["one class", "no class", "no spread"] = (
            "no class" if n == 0 else "one class" if n == 1 else "no spread"
        )
        return Spectrum(np.zeros(0), np.zeros((d, 0)), 0, *counts, status)
    if n < 2:
        squares = np.sum((whitening.scale[:, None] * whitening.basis[:, ::-1]) ** 2, axis=0)
        directions = fix_signs(whitening.basis[:, ::-1] / np.sqrt(squares), whitening.scale)
        return Spectrum(1.0 / squares, directions, 0, *counts, "one class" if n else "no class")
    _, sigma, rotation = np.linalg.svd(scatters.offsets @ whitening.basis, full_matrices=n < rank)
    shares = np.zeros(rank)
    shares[: len(sigma)] = sigma**2
    directions = fix_signs(whitening.basis @ rotation.T, whitening.scale)
    energies = np.clip(1.0 - shares, 0.0, 1.0)
    return Spectrum(energies, directions, min(rank, n - 1), *counts, "measured")


def compute_boltzmann_weights(energies: Floats, mu: float) -> Floats:
    """Weights lambda_i = exp(-E_i / mu) / Z, the minimiser of <E> - mu H over the simplex.

    Shifted by the lowest energy, so that no mu > 0 overflows or leaves all weights 0.

    Source: Inaba et al. (2019), eq. (14).

    Examples
    --------
    >>> import numpy as np
    >>> compute_boltzmann_weights(np.array([0.2, 1.0]), 1e-300).tolist()
    [1.0, 0.0]
    """
    with np.errstate(over="ignore", under="ignore"):
        weights = np.exp(-(energies - energies.min()) / mu)
    normalised: Floats = weights / weights.sum()
    return normalised


def compute_entropy(weights: Floats) -> float:
    """H = -sum lambda log lambda, in nats; between 0 and log r."""
    positive = weights[weights > 0]
    return max(float(-np.sum(positive * np.log(positive))), 0.0)


def compute_free_energy(energies: Floats, mu: float) -> float:
    """F = -mu log Z = <E> - mu H, the least value of the source's objective (12)."""
    with np.errstate(over="ignore", under="ignore"):
        terms = np.exp(-(energies - energies.min()) / mu)
    return float(energies.min() - mu * np.log(terms.sum()))


def compute_heat_capacity(energies: Floats, mus: Floats) -> Floats:
    """Var(E) / mu^2 under the Boltzmann weights, at every mu; shape of ``mus``. O(r len(mus)).

    Source: Inaba et al. (2019), section 3.3. Differs: they call it the Fisher information of mu;
    it is the heat capacity d<E>/dmu, and the Fisher information is Var(E) / mu^4. The quantity
    is kept: Var / mu^4 chooses far worse temperatures (5-NN .79 for .97 on segment).
    """
    shifted = energies - energies.min()
    with np.errstate(over="ignore", under="ignore"):
        scaled = shifted / mus[:, None]  # (mus, r)
        weights = np.exp(-scaled)
        weights /= weights.sum(axis=1, keepdims=True)
        # E / mu has the variance Var(E) / mu^2; infinite levels have no weight
        scaled = np.where(weights > 0, scaled, 0.0)
        mean = np.sum(weights * scaled, axis=1, keepdims=True)
        capacity: Floats = np.sum(weights * (scaled - mean) ** 2, axis=1)
    return capacity


def space_temperatures(energies: Floats, count: int) -> Floats:
    """``count`` values of mu, log-spaced over 1e-2 .. 1e2 times the spread of the energies."""
    spread = float(energies.max() - energies.min()) if len(energies) else 0.0
    return (spread or 1.0) * np.logspace(COLDEST, HOTTEST, count)


def choose_by_heat_capacity(energies: Floats) -> float:
    """The temperature of the largest heat capacity, to 5e-4 of itself.

    Where all energies are equal up to rounding, every temperature gives equal weights, and the
    result is 1.

    Notes
    -----
    With two directions the maximum is at gap / mu = 2.3994 whatever the data, weights .917 and
    .083: it carries information only on the full spectrum. O(r) times 500.

    Examples
    --------
    >>> import numpy as np
    >>> round(0.6 / choose_by_heat_capacity(np.array([0.4, 1.0])), 3)
    2.399
    """
    if len(energies) == 0 or energies.max() - energies.min() <= RANK_CUT:
        return 1.0
    grid = space_temperatures(energies, FINE)
    best = int(np.argmax(compute_heat_capacity(energies, grid)))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, FINE - 1)]
    finer = np.geomspace(low, high, 101)
    return float(finer[np.argmax(compute_heat_capacity(energies, finer))])


def choose_by_cross_validation(
    points: Floats, classes: Ints, spectrum: Spectrum, n_neighbors: int = 5
) -> tuple[float, Floats, Floats]:
    """The temperature under which points find their class among their neighbours, each left out.

    Parameters
    ----------
    points, classes
        A labelled sample of the stream, shapes (n, p) and (n,), indices from 0.
    spectrum
        The spectrum of all observed points.

    Returns
    -------
    mu, mus, hits
        The temperature with most hits; of equals, the one nearest (in ratio) to that of the heat
        capacity. All temperatures that were tried, ascending, and the share of points whose class
        was found, (m,): none with fewer than three points a direction, or fewer than two classes.

    Notes
    -----
    The directions have seen the points that are left out, as in the source; learning them again
    without each of ten folds was measured no better, and worse on tic-tac-toe (.872 for .899).
    With fewer than three points a direction the sample looks perfect under any cold metric, and
    the heat capacity decides. O(m n^2 (r + N)) for m = 41 temperatures; memory O(n (r + N)).

    Source: Inaba et al. (2019), Algorithm 1, steps 3-6. Differs: 1. Leave-one-out, which has no
    folds to draw, for ten folds. 2. All temperatures are tried, not a neighbourhood of the best
    heat capacity, whose width (4 p steps of an unstated grid) means nothing. 3. Ties: `vote`.
    """
    default_mu = choose_by_heat_capacity(spectrum.energies)
    is_enough = len(points) >= max(LEAST_POINTS * len(spectrum.energies), n_neighbors + 1)
    if spectrum.status != "measured" or not is_enough or classes.min() == classes.max():
        return default_mu, np.zeros(0), np.zeros(0)

    mus = space_temperatures(spectrum.energies, COARSE)
    projected = (points - points.mean(axis=0)) @ spectrum.directions
    members = _one_hot(classes)
    hits = np.zeros(len(mus))
    for i, mu in enumerate(mus):
        places = projected * np.sqrt(compute_boltzmann_weights(spectrum.energies, float(mu)))
        for start in range(0, len(points), BLOCK):
            rows = slice(start, start + BLOCK)
            d2 = squared_distances(places[rows], places)
            diagonal = np.arange(len(d2))
            d2[diagonal, start + diagonal] = np.inf
            hits[i] += np.count_nonzero(_count_votes(d2, members, n_neighbors) == classes[rows])
    best = np.flatnonzero(hits == hits.max())
    chosen = best[np.argmin(np.abs(np.log(mus[best] / default_mu)))]
    return float(mus[chosen]), mus, hits / len(points)


def vote(points: Floats, classes: Ints, new: Floats, n_neighbors: int = 5) -> Ints:
    """The class of most of the nearest points, for every new one: shape (m,).

    All points that tie with the k-th nearest vote too (on grids, as of board positions, dozens
    do, and rounding would choose among them); of classes with equal votes, the one whose voters
    are nearer. O(n m (d + N)); memory O(n (d + N)).

    Examples
    --------
    >>> import numpy as np
    >>> known = np.array([[0.0], [1.0], [5.0]])
    >>> vote(known, np.array([0, 0, 1]), np.array([[0.4], [9.0]]), 1).tolist()
    [0, 1]
    """
    members = _one_hot(classes)
    k = min(n_neighbors, len(points))
    winners = np.zeros(len(new), dtype=np.int64)
    for start in range(0, len(new), BLOCK):
        rows = slice(start, start + BLOCK)
        winners[rows] = _count_votes(squared_distances(new[rows], points), members, k)
    return winners


def _one_hot(classes: Ints) -> Floats:
    """1 where a point is of a class: shape (n, N)."""
    return np.eye(int(classes.max()) + 1)[classes]


def _count_votes(d2: Floats, members: Floats, n_neighbors: int) -> Ints:
    """The class with most votes of the nearest, by rows of squared distances (m, n)."""
    k = n_neighbors - 1
    radius = np.partition(d2, k, axis=1)[:, k : k + 1]
    is_near = d2 <= radius * (1.0 + DISTANCE_TIE)
    votes = is_near.astype(np.float64) @ members
    nearness = np.where(is_near, d2, 0.0) @ members / np.maximum(votes, 1.0)
    # a mean squared distance lies in [0, reach]: less than half a vote apart
    penalty = nearness / np.maximum(2.5 * radius, np.finfo(np.float64).tiny)
    winners: Ints = np.argmax(votes - penalty, axis=1)
    return winners


def solve_metric(spectrum: Spectrum, mu: float) -> tuple[Floats, dict[str, Any]]:
    """The metric A that minimises <X_S, A> - mu H(X_D^1/2 A X_D^1/2) subject to <X_D, A> = 1.

    A = sum_i lambda_i b_i b_i^T over all r directions, the uninformative ones (E = 1) too: A has
    the rank of X_D.

    Parameters
    ----------
    mu
        Positive. Towards 0 a single direction is left, towards infinity A is X_D^+ / r.

    Returns
    -------
    A, shape (p, p), symmetric, positive semidefinite, zero in constant features; and the facts: mu;
    lambda of every direction, descending; <E> = <X_S, A>, H, F = <E> - mu H, Var(E) / mu^2, all 0
    without directions; counts of the spectrum; r.
    Without directions A is the standardised Euclidean metric, scaled so that <X_S, A> = 1, or
    I / p without any spread. O(p^2 r).

    Source: Inaba et al. (2019), Theorem 3.4 and eq. (16). Differs: the text restricts A to
    d = min(p, N - 1) directions, with which their Table 2 cannot be had (.05 lower on
    balance-scale, .07 on glass).
    """
    energies, matrix = spectrum.energies, scaled_identity(spectrum.within)
    weights, mean_energy, entropy, free_energy, heat_capacity = np.zeros(0), 0.0, 0.0, 0.0, 0.0
    if len(energies):
        weights = compute_boltzmann_weights(energies, mu)
        factor = spectrum.directions * np.sqrt(weights)
        matrix = factor @ factor.T
        mean_energy = float(weights @ energies)
        entropy = compute_entropy(weights)
        free_energy = compute_free_energy(energies, mu)
        heat_capacity = float(compute_heat_capacity(energies, np.array([mu]))[0])
    return matrix, {
        "status": spectrum.status,
        "mu": mu,
        "weights": weights,
        "mean_energy": mean_energy,
        "entropy": entropy,
        "free_energy": free_energy,
        "heat_capacity": heat_capacity,
        "n_informative": spectrum.n_informative,
        "n_classes": spectrum.n_classes,
        "n_thin": spectrum.n_thin,
        "n_constant": spectrum.n_constant,
        "rank": len(energies),
    }


@dataclass(frozen=True)
class FennLearner(MomentLearner):
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

    def compute_metric(self, state: MomentState, scale: Floats) -> Measured:
        """The equilibrium at the temperature asked for."""
        spectrum = compute_spectrum(join_scatters(state))
        mu = choose_by_heat_capacity(spectrum.energies) if isinstance(self.mu, str) else self.mu
        if state.sample is not None and len(state.sample.samples):
            points, classes = reservoir.sample(state.sample, SAMPLE)
            mu, _, _ = choose_by_cross_validation(points, classes, spectrum)
        if isinstance(self.mu, str) and spectrum.status != "measured":
            # no label to choose by; a cold metric of one class loses others (docs: fenn.md)
            # without directions `solve_metric` gives standardised Euclidean distance
            directions = spectrum.directions[:, :0]
            spectrum = replace(spectrum, energies=np.zeros(0), directions=directions)
        matrix, facts = solve_metric(spectrum, mu)
        return Measured(matrix, np.ones(len(scale)), facts)
