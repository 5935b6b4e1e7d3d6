"""The engine's contract: warm-up, positions, ids, bad input, nothing half applied."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.errors import (
    DuplicateIdError,
    FeatureError,
    NotReadyError,
    ParameterError,
)
from streamembed.methods.options import Config

POINTS = np.random.default_rng(0).standard_normal((400, 3))


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 60, "warm_up": 30, "chunk_size": 5, **changes})


def test_the_engine_has_the_parameters_of_the_config() -> None:
    """No option can be forgotten: the signatures agree, defaults and all."""
    engine = inspect.signature(se.Engine).parameters
    config = inspect.signature(Config).parameters
    assert {k: p.default for k, p in engine.items()} == {k: p.default for k, p in config.items()}


def test_the_warm_up_ends_at_its_event() -> None:
    """Not ready one event before, ready at it; the error tells both numbers."""
    engine = se.Engine(n_components=3)
    engine.learn(POINTS[:49])
    assert not engine.ready
    with pytest.raises(NotReadyError, match=r"50 events and 49 have arrived"):
        engine.snapshot()
    with pytest.raises(NotReadyError):
        engine.flush()
    with pytest.raises(NotReadyError):
        engine.rescale()
    engine.learn(POINTS[49:50])
    assert engine.ready
    assert engine.snapshot().position == 50


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        *(({}, 50), ({"n_components": 12}, 60), ({"chunk_size": 70}, 70), ({"warm_up": 20}, 20)),
        ({"memory": "landmarks"}, 50),
    ],
)
def test_the_warm_up_is_what_the_design_says(changes: dict[str, Any], events: int) -> None:
    """max(50, 5 n_components, chunk_size), or what is given; "auto" does not count."""
    assert Config(**changes).warm_up_events == events


@pytest.mark.parametrize(
    ("changes", "events"),
    [
        *(({}, 10), ({"memory": "all"}, 10), ({"size": 5}, 5)),
        *(({"memory": "landmarks", "size": size}, n) for size, n in ((8, 10), (200, 50))),
        ({"memory": "landmarks"}, 128),
        ({"memory": "landmarks", "chunk_size": 7}, 7),
    ],
)
def test_the_events_of_a_chunk_depend_on_the_memory(changes: dict[str, Any], events: int) -> None:
    """Ten, or what a window holds; with landmarks a quarter of them, from 10 to 128."""
    assert Config(**changes).chunks.size == events


@pytest.mark.parametrize(("memory", "chunk"), [("window", 10), ("landmarks", 15)])
def test_a_chunk_size_of_auto_is_that_number(memory: str, chunk: int, tmp_path: Path) -> None:
    """The same bits as with the number; it is saved as "auto", and the number as a number."""
    engines = [
        se.Engine(memory=memory, size=60, chunk_size=chunk_size) for chunk_size in ("auto", chunk)
    ]
    for engine, kept in zip(engines, ("auto", chunk), strict=True):
        engine.learn(POINTS[:107])
        engine.save(tmp_path / "engine")
        loaded = se.Engine.load(tmp_path / "engine")
        assert loaded.config.chunk_size == kept
        assert loaded.pending == engine.pending == 107 % chunk
        loaded.learn(POINTS[107:200])
        engine.learn(POINTS[107:200])
        np.testing.assert_array_equal(loaded.snapshot().coordinates, engine.snapshot().coordinates)
    auto, given = (engine.snapshot() for engine in engines)
    np.testing.assert_array_equal(auto.coordinates, given.coordinates)


def test_pending_events_change_nothing_that_is_read() -> None:
    """Events of an unfinished chunk are counted and wait; the snapshot is the same object."""
    engine = small()
    engine.learn(POINTS[:40])
    before = engine.snapshot()
    engine.learn(POINTS[40:44])
    assert (engine.position, engine.learned, engine.pending) == (44, 40, 4)
    assert engine.snapshot() is before
    engine.learn(POINTS[44:45])
    assert (engine.position, engine.learned, engine.pending) == (45, 45, 0)
    assert engine.snapshot() is not before


def test_flush_learns_a_short_chunk() -> None:
    """After a flush the snapshot has all events; the next cut is at the next multiple again."""
    engine = small()
    engine.learn(POINTS[:42])
    engine.flush()
    assert (engine.snapshot().position, engine.learned, engine.pending) == (42, 42, 0)
    engine.learn(POINTS[42:45])
    assert (engine.snapshot().position, engine.pending) == (45, 0)
    engine.flush()
    assert engine.snapshot().position == 45


def test_features_are_settled_by_the_first_batch() -> None:
    """Names, width and kind of later batches must be those of the first."""
    engine = small()
    engine.learn(pa.table({"b": POINTS[:40, 1], "a": POINTS[:40, 0]}))
    assert engine.feature_names == ("a", "b")
    with pytest.raises(FeatureError, match="lacks the features"):
        engine.learn(pa.table({"a": [1.0], "c": [1.0]}))
    with pytest.raises(FeatureError, match="no feature names"):
        engine.learn(POINTS[:5, :2])
    ordered = small()
    ordered.learn(POINTS[:40, :2])
    with pytest.raises(FeatureError, match="3 columns"):
        ordered.learn(POINTS[:5])
    assert engine.position == 40


def test_empty_batches_are_nothing() -> None:
    """No rows, nothing learned, no error."""
    engine = small()
    assert engine.learn(np.zeros((0, 3))).accepted == 0
    assert engine.learn([]).accepted == 0
    assert engine.position == 0


def test_a_reader_is_learned_batch_by_batch() -> None:
    """A record batch reader gives what the table gives."""
    table = pa.table({"x": POINTS[:, 0], "y": POINTS[:, 1]})
    whole, parts = small(), small()
    whole.learn(table)
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7))
    assert parts.learn(reader).accepted == 400
    np.testing.assert_array_equal(whole.snapshot().coordinates, parts.snapshot().coordinates)


def test_skipped_rows_are_reported_and_do_not_count() -> None:
    """The stream position is that of accepted events; the rest is handed back with its reason."""
    engine, twin = small(on_bad_row="skip"), small()
    X = POINTS[:100].copy()
    X[[3, 50, 99], 0] = np.nan, np.inf, 1e300
    learned = engine.learn(X)
    assert (learned.accepted, engine.position, engine.rejected) == (97, 97, 3)
    assert [row.index for row in learned.rejected] == [3, 50, 99]
    twin.learn(np.delete(X, [3, 50, 99], axis=0))
    np.testing.assert_array_equal(engine.snapshot().coordinates, twin.snapshot().coordinates)


def test_ids_that_come_twice_in_a_call_are_told_from_those_that_are_held() -> None:
    """With both rows, the nearest earlier one where there are several."""
    engine = small()
    with pytest.raises(DuplicateIdError, match=r"id 1 is repeated .*\(row 0 and row 1\)"):
        engine.learn(POINTS[:2], ids=[1, 1])
    engine.learn(POINTS[:5], ids=range(5))
    with pytest.raises(DuplicateIdError, match=r"id 4 \(row 1\) is already in the support"):
        engine.learn(POINTS[:3], ids=[7, 4, 4])
    things = se.Engine(size=10, warm_up=5)
    with pytest.raises(DuplicateIdError, match=r"id 'a' is repeated .*\(row 0 and row 2\)"):
        things.learn_distances([[], [1.0], [1.0, 1.0]], ids=["a", "b", "a"])


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"method": "umap"}, "method='umap' must be one of 'diffusion_map'"),
    (
        {"memory": "sketch"},
        "memory='sketch' must be one of 'window', 'landmarks', 'all'",
    ),
    (
        {"half_life": 100.0},
        "half_life=100.0 is for memory='landmarks'",
    ),
    (
        {"memory": "landmarks", "half_life": 0},
        "half_life=0 must be a number between 0.001 and 1e\\+15 or None",
    ),
    (
        {"memory": "landmarks", "size": 3, "n_components": 2, "warm_up": 60},
        "size=3 must be at least 4: n points have at most",
    ),
    ({"kernel": "cosine"}, "kernel='cosine'"),
    ({"scaling": "minmax"}, "scaling='minmax' must be one of 'standard', 'global', None"),
    ({"on_bad_row": "drop"}, "on_bad_row='drop'"),
    ({"n_components": 0}, "n_components=0 must be a whole number of at least 1"),
    ({"n_components": 2.5}, "n_components=2.5"),
    ({"n_components": True}, "n_components=True"),
    ({"size": 1}, "size=1"),
    ({"size": 60_000}, "size=60000 must be at most 50000"),
    ({"method": "kernel_pca", "size": 50_001}, "size=50001 must be at most 50000"),
    ({"method": "isomap", "size": 50_001}, "size=50001 must be at most 50000"),
    ({"chunk_size": 0}, "chunk_size=0"),
    ({"chunk_size": 70, "size": 60}, "chunk_size=70 must be at most size=60"),
    ({"seed": -1}, "seed=-1"),
    ({"bandwidth": 0.0}, "bandwidth=0.0 must be a number between 1e-100 and 1e"),
    ({"bandwidth": -1.0}, "bandwidth=-1.0"),
    ({"bandwidth": float("nan")}, "bandwidth=nan"),
    ({"bandwidth": "wide"}, "bandwidth='wide'"),
    ({"alpha": -0.1}, "alpha=-0.1"),
    ({"diffusion_time": -1}, "diffusion_time=-1"),
    ({"rank": 2, "n_components": 2}, "rank=2 must be larger than n_components=2"),
    ({"rank": "full"}, "rank='full'"),
    ({"tolerance": 0.0}, "tolerance=0.0"),
    ({"tolerance": "tight"}, "tolerance='tight'"),
    ({"warm_up": 3, "n_components": 2}, "warm_up=3 must be at least 4: n points have at most"),
    ({"warm_up": 100, "size": 60}, "warm_up=100 must be at most size=60"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=[str(changes) for changes, _ in WRONG])
def test_wrong_parameters_are_named(changes: dict[str, Any], says: str) -> None:
    """Which, what it was, what it must be."""
    with pytest.raises(ParameterError, match=says):
        se.Engine(**changes)


def test_unknown_options_are_refused() -> None:
    """An option that does nothing does not exist; labels without a metric are refused too."""
    with pytest.raises(TypeError, match="perplexity"):
        se.Engine(perplexity=3)  # type: ignore[call-arg]
    with pytest.raises(ParameterError, match="labels were given"):
        small().learn(POINTS[:2], y=[0, 1])


def test_duplicates_have_no_components() -> None:
    """All points equal: eigenvalues and coordinates are zero, and the certificate is met."""
    engine = small()
    engine.learn(np.ones((60, 2)))
    snapshot = engine.snapshot()
    assert snapshot.eigenvalues.tolist() == [0.0, 0.0]
    assert not snapshot.coordinates.any()
    engine.learn(POINTS[:60, :2])
    assert engine.snapshot().eigenvalues[0] > 0.01
    assert engine.snapshot().certificate.met


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
def test_rescale_starts_a_new_epoch() -> None:
    """Scaling and bandwidth follow the support; the frame's epoch tells that axes started anew."""
    engine = small(kernel="gaussian")
    engine.learn(POINTS[:100])
    engine.learn(100.0 * POINTS[100:200])
    before = engine.snapshot()
    engine.rescale()
    after = engine.snapshot()
    assert after.frame.epoch == before.frame.epoch + 1
    assert after.position == before.position
    np.testing.assert_allclose(after.scale, after.points.std(axis=0))
    np.testing.assert_allclose(after.center, after.points.mean(axis=0))
    engine.learn(100.0 * POINTS[200:220])
    assert engine.snapshot().frame.epoch >= after.frame.epoch


