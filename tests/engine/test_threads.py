"""Threads: readers wait for the chunk, a second learner is refused, the BLAS setting comes back."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from threadpoolctl import ThreadpoolController, threadpool_limits

import streamembed as se
from scenarios.fuzz.interrupts import digest
from streamembed.errors import ConcurrentUseError
from streamembed.methods import publish, update
from streamembed.threads import one_blas_thread

POINTS = np.random.default_rng(0).standard_normal((900, 3))
# Longer than anything here takes, on a machine that is busy with other things.
PATIENCE = 120.0


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 60, "warm_up": 30, "chunk_size": 5, **changes})


class Beside:
    """Calls in another thread; what they raised is raised here at the end."""

    def __init__(self, *calls: Callable[[], object]) -> None:
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(call,)) for call in calls]

    def _run(self, call: Callable[[], object]) -> None:
        try:
            call()
        except BaseException as error:
            self.errors.append(error)

    def __enter__(self) -> Beside:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
        if self.errors:
            raise self.errors[0]


# ---------------------------------------------------------------- one learns, others read


@pytest.mark.parametrize("memory", ["window", "landmarks"])
def test_snapshots_beside_a_learner_are_those_of_their_position(memory: str) -> None:
    """Read while another thread learned, they were of half-written rings, and met all the same.

    Now each has the bytes of a sequential engine's at its position.
    """
    engine = small(memory=memory, size=100, kernel="gaussian", bandwidth=2.0)
    engine.learn(POINTS[:200])
    found: dict[int, se.Snapshot] = {}

    def learn() -> None:
        for start in range(200, 900, 70):
            engine.learn(POINTS[start : start + 70])

    with Beside(learn):
        while engine.position < 900:
            snapshot = engine.snapshot()
            found[snapshot.position] = snapshot
    found[900] = engine.snapshot()
    assert len(found) > 3
    sequential = small(memory=memory, size=100, kernel="gaussian", bandwidth=2.0)
    for start in range(0, 900, 5):
        sequential.learn(POINTS[start : start + 5])
        if start + 5 in found:
            truth = sequential.snapshot()
            assert found[start + 5].coordinates.tobytes() == truth.coordinates.tobytes()
            assert found[start + 5].certificate == truth.certificate
    assert digest(engine) == digest(sequential)


def test_a_reader_waits_for_a_chunk_and_not_for_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the third chunk of a call is learned a reader waits; it has its turn before the next.

    It finds the state after the third chunk, and the learner goes on after it.
    """
    engine = small()
    engine.learn(POINTS[:60])
    push = update.push
    chunks: list[int] = []
    reached, asked = threading.Event(), threading.Event()
    found: list[int] = []

    def slow(state: Any, *arguments: Any) -> Any:
        chunks.append(state.position)
        if len(chunks) == 3:
            reached.set()
            assert asked.wait(PATIENCE)
            while len(engine._rings._queue) < 2:  # until the reader stands in the queue
                asked.wait(0.001)
        return push(state, *arguments)

    monkeypatch.setattr(update, "push", slow)
    with Beside(lambda: engine.learn(POINTS[60:100])):
        assert reached.wait(PATIENCE)
        with Beside(lambda: found.append(engine.snapshot().position)):
            asked.set()
    assert found == [75]
    assert engine.position == 100


