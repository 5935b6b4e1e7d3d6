"""What has changed between a reference and the events since: each kind by a test of its own.

Mean, spread and rate of single features, correlations of pairs, and changes that most features
share. A family of tests has an equal share of the level; within it, and over the windows of events
that are looked at, the level is divided (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from scipy import special

from streamembed.drift.alarm import Explanation
from streamembed.drift.dependence import (
    autocorrelate,
    sum_autocorrelations,
    zero_insignificant_lags,
)
from streamembed.drift.reference import compute_normal_scores
from streamembed.numeric.arrays import Array, Bools, Floats, Ints

LEVEL = 0.01  # of an explanation, over all that is tested
RATE_WINDOWS = (40, 160, 500)  # events, beside those since the onset
WINDOWS = (160, 500)  # before the alarm, beside those since the onset
CLIP = 0.01
FIGURE_CLIP = 0.1  # of the events of a window: what an explanation says counts the others whole
SPREAD_CAP = 3.0  # times the 99 % point
MIN_SPREAD, MIN_PAIR, MIN_CONSTANT = 4, 8, 10  # events
PAIR_MARGIN = 1e3  # a pair must be so many times less likely by chance than a single feature
MAX_PAIR_FEATURES = 256
LARGEST_CORRELATION = 0.9999


# p, and the figures before and after, of each member of a family, of a window.
Test = Callable[[Floats], tuple[Floats, Floats, Floats]]


@dataclass(frozen=True, slots=True, eq=False)
class FeatureTests:
    """Tests of the features, over all windows; p is of one feature, corrected for the windows."""

    shifts: Floats  # (d,): of the means since the onset, in standard deviations
    p: Floats  # (d,): the smallest of mean, spread and rate, corrected for d as well
    explanation: Explanation
    since: int  # events since the onset, of those that are tested


@dataclass(frozen=True, slots=True, eq=False)
class _Best:
    """The best of one family: p before families and members are corrected for."""

    p: Floats  # (q,): of each member, corrected for windows
    before: Floats
    after: Floats
    events: Ints  # of the window


class ReferenceSample:
    """What the tests need of a reference; points (n, d) in deviations, binary features as they are.

    Of each statistic n events count as n / t, with t the integrated autocorrelation time of what it
    is the mean of: values, deviations, or products of two features (Bartlett, 1946).
    """

    def __init__(self, points: Floats) -> None:
        self.points = points
        low, high = np.quantile(points, [CLIP, 1 - CLIP], axis=0)
        self._low, self._high = low - (high - low), high + (high - low)
        own = np.clip(points, self._low, self._high)
        self.mean, self.sd = own.mean(axis=0), own.std(axis=0)
        self.constant: Bools = (points == points[0]).all(axis=0)
        largest, least = points.max(axis=0), points.min(axis=0)
        self._largest, self._least = largest, least
        self.binary: Bools = ((points == largest) | (points == least)).all(axis=0) & ~self.constant
        self._plain = np.flatnonzero(~self.binary & ~self.constant & (self.sd > 0))
        deviations = np.abs(points - np.median(points, axis=0))
        self._cap = SPREAD_CAP * np.quantile(deviations, 1 - CLIP, axis=0)
        self._deviations = np.minimum(deviations, self._cap)
        self._spread, self._spread_sd = self._deviations.mean(axis=0), self._deviations.std(axis=0)
        third = ((self._deviations - self._spread) ** 3).mean(axis=0)
        safe = np.where(self._spread_sd > 1e-12, self._spread_sd, 1.0)
        self._skew = third / safe**3
        self._sorted = np.sort(points, axis=0)
        values, spreads = _autocorrelate(own), _autocorrelate(self._deviations)
        self._mean_time = sum_autocorrelations(values)
        self._spread_time = sum_autocorrelations(spreads)
        plain = values[:, self._plain]
        # of the products of two features that do not depend on each other
        self._pair_time = np.maximum(2 * plain.T @ plain - 1, 1.0)

    def explain(self, names: Sequence[str], recent: Floats, since: int) -> FeatureTests:
        """What the last events, of which ``since`` are behind the onset, show.

        Parameters
        ----------
        recent
            Of the events that were watched, shape (m, d).
        """
        m, d = recent.shape
        since = max(1, min(since, m))
        windows = [recent[m - count :] for count in sorted({since, *(min(w, m) for w in WINDOWS)})]
        counts = sorted({since, *(w for w in RATE_WINDOWS if w <= m)})
        own = recent[m - since :]
        spread = self._test_windows(windows, self._test_spreads)
        level = LEVEL / max(d, 1)
        mean = self._test_windows(
            windows, lambda window: self._test_means(window, spread.p <= level)
        )
        rate = self._test_windows([recent[m - count :] for count in counts], self._test_rates)
        families = [mean.p[self._plain], spread.p[self._plain], rate.p[self.binary]]
        pairs = self._test_pairs(windows)
        common = self._test_windows(windows, self._test_common)
        families += [pairs.p, common.p]
        share = max(1, sum(bool(len(p)) for p in families))
        p_mean = np.where(self.binary, 1.0, mean.p * len(self._plain) * share)
        p_spread = np.where(self.binary, 1.0, spread.p * len(self._plain) * share)
        p_rate = np.where(self.binary, rate.p * np.count_nonzero(self.binary) * share, 1.0)
        p_mean[self.constant] = p_spread[self.constant] = 1.0
        constants, deviations = self._find_constants(own)
        single = np.minimum(np.minimum(np.minimum(p_mean, p_spread), p_rate), 1.0)
        single[self.constant] = 1.0
        single[constants] = 0.0
        if len(constants):
            which = tuple(names[j] for j in constants)
            kind = "constant" if any(deviations) else "value"
            explanation = Explanation(kind, which, *deviations, 0.0, since)
        else:
            tests, singles = (mean, spread, rate), (p_mean, p_spread, p_rate)
            explanation = self._choose(names, tests, singles, pairs, common, share)
        return FeatureTests(self._measure_shifts(own), single, explanation, since)

    def _choose(
        self,
        names: Sequence[str],
        tests: tuple[_Best, _Best, _Best],
        singles: tuple[Floats, Floats, Floats],
        pairs: _Best,
        common: _Best,
        share: int,
    ) -> Explanation:
        """What most features share if it is significant; else the clearest feature, or pair."""
        both = 2 * share * common.p
        if len(both) and both.min() <= LEVEL:
            return _explain("all", (), common, int(both.argmin()), float(both.min()))
        kind = int(np.argmin([p.min(initial=2.0) for p in singles]))
        best = int(singles[kind].argmin())
        p = float(singles[kind][best])
        p_pair = float(pairs.p.min() * len(pairs.p) * share) if len(pairs.p) else 1.0
        if p_pair <= LEVEL and p_pair * PAIR_MARGIN < p:
            j = int(pairs.p.argmin())
            rows, columns = np.triu_indices(len(self._plain), 1)
            which = tuple(names[self._plain[i]] for i in (rows[j], columns[j]))
            return _explain("pair", which, pairs, j, p_pair)
        if p <= LEVEL:
            return _explain(("mean", "spread", "rate")[kind], (names[best],), tests[kind], best, p)
        return Explanation("", (), 0.0, 0.0, min(p, 1.0), int(tests[0].events[0]))

    def _test_windows(self, windows: Sequence[Floats], test: Test) -> _Best:
        """The best of all windows, member by member."""
        rows = [test(window) for window in windows]
        p, before, after = (np.array([row[i] for row in rows]) for i in range(3))
        chosen = p.argmin(axis=0)
        events = np.array([len(window) for window in windows])[chosen]
        columns = np.arange(p.shape[1])
        corrected = np.minimum(p[chosen, columns] * len(windows), 1.0)
        return _Best(corrected, before[chosen, columns], after[chosen, columns], events)

    def _compute_error(self, sd: Floats, window: Floats, time: Floats, now: Floats) -> Floats:
        """Standard error of the difference of two means, of the window and of the reference."""
        m, n = np.maximum(len(window) / time, 1.0), np.maximum(len(self.points) / time, 4.0)
        error: Floats = np.sqrt(now**2 / m + sd**2 / n)
        return error

    def _measure_shifts(self, window: Floats) -> Floats:
        """How far means have moved, in deviations, where most of the values beyond are counted."""
        low, high = np.quantile(window, [FIGURE_CLIP, 1 - FIGURE_CLIP], axis=0)
        own = np.clip(window, np.minimum(low, self._low), np.maximum(high, self._high))
        safe = np.where(self.sd > 0, self.sd, 1.0)
        return np.where(self.constant, 0.0, (own.mean(axis=0) - self.mean) / safe)

    def _compute_mean_z(self, window: Floats, is_spread: Bools | None = None) -> Floats:
        own = np.clip(window, self._low, self._high)
        sd = self.sd
        if is_spread is not None and len(window) >= MIN_PAIR:
            sd = np.where(is_spread, own.std(axis=0), sd)
        error = self._compute_error(self.sd, window, self._mean_time, sd)
        z: Floats = (own.mean(axis=0) - self.mean) / np.maximum(error, 1e-300)
        return z

    def _test_means(self, window: Floats, is_spread: Bools) -> tuple[Floats, Floats, Floats]:
        z = self._compute_mean_z(window, is_spread)
        z[self.constant] = 0.0
        return 2 * special.ndtr(-np.abs(z)), np.zeros(len(z)), self._measure_shifts(window)

    def _compute_spread_z(self, window: Floats) -> tuple[Floats, Floats]:
        m = len(window)
        deviations = np.abs(window - np.median(window, axis=0)) * np.sqrt(m / (m - 1))
        now = np.minimum(deviations, self._cap).mean(axis=0)
        cap = np.maximum(self._cap, np.quantile(deviations, 1 - FIGURE_CLIP, axis=0))
        figure = np.minimum(deviations, cap).mean(axis=0)
        error = self._compute_error(self._spread_sd, window, self._spread_time, self._spread_sd)
        z = np.where(error > 0, (now - self._spread) / np.where(error > 0, error, 1.0), 0.0)
        return z, figure / np.where(self._spread > 0, self._spread, 1.0)

    def _test_spreads(self, window: Floats) -> tuple[Floats, Floats, Floats]:
        d = window.shape[1]
        if len(window) < MIN_SPREAD:
            return np.ones(d), np.ones(d), np.ones(d)
        z, ratios = self._compute_spread_z(window)
        m = np.maximum(len(window) / self._spread_time, 1.0)
        return self._compute_pearson_p(z, m), np.ones(d), ratios

    def _compute_pearson_p(self, z: Floats, m: Floats) -> Floats:
        """Two-sided p of means of m skewed values: Pearson's law of their skewness."""
        skew = np.where(np.abs(self._skew) < 1e-3 * np.sqrt(m), 0.0, self._skew / np.sqrt(m))
        p: Floats = 2 * np.minimum(
            scipy.stats.pearson3.cdf(z, skew), scipy.stats.pearson3.sf(z, skew)
        )
        return np.minimum(p, 1.0)

    def _test_rates(self, window: Floats) -> tuple[Floats, Floats, Floats]:
        """The rate of the higher value; of a new value, where there is one, that was 0."""
        n, d = self.points.shape
        p, before, after = np.ones(d), np.zeros(d), np.zeros(d)
        chosen = np.flatnonzero(self.binary)
        if not len(chosen):
            return p, before, after
        high = self._largest[chosen]
        is_high = self.points[:, chosen] == high
        is_new = (window[:, chosen] != high) & (window[:, chosen] != self._least[chosen])
        has_new = is_new.any(axis=0)
        old = np.where(has_new, 0, is_high.sum(axis=0))
        new = np.where(has_new, is_new, window[:, chosen] == high).sum(axis=0)
        m = len(window)
        p[chosen] = compute_rate_p(old, n, new, m, self._mean_time[chosen])
        before[chosen], after[chosen] = old / n, new / m
        return p, before, after

    def _test_pairs(self, windows: Sequence[Floats]) -> _Best:
        """Fisher's z of correlations of normal scores, of pairs i < j of features."""
        q = len(self._plain)
        empty = np.zeros(0)
        if not 1 < q <= MAX_PAIR_FEATURES:
            return _Best(empty, empty, empty, empty.astype(np.int64))
        upper = np.triu_indices(q, 1)
        ordered = self._sorted[:, self._plain]
        then = correlate(compute_normal_scores(ordered, self.points[:, self._plain]))[upper]

        time = self._pair_time[upper]

        def test(window: Floats) -> tuple[Floats, Floats, Floats]:
            m, n = len(window) / time, np.maximum(len(self.points) / time, MIN_PAIR)
            now = correlate(compute_normal_scores(ordered, window[:, self._plain]))[upper]
            error = np.sqrt(1 / np.maximum(m - 3, 1.0) + 1 / (n - 3))
            z = np.where(m < MIN_PAIR, 0.0, (np.arctanh(now) - np.arctanh(then)) / error)
            return 2 * special.ndtr(-np.abs(z)), then, now

        return self._test_windows(windows, test)

    def _test_common(self, window: Floats) -> tuple[Floats, Floats, Floats]:
        """Means, and spreads, of the half of the features that has changed least.

        Source: Benjamini & Heller (2008), "Screening for partial conjunction hypotheses": that more
        than half have changed is tested by the others.
        """
        q = len(self._plain)
        n_left = q - q // 2
        if n_left < 2 or len(window) < MIN_SPREAD:
            return np.ones(2), np.array([0.0, 1.0]), np.array([0.0, 1.0])
        z, ratios = self._compute_spread_z(window)
        z, ratio = z[self._plain], float(np.median(ratios[self._plain]))
        kept = np.argsort(np.abs(z), kind="stable")[:n_left]
        R = correlate(self._deviations[:, self._plain[kept]])
        of_spread = 2 * special.ndtr(-np.abs(z[kept].sum()) / np.sqrt(max(R.sum(), 1e-9)))
        z = self._compute_mean_z(window)[self._plain]
        shifts = np.abs(self._measure_shifts(window)[self._plain])
        kept = np.argsort(np.abs(z), kind="stable")[:n_left]
        values = np.linalg.eigvalsh(correlate(self.points[:, self._plain[kept]]))
        scale = (values**2).sum() / values.sum()
        degrees = values.sum() ** 2 / (values**2).sum()
        of_mean = scipy.stats.chi2.sf((z[kept] ** 2).sum() / scale, degrees)
        after = np.array([float(np.median(shifts)), ratio])
        return np.array([of_mean, of_spread]), np.array([0.0, 1.0]), after

    def _find_constants(self, own: Floats) -> tuple[Ints, tuple[float, float]]:
        """Features that were constant and are not, or are now; 1 where they vary, 0 where not."""
        is_other = own != self.points[0]
        # the first events of the chunk of the onset may be from before
        is_behind = np.logical_or.accumulate(is_other, axis=0)
        count = is_behind.sum(axis=0)
        changed = self.constant & (count >= MIN_SPREAD) & (2 * is_other.sum(axis=0) > count)
        if changed.any():
            varies = (is_behind & (own != own[-1])).any(axis=0)
            same = changed & (varies == varies[changed.argmax()])
            return np.flatnonzero(same), (0.0, float(varies[changed.argmax()]))
        varies = (own != own[0]).any(axis=0)
        is_now = ~self.binary & ~self.constant & ~varies & (len(own) >= MIN_CONSTANT)
        is_now &= (self.points == own[0]).mean(axis=0) < 0.5
        return np.flatnonzero(is_now), (1.0, 0.0)


