"""Streams with and without a change, for the monitor: a function of a generator gives each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow.parquet as pq

from scenarios.streams import NOT_FEATURES, find_file
from streamembed.cli.demo import USUAL_STATE, load_shuttle
from streamembed.numeric.arrays import Floats, Ints

__all__ = [
    "CHANGES",
    "DEPENDENT",
    "NULLS",
    "StreamChange",
]

Draw = Callable[[np.random.Generator, int], Floats]
D = 8


@dataclass(frozen=True)
class StreamChange:
    """What comes before, and what after.

    Attributes
    ----------
    before, after : callable
        Of a generator and a number of events.
    """

    before: Draw
    after: Draw


def gaussian(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_normal((n, D))


def shifted(by: float) -> Draw:
    return lambda rng, n: gaussian(rng, n) + by * np.eye(D)[0]


def scaled(by: float, axes: int) -> Draw:
    factors = np.where(np.arange(D) < axes, by, 1.0)
    return lambda rng, n: gaussian(rng, n) * factors


def correlated(r: float) -> Draw:
    def draw(rng: np.random.Generator, n: int) -> Floats:
        points = gaussian(rng, n)
        points[:, 1] = r * points[:, 0] + np.sqrt(1 - r * r) * points[:, 1]
        return points

    return draw


def with_cluster(share: float, away: float = 4.0) -> Draw:
    """Events of a cluster at that distance, half as wide, among the others."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        points = gaussian(rng, n)
        own = rng.random(n) < share
        points[own] = points[own] * 0.5 + away / np.sqrt(2) * (np.arange(D) < 2)
        return points

    return draw


def heavy(rng: np.random.Generator, n: int) -> Floats:
    return rng.standard_t(3, (n, D))


def serial(coefficient: float, d: int = D, lag: int = 1) -> Draw:
    """Each event on that of ``lag`` events before it; an AR(1) where this is 1."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        noise = rng.standard_normal((n + 200, d)) * np.sqrt(1 - coefficient**2)
        for t in range(lag, len(noise)):
            noise[t] += coefficient * noise[t - lag]
        events: Floats = noise[200:]
        return events

    return draw


def beside_noise(draw: Draw, d: int = 3) -> Draw:
    return lambda rng, n: np.concatenate([draw(rng, n), rng.standard_normal((n, d))], axis=1)


def two_states(flips: float) -> Draw:
    """A Markov chain that shows in the mean of one feature."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        state = np.cumsum(rng.random(n) < flips) % 2
        events: Floats = 0.5 * rng.standard_normal((n, 3)) + 2.0 * state[:, None] * np.eye(3)[0]
        return events

    return draw


def volatile(rng: np.random.Generator, n: int) -> Floats:
    """Noise of which the log of the width is an AR(1) of .99."""
    events: Floats = rng.standard_normal((n, 3)) * np.exp(serial(0.99, 1)(rng, n))
    return events


def flagged(rng: np.random.Generator, n: int) -> Floats:
    """Beside noise a feature that is 1 in one event of 1,250."""
    return np.concatenate([rng.standard_normal((n, 3)), rng.random((n, 1)) < 0.0008], axis=1)


def rare(rate: float) -> Draw:
    """Beside noise a feature that is 1 at that rate."""
    return lambda rng, n: np.concatenate(
        [(rng.random((n, 1)) < rate).astype(float), gaussian(rng, n)[:, 1:]], axis=1
    )


def seasonal(period: int) -> Draw:
    return lambda rng, n: (
        np.sin(2 * np.pi * np.arange(n) / period)[:, None] + 0.3 * rng.standard_normal((n, 3))
    )


def wave(share: float | None = None) -> Draw:
    """Breiman's waveform: three classes of 21 features; the first may have another share."""

    def draw(rng: np.random.Generator, n: int) -> Floats:
        first = 1 / 3 if share is None else share
        own = rng.choice(3, n, p=[first, (1 - first) / 2, (1 - first) / 2])
        t = np.arange(1, 22, dtype=np.float64)
        bumps = np.maximum(6 - np.abs(t - np.array([[7], [15], [11]])), 0)
        pairs = np.array([[0, 1], [0, 2], [1, 2]])[own]
        u = rng.random((n, 1))
        waves = u * bumps[pairs[:, 0]] + (1 - u) * bumps[pairs[:, 1]]
        events: Floats = waves + rng.standard_normal((n, 21))
        return events

    return draw


