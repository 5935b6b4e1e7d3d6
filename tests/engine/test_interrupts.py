"""Nothing is half applied: interrupts at any line, real signals, and what they once left behind."""

from __future__ import annotations

import contextlib
import pickle
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController

import streamembed as se
from scenarios.fuzz import interrupts as fuzz_interrupts
from scenarios.fuzz.interrupts import CASES, Sweep, digest
from streamembed.data.batch import Batch
from streamembed.data.features import Features
from streamembed.engine import apply
from streamembed.engine.engine import Engine
from streamembed.errors import DuplicateIdError
from streamembed.methods import update
from streamembed.methods.chunk import AcceptedEvents
from streamembed.threads import one_blas_thread
from tests.oracles import oracle

POINTS = np.random.default_rng(0).standard_normal((400, 3))
IDS = [f"e{i:03d}" for i in range(400)]


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 60, "warm_up": 30, "chunk_size": 5, **changes})


def test_interrupts_at_a_sample_of_all_places() -> None:
    """Before the call, or after whole chunks of it, and on to the same end; all is in scenarios."""
    result = fuzz_interrupts.run(places=15, seed=3)
    assert result.wrong == []
    assert result.places >= 15
    assert result.before > 0
    assert result.between > 0


def test_interrupts_of_estimators_at_a_sample_of_all_places() -> None:
    """Before the call, after it or after some of its events, and on to the same end."""
    quick = (
        "DiffusionMap, times, 48 to 57",
        "ClassicalMDS, objects",
        "EmbeddingDrift, update",
        "PCA, moments, 48 to 57",
        "ITML, 48 to 57",
        "FENN, step 45",
        "Monitor, renew, 117 to 132",
        "LabelSpreading, 48 to 57",
    )
    cases = [case for case in CASES if case.name in quick]
    result = fuzz_interrupts.run(places=4 * len(cases), seed=1, cases=cases)
    assert result.wrong == []
    assert result.places == 4 * len(cases) == 32
    assert result.before > 0
    assert result.between > 0


def test_every_merge_of_an_estimator_can_be_made() -> None:
    """That of ITML is refused: the sweep ended there, before the estimators that follow."""
    merges = [case for case in CASES if case.name.endswith("merge")]
    assert len(merges) >= 6
    for case in merges:
        case.run(pickle.loads(case.start()))


