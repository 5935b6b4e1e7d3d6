"""The metrics that an engine learns, by name: pairs and labelled points in, matrices out.

Pairs come from three sources: given by somebody (`given`), drawn from labels (`labelled`), or told
by distances in the embedding (`generated`). The last feed the metrics only until the first of the
others has come. Points are scaled as the kernel sees them; what is `published` is in the caller's
units.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from streamembed import reservoir
from streamembed.core import (
    contrast,
    eig_dml,
    fenn,
    histogram,
    itml,
    must_link,
    pairs,
    reproduction,
    scatter,
    shrink,
)
from streamembed.core.arrays import Array, Bools, Floats, Ints
from streamembed.core.histogram import Histogram
from streamembed.core.mahalanobis import Mahalanobis
from streamembed.reservoir import Reservoirs

__all__ = [
    "CLASS_METRICS",
    "NAMES",
    "PAIR_METRICS",
    "Learners",
    "generated",
    "given",
    "init",
    "labelled",
    "published",
    "reproduced",
    "rescaled",
]

PAIR_METRICS = ("itml", "eig_dml", "contrast", "geometric_mean", "must_link")
CLASS_METRICS = ("fenn", "discriminant")
NAMES = PAIR_METRICS + CLASS_METRICS
# Given pairs are learned so many at a time, whatever the calls they came in.
PAIR_CHUNK = 50
# Points remembered of each class, among which later points find their partners.
CAPACITY = 100


@dataclass(frozen=True, slots=True, eq=False)
class Learners:
    """Everything that the metrics of an engine remember.

    Attributes
    ----------
    names : tuple of str
        What is learned.
    pairs : pairs.State
        Those told by the embedding.
    waiting, waiting_similar : (p, d), (p,)
        Given pairs, scaled differences, until `PAIR_CHUNK` of them have come.
    given, equal : int
        Pairs given or drawn from labels so far; those of equal points among them, which satisfy
        every metric or none, and are left out.
    bounds : Histogram
        Of their squared distances.
    reproduced : float
        How far what generated pairs teach reproduces, see `streamembed.core.reproduction`.
    states : dict
        By learner: "itml", "eig_dml", "sums" (contrast and geometric mean), "must_link".
    moments : scatter.ClassMoments
        Of labelled points, in the caller's units.
    partners : reservoir.Reservoirs
        Labelled points, scaled, to pair later ones with.
    """

    names: tuple[str, ...]
    pairs: pairs.State
    waiting: Floats
    waiting_similar: Bools
    given: int
    equal: int
    bounds: Histogram
    reproduced: float
    states: dict[str, Any]
    moments: scatter.ClassMoments
    partners: Reservoirs

    def to_arrays(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """Every array and every number, by name; `from_arrays` is the inverse, bit for bit."""
        arrays: dict[str, Array] = {
            "waiting": self.waiting,
            "waiting_similar": self.waiting_similar,
            "partners.points": np.concatenate([self.waiting[:0], *self.partners.samples]),
            "partners.lengths": np.array([len(part) for part in self.partners.samples], np.int64),
            "partners.seen": self.partners.seen,
        }
        numbers: dict[str, Any] = {
            "names": list(self.names),
            "given": self.given,
            "equal": self.equal,
            "reproduced": self.reproduced,
        }
        parts = {"pairs": self.pairs, "bounds": self.bounds, **self.states}
        for name, part in {**parts, "moments": self.moments}.items():
            inside, values = _taken_apart(part)
            arrays.update({f"{name}.{key}": array for key, array in inside.items()})
            numbers[name] = values
        return arrays, numbers

    @classmethod
    def from_arrays(cls, arrays: dict[str, Array], numbers: dict[str, Any]) -> Learners:
        """The learners that `to_arrays` took apart."""

        def part(name: str, kind: Any) -> Any:
            prefix = name + "."
            inside = {k.removeprefix(prefix): a for k, a in arrays.items() if k.startswith(prefix)}
            if hasattr(kind, "from_arrays"):
                return kind.from_arrays(inside, numbers[name])
            return kind(**inside, **numbers[name])

        ends = np.cumsum(arrays["partners.lengths"])
        samples = tuple(np.split(arrays["partners.points"], ends[:-1])) if len(ends) else ()
        return cls(
            tuple(numbers["names"]),
            part("pairs", pairs.State),
            arrays["waiting"],
            arrays["waiting_similar"],
            numbers["given"],
            numbers["equal"],
            part("bounds", Histogram),
            numbers["reproduced"],
            {name: part(name, kind) for name, kind in _STATES.items() if name in numbers},
            part("moments", scatter.ClassMoments),
            Reservoirs(CAPACITY, False, samples, arrays["partners.seen"]),
        )


_STATES: dict[str, Any] = {
    "itml": itml.State,
    "eig_dml": eig_dml.State,
    "sums": contrast.PairSums,
    "must_link": must_link.State,
}


def _taken_apart(part: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    if hasattr(part, "to_arrays"):
        found: tuple[dict[str, Array], dict[str, Any]] = part.to_arrays()
        return found
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def init(names: tuple[str, ...], n_features: int) -> Learners:
    """Before any pair or label."""
    return Learners(
        names,
        pairs.init(n_features),
        np.zeros((0, n_features)),
        np.zeros(0, dtype=bool),
        0,
        0,
        histogram.init(),
        0.0,
        _fresh(names, n_features),
        scatter.init(n_features),
        reservoir.init(CAPACITY),
    )


def _fresh(names: tuple[str, ...], n_features: int) -> dict[str, Any]:
    states: dict[str, Any] = {}
    if "itml" in names:
        states["itml"] = itml.init(np.eye(n_features))
    if "eig_dml" in names:
        states["eig_dml"] = eig_dml.init(n_features)
    if "contrast" in names or "geometric_mean" in names:
        states["sums"] = contrast.init(n_features)
    if "must_link" in names:
        states["must_link"] = must_link.init(n_features)
    return states


def generated(
    learners: Learners,
    coordinates: Floats,
    points: Floats,
    births: Ints,
    masses: Floats,
    position: int,
    seed: int,
) -> Learners:
    """Draw pairs of the support, judge them by the embedding, and learn those that are clear.

    Parameters are those of `streamembed.core.pairs.update`. Remembered pairs are judged again; one
    that has turned over is learned again as what it is now. Once pairs or labels were given, the
    embedding has no say, and nothing happens.
    """
    if learners.given or not learners.states:
        return learners
    settings = pairs.Settings(seed=seed)
    before = learners.pairs.pairs
    drawn, _ = pairs.update(learners.pairs, coordinates, points, births, masses, position, settings)
    fresh = drawn.pairs.positions == position
    judged, _ = pairs.rejudge(drawn, coordinates, births, settings)
    turned = _turned(before, judged.pairs)
    differences = np.concatenate([judged.pairs.differences[turned], drawn.pairs.differences[fresh]])
    similar = np.concatenate([judged.pairs.similar[turned], drawn.pairs.similar[fresh]])
    learners = replace(learners, pairs=judged)
    return _learned(learners, differences, similar, itml.percentile_bounds(judged.inputs), seed)


def reproduced(
    learners: Learners,
    points: Floats,
    births: Ints,
    bandwidth: float,
    alpha: float,
    position: int,
    seed: int,
) -> Learners:
    """Measure anew how far generated pairs teach what reproduces; see the core's room."""
    if learners.given or not learners.states:
        return learners
    factor = reproduction.measured(points, births, bandwidth, alpha, position, seed)
    return replace(learners, reproduced=factor)


