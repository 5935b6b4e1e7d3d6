"""Which labels changed between a reference and the events since: in how often, and in where.

The share of each label, and each feature among the events of each label. Either family has half of
the level, divided by the number of its tests (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy
from scipy import special

from streamembed.drift.alarm import Explanation
from streamembed.drift.change_tests import LEVEL, compute_rate_p
from streamembed.numeric.arrays import Floats, Ints

MIN_EVENTS = 5  # of a label, in the reference and since, for a test of its features


def explain_labels(
    features: Sequence[str],
    labels: Sequence[object],
    before: tuple[Floats, Ints],
    since: tuple[Floats, Ints],
    time: float,
) -> Explanation | None:
    """What has changed in the labels, by the family of the smallest p; None if it is above .01.

    Parameters
    ----------
    before, since
        Points, in deviations, and codes of labels, -1 where there is none.
    time
        Integrated autocorrelation time; n events count as n / time.
    """
    (then, old), (now, new) = before, since
    codes = np.arange(len(labels))[:, None]
    known, count = (old >= 0).sum(), (new >= 0).sum()
    if not known or not count:
        return None
    had, have = (old == codes).sum(axis=1), (new == codes).sum(axis=1)
    n = np.count_nonzero(had + have)  # not those of later events that came in the same call
    p = compute_rate_p(had, known, have, count, np.full(len(labels), time)) * 2 * n
    share = _choose("label share", [()] * len(labels), labels, p, had / known, have / count)
    if share is not None and n == 2:  # the other has the rest
        share = replace(share, labels=share.labels[:1])
    p, shifts = np.ones((len(labels), then.shape[1])), np.zeros((len(labels), then.shape[1]))
    for code in np.flatnonzero((had >= MIN_EVENTS) & (have >= MIN_EVENTS)):
        a, b = then[old == code], now[new == code]
        shifts[code] = b.mean(axis=0) - a.mean(axis=0)
        p[code] = _compare_columns(a, b, time)
    best = np.arange(len(labels)), p.argmin(axis=1)
    names = [(features[j],) for j in best[1]]
    none = np.zeros(len(labels))
    mean = _choose("label mean", names, labels, p[best] * 2 * n * then.shape[1], none, shifts[best])
    changes = [replace(one, events=len(new)) for one in (share, mean) if one is not None]
    return min(changes, key=lambda one: one.p, default=None)


def _compare_columns(a: Floats, b: Floats, time: float) -> Floats:
    """Two-sided p of the rank-sum test of each column (Mann & Whitney, 1947), normal, with ties.

    Where more than half of the values are one, the normal approximation finds changes by chance:
    the shares above and below it are compared, exactly.
    """
    both = np.concatenate([a, b])
    middle, p = np.median(both, axis=0), np.ones(a.shape[1])
    is_tied = 2 * (both == middle).sum(axis=0) > len(both)
    varies = (~is_tied).nonzero()[0]
    if len(varies):
        p[varies] = scipy.stats.mannwhitneyu(a[:, varies], b[:, varies], method="asymptotic").pvalue
        z = special.ndtri(np.maximum(p, np.finfo(np.float64).tiny) / 2) / np.sqrt(time)
        p = np.asarray(2 * special.ndtr(z))
    a, b, times = a[:, is_tied], b[:, is_tied], np.full(is_tied.sum(), time)
    sides = [
        compute_rate_p(old.sum(axis=0), len(a), new.sum(axis=0), len(b), times)
        for old, new in (
            (a > middle[is_tied], b > middle[is_tied]),
            (a < middle[is_tied], b < middle[is_tied]),
        )
    ]
    p[is_tied] = np.minimum(1.0, 2 * np.minimum(*sides))
    return p


def _choose(
    kind: str,
    names: Sequence[tuple[str, ...]],
    labels: Sequence[object],
    p: Floats,
    before: Floats,
    after: Floats,
) -> Explanation | None:
    """The labels that changed, most significant first, with the figures of the first."""
    order = np.argsort(p, kind="stable")
    order = order[p[order] <= LEVEL]
    if not len(order):
        return None
    i = order[0]
    which = tuple(str(labels[code]) for code in order)
    return Explanation(kind, names[i], float(before[i]), float(after[i]), float(p[i]), 0, which)
