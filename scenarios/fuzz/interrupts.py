"""Interrupts at every line of the package: ``python -m scenarios.fuzz.interrupts``.

One call of every kind is broken off at every function entry and every line of `streamembed` that
it comes to. After each, the engine must be what it was before the call, or after whole chunks of
it, to the byte; and the stream, taken up again from there, must end in the bytes of an undisturbed
one. So must every estimator and the monitor (`scenarios.fuzz.interrupted_estimators`): as before
the call, as after it or, where the call has many events, as after some of them. Exit code 1 where
one does not; the failing place is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, cast

import numpy as np
from threadpoolctl import ThreadpoolController

import streamembed as se
from scenarios.fuzz.interrupted_estimators import ESTIMATORS, EstimatorCase
from streamembed.errors import ColumnWarning, ResolutionWarning

PACKAGE = str(Path(se.__file__).parent)
POINTS = np.random.default_rng(0).standard_normal((400, 3))
DISTANCES = np.linalg.norm(POINTS[:, None] - POINTS[None], axis=2)
PAIRS = POINTS[:60], POINTS[60:120], np.arange(60) % 2 == 0
# Of so many interrupts one is a MemoryError, the others are a Ctrl-C.
EVERY_MEMORY_ERROR = 7
BLAS = ThreadpoolController()

Feed = Callable[[se.Engine, int, int], object]
Call = Callable[[se.Engine], object]


@dataclass(frozen=True)
class InterruptCase:
    """A stream, and a call in the middle of it.

    Attributes
    ----------
    name : str
    engine : dict
        Parameters, beside those of `SMALL`.
    feed : Feed
        Gives an engine the events from one number to another, in one call.
    first, stop, end : int
        The call brings the events from ``first`` to ``stop``; then the stream goes on to ``end``.
    call : Call or None
        Another call, before the events from ``first`` on.
    """

    name: str
    engine: dict[str, Any]
    feed: Feed
    first: int
    stop: int
    end: int
    call: Call | None = None

    def run(self, engine: se.Engine) -> None:
        """The call that is broken off."""
        if self.call is None:
            self.feed(engine, self.first, self.stop)
        else:
            self.call(engine)

    def start(self) -> bytes:
        """What an engine saves before the call."""
        engine = se.Engine(**{**SMALL, **self.engine})
        if self.first:
            self.feed(engine, 0, self.first)
        return engine.to_bytes()

    def restored(self, saved: bytes) -> se.Engine:
        """An engine as it was saved."""
        return se.Engine.from_bytes(saved)

    def digest(self, engine: se.Engine) -> str:
        """Of everything that an engine saves."""
        return digest(engine)

    def parts(self, saved: bytes) -> Iterator[tuple[str, int]]:
        """Engines in the middle of the call where a chunk ends, and where to go on from them."""
        for stop in range(self.first + 1, self.stop) if self.call is None else ():
            engine = self.restored(saved)
            self.feed(engine, self.first, stop)
            if engine.pending == 0:  # of several, where rows are set aside, the first
                yield digest(engine), stop

    def ended(self, engine: se.Engine, position: int) -> str:
        """The engine at the end of the stream, with its coordinates."""
        self.feed(engine, position, self.end)
        coordinates = engine.snapshot().coordinates
        return digest(engine) + hashlib.sha256(coordinates.tobytes()).hexdigest()


@dataclass
class InterruptCounts:
    """Outcomes of the interrupted lines.

    Attributes
    ----------
    before, after, between : int
        Engines found as they were before the call, after it, after whole chunks of it.
    wrong : list of str
        Cases and places after which an engine was none of these, or did not go on as it must.
    """

    before: int = 0
    after: int = 0
    between: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def places(self) -> int:
        """Those that were tried."""
        return self.before + self.after + self.between + len(self.wrong)


def digest(engine: se.Engine) -> str:
    """Of everything that an engine saves."""
    return hashlib.sha256(engine.to_bytes()).hexdigest()


# ---------------------------------------------------------------- breaking off


class Breaker:
    """Counts the places that a call comes to, and breaks it off at one of them."""

    def __init__(self, place: int | None, error: type[BaseException] = KeyboardInterrupt) -> None:
        self.count = 0
        self.where = ""
        self._place = place
        self._error = error

    def run(self, call: Callable[[], object]) -> BaseException | None:
        """The interrupt that came out of the call, with its traceback; None where none came."""
        outer, hook = sys.gettrace(), sys.unraisablehook
        sys.unraisablehook = lambda _: None
        sys.settrace(self._trace)
        try:
            call()
        except (KeyboardInterrupt, MemoryError) as error:
            return error
        finally:
            sys.settrace(outer)
            sys.unraisablehook = hook
        return None

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event in ("call", "line"):
            self.count += 1
            if self.count == self._place:
                name = Path(frame.f_code.co_filename).name
                self.where = f"{name}:{frame.f_lineno} in {frame.f_code.co_name} ({event})"
                raise self._error
        return self._trace


# ---------------------------------------------------------------- the calls

SMALL: dict[str, Any] = {"size": 40, "warm_up": 12, "chunk_size": 5}
IDS = [f"e{i:03d}" for i in range(400)]
LABELS = [i % 3 for i in range(400)]
HOLES = POINTS.copy()
HOLES[[66, 70, 71, 76]] = np.nan
TWICE = [*IDS[:68], IDS[67], *IDS[69:75], IDS[60], *IDS[76:]]


def learn_without_ids(engine: se.Engine, first: int, stop: int) -> object:
    """Without ids."""
    return engine.learn(POINTS[first:stop])


def learn_with_ids(engine: se.Engine, first: int, stop: int) -> object:
    """With ids."""
    return engine.learn(POINTS[first:stop], ids=IDS[first:stop])


def learn_with_labels(engine: se.Engine, first: int, stop: int) -> object:
    """With ids and labels."""
    return engine.learn(POINTS[first:stop], LABELS[first:stop], IDS[first:stop])


def learn_with_bad_rows(engine: se.Engine, first: int, stop: int) -> object:
    """With ids that come twice and rows that cannot be used."""
    return engine.learn(HOLES[first:stop], ids=TWICE[first:stop])


def learn_with_known_id(engine: se.Engine, first: int, stop: int) -> object:
    """With an id of a landmark that is held as the call begins, and gives up its slot in it."""
    ids = [IDS[16] if i == 97 else key for i, key in enumerate(IDS)]
    return engine.learn(POINTS[first:stop], ids=ids[first:stop])


def rows(engine: se.Engine, first: int, stop: int) -> object:
    """Distances to all that came before, or to those in the window."""
    window = engine.config.window or stop
    rows_of_call = [DISTANCES[i, max(0, i - window) : i] for i in range(first, stop)]
    return engine.learn_distances(rows_of_call, IDS[first:stop])


LANDMARKS = {"memory": "landmarks", "size": 20}
METRICS = {"metrics": ("itml", "fenn")}
PICTURE = {"picture": True, "kernel": "gaussian"}
SKIP = {"on_bad_row": "skip"}
WIDE = {"size": 60, "chunk_size": 30, "warm_up": 30}
CASES = [
    InterruptCase("learn, end of the warm-up", {}, learn_without_ids, 8, 14, 22),
    InterruptCase("learn, growing", {}, learn_without_ids, 17, 28, 36),
    InterruptCase("learn, the window fills", {}, learn_without_ids, 33, 42, 51),
    InterruptCase("learn, full", {}, learn_without_ids, 63, 72, 81),
    InterruptCase(
        "learn, a graph", {"method": "laplacian_eigenmaps"}, learn_without_ids, 63, 72, 81
    ),
    InterruptCase(
        "learn, classical scaling", {"method": "classical_mds"}, learn_without_ids, 63, 72, 81
    ),
    InterruptCase("learn, locally linear", {"method": "lle"}, learn_without_ids, 63, 72, 81),
    InterruptCase("learn, shortest paths", {"method": "isomap"}, learn_without_ids, 63, 72, 81),
    InterruptCase("learn, a picture", PICTURE, learn_without_ids, 63, 72, 81),
    InterruptCase("learn, a picture, the window fills", PICTURE, learn_without_ids, 33, 42, 51),
    InterruptCase("learn, one bandwidth", {"kernel": "gaussian"}, learn_without_ids, 63, 72, 81),
    InterruptCase("learn, waiting", {}, learn_without_ids, 60, 63, 66),
    InterruptCase("learn, chunks of 30", WIDE, learn_without_ids, 80, 91, 121),
    InterruptCase("learn, landmarks", LANDMARKS, learn_without_ids, 83, 92, 101),
    InterruptCase("learn, the last landmark", LANDMARKS, learn_without_ids, 13, 22, 31),
    InterruptCase(
        "learn, all", {"memory": "all", "warm_up": 252}, learn_without_ids, 254, 262, 266
    ),
    InterruptCase("learn, ids", {}, learn_with_ids, 63, 72, 81),
    InterruptCase("learn, ids, landmarks", LANDMARKS, learn_with_ids, 83, 92, 101),
    InterruptCase("learn, ids that come again", LANDMARKS, learn_with_known_id, 93, 102, 111),
    InterruptCase("learn, labels", METRICS, learn_with_labels, 48, 53, 61),
    InterruptCase("learn, pairs of the map", METRICS, learn_without_ids, 48, 53, 61),
    InterruptCase("learn, skip", SKIP, learn_with_bad_rows, 63, 78, 88),
    InterruptCase("learn, trailing rows set aside", SKIP, learn_with_bad_rows, 63, 77, 88),
    InterruptCase("learn, skip, landmarks", {**SKIP, **LANDMARKS}, learn_with_bad_rows, 63, 78, 88),
    InterruptCase("learn_distances, growing", {}, rows, 17, 23, 31),
    InterruptCase("learn_distances, full", {}, rows, 63, 67, 76),
    InterruptCase("learn_distances, landmarks", LANDMARKS, rows, 83, 87, 96),
    InterruptCase("learn_distances, all", {"memory": "all"}, rows, 63, 67, 76),
    InterruptCase(
        "learn_pairs, early", METRICS, learn_without_ids, 8, 8, 17, lambda e: e.learn_pairs(*PAIRS)
    ),
    InterruptCase(
        "learn_pairs", METRICS, learn_without_ids, 23, 23, 32, lambda e: e.learn_pairs(*PAIRS)
    ),
    InterruptCase(
        "label",
        METRICS,
        learn_without_ids,
        23,
        23,
        32,
        lambda e: e.label([4, 20, 22], ["a", "b", "a"]),
    ),
    InterruptCase("flush", {}, learn_with_ids, 63, 63, 76, se.Engine.flush),
    InterruptCase("rescale", METRICS, learn_with_labels, 63, 63, 76, se.Engine.rescale),
    InterruptCase(
        "rescale, landmarks", LANDMARKS, learn_without_ids, 83, 83, 96, se.Engine.rescale
    ),
    InterruptCase("rescale, distances", {}, rows, 63, 63, 76, se.Engine.rescale),
    InterruptCase("relayout", PICTURE, learn_without_ids, 63, 63, 76, se.Engine.relayout),
    InterruptCase("snapshot", METRICS, learn_with_labels, 63, 63, 76, se.Engine.snapshot),
    InterruptCase(
        "snapshot, plain", {"tolerance": None}, learn_without_ids, 63, 63, 76, se.Engine.snapshot
    ),
    InterruptCase(
        "snapshot, landmarks", LANDMARKS, learn_without_ids, 83, 83, 96, se.Engine.snapshot
    ),
]


# ---------------------------------------------------------------- the sweep


class Sweep:
    """A case with what its engine may be after the call, and must be at the end."""

    def __init__(self, case: InterruptCase | EstimatorCase) -> None:
        self.case = cast(Any, case)  # what one of either kind has saved, it restores
        self.saved = self.case.start()
        self.before = self._digest_of(self._again())
        self.blas = BLAS.info()
        # what the engine may be, and where the stream is then to be taken up
        self.allowed: dict[str, int | None] = {self.before: None}
        for found, stop in self.case.parts(self.saved):
            self.allowed.setdefault(found, stop)
        whole = self._again()
        self.case.run(whole)
        self.after = self._digest_of(whole)
        self.allowed[self.after] = case.stop
        self.end = self._ended(whole, case.stop)
        counter, counted = Breaker(None), self._again()
        counter.run(lambda: self.case.run(counted))
        self.places = counter.count

    def _again(self) -> Any:
        return self.case.restored(self.saved)

    def _digest_of(self, model: Any) -> str:
        found: str = self.case.digest(model)
        return found

    def _ended(self, model: Any, position: int | None) -> str:
        """The stream to its end, from where it is to be taken up."""
        if position is None:
            self.case.run(model)
            position = self.case.stop
        found: str = self.case.ended(model, position)
        return found

    def broken_off(self, place: int, result: InterruptCounts) -> None:
        """Break the call off at one place, and add what became of it."""
        engine = self._again()
        error = KeyboardInterrupt if place % EVERY_MEMORY_ERROR else MemoryError
        breaker = Breaker(place, error)
        came = breaker.run(lambda: self.case.run(engine))  # held on to, as an interpreter does
        try:
            if BLAS.info() != self.blas:
                raise AssertionError("the number of BLAS threads is another")
            found = self._digest_of(engine)
            if came is None and found != self.after:
                # Python swallows what is raised where a generator is thrown away
                raise AssertionError("the interrupt was lost, and the call did not go on")
            if found not in self.allowed:
                raise AssertionError("the engine is neither as before nor as after whole chunks")
            if self._ended(engine, self.allowed[found]) != self.end:
                raise AssertionError("the stream goes on to another end")
        except Exception as fault:
            message = f"{self.case.name}, place {place}, {breaker.where}: "
            result.wrong.append(f"{message}{error.__name__}: {type(fault).__name__}: {fault}")
            return
        if found == self.before:
            result.before += 1
        elif found == self.after:
            result.after += 1
        else:
            result.between += 1


def run(
    places: int | None = None,
    seed: int = 0,
    report: bool = False,
    cases: Sequence[InterruptCase | EstimatorCase] = CASES,
) -> InterruptCounts:
    """Break calls off at all places, or at a sample of so many, spread over the cases."""
    generator = np.random.default_rng(seed)
    result, share = InterruptCounts(), None if places is None else -(-places // len(cases))
    if places is not None and places < len(cases):
        cases = [cases[i] for i in generator.choice(len(cases), places, replace=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)
        warnings.simplefilter("ignore", ColumnWarning)
        for case in cases:
            sweep = Sweep(case)
            for place in _chosen(sweep.places, share, generator):
                sweep.broken_off(place, result)
            if report:
                message = f"{result.before} before, {result.between} between, {result.after} after"
                print(f"{case.name:34s} {result.places:6d} places so far: {message}", flush=True)
    return result


def _chosen(count: int, share: int | None, generator: np.random.Generator) -> Iterator[int]:
    if share is None:
        yield from range(1, count + 1)
        return
    drawn = generator.choice(count, size=min(share, count), replace=False)
    yield from (int(place) + 1 for place in np.sort(drawn))


def main(arguments: list[str] | None = None) -> int:
    """All places, or a sample of them."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.interrupts", description=__doc__)
    parser.add_argument("--places", type=int, default=None)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=["engine", "estimators"])
    chosen = parser.parse_args(arguments)
    cases: list[InterruptCase | EstimatorCase] = [] if chosen.only == "estimators" else [*CASES]
    cases += [] if chosen.only == "engine" else ESTIMATORS
    result = run(chosen.places, chosen.seed, report=True, cases=cases)
    for message in result.wrong:
        print(f"WRONG {message}")
    print(
        f"{result.places} places: {result.before} as before, {result.between} after a part of it, "
        f"{result.after} as after the call, {len(result.wrong)} wrong (seed {chosen.seed})"
    )
    return int(bool(result.wrong))


if __name__ == "__main__":
    sys.exit(main())