def test_the_sweep_finds_what_is_half_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine whose parts change one after the other is found out."""
    advance = Engine._advance

    def in_two_steps(self: Engine, steps: Any) -> None:
        before = self._progress
        self._progress = replace(before, rejected=before.rejected + 1)
        advance(self, steps)

    monkeypatch.setattr(Engine, "_advance", in_two_steps)
    sweep = Sweep(next(case for case in CASES if case.name == "Engine, trailing rows set aside"))
    result = fuzz_interrupts.InterruptCounts()
    for place in range(sweep.places - 40, sweep.places + 1):
        sweep.broken_off(place, result)
    assert result.wrong


# ---------------------------------------------------------------- defects, by name


def test_an_interrupt_does_not_leave_ring_and_state_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal as the block with one BLAS thread ends left the old state on the new ring.

    Degrees were then off by 15 % for good, and certificates met with a residual that was not true.
    """
    engine = small(size=100, n_components=3, scaling=None, kernel="gaussian", bandwidth=1.5)
    engine.learn(POINTS[:200])

    @contextlib.contextmanager
    def interrupted() -> Iterator[None]:
        with one_blas_thread():
            yield
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(apply, "one_blas_thread", interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.learn(POINTS[200:210] + 3)
    engine.learn(POINTS[210:300])
    snapshot = engine.snapshot()
    truth = oracle.diffusion_map(snapshot.points, snapshot.bandwidth, 1.0)
    # degrees of the window are sums of up to 100 kernel values, kept by adding and subtracting
    np.testing.assert_allclose(snapshot.degrees, truth.degrees, rtol=1e-10)
    vectors = snapshot.psi * np.sqrt(snapshot.stationary)[:, None]
    assert snapshot.certificate.met
    assert oracle.true_residual(truth.S, vectors, snapshot.eigenvalues) <= 3e-3


@pytest.mark.parametrize("memory", ["window", "landmarks"])
@pytest.mark.parametrize("policy", ["raise", "skip"])
def test_events_with_ids_can_be_given_again_after_an_interrupt(
    memory: str, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their ids stayed held: the retry was refused, or its rows were set aside as duplicates."""
    engine = small(memory=memory, on_bad_row=policy)
    twin = small(memory=memory, on_bad_row=policy)
    for each in (engine, twin):
        each.learn(POINTS[:200], ids=IDS[:200])

    def boom(*arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(update, "push", boom)
        with pytest.raises(KeyboardInterrupt):
            engine.learn(POINTS[200:210], ids=IDS[200:210])
    assert engine.position == 200
    assert engine.learn(POINTS[200:210], ids=IDS[200:210]).accepted == 10
    twin.learn(POINTS[200:210], ids=IDS[200:210])
    assert digest(engine) == digest(twin)


def test_the_log_offset_follows_the_chunks_of_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken off in its third chunk, a call has taken the rows of two from its log, no others."""
    engine = small(on_bad_row="skip")

    def admit(rows: list[int], first: int) -> Any:
        batch = Batch.of_points(POINTS[rows], Features(("a", "b", "c"), True), np.array(rows))
        offsets = 3 * np.arange(first, first + len(rows))
        return engine.apply(replace(engine.check(batch), log_offsets=offsets))

    admit([*range(30)], first=100)
    push, offsets = update.push, []

    def interrupted(*arguments: Any) -> Any:
        offsets.append(engine.log_offset)
        if len(offsets) == 3:
            raise KeyboardInterrupt
        return push(*arguments)

    rows = [*range(30, 38), 37, *range(38, 50), 49]  # two ids come twice
    with monkeypatch.context() as patch:
        patch.setattr(update, "push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            admit(rows, first=130)
    assert offsets == [129 * 3, 134 * 3, 140 * 3]  # the tenth event is the eleventh row
    assert (engine.position, engine.rejected, engine.log_offset) == (40, 1, 140 * 3)
    assert admit(rows[11:], first=141).accepted == 10
    assert (engine.position, engine.rejected, engine.log_offset) == (50, 2, 151 * 3)


def test_events_that_wait_are_counted_by_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between keeping and counting them left a position that was wrong for good."""
    engine, twin = small(), small()
    for each in (engine, twin):
        each.learn(POINTS[:62])
    count = AcceptedEvents.__len__
    for calls in range(1, 12):
        left = [calls]

        def interrupted(events: AcceptedEvents, left: list[int] = left) -> int:
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt
            return count(events)

        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
            patch.setattr(AcceptedEvents, "__len__", interrupted)
            engine.learn(POINTS[62:64])
        assert engine.position == 62 + engine.pending - 2
        if engine.position == 64:
            break
    assert engine.position == 64
    twin.learn(POINTS[62:64])
    assert digest(engine) == digest(twin)


@pytest.mark.parametrize(
    ("name", "learner", "call"),
    [
        ("DiffusionMap, 44 to 45", se.Engine, "learn"),
        ("EmbeddingDrift, update", se.Monitor, "watch"),
        ("ClassicalMDS, objects", se.Engine, "learn_distances"),
    ],
)
def test_what_estimators_know_of_an_event_comes_with_the_event(
    name: str, learner: type, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Ctrl-C behind the learner left means, snapshots and objects of one event fewer for good."""
    case = next(case for case in CASES if case.name == name)
    feed = case.subject.feed if case.call is None else lambda model, *_: case.run(model)
    model, twin = pickle.loads(case.start()), pickle.loads(case.start())
    learn = getattr(learner, call)
    for stop in range(case.first + 1, max(case.stop, case.first + 1) + 1):

        def interrupted(*given: Any, **named: Any) -> None:
            learn(*given, **named)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(learner, call, interrupted)
            with pytest.raises(KeyboardInterrupt):
                feed(model, stop - 1, stop)
        feed(twin, stop - 1, stop)
        assert digest(model) == digest(twin)
    assert case.ended(model, case.stop) == case.ended(twin, case.stop)


@pytest.mark.parametrize(
    "name", ["ITML, 48 to 57", "ITML, 17 to 31", "FENN, flush", "PCA, svd, 48 to 57"]
)
def test_a_call_of_a_metric_that_breaks_off_changes_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Labels, counts and early events were those of the call, without its events."""
    case = next(case for case in CASES if case.name == name)
    model = pickle.loads(case.start())
    before = digest(model)

    def boom(*arguments: Any, **named: Any) -> Any:
        raise KeyboardInterrupt

    for place in (
        "streamembed.metrics.training_stream.extend",
        "streamembed.metrics.training_stream.flush",
        "streamembed.manifold.principal_stream.extend",
    ):
        monkeypatch.setattr(place, boom)
    with pytest.raises(KeyboardInterrupt):
        case.run(model)
    assert digest(model) == before


def test_a_refused_id_in_the_midst_of_a_call_changes_nothing() -> None:
    """Landmarks, "raise": chunks learned before the duplicate are taken back, snapshot and all."""
    engine = small(memory="landmarks", size=20, warm_up=20, kernel="gaussian", bandwidth=4.0)
    engine.learn(POINTS[:100], ids=IDS[:100])
    snapshot, before = engine.snapshot(), digest(engine)
    gone = next(key for key in IDS[:100] if key not in engine.support_ids)
    with pytest.raises(DuplicateIdError, match="'e118'"):
        engine.learn(POINTS[100:120], ids=[gone, *IDS[101:119], "e118"])
    assert digest(engine) == before
    assert engine.snapshot() is snapshot


# ---------------------------------------------------------------- real signals


PACKAGE = str(Path(se.__file__).parent)


def interrupt(number: int, frame: FrameType | None) -> None:
    """A Ctrl-C, where it finds the package at work."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(PACKAGE):
            raise KeyboardInterrupt
        frame = frame.f_back


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no interval timers here")
def test_real_signals_at_random_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """A timer interrupts calls of `learn`, wherever it finds them; the stream ends in equal bytes.

    What is interrupted differs from run to run, what must be true does not.
    """
    # Python swallows an interrupt that comes as a generator is thrown away, and tells of it
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    blas = ThreadpoolController().info()
    rng = np.random.default_rng(4)
    engine, twin = small(), small()
    previous = signal.signal(signal.SIGALRM, interrupt)
    interrupts = calls = 0
    try:
        while engine.position < 390:
            calls += 1
            stop = min(390, engine.position + int(rng.integers(1, 40)))
            start = engine.position
            try:
                signal.setitimer(signal.ITIMER_REAL, float(rng.uniform(1e-5, 2e-2)))
                engine.learn(POINTS[start:stop], ids=IDS[start:stop])
            except KeyboardInterrupt:
                interrupts += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0.0)
            assert start <= engine.position <= stop
            twin.learn(POINTS[start : engine.position], ids=IDS[start : engine.position])
            assert digest(engine) == digest(twin)
            assert ThreadpoolController().info() == blas
            if interrupts > 60:
                break  # a machine so slow that no chunk is ever whole in time
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert calls >= 10


def test_an_interrupt_of_a_compiled_function_is_one() -> None:
    """numba makes a SystemError of it, which ``except Exception`` would swallow."""
    engine = se.Engine(size=50)

    def interrupted(*_: object) -> None:
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise SystemError("CPUDispatcher returned a result with an exception set") from error

    with pytest.raises(KeyboardInterrupt):
        engine._run_in_turn(engine._learning, interrupted)
    with pytest.raises(SystemError):
        engine._run_in_turn(
            engine._learning, lambda: (_ for _ in ()).throw(SystemError("of its own"))
        )
