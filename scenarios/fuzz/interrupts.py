"""Interrupts at every line of the package: ``python -m scenarios.fuzz.interrupts``.

Calls of the engine, of every estimator and of the monitor (`tests.laws.subjects`, and some more)
are broken off at every function entry and every line of `streamembed` that they come to. After
each, the model must be what it was before the call or after it, to the byte; an engine may also be
as after whole chunks of the call, and an estimator that learns event by event as after some of its
events. The stream, taken up again from there, must end in the bytes of an undisturbed one. Exit
code 1 where one does not; the failing place is printed.
"""

from __future__ import annotations

import argparse
import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import methodcaller
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

import streamembed as se
from streamembed import estimators
from streamembed.errors import ColumnWarning, ResolutionWarning
from streamembed.estimators.metric_estimator import MetricEstimator
from tests.laws import subjects
from tests.laws.subjects import GAPS, IDS, POINTS, SUBJECTS, Call, Subject

PACKAGE = str(Path(se.__file__).parent)
# Of so many interrupts one is a MemoryError, the others are a Ctrl-C.
EVERY_MEMORY_ERROR = 7
BLAS = ThreadpoolController()


@dataclass(frozen=True)
class InterruptCase:
    """A stream, and a call in the middle of it.

    Attributes
    ----------
    name : str
    subject : Subject
    first, stop, end : int
        The call brings the events from ``first`` to ``stop``; then the stream goes on to ``end``.
    call : Call or None
        Another call, before the events from ``first`` on.
    """

    name: str
    subject: Subject
    first: int
    stop: int
    end: int
    call: Call | None = None

    def run(self, model: Any) -> None:
        """The call that is broken off."""
        if self.call is None:
            self.subject.feed(model, self.first, self.stop)
        else:
            self.call(model)

    def start(self) -> bytes:
        """A model before the call, to be restored."""
        model = self.subject.make()
        self.subject.feed(model, 0, self.first)
        return pickle.dumps(model)

    def parts(self, saved: bytes) -> Iterator[tuple[str, int]]:
        """States in the middle of the call that are allowed, and where to go on from them."""
        for stop in range(self.first + 1, self.stop) if self.call is None else ():
            model = pickle.loads(saved)
            if isinstance(model, MetricEstimator | estimators.PCA | se.Monitor):
                return  # all or nothing
            self.subject.feed(model, self.first, stop)
            # of several engines without rows in waiting, where rows are set aside, the first
            if not isinstance(model, se.Engine) or model.pending == 0:
                yield digest(model), stop

    def ended(self, model: Any, position: int) -> str:
        """The state at the end of the stream, and what is read from there."""
        self.subject.feed(model, position, self.end)
        return digest(model) + digest(self.subject.read(model))


def digest(value: Any) -> str:
    """Of everything that is saved of a value."""
    return hashlib.sha256(subjects.digest(value)).hexdigest()


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

HOLES = POINTS.copy()
HOLES[[66, 70, 71, 76]] = np.nan
TWICE = [*IDS[:68], IDS[67], *IDS[69:75], IDS[60], *IDS[76:]]
LANDMARKS = {"memory": "landmarks", "size": 20}


def _learn(
    ids: Sequence[str] | None = None, points: Any = POINTS
) -> Callable[[Any, int, int], object]:
    """Feeds an engine these rows."""
    return lambda engine, first, stop: engine.learn(
        points[first:stop], ids=ids[first:stop] if ids else None
    )


def _objects(model: Any, first: int, stop: int) -> object:
    return model.learn_many([tuple(point) for point in POINTS[first:stop].tolist()])


def _read_objects(model: Any) -> Any:
    return model.transform_many(POINTS[100:104].tolist())


def _distance_objects(model: Any, first: int, stop: int) -> object:
    rows = [{IDS[j]: float(subjects.DISTANCES[i, j]) for j in range(i + 1)} for i in range(stop)]
    return model.learn_many(rows[first:])


def measure_distance(a: Any, b: Any) -> float:
    """Distance of two objects."""
    return float(np.linalg.norm(np.subtract(a, b)))


def _engine(feed: Callable[[Any, int, int], object], **given: Any) -> Subject:
    made = {**subjects.SMALL, "size": 40, "chunk_size": 5, **given}
    return Subject(lambda: se.Engine(**made), feed, subjects.read_engine)


def _estimator(name: str, feed: Callable[[Any, int, int], object], read: Call, **given: Any) -> Any:
    made = {**subjects.SMALL, **given}
    return Subject(lambda: getattr(estimators, name)(**made), feed, read)