def _turned(before: pairs.Pairs, after: pairs.Pairs) -> Bools:
    """Which remembered pairs are of the other kind now, shape (len(after),)."""
    kinds = zip(before.births.tolist(), before.similar.tolist(), strict=True)
    was = {(left, right): kind for (left, right), kind in kinds}
    now = zip(after.births.tolist(), after.similar.tolist(), strict=True)
    changed = [was.get((left, right), kind) != kind for (left, right), kind in now]
    return np.array(changed, dtype=bool)


def given(learners: Learners, differences: Floats, similar: Bools, seed: int) -> Learners:
    """Take pairs that somebody knows, scaled differences (p, d) and what they are (p,).

    With the first of them the metrics begin anew: what the embedding told was a guess.
    """
    if len(differences) and not learners.given:
        learners = replace(learners, states=_fresh(learners.names, differences.shape[1]))
    apart = (differences != 0.0).any(axis=1)
    waiting = np.concatenate([learners.waiting, differences[apart]])
    kinds = np.concatenate([learners.waiting_similar, similar[apart]])
    learners = replace(
        learners,
        given=learners.given + len(differences),
        equal=learners.equal + int(np.count_nonzero(~apart)),
    )
    while len(waiting) >= PAIR_CHUNK:
        chunk, kind = waiting[:PAIR_CHUNK], kinds[:PAIR_CHUNK]
        waiting, kinds = waiting[PAIR_CHUNK:], kinds[PAIR_CHUNK:]
        d2 = np.einsum("ij,ij->i", chunk, chunk)
        bounds = histogram.update(learners.bounds, d2)
        learners = replace(learners, bounds=bounds)
        learners = _learned(learners, chunk, kind, itml.percentile_bounds(bounds), seed)
    return replace(learners, waiting=waiting.copy(), waiting_similar=kinds.copy())


def labelled(
    learners: Learners,
    points: Floats,
    scaled: Floats,
    classes: Ints,
    position: int,
    seed: int,
) -> Learners:
    """Take the labelled points of a chunk; class -1 is unknown, and left out.

    Parameters
    ----------
    points, scaled
        In the caller's units and as the kernel sees them, shapes (c, d).
    classes
        Shape (c,), indices from 0.
    position
        Of the chunk's first event: with the seed, it settles the partners.
    """
    known = classes >= 0
    if not known.any():
        return learners
    moments = scatter.update(learners.moments, points[known], classes[known])
    generator = np.random.default_rng((seed, position))
    partners, drawn = reservoir.update(learners.partners, scaled[known], classes[known], generator)
    learners = replace(learners, moments=moments, partners=partners)
    if not learners.states:
        return learners
    return given(learners, drawn.differences, drawn.similar, seed)