def table(name: str) -> tuple[Floats, Ints, dict[str, Ints]]:
    """Features, labels and what else is no feature, of a real set."""
    read = pq.read_table(find_file(name))
    names = [column for column in read.column_names if column not in NOT_FEATURES]
    points = np.stack([read[column].to_numpy().astype(float) for column in names], axis=1)
    others = {
        column: read[column].to_numpy() for column in NOT_FEATURES if column in read.column_names
    }
    labels = others.get("label", np.zeros(len(points), dtype=np.int64))
    return points, labels, others


def rows(points: Floats) -> Draw:
    """So many of these, in another order, without repeating one where there are enough."""
    return lambda rng, n: points[rng.choice(len(points), n, replace=n > len(points))]


@cache
def load_readings() -> Floats:
    """Readings of a space shuttle in its usual state: of few values, with rare outliers."""
    points, _, labels = load_shuttle(48_000)
    return points[[label == USUAL_STATE for label in labels]]


def readings(rng: np.random.Generator, n: int) -> Floats:
    return rows(load_readings())(rng, n)


def sparse(rng: np.random.Generator, n: int) -> Floats:
    """Ten features of noise, ten flags that are 1 in one event of a hundred, ten small counts."""
    flags, counts = rng.random((n, 10)) < 0.01, rng.poisson(np.geomspace(0.05, 2, 10), (n, 10))
    return np.concatenate([rng.standard_normal((n, 10)), flags, counts], axis=1)


@cache
def load_sentences() -> tuple[Floats, Ints]:
    """Embeddings of sentences, and for each the five nearest ones of its topic."""
    read = pq.read_table(find_file("minilm_topics"))
    vectors = np.array(read["embedding"].to_pylist(), dtype=np.float64)
    topics = np.array(read["topic"].to_pylist())
    similar = np.where(topics[:, None] == topics, vectors @ vectors.T, -np.inf)
    np.fill_diagonal(similar, -np.inf)
    return vectors, np.argsort(-similar, axis=1)[:, :5]


def sentences(rng: np.random.Generator, n: int) -> Floats:
    """Embeddings between those of a sentence and of a near one, of length 1."""
    vectors, near = load_sentences()
    own = rng.integers(len(vectors), size=n)
    other, weight = near[own, rng.integers(5, size=n)], rng.uniform(0, 0.5, (n, 1))
    between = (1 - weight) * vectors[own] + weight * vectors[other]
    unit: Floats = between / np.linalg.norm(between, axis=1, keepdims=True)
    return unit


def digits(rng: np.random.Generator, n: int) -> Floats:
    return rows(table("digits")[0])(rng, n)


NULLS: dict[str, Draw] = {
    "gaussian": gaussian,
    "3 features": lambda rng, n: rng.standard_normal((n, 3)),
    "1 feature": lambda rng, n: rng.standard_normal((n, 1)),
    "t3": heavy,
    **{f"AR(1) {r}": serial(r, 3) for r in (0.5, 0.8, 0.9, 0.95, 0.99)},
    "season of 400, named": seasonal(400),
    "waveform": wave(),
    "shuttle, usual state, shuffled": readings,
    "rare flag": flagged,
    "flags and counts": sparse,
    "digits, pixels": digits,
    "sentence embeddings, 384 features": sentences,
}
# Without a change, but events depend on each other beyond what the thresholds allow for.
DEPENDENT: dict[str, Draw] = {
    **{f"AR(1) {r}": serial(r, 3) for r in (0.7, 0.8, 0.9, 0.98)},
    "AR(1) 0.9 beside 3 of noise": beside_noise(serial(0.9, 3)),
    "AR(1) 0.8 beside 4 of noise": beside_noise(serial(0.8, 1), 4),
    "lag 2 alone, 0.7": serial(0.7, 3, 2),
    "Markov chain, flips at .02": two_states(0.02),
    "log-volatility AR(1) 0.99": volatile,
}
CHANGES: dict[str, StreamChange] = {
    "mean 1": StreamChange(gaussian, shifted(1.0)),
    "sd x1.5, one axis": StreamChange(gaussian, scaled(1.5, 1)),
    "correlation .8 to -.8": StreamChange(correlated(0.8), correlated(-0.8)),
    "new cluster, 10 %": StreamChange(gaussian, with_cluster(0.1)),
}