def _list_special() -> Iterator[InterruptCase]:
    """Streams that the laws do not have."""
    # the id of a landmark that is held as the call begins, and gives up its slot in it
    known = [IDS[31] if i == 97 else key for i, key in enumerate(IDS)]
    skip = {"on_bad_row": "skip"}
    wide = {"size": 60, "chunk_size": 30, "warm_up": 30}
    holes = _learn(TWICE, HOLES)
    for name, subject, first, stop, end in (
        ("chunks of 30", _engine(_learn(), **wide), 80, 91, 121),
        ("the last landmark", _engine(_learn(), **LANDMARKS), 13, 22, 31),
        ("all, more slots", _engine(_learn(), memory="all", warm_up=252), 254, 262, 266),
        ("ids that come again", _engine(_learn(known), **LANDMARKS), 93, 102, 111),
        ("skip", _engine(holes, **skip), 63, 78, 88),
        ("trailing rows set aside", _engine(holes, **skip), 63, 77, 88),
        ("skip, landmarks", _engine(holes, **skip, **LANDMARKS), 63, 78, 88),
    ):
        yield InterruptCase(f"Engine, {name}", subject, first, stop, end)
    plain = _engine(_learn(), tolerance=None)
    yield InterruptCase("Engine, plain snapshot", plain, 63, 63, 76, se.Engine.snapshot)
    for name, feed, read, given in (
        ("ClassicalMDS", _objects, _read_objects, {"metric": measure_distance}),
        ("KernelPCA", _objects, _read_objects, {"kernel": np.dot}),
        (
            "DiffusionMap",
            _distance_objects,
            lambda model: model.snapshot().coordinates,
            {"memory": "all", "metric": "precomputed"},
        ),
    ):
        subject = _estimator(name, feed, read, **given)
        yield InterruptCase(f"{name}, first objects", subject, 0, 14, 21)
        yield InterruptCase(f"{name}, objects", subject, 48, 52, 61)


def _merge(subject: Subject) -> Call:
    """Merge with a model that learned other events of the same features."""

    def merge(model: Any) -> object:
        other = model.clone()
        subject.feed(other, 1, 29)
        return model.merge(other)

    return merge


def _list_calls(name: str, subject: Subject) -> Iterator[tuple[str, Call]]:
    """What can be called between two events."""
    model = subject.make()
    names = ["flush", "rescale", "snapshot"]
    names += ["relayout"] if name.startswith(("LiveMap", "Engine, picture")) else []
    for method in names:
        if hasattr(model, method):
            yield method, methodcaller(method)
    if hasattr(model, "update"):
        yield "update", lambda model: model.update(GAPS[119])
    # the answer of ITML depends on the order of its pairs, that of PCA by SVD on its blocks
    if name == "PCA, moments" or (isinstance(model, MetricEstimator) and "ITML" not in name):
        yield "merge", _merge(subject)


def _list_cases() -> Iterator[InterruptCase]:
    for name, subject in SUBJECTS.items():
        late = ((98, 123, 141), (117, 132, 141), (138, 177, 191))  # about a reference of 100
        early = ((8, 19, 31), (17, 31, 40), (48, 57, 66), (44, 45, 56))
        for first, stop, end in late if subject.n > 200 else early:
            yield InterruptCase(f"{name}, {first} to {stop}", subject, first, stop, end)
        for what, call in _list_calls(name, subject):
            yield InterruptCase(f"{name}, {what}", subject, 63, 63, 76, call)
        for at, call in subject.steps.items():
            yield InterruptCase(f"{name}, step {at}", subject, at, at, at + 15, call)
    yield from _list_special()


CASES = list(_list_cases())


# ---------------------------------------------------------------- the sweep


class Sweep:
    """A case with what its model may be after the call, and must be at the end."""

    def __init__(self, case: InterruptCase) -> None:
        self.case = case
        self.saved = case.start()
        self.before = digest(self._restore())
        self.blas = BLAS.info()
        # what the model may be, and where the stream is then to be taken up
        self.allowed: dict[str, int | None] = {self.before: None}
        for found, stop in case.parts(self.saved):
            self.allowed.setdefault(found, stop)
        whole = self._restore()
        case.run(whole)
        self.after = digest(whole)
        self.allowed[self.after] = case.stop
        self.end = self._ended(whole, case.stop)
        counter, counted = Breaker(None), self._restore()
        counter.run(lambda: case.run(counted))
        self.places = counter.count

    def _restore(self) -> Any:
        return pickle.loads(self.saved)

    def _ended(self, model: Any, position: int | None) -> str:
        """The stream to its end, from where it is to be taken up."""
        if position is None:
            self.case.run(model)
            position = self.case.stop
        return self.case.ended(model, position)

    def broken_off(self, place: int, result: InterruptCounts) -> None:
        """Break the call off at one place, and add what became of it."""
        model = self._restore()
        error = KeyboardInterrupt if place % EVERY_MEMORY_ERROR else MemoryError
        breaker = Breaker(place, error)
        came = breaker.run(lambda: self.case.run(model))  # held on to, as an interpreter does
        try:
            if BLAS.info() != self.blas:
                raise AssertionError("the number of BLAS threads is another")
            found = digest(model)
            if came is None and found != self.after:
                # Python swallows what is raised where a generator is thrown away
                raise AssertionError("the interrupt was lost, and the call did not go on")
            if found not in self.allowed:
                raise AssertionError(
                    "the model is neither as before nor as after the call or whole parts"
                )
            if self._ended(model, self.allowed[found]) != self.end:
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
    cases: Sequence[InterruptCase] = CASES,
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
    cases = [
        case
        for case in CASES
        if chosen.only in (None, "engine" if case.name.startswith("Engine") else "estimators")
    ]
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