def _learned(
    learners: Learners,
    differences: Floats,
    similar: Bools,
    bounds: tuple[float, float] | None,
    seed: int,
) -> Learners:
    """Every learner with these pairs."""
    if len(differences) == 0:
        return learners
    states = dict(learners.states)
    close, far = differences[similar], differences[~similar]
    if "itml" in states and bounds is not None:
        upper, lower = bounds
        states["itml"], _ = itml.update(
            states["itml"], differences, similar, upper, lower, seed=seed
        )
    if "eig_dml" in states:
        settings = eig_dml.Settings(seed=seed)
        states["eig_dml"], _ = eig_dml.update(states["eig_dml"], close, far, settings)
    if "sums" in states:
        states["sums"] = contrast.update(states["sums"], differences, similar)
    if "must_link" in states:
        states["must_link"], _ = must_link.update(states["must_link"], close, far)
    return replace(learners, states=states)


def rescaled(learners: Learners, ratio: Floats, seed: int) -> Learners:
    """The learners after the scale of every feature has grown ``ratio`` (d,) times.

    What they hold is divided. Metrics of given pairs are mapped, to the same distances between raw
    points; those of generated pairs start again from the pairs that are remembered.
    """
    samples = tuple(part / ratio for part in learners.partners.samples)
    learners = replace(
        learners,
        waiting=learners.waiting / ratio,
        partners=replace(learners.partners, samples=samples),
    )
    if learners.given:
        states = {name: _mapped(state, ratio) for name, state in learners.states.items()}
        return replace(learners, bounds=histogram.init(), states=states)
    held = learners.pairs.pairs
    held = replace(held, differences=held.differences / ratio)
    squares = np.einsum("ij,ij->i", held.differences, held.differences)
    inputs = histogram.update(histogram.init(), squares)
    learners = replace(
        learners,
        pairs=replace(learners.pairs, pairs=held, inputs=inputs),
        states=_fresh(learners.names, len(ratio)),
    )
    return _learned(learners, held.differences, held.similar, itml.percentile_bounds(inputs), seed)


def _mapped(state: Any, ratio: Floats) -> Any:
    """A learner's state for differences divided by ``ratio``: the same distances."""
    square = np.outer(ratio, ratio)
    if isinstance(state, itml.State):
        return replace(
            state,
            prior=state.prior * square,
            precision=state.precision / square,
            absorbed=state.absorbed / square,
            matrix=state.matrix * square,
            differences=state.differences / ratio,
        )
    if isinstance(state, eig_dml.State):
        return replace(
            state,
            close=state.close / square,
            matrix=state.matrix * square,
            far=state.far / ratio,
        )
    if isinstance(state, must_link.State):
        return replace(state, pairs=_mapped(state.pairs, ratio), far=state.far / square)
    return replace(state, close=state.close / square, far=state.far / square)


def published(learners: Learners, scale: Floats) -> dict[str, Mahalanobis]:
    """Every metric in the caller's units, with what is known of it."""
    return {name: _metric(learners, name, scale) for name in learners.names}


def _metric(learners: Learners, name: str, scale: Floats) -> Mahalanobis:
    if name in CLASS_METRICS:
        return _by_classes(learners, name)
    matrix: Floats
    info: Any
    if name == "itml":
        state = learners.states["itml"]
        matrix, info = state.matrix, itml.measure(state)
    elif name == "eig_dml":
        state = learners.states["eig_dml"]
        matrix, info = state.matrix, eig_dml.measure(state, eig_dml.Settings())
    elif name == "contrast":
        matrix, info = contrast.contrast_metric(learners.states["sums"])
    elif name == "geometric_mean":
        matrix, info = contrast.geometric_mean_metric(learners.states["sums"])
    else:
        matrix, info = must_link.leading(learners.states["must_link"], len(scale))
    told = {"source": "given", "pairs": learners.given, "equal": learners.equal, **_told(info)}
    if not learners.given:
        told = {
            "source": "generated",
            "pairs": learners.pairs.counts.kept,
            "reproduced": learners.reproduced,
            **_told(info),
        }
        matrix = shrink.tempered(matrix, learners.reproduced)
    return Mahalanobis.of(matrix, certificate=told).unscaled(scale)


def _by_classes(learners: Learners, name: str) -> Mahalanobis:
    if name == "fenn":
        found = fenn.spectrum(scatter.measure(learners.moments))
        mu = fenn.by_heat_capacity(found.energies) if found.status == "measured" else 1.0
        matrix, info = fenn.measure(found, mu)
        return Mahalanobis.of(matrix, certificate={"source": "labels", **_told(info)})
    matrix, told = scatter.discriminant_metric(learners.moments)
    return Mahalanobis.of(matrix, certificate={"source": "labels", **_told(told)})


def _told(info: Any) -> Mapping[str, Any]:
    """An Info as JSON would have it."""
    return {
        name: value.tolist() if isinstance(value, np.ndarray) else value
        for name, value in asdict(info).items()
    }