def test_saving_beside_a_learner_saves_one_state() -> None:
    """A pickle that is made while another thread learns is that of the engine at its position."""
    engine = small()
    engine.learn(POINTS[:100])
    saved: list[bytes] = []
    with Beside(lambda: engine.learn(POINTS[100:700])):
        while engine.position < 700:
            saved.append(pickle.dumps(engine))
    for each in saved[:: max(1, len(saved) // 5)]:
        loaded = pickle.loads(each)
        twin = small()
        twin.learn(POINTS[: loaded.position])
        assert digest(loaded) == digest(twin)


# ---------------------------------------------------------------- two that learn


def test_two_learners_in_one_engine_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """They gave NaN and warnings; now the second call is a typed error that changes nothing."""
    engine, twin = small(metrics=("itml",)), small(metrics=("itml",))
    for each in (engine, twin):
        each.learn(POINTS[:60])
    push = update.push
    inside, done = threading.Event(), threading.Event()

    def held_up(*arguments: Any) -> Any:
        inside.set()
        assert done.wait(PATIENCE)
        return push(*arguments)

    monkeypatch.setattr(update, "push", held_up)
    with Beside(lambda: engine.learn(POINTS[60:70])):
        assert inside.wait(PATIENCE)
        for refused in (
            lambda: engine.learn(POINTS[70:80]),
            engine.flush,
            engine.rescale,
            lambda: engine.learn_pairs(POINTS[:2], POINTS[2:4], [True, False]),
            lambda: engine.learn_distances([[]]),
        ):
            with pytest.raises(ConcurrentUseError, match="learning in another thread"):
                refused()
        done.set()
    twin.learn(POINTS[60:70])
    assert digest(engine) == digest(twin)


def test_a_callback_into_the_engine_that_learns_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for oneself would last for ever, so reading raises as well; `position` does not."""
    engine, twin = small(), small()
    for each in (engine, twin):
        each.learn(POINTS[:60])
    push = update.push
    told: list[str] = []

    def called_back(*arguments: Any) -> Any:
        for call in (engine.snapshot, engine.flush, lambda: engine.learn(POINTS[:1])):
            with pytest.raises(
                ConcurrentUseError, match="already at work in this thread"
            ) as caught:
                call()
            told.append(str(caught.value))
        assert engine.position == 60
        return push(*arguments)

    monkeypatch.setattr(update, "push", called_back)
    engine.learn(POINTS[60:65])
    monkeypatch.undo()
    assert len(told) == 3
    twin.learn(POINTS[60:65])
    assert digest(engine) == digest(twin)


def test_points_that_call_back_into_the_engine_are_refused() -> None:
    """An object that learns with the engine that is reading it: nothing is learned twice."""
    engine = small()
    engine.learn(POINTS[:60])

    class CallingBack(list[Any]):
        def __iter__(self) -> Iterator[Any]:
            engine.learn(POINTS[:5])
            return super().__iter__()

    with pytest.raises(ConcurrentUseError, match="already at work in this thread"):
        engine.learn(CallingBack(POINTS[60:65].tolist()))
    assert engine.position == 60
    assert engine.learn(POINTS[60:65]).accepted == 5


def test_a_callback_while_a_snapshot_is_made_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A handler that learns in the midst of it would write the rows that are being read."""
    engine = small()
    engine.learn(POINTS[:60])
    published = publish.publish

    def called_back(*arguments: Any) -> Any:
        with pytest.raises(ConcurrentUseError):
            engine.learn(POINTS[60:65])
        return published(*arguments)

    monkeypatch.setattr(publish, "publish", called_back)
    assert engine.snapshot().position == 60


# ---------------------------------------------------------------- the BLAS setting


def blas_threads() -> list[int]:
    libraries = ThreadpoolController().info()
    return [each["num_threads"] for each in libraries if each["user_api"] == "blas"]


def test_overlapping_engines_leave_the_blas_setting_as_it_was() -> None:
    """Each restored what it had found: after four engines in four threads the process had one."""
    inside, together = threading.Barrier(4), threading.Barrier(4)
    seen: list[list[int]] = []

    def block() -> None:
        inside.wait(PATIENCE)
        with one_blas_thread():
            together.wait(PATIENCE)  # all four are in before the first is out
            seen.append(blas_threads())

    def learn(seed: int) -> None:
        engine = small()
        engine.learn(np.random.default_rng(seed).standard_normal((200, 3)))
        engine.snapshot()

    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with Beside(block, block, block, block):
            pass
        assert blas_threads() == before
        with Beside(*[lambda seed=seed: learn(seed) for seed in range(4)]):
            pass
        assert blas_threads() == before
    assert all(max(threads) == 1 for threads in seen)
    assert len(seen) == 4


def test_every_thread_computes_with_one_blas_thread() -> None:
    """Where the main thread had set the number, the setting of others was ignored in silence.

    An engine in another thread then computed with two, and its bits were others.
    """
    points = np.random.default_rng(2).standard_normal((700, 8))
    saved: list[str] = []
    seen: list[list[int]] = []

    def learn() -> None:
        with one_blas_thread():
            seen.append(blas_threads())
        engine = se.Engine(size=400, chunk_size=50, n_components=4)
        engine.learn(points)
        saved.append(digest(engine))

    with threadpool_limits(limits=2, user_api="blas"):
        learn()
        with Beside(learn):
            pass
    assert [max(threads) for threads in seen] == [1, 1]
    assert saved[0] == saved[1]


def test_nested_blocks_leave_the_blas_setting_as_it_was() -> None:
    """The last to leave restores it, also where an error leads out of the others."""
    with threadpool_limits(limits=2, user_api="blas"):
        before = blas_threads()
        with one_blas_thread():
            with pytest.raises(KeyboardInterrupt), one_blas_thread():
                raise KeyboardInterrupt
            assert max(blas_threads()) == 1
        assert blas_threads() == before


# ---------------------------------------------------------------- copies and forks


def test_copies_do_not_share_what_is_written() -> None:
    """A deep copy and a pickle learn on by themselves, to the same bytes."""
    engine = small()
    engine.learn(POINTS[:102])
    copies = [copy.deepcopy(engine), copy.copy(engine), pickle.loads(pickle.dumps(engine))]
    before = digest(engine)
    for each in copies:
        each.learn(POINTS[102:120])
        assert digest(engine) == before
    engine.learn(POINTS[102:120])
    assert {digest(each) for each in copies} == {digest(engine)}


def child(engine: se.Engine, answer: Any) -> None:
    engine.learn(POINTS[engine.position : 110])
    answer.send((digest(engine), max(blas_threads())))
    answer.close()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_in_the_midst_of_a_chunk_learns_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child has the engine as of its last whole chunk, and does not wait for its parent."""
    engine, twin = small(), small()
    for each in (engine, twin):
        each.learn(POINTS[:100])
    push = update.push
    inside, done = threading.Event(), threading.Event()

    def held_up(*arguments: Any) -> Any:
        after = push(*arguments)
        if not done.is_set() and threading.current_thread() is not threading.main_thread():
            inside.set()
            assert done.wait(PATIENCE)
        return after

    monkeypatch.setattr(update, "push", held_up)
    before = max(blas_threads())
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    with Beside(lambda: engine.learn(POINTS[100:110])):
        assert inside.wait(PATIENCE)
        process = context.Process(target=child, args=(engine, theirs))
        process.start()
        try:
            assert ours.poll(PATIENCE)
            found, threads = ours.recv()
        finally:
            done.set()
            process.join(PATIENCE)
    twin.learn(POINTS[100:110])
    assert found == digest(twin) == digest(engine)
    assert threads == before