def _autocorrelate(columns: Floats) -> Floats:
    """Autocorrelations at lags from 0 on, shape (l, d); 1 at lag 0 and zeros where not measured."""
    deviations = columns.std(axis=0)
    safe = np.where(deviations > 1e-12, deviations, np.inf)
    r = autocorrelate((columns - columns.mean(axis=0)) / safe)
    r[0] = 1.0
    return zero_insignificant_lags(r, len(columns))


def compute_rate_p(old: Ints, n: int, new: Ints, m: int, time: Floats) -> Floats:
    """Fisher's exact test, twice the one-sided p, of rates of old in n and new in m events.

    n events count as n / time, with their integrated autocorrelation time.
    """
    a, b = np.round(new / time), np.round(old / time)
    size, others = np.maximum(np.round(m / time), 1.0), np.round(n / time)
    a, total = np.minimum(a, size), size + others
    upper = scipy.stats.hypergeom.sf(a - 1, total, a + b, size)
    lower = scipy.stats.hypergeom.cdf(a, total, a + b, size)
    p: Floats = np.minimum(1.0, 2 * np.minimum(upper, lower))
    return p


def correlate(columns: Array) -> Floats:
    """Correlations of columns, at most .9999 beside the diagonal; 0 where one is constant."""
    centred = columns - columns.mean(axis=0)
    norms = np.sqrt((centred**2).sum(axis=0))
    centred = centred / np.where(norms > 1e-12, norms, np.inf)
    R: Floats = np.clip(centred.T @ centred, -LARGEST_CORRELATION, LARGEST_CORRELATION)
    np.fill_diagonal(R, 1.0)
    return R


def _explain(kind: str, names: tuple[str, ...], best: _Best, j: int, p: float) -> Explanation:
    values = float(best.before[j]), float(best.after[j])
    return Explanation(kind, names, *values, min(p, 1.0), int(best.events[j]))