def test_a_snapshot_says_what_it_holds() -> None:
    """In one line: points, components, features, residual, whether that is enough, the picture."""
    engine = se.Engine(size=100, picture=True)
    engine.learn(np.random.default_rng(0).standard_normal((1200, 3)))
    snapshot = engine.snapshot()
    residual = snapshot.certificate.residual
    assert repr(snapshot) == (
        f"<Snapshot at 1,200: 100 points, 2 components of 3 features, residual {residual:.1e}, "
        f"met=True, a picture {snapshot.picture.age} chunks old>"
    )


def test_the_window_forgets_the_oldest() -> None:
    """Ids, points and masses are those of the last events, oldest first."""
    engine = small()
    engine.learn(POINTS[:200])
    snapshot = engine.snapshot()
    assert snapshot.ids.tolist() == engine.support_ids.tolist() == list(range(140, 200))
    np.testing.assert_array_equal(snapshot.points, POINTS[140:200])
    assert snapshot.masses.tolist() == [1.0] * 60


def test_memory_all_forgets_nothing() -> None:
    """Every event stays, also beyond the ring's first capacity."""
    engine = se.Engine(memory="all", chunk_size=50)
    engine.learn(POINTS)
    assert engine.snapshot().ids.tolist() == list(range(400))


def test_duplicate_ids_can_be_set_aside() -> None:
    """Under "skip" the first of its id is learned, the others are handed back."""
    engine = small(on_bad_row="skip")
    learned = engine.learn(POINTS[:4], ids=[7, 8, 7, 9])
    assert learned.accepted == 3
    assert [(row.index, row.id, row.reason) for row in learned.rejected] == [(2, 7, "duplicate id")]
