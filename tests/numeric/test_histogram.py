"""The histogram against sorted values, and its laws, which hold to the last bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamembed.metrics import itml
from streamembed.numeric import histogram
from streamembed.numeric.histogram import Histogram
from tests.oracles import oracle_itml as oracle

ERROR = histogram.RELATIVE_ERROR
SHARES = (0.0, 0.05, 0.25, 0.5, 0.95, 0.999, 1.0)

positive = st.floats(1e-300, 1.7e308)
value = st.one_of(st.just(0.0), positive)
values = st.lists(value, max_size=30)


def of(some) -> Histogram:
    return histogram.update(histogram.init(), np.array(some, dtype=np.float64))


def same(left: Histogram, right: Histogram) -> bool:
    return np.array_equal(left.buckets, right.buckets) and np.array_equal(left.counts, right.counts)


def near(found: float, truth: float) -> bool:
    return found == truth == 0 or abs(found / truth - 1) <= ERROR


@settings(deadline=None)
@given(st.lists(value, min_size=1, max_size=40), st.floats(0, 1))
def test_quantiles_are_those_of_sorted_values(some, p):
    """Within the relative error of the smallest value that the share p does not exceed."""
    assert near(histogram.quantile(of(some), p), oracle.quantile(some, p))


@pytest.mark.parametrize("p", SHARES)
def test_quantiles_of_a_long_stream(p):
    """A hundred thousand squared distances: percentiles to 0.8 %, in a few hundred buckets."""
    d2 = np.random.default_rng(0).chisquare(8, 100_000)
    h = of(d2)
    assert near(histogram.quantile(h, p), float(np.quantile(d2, p, method="inverted_cdf")))
    assert len(h.buckets) < 600
    assert histogram.count(h) == 100_000


@settings(deadline=None)
@given(values, values, values)
def test_updates_are_exactly_associative(a, b, c):
    """Values in any parts, equal to the histogram of all values at once, bit for bit."""
    whole = of([*a, *b, *c])
    a, b, c = (np.array(part, dtype=np.float64) for part in (a, b, c))
    assert same(histogram.update(histogram.update(of(a), b), c), whole)
    assert same(histogram.update(histogram.update(of(c), a), b), whole)


@pytest.mark.parametrize("exponent", [-1000, -3, 0, 1, 1023])
def test_edges_of_buckets(exponent):
    """A power of two begins a bucket and the double before it ends one, at every size."""
    edge = np.ldexp(1.0, exponent)
    h = of([np.nextafter(edge, 0), edge])
    assert len(h.buckets) == 2


def test_every_double_has_a_bucket():
    """The smallest normal number, the largest double and zero; what is smaller is 0."""
    tiny, huge = np.finfo(float).tiny, np.finfo(float).max
    h = of([-0.0, 5e-324, tiny, huge])
    assert histogram.quantile(h, 0.5) == 0.0
    assert near(histogram.quantile(h, 0.75), tiny)
    assert near(histogram.quantile(h, 1.0), huge)


def test_decay_forgets():
    """Old values fade until they leave: memory follows the stream, and so do quantiles."""
    h = of(np.full(1000, 1e-3))
    for _ in range(400):
        h = histogram.update(histogram.decay(h, 0.9), np.full(10, 5.0))
    assert len(h.buckets) == 1
    assert near(histogram.quantile(h, 0.0), 5.0)
    assert abs(histogram.count(h) - 100) < 1e-3  # 10 / (1 - 0.9)
    assert same(histogram.decay(h, 1.0), h)
    assert histogram.count(histogram.decay(h, 0.0)) == 0


def test_percentile_bounds():
    """5th and 95th percentile; the floor where the 5th is 0; None where neither is defined."""
    d2 = np.random.default_rng(2).chisquare(5, 5000)
    upper, lower = itml.compute_percentile_bounds(of(d2))
    assert near(upper, oracle.quantile(d2, 0.05))
    assert near(lower, oracle.quantile(d2, 0.95))
    upper, lower = itml.compute_percentile_bounds(of([0.0] * 10 + [4.0] * 90))
    assert upper == 1e-6 * lower > 0
    assert itml.compute_percentile_bounds(histogram.init()) is None
    assert itml.compute_percentile_bounds(of([0.0] * 99 + [1.0])) is None
