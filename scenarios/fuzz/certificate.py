"""Certificates against dense answers: ``python -m scenarios.fuzz.certificate [--streams N]``.

Every stream is drawn from its seed: a kind of data, a memory, points or distances, kernel, alpha,
bandwidth, tolerance, rank, chunk size. Every snapshot of it is held against the dense float64
operator of its own support, restated here from the formulas. What a certificate says must be true,
whatever was drawn; a failure prints the seed that brings it back (``--seed S --streams 1``). Exit
code 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios.fuzz import dense_answers
from streamembed.errors import (
    CostWarning,
    DegenerateMapWarning,
    ResolutionWarning,
    ScalingWarning,
)
from streamembed.geometry.kernel_weights import bound_rounding
from streamembed.methods.eigenpairs import LARGEST_EXACT
from streamembed.numeric.arrays import Array, Floats
from streamembed.threads import one_blas_thread

__all__ = ["KINDS", "CertificateCounts", "check", "run"]

KERNELS = ("self_tuning", "gaussian", "graph")

# A claim may be this much too small, relative: the oracle itself rounds, and a claim is no better
# than the arithmetic of its own norm.
LEEWAY = 1.02
# Absolute: of a dense decomposition of up to a thousand points.
ROUNDING = 1e-12
# A map without components has no eigenvalue above this (docs/algorithms/certificate.md).
NOTHING = 1e-10


# Share of streams of other methods than maps of a walk; those among them that take no distances.
OTHERS = 0.35
# Share of streams of a graph whose map is of linear functions.
LINEAR = 0.3
OF_POINTS = ("pca", "kernel_pca", "lle", "linear_eigenmap")
# Share of snapshots that are asked for with a bound of now.
FRESH = 0.3
# One stream in this many has more points than the last level decomposes.
LARGE_EVERY = 100


@dataclass
class CertificateCounts:
    """Counts of a run of the fuzz.

    Attributes
    ----------
    streams, snapshots, met : int
    aged, overtaken : int
        Snapshots whose bound is not of now; and those among them that miss an eigenvalue which came
        since it was taken.
    levels : Counter
        How often refinement ended at each level.
    unmet : list of int
        Seeds of streams with a snapshot that is not met, of so few points that it should be.
    wrong : list of (int, str)
        Seeds of streams with a certificate that is not true, and what is not.
    """

    streams: int = 0
    snapshots: int = 0
    met: int = 0
    informative: int = 0
    aged: int = 0
    overtaken: int = 0
    levels: Counter[str] = field(default_factory=Counter)
    unmet: list[int] = field(default_factory=list)
    wrong: list[tuple[int, str]] = field(default_factory=list)


Draw = np.random.Generator


def _clusters(rng: Draw, n: int, d: int) -> Floats:
    centres = rng.normal(size=(int(rng.integers(2, 45)), d)) * rng.choice([1.0, 3.0, 10.0])
    width = float(rng.choice([1e-9, 0.05, 0.2]))
    points: Floats = centres[rng.integers(0, len(centres), n)] + width * rng.normal(size=(n, d))
    return points


def _draw_resting(rng: Draw, n: int, d: int) -> Floats:
    sites, jitter = rng.normal(size=(int(rng.integers(2, 8)), d)), 10.0 ** rng.integers(-12, -3)
    points: Floats = sites[rng.integers(0, len(sites), n)] + jitter * rng.normal(size=(n, d))
    return points


def _rings(rng: Draw, n: int, d: int) -> Floats:
    angle = rng.uniform(0, 2 * np.pi, n)
    points = 0.05 * rng.normal(size=(n, max(d, 2)))
    radius = 1.0 + (np.arange(n) % 2)
    points[:, 0] += radius * np.cos(angle)
    points[:, 1] += radius * np.sin(angle)
    return points


def _roll(rng: Draw, n: int, d: int) -> Floats:
    angle = 1.5 * np.pi * (1 + 2 * rng.random(n))
    return np.column_stack([angle * np.cos(angle), 20 * rng.random(n), angle * np.sin(angle)])


def _walk(rng: Draw, n: int, d: int) -> Floats:
    return np.cumsum(rng.normal(size=(n, d)), axis=0) * 0.1


def _oscillating(rng: Draw, n: int, d: int) -> Floats:
    phase = np.sign(np.sin(np.arange(n) * 2 * np.pi / rng.integers(20, 200)))
    points = 0.3 * rng.normal(size=(n, d))
    points[:, 0] += 4.0 * phase
    return points


def _vanishing(rng: Draw, n: int, d: int) -> Floats:
    points = 0.5 * rng.normal(size=(n, d))
    start = int(rng.integers(0, n))
    points[start : start + int(rng.integers(1, 60))] += 10.0
    return points


def _heavy(rng: Draw, n: int, d: int) -> Floats:
    return rng.standard_t(1.0, size=(n, d))


def _exploding(rng: Draw, n: int, d: int) -> Floats:
    points = 0.1 * rng.normal(size=(n, d))
    return np.asarray(
        points * np.exp(np.linspace(0, rng.uniform(1, 8), n))[:, None], dtype=np.float64
    )


def _lattice(rng: Draw, n: int, d: int) -> Floats:
    return rng.integers(0, int(rng.integers(2, 12)), size=(n, min(d, 3))).astype(np.float64)


def _duplicates(rng: Draw, n: int, d: int) -> Floats:
    base: Floats = rng.normal(size=(int(rng.integers(1, 30)), d))
    return base[rng.integers(0, len(base), n)]


def _outliers(rng: Draw, n: int, d: int) -> Floats:
    points = rng.normal(size=(n, d))
    far = rng.random(n) < 0.02
    points[far] *= 10.0 ** rng.integers(1, 7)
    return points


def _noise(rng: Draw, n: int, d: int) -> Floats:
    unit, offset = float(rng.choice([1e-6, 1.0, 1e6])), float(rng.choice([0.0, 1e3]))
    return rng.normal(size=(n, 8 * d)) * unit + offset


FLOAT32 = 1e-4  # twice what the rounding of a float32 ring may do to an eigenvalue

KINDS = {
    "clusters": _clusters,
    "resting": _draw_resting,
    "rings": _rings,
    "roll": _roll,
    "walk": _walk,
    "oscillating": _oscillating,
    "vanishing": _vanishing,
    "heavy": _heavy,
    "exploding": _exploding,
    "lattice": _lattice,
    "duplicates": _duplicates,
    "outliers": _outliers,
    "noise": _noise,
}


def _draw_stream(seed: int, kernel: str | None = None) -> tuple[str, Floats, dict[str, Any], bool]:
    """Kind, points, parameters of the engine, and whether it learns distances.

    Without a ``kernel`` units are drawn, too, and methods other than maps of a walk.
    """
    rng = np.random.default_rng(seed)
    kind = str(rng.choice(list(KINDS)))
    memory = str(rng.choice(["window", "window", "window", "landmarks", "all"]))
    size = int(rng.choice([15, 40, 70, 90, 120, 200, 300, 300, 400]))
    count = 2 * size if memory == "window" else max(min(2 * size, 300), size)
    points = KINDS[kind](rng, count, int(rng.integers(1, 7)))
    units = np.random.default_rng((seed, 3))
    if kernel is None:
        points = _disturb(_in_units(points, units), np.random.default_rng((seed, 5)))
    k = int(min(rng.choice([1, 2, 3, 5, 10, 20, 30]), size - 2))
    parameters: dict[str, Any] = {
        "n_components": k,
        "memory": memory,
        "size": size,
        "alpha": float(rng.choice([0.0, 0.5, 1.0, 2.0])),
        "tolerance": float(rng.choice([3e-3, 3e-3, 1e-1, 3e-2, 1e-3, 1e-4, 3e-5, 1e-6])),
        "chunk_size": int(min(rng.choice([1, 5, 10, 10, 40, 100]), size)),
        "scaling": None if rng.random() < 0.5 else "standard",
        "seed": int(rng.integers(0, 1000)),
    }
    parameters["warm_up"] = max(k + 2, min(size, int(rng.integers(k + 2, size + 1))))
    if rng.random() < 0.6:
        spread = float(np.median(np.abs(points - np.median(points, axis=0)))) or 1.0
        factor = float(rng.choice([0.03, 0.3, 1.0, 3.0, 30.0]))
        parameters["bandwidth"] = float(np.clip(spread * factor, 1e-100, 1e100))
    if rng.random() < 0.2:
        parameters["rank"] = int(k + rng.integers(1, 10))
    if memory == "landmarks" and rng.random() < 0.4:
        parameters["half_life"] = float(rng.choice([size / 4, size, 10 * size]))
    other = np.random.default_rng((seed, 2))
    if kernel == "graph" or (kernel is None and other.random() < 0.3):
        _make_graph(parameters, points, other)
    elif kernel == "self_tuning" or (kernel is None and other.random() < 0.5):
        parameters.pop("bandwidth", None)
        parameters["n_neighbors"] = int(other.choice([1, 2, 7, 15, 15, 15, 40]))
        parameters["width"] = float(other.choice([0.5, 1.0, 2.0, 2.0, 4.0]))
        if other.random() < 0.5:
            parameters["alpha"] = "auto"
    else:
        parameters["kernel"] = "gaussian"
    if kernel is None and units.random() < OTHERS:
        _make_other(parameters, units)
    if seed % LARGE_EVERY == LARGE_EVERY - 1:  # more points than are ever decomposed as a whole
        points = KINDS[kind](rng, 1500, int(rng.integers(1, 7)))
        if kernel is None:
            points = _disturb(_in_units(points, units), np.random.default_rng((seed, 5)))
        large = {"memory": "window", "size": 1200, "warm_up": 1100, "chunk_size": 50}
        parameters = {**parameters, **large, "half_life": None}
        return kind, points, parameters, False
    linear = np.random.default_rng((seed, 4)).random() < LINEAR
    if linear and parameters.get("method") == "laplacian_eigenmaps":
        parameters["method"] = "linear_eigenmap"
    by_distance = bool(rng.random() < 0.2) and parameters.get("method") not in OF_POINTS
    return kind, points, parameters, by_distance


def _in_units(points: Floats, rng: Draw) -> Floats:
    """Points in some unit, which may change in the middle of the stream."""
    if rng.random() < 0.5:
        low, high = [(-12, 12), (12, 75), (75, 120)][int(rng.integers(3))]
        points = points * 10.0 ** rng.uniform(low, high)
    if rng.random() < 0.4:
        changed = int(rng.integers(0, len(points) // 2))
        points = points.copy()
        points[changed:] *= 10.0 ** rng.choice([-6.0, -3.0, 6.0])
    return points


def _disturb(points: Floats, rng: Draw) -> Floats:
    """Points far from 0, with a few values of "no data", or whose level shifts, as real ones are.

    Each by up to 1e12 of their spread, in some of the features.
    """
    how, n = str(rng.choice(["offset", "sentinels", "shift", "none", "none"])), len(points)
    if how == "none":
        return points
    points = points.copy()
    spread = float(np.median(np.abs(points - np.median(points, axis=0)))) or 1.0
    far = spread * 10.0 ** rng.uniform(2, 12, points.shape[1])
    far *= rng.random(points.shape[1]) < 0.5
    if how == "sentinels":
        rows = rng.integers(0, n, int(rng.integers(1, 4)))
        points[rows] = np.where(far > 0.0, -far, points[rows])
    else:
        points[int(rng.integers(0, n)) if how == "shift" else 0 :] += far
    return points


def _make_other(parameters: dict[str, Any], rng: Draw) -> None:
    """Parameters of another method, with those of all methods as they are."""
    shared = ("n_components", "memory", "size", "tolerance", "chunk_size", "scaling", "seed")
    for name in set(parameters) - {*shared, "warm_up", "half_life"}:
        del parameters[name]
    if rng.random() < 0.5:
        parameters["scaling"] = None
    methods = ["classical_mds", "pca", "kernel_pca", "lle", "isomap"]
    method = parameters["method"] = str(rng.choice(methods))
    if method in ("lle", "isomap"):
        parameters["n_neighbors"] = int(rng.choice([3, 10, 15, 15, 40]))
    if method == "isomap":
        parameters["n_landmarks"] = None
    if method == "kernel_pca":
        parameters["kernel"] = str(rng.choice(["gaussian", "polynomial", "cosine"]))
        if parameters["kernel"] == "polynomial":
            parameters["degree"] = int(rng.choice([1, 2, 3]))


def _make_graph(parameters: dict[str, Any], points: Floats, rng: Draw) -> None:
    """Parameters of a graph of neighbours instead of a kernel."""
    for name in ("alpha", "bandwidth", "rank"):
        parameters.pop(name, None)
    parameters["method"] = "laplacian_eigenmaps"
    parameters["n_neighbors"] = int(rng.choice([1, 3, 10, 10, 15, 15, 40]))
    parameters["weights"] = str(rng.choice(["self_tuning", "self_tuning", "binary", "heat"]))
    if parameters["weights"] != "self_tuning" and rng.random() < 0.3:
        spread = float(np.median(np.abs(points - np.median(points, axis=0)))) or 1.0
        factor = float(rng.choice([0.1, 1.0, 3.0]))
        parameters["radius"] = float(np.clip(spread * factor, 1e-100, 1e100))
    if parameters["weights"] == "heat" and rng.random() < 0.5:
        parameters["bandwidth"] = float(rng.choice([0.1, 1.0, 3.0]))


def _distances(rng: Draw, points: Floats) -> Floats:
    """Distances between the points: Euclidean, or of no Euclidean space."""
    how = rng.choice(["euclidean", "cityblock", "chebyshev", "rounded"])
    if how == "rounded":
        return np.asarray(np.round(cdist(points, points) * 2.0) / 2.0)
    return np.asarray(cdist(points, points, str(how)))


def check(
    snapshot: se.Snapshot, tolerance: float, d: Floats | None = None, aged: list[str] | None = None
) -> list[str]:
    """What the certificate of a snapshot says that is not true; empty where all of it is.

    Parameters
    ----------
    d
        Unsquared distances between the snapshot's objects, in its order, where it has no points.
    aged
        Where the bound is not of now, takes what is not true of it now instead.
    """
    is_listed = d is None and snapshot.method in dense_answers.OF_LISTS
    if is_listed and not snapshot.certificate.met and _bound_rounding(snapshot) > 0.1 * tolerance:
        return []  # neighbours that rounding does not tell apart may be any
    answer = dense_answers.solve_dense(snapshot, d)
    k, c = len(snapshot.eigenvalues), snapshot.certificate
    with one_blas_thread():  # two took ten times as long
        values, vectors = scipy.linalg.eigh(answer.operator, driver="evd")
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    values = np.concatenate([values, np.zeros(k + 1)])  # of fewer objects than components
    shown = snapshot.psi * np.sqrt(snapshot.stationary)[:, None]
    published = answer.to_operator(snapshot.eigenvalues)
    published = np.where(shown.any(axis=0), published, 0.0)
    outside, bound = answer.to_operator(np.array([c.outside, c.outside_bound]))
    largest = float(published[0])
    faults: list[str] = []
    then = faults if c.bound_age == 0 or aged is None else aged

    def expect(what: str, found: float, allowed: float, into: list[str] = faults) -> None:
        if not found <= LEEWAY * allowed + ROUNDING + answer.rounding:
            into.append(f"{what} {found:.3g} > {allowed:.3g}")

    errors = np.linalg.norm(answer.operator @ shown - shown * published, axis=0)
    expect("residual", float(errors.max()), c.residual * largest)
    lengths = (shown**2).sum(axis=0)
    expect("length", float(np.abs(lengths - (published > 0)).max()), 1e-4)
    expect("outside bound", float(values[k]), bound, then)
    # a Ritz value of the ring, which may be float32
    expect("outside", outside, float(values[k]) + FLOAT32)
    if np.all(published > 0):
        rest = shown - vectors[:, :k] @ (vectors[:, :k].T @ shown)
        sine = min(1.0, float(np.linalg.norm(rest, 2)))
        # vectors of the oracle are right to its rounding over their gap
        gap = max(float(values[k - 1] - values[k]), ROUNDING)
        expect("angle", sine, c.angle_bound + (ROUNDING + answer.rounding) / gap, then)
    if answer.parts is not None and snapshot.n_connected != answer.parts:
        faults.append(f"n_connected {snapshot.n_connected} != {answer.parts}")
    if answer.negative_mass is not None:
        expect("negative mass", c.negative_mass, answer.negative_mass + ROUNDING)
    if c.met:
        expect("met with residual", float(errors.max()), tolerance * largest)
        wrong = float(np.abs(published - values[:k]).max())
        allowed = (c.residual + tolerance) * largest if largest > 0 else NOTHING
        expect("met with eigenvalue error", wrong, allowed, then)
    return faults


def run(streams: int, seed: int = 0, most: int = 3, kernel: str | None = None) -> CertificateCounts:
    """Fuzz so many streams from ``seed`` on, with up to ``most`` snapshots of each."""
    result = CertificateCounts()
    for number in range(seed, seed + streams):
        result.streams += 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", ResolutionWarning)
            warnings.simplefilter("ignore", CostWarning)
            warnings.simplefilter("ignore", DegenerateMapWarning)
            warnings.simplefilter("ignore", ScalingWarning)
            try:
                _stream(number, most, result, kernel)
            except Exception as error:  # whatever it is, the fuzz names the seed and goes on
                result.wrong.append((number, f"raised {error!r}"))
    return result


def _stream(seed: int, most: int, result: CertificateCounts, kernel: str | None) -> None:
    """Learn the stream of a seed and hold its snapshots against the truth."""
    _, points, parameters, by_distance = _draw_stream(seed, kernel)
    rng = np.random.default_rng((seed, 1))
    engine = se.Engine(**parameters)
    d = _distances(rng, points) if by_distance else None
    asked = np.sort(rng.integers(parameters["warm_up"], len(points) + 1, most))
    start = 0
    for stop in [*asked.tolist(), len(points)]:
        _learn(engine, points, d, start, stop)
        start = stop
        snapshot = engine.snapshot(fresh=bool(rng.random() < FRESH))
        age, aged = snapshot.certificate.bound_age, list[str]()
        faults = _check_on(snapshot, parameters["tolerance"], d, aged)
        if age:  # what it misses came since: when the bound was taken, all of it was true
            then = se.Engine(**parameters)
            _learn(then, points, d, 0, snapshot.position - age)
            before = then.snapshot()
            faults += _check_on(before, parameters["tolerance"], d)
            if before.certificate.bound_age or before.position != snapshot.position - age:
                faults.append(f"no bound was taken {age} events before")
            result.aged += 1
            result.overtaken += bool(aged)
        result.snapshots += 1
        result.met += bool(snapshot.certificate.met)
        result.informative += snapshot.certificate.angle_bound < 1.0
        result.levels[snapshot.refinement] += 1
        # that doubles can show; eigenvalues below 1e-13 are none
        smallest = max(1.1 * bound_rounding(np.float64, len(snapshot.ids)), 1e-13)
        possible = snapshot.eigenvalues[0] * parameters["tolerance"] > smallest
        if snapshot.method in dense_answers.CENTRED or snapshot.method == "lle":
            possible = False  # relative to a norm that may be any number of times larger
        if possible and d is None and _bound_rounding(snapshot) > 0.5 * parameters["tolerance"]:
            possible = False  # points so far from others have lost what tells them apart
        if not snapshot.certificate.met and len(snapshot.ids) <= LARGEST_EXACT and possible:
            result.unmet.append(seed)
        if faults:
            result.wrong.append((seed, f"at {snapshot.position}: " + "; ".join(faults)))


def _bound_rounding(snapshot: se.Snapshot) -> float:
    """By what share of the distances that matter points are known, in a graph of n of them."""
    lengths = snapshot.widths
    if snapshot.method != "diffusion_map":
        lengths = np.full(len(lengths), snapshot.radius) if snapshot.radius else snapshot.reaches
    if not lengths.any():  # of Isomap and LLE, which publish none
        lengths = np.sort(cdist(*2 * [(snapshot.points - snapshot.center) / snapshot.scale]))[:, 1]
    scaled = (snapshot.points - snapshot.center) / snapshot.scale
    norms = np.linalg.norm(scaled[lengths > 0.0], axis=1)
    shares = 4.0 * float(np.finfo(np.float64).eps) * norms / lengths[lengths > 0.0]
    terms = 4 if snapshot.method == "diffusion_map" else len(scaled)
    return terms * float(shares.max(initial=0.0))


def _check_on(
    snapshot: se.Snapshot, tolerance: float, d: Array | None, aged: list[str] | None = None
) -> list[str]:
    """`check` with the distances of the stream."""
    own = None if d is None else d[np.ix_(snapshot.ids, snapshot.ids)]
    return check(snapshot, tolerance, own, aged)


def _learn(engine: se.Engine, points: Floats, d: Array | None, start: int, stop: int) -> None:
    if d is None:
        engine.learn(points[start:stop])
        return
    for position in range(start, stop):
        if engine.config.memory == "landmarks":
            engine.learn_distances([d[position, :position]])
        else:
            reach = position if engine.config.memory == "all" else min(position, engine.config.size)
            engine.learn_distances([d[position, position - reach : position]])


def main(arguments: list[str] | None = None) -> int:
    """Run the fuzz and print its counts."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.certificate", description=__doc__)
    parser.add_argument("--streams", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernel", choices=KERNELS, help="default: any, by the seed")
    chosen = parser.parse_args(arguments)
    result = run(chosen.streams, chosen.seed, kernel=chosen.kernel)
    for seed, fault in result.wrong:
        print(f"seed {seed}: {fault}")
    print(
        f"{result.streams} streams, {result.snapshots} snapshots: {len(result.wrong)} wrong, "
        f"{len(result.unmet)} not met (seeds {result.unmet[:10]}); angle bound below 1 on "
        f"{result.informative}; {result.aged} with an older bound, {result.overtaken} of which "
        "miss an eigenvalue that came since; "
        + ", ".join(f"{n} {level}" for level, n in result.levels.items())
    )
    return int(bool(result.wrong or result.unmet))


if __name__ == "__main__":
    sys.exit(main())
