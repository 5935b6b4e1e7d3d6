"""The picture of an engine: the same bits however it is learned, and whatever is learned."""

from __future__ import annotations

import gc
import pickle
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import InputError, NotReadyError, ParameterError
from streamembed.layout import forces
from streamembed.logs.event_log import write_log
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Floats

POINTS = np.random.default_rng(0).standard_normal((260, 4))
POINTS[:90] += 4.0
SMALL: dict[str, Any] = {"size": 90, "warm_up": 30, "n_neighbors": 7}
# A kind of lists each: the method's own, without duplicates, none, and edges.
KINDS: dict[str, dict[str, Any]] = {
    "self-tuning": {},
    "gaussian": {"kernel": "gaussian"},
    "graph": {"method": "laplacian_eigenmaps"},
    "radius": {"method": "laplacian_eigenmaps", "weights": "binary", "radius": 2.0},
    "pca": {"method": "pca", "n_neighbors": 15},
    "isomap": {"method": "isomap"},
    "lle": {"method": "lle"},
    "landmarks": {"memory": "landmarks"},
    "all": {"memory": "all"},
}


def engine(**changes: Any) -> se.Engine:
    return se.Engine(**{"picture": True, **SMALL, **changes})


def picture_of(made: se.Engine) -> se.Picture:
    picture = made.publish().picture
    assert picture is not None
    return picture


def bits(picture: se.Picture) -> tuple[bytes, ...]:
    """All that it holds."""
    arrays = picture.coordinates, picture.moved, picture.kept, picture.balance
    numbers = picture.age, picture.epoch, picture.gamma, picture.kept_then
    return *(array.tobytes() for array in arrays), repr(numbers).encode()


def test_distances_have_the_picture_of_the_points() -> None:
    """Through the lists, and new objects by their distances."""
    points = POINTS[:120]
    d = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    of_points, of_rows = engine(size=120, scaling=None), engine(size=120)
    of_points.learn(points)
    of_rows.learn_distances([d[i, :i] for i in range(120)])
    expected, found = picture_of(of_points), picture_of(of_rows)
    assert abs(found.kept.mean() - expected.kept.mean()) < 0.05
    assert found.transform_distances(d[:3]).shape == (3, 2)
    with pytest.raises(InputError, match="transform_distances"):
        found.transform(points)


@pytest.mark.skipif(not compilation.is_available(), reason="numba is not installed")
def test_with_and_without_numba_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole stream."""
    found = []
    for available in (True, False):
        monkeypatch.setattr(compilation, "is_available", lambda answer=available: answer)
        made = engine()
        made.learn(POINTS[:160])
        found.append(bits(picture_of(made)))
    assert found[0] == found[1]


def test_a_new_layout_is_announced_and_turned() -> None:
    """Epoch and age say so; it stands as the old one did, and earlier pictures are refused."""
    made = engine()
    made.learn(POINTS[:200])
    before = picture_of(made)
    made.relayout()
    after = picture_of(made)
    assert (after.epoch, after.age) == (before.epoch + 1, 0)
    assert after.moved.max() > 0
    centred = [one.coordinates - one.coordinates.mean(axis=0) for one in (before, after)]
    u, _, v = np.linalg.svd(centred[1].T @ centred[0])
    np.testing.assert_allclose(u @ v, np.eye(2), atol=1e-6)
    with pytest.raises(InputError, match="epoch"):
        after.moved_since(before)
    made.learn(POINTS[200:])
    assert picture_of(made).moved_since(after).shared == pytest.approx(30 / 90)
    with pytest.raises(InputError, match="Picture"):
        after.moved_since(None)  # type: ignore[arg-type]


def test_relayout_while_the_window_fills() -> None:
    """It failed where slots had been filled since the frame was renewed."""
    made = se.Engine(picture=True, size=400)
    made.learn(np.random.default_rng(0).standard_normal((250, 3)))
    made.relayout()
    picture = made.publish().picture
    assert picture is not None
    assert picture.coordinates.shape == (250, 2)


def test_relayout_asks_for_a_picture_and_a_warm_up() -> None:
    """Each with what to do."""
    with pytest.raises(ParameterError, match="picture=True"):
        se.Engine().relayout()
    with pytest.raises(NotReadyError, match="warm-up"):
        engine().relayout()


def test_a_chunk_of_most_of_the_window_is_a_new_picture() -> None:
    """Nothing is left to be followed."""
    made = engine(chunk_size=60, warm_up=60)
    made.learn(POINTS[:180])
    before = picture_of(made).epoch
    made.learn(POINTS[180:240])
    assert picture_of(made).epoch == before + 1


def test_a_picture_never_changes() -> None:
    """Nor does a copy; a pickled one is the same."""
    made = engine()
    made.learn(POINTS[:120])
    snapshot, picture = made.snapshot(), picture_of(made)
    with pytest.raises(FrozenInstanceError):
        picture.age = 3
    with pytest.raises(FrozenInstanceError):
        del picture.age
    with pytest.raises(ValueError, match="read-only"):
        picture.coordinates[0] = 0.0
    again = pickle.loads(pickle.dumps(snapshot)).picture
    assert bits(again) == bits(picture)
    assert again.transform(POINTS[:5]).tobytes() == picture.transform(POINTS[:5]).tobytes()
    made.learn(POINTS[120:])
    assert bits(picture) == bits(again)


def outliers(rng: np.random.Generator) -> Floats:
    points = rng.standard_normal((200, 3))
    points[::20] *= 1e6
    return points


def two_far_apart(rng: np.random.Generator) -> Floats:
    points = rng.standard_normal((200, 3))
    points[::2] += 1e9
    return points


REST = ("graph", "gaussian")
HARD = {
    "all points equal": lambda rng: np.ones((200, 3)),
    "two points": lambda rng: np.tile([[0.0, 0.0], [1.0, 2.0]], (100, 1)),
    "ten duplicates of each": lambda rng: np.repeat(rng.standard_normal((20, 3)), 10, axis=0),
    "outliers at a million deviations": outliers,
    "two parts far apart": two_far_apart,
    "whole numbers": lambda rng: rng.integers(0, 3, (200, 3)).astype(float),
    "denormal": lambda rng: 1e-310 * rng.standard_normal((200, 3)),
    "huge": lambda rng: 1e140 * rng.standard_normal((200, 3)),
    "a line": lambda rng: np.arange(200.0)[:, None],
}


@pytest.mark.parametrize(
    "kind",
    ["self-tuning", "landmarks", *(pytest.param(kind, marks=pytest.mark.long) for kind in REST)],
)
@pytest.mark.parametrize("name", HARD)
def test_hard_data_have_finite_bounded_pictures(name: str, kind: str) -> None:
    """And the same twice; fewer points than neighbours, too."""
    points = HARD[name](np.random.default_rng(0))
    found = []
    for _ in range(2):
        made = engine(size=50, warm_up=6, n_neighbors=15, n_components=1, **KINDS[kind])
        made.learn(points)
        picture = picture_of(made)
        for array in (picture.coordinates, picture.moved, picture.balance, picture.kept):
            assert np.isfinite(array).all()
        assert picture.radius < 1e4
        assert np.isfinite(picture.transform(points[:3])).all()
        found.append(bits(picture))
    assert found[0] == found[1]


def test_parameters_are_checked() -> None:
    """By name, and an option that would do nothing is refused."""
    for wrong in (1, "yes", None):
        with pytest.raises(ParameterError, match="picture="):
            se.Engine(picture=wrong)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="spread=0"):
        engine(spread=0)
    with pytest.raises(ParameterError, match="picture=True"):
        se.Engine(spread=4.0)
    with pytest.raises(ParameterError, match="n_neighbors=5"):
        se.Engine("pca", n_neighbors=5)
    assert se.Engine("pca", n_neighbors=5, picture=True).config.n_neighbors == 5


def test_spread_draws_islands_together() -> None:
    """More attraction: the same points nearer to their neighbours."""
    radii = []
    for spread in (1.0, 4.0):
        made = engine(spread=spread)
        made.learn(POINTS)
        radii.append(picture_of(made).radius)
    assert radii[1] < radii[0]


def test_a_replay_keeps_pictures(tmp_path: Path) -> None:
    """Columns beside each event, a row for every point of every snapshot, and the timeline."""
    write_log(tmp_path / "log", POINTS, list("abcd"))
    runs = []
    for name in ("one", "two"):
        done = se.replay(tmp_path / "log", engine(), tmp_path / name, snapshot_every=50)
        runs.append((done.path / "picture.parquet").read_bytes())
    assert runs[0] == runs[1]
    events = pq.read_table(tmp_path / "one" / "embedding.parquet")
    assert np.isfinite(events["live_map_0"].to_numpy()).all()
    pictures = pq.read_table(tmp_path / "one" / "picture.parquet").to_pandas()
    timeline = pq.read_table(tmp_path / "one" / "timeline.parquet").to_pandas()
    assert pictures.groupby("position").size().tolist() == [30, 50, 90, 90, 90, 90, 90]
    last = pictures[pictures.position == 260]
    picture = se.Snapshot.load(tmp_path / "one" / "snapshot.arrow").picture
    assert picture is not None
    np.testing.assert_array_equal(last.live_map_0, picture.coordinates[:, 0].astype(np.float32))
    assert timeline.picture_kept.iloc[-1] == picture.kept.mean()
    plain = se.replay(tmp_path / "log", engine(picture=False), tmp_path / "plain")
    assert not (plain.path / "picture.parquet").exists()
    assert "live_map_0" not in pq.read_schema(plain.path / "embedding.parquet").names


def test_plot_draws_or_says_why_not() -> None:
    """Labels, numbers, time and trust; onto axes of one's own."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415

    made = engine()
    made.learn(POINTS)
    picture = picture_of(made)
    names = np.where(np.arange(90) % 2, "odd", "even")
    gaps = np.where(np.arange(90) % 3, names, None)  # type: ignore[call-overload]
    numbers = np.where(np.arange(90) % 3, np.arange(90) % 4, np.nan)
    times = np.datetime64("2026-01-01") + np.arange(90)
    many = np.arange(90) % 30
    for color in (
        None,
        names,
        gaps,
        numbers,
        times,
        many,
        np.linspace(0, 1, 90),
        "kept",
        "balance",
    ):
        ax = Figure().subplots()
        assert picture.plot(color, ax=ax) is ax
        assert len(ax.collections) >= 2
    with pytest.raises(ParameterError, match="one value"):
        picture.plot(names[:5], ax=Figure().subplots())
    big = engine(memory="all")
    big.learn(POINTS)
    with pytest.raises(ParameterError, match="different names"):
        picture_of(big).plot([f"c{i}" for i in range(260)], ax=Figure().subplots())
    for wrong in ({"new": -5}, {"new": 2.5}, {"ax": "x"}):
        with pytest.raises(ParameterError, match=next(iter(wrong))):
            picture.plot(**wrong)


def test_a_picture_can_be_laid_out_at_any_size() -> None:
    """While the window grows the frame may know fewer points than there are."""
    for n in (30, 47, 60, 71, 89):
        made = engine()
        made.learn(POINTS[:n])
        made.flush()
        made.relayout()
        assert np.isfinite(picture_of(made).coordinates).all()


def test_few_points_are_no_dot() -> None:
    """With as many neighbours as points all would attract all."""
    made = engine(size=30, warm_up=20, n_neighbors=50)
    made.learn(POINTS[:60])
    picture = picture_of(made)
    assert picture.n_neighbors == 9
    assert picture.radius > 0.5


def test_growth_and_rescaling_are_epochs_of_their_own() -> None:
    """All points come to rest anew: their places cannot be compared with those before."""
    made, epochs = engine(), []
    for start in range(0, 260, 10):
        made.learn(POINTS[start : start + 10])
        if made.ready:
            epochs.append(picture_of(made).epoch)
    assert epochs[0] == 0
    assert epochs[-1] == 2  # at 60 events, and at 90
    made.rescale()
    assert picture_of(made).epoch == 3


def test_no_chunk_of_a_growing_picture_takes_ten_times_the_median(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In pairs of points whose forces are computed; all have come to rest before they double."""
    pairs, per_chunk = 0, []

    def count_pairs(kind: Callable[..., Floats]) -> Callable[..., Floats]:
        def counted(places: Floats, at: Floats, *rest: Any) -> Floats:
            nonlocal pairs
            pairs += len(places) * len(at)
            return kind(places, at, *rest)

        return counted

    made = engine(size=400, warm_up=50, n_neighbors=15)
    points = np.random.default_rng(0).standard_normal((1000, 4))
    made.learn(points[:50])
    monkeypatch.setattr(forces, "repel", count_pairs(forces.repel))
    monkeypatch.setattr(forces, "sum_weights", count_pairs(forces.sum_weights))
    ages = {}
    for start in range(50, 1000, 10):
        pairs = 0
        made.learn(points[start : start + 10])
        per_chunk.append(pairs)
        ages[start + 10] = picture_of(made).age
    assert max(per_chunk) < 10 * np.median(per_chunk)
    assert [ages[position] for position in (100, 130, 400, 500, 600)] == [0] * 5
    assert min(ages[position] for position in (180, 380, 610)) > 0
    picture = picture_of(made)
    assert picture.epoch == 3  # at 100, 200 and 400 events
    assert picture.age == 40


def test_moved_is_all_that_a_chunk_did() -> None:
    """Also where all points came to rest together; newcomers have not moved."""
    made, before = engine(), None
    for start in range(0, 260, 10):
        made.learn(POINTS[start : start + 10])
        if not made.ready:
            continue
        picture = picture_of(made)
        if before is not None:
            _, here, there = np.intersect1d(picture.ids, before.ids, return_indices=True)
            expected = np.zeros(len(picture.ids))
            steps = picture.coordinates[here] - before.coordinates[there]
            expected[here] = np.sqrt((steps**2).sum(axis=1))
            np.testing.assert_allclose(picture.moved, expected, atol=1e-9)
        before = picture


@pytest.mark.parametrize("method", ["pca", "classical_mds", "isomap", "laplacian_eigenmaps"])
def test_equal_points_are_neighbours_to_all_methods(method: str) -> None:
    """Then and now, of points and of distances."""
    points = np.random.default_rng(0).integers(0, 3, (100, 2)).astype(float)
    d = np.sqrt(((points[:, None] - points) ** 2).sum(axis=-1))
    made = se.Engine(method, picture=True, size=100, n_components=1, scaling=None)
    made.learn(points)
    made.relayout()
    picture = picture_of(made)
    assert picture.kept_then == pytest.approx(picture.kept.mean())
    if method == "pca":
        return
    rows = se.Engine(method, picture=True, size=100, n_components=1)
    rows.learn_distances([d[i, :i] for i in range(100)])
    assert picture_of(rows).kept.mean() > 0.7


def test_ids_of_two_kinds_are_refused() -> None:
    """Of two engines: nothing of them is the same."""
    one, other = engine(), engine()
    one.learn(POINTS[:100])
    other.learn(POINTS[:100], ids=[f"e{i}" for i in range(100)])
    with pytest.raises(InputError, match="kind"):
        picture_of(one).moved_since(picture_of(other))


def test_a_hub_takes_no_square_of_memory() -> None:
    """Everybody lists one newcomer: a few of them are tried."""
    rng = np.random.default_rng(0)
    sphere = rng.standard_normal((1500, 200))
    sphere /= np.sqrt((sphere**2).sum(axis=1))[:, None]
    made = se.Engine(
        "laplacian_eigenmaps", picture=True, size=1600, warm_up=1500, scaling=None, tolerance=None
    )
    made.learn(sphere)
    tracemalloc.start()
    made.learn(np.concatenate([np.zeros((1, 200)), sphere[:9] + 0.01]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 80e6


def test_a_snapshot_with_a_picture_is_freed_at_once() -> None:
    """Without the garbage collector: a replay held ten windows of points."""
    engine = se.Engine(size=60, picture=True)
    engine.learn(np.random.default_rng(0).standard_normal((80, 3)))
    snapshot = engine.snapshot()
    picture = snapshot.picture
    assert picture is snapshot.picture
    assert picture is not None
    kept = picture.kept
    picture.transform(snapshot.points[:2])
    del picture
    assert snapshot.picture is not None
    assert snapshot.picture.kept is kept
    freed = weakref.ref(snapshot)
    engine.learn(np.zeros((10, 3)))
    engine.snapshot()
    gc.disable()
    try:
        del snapshot
        assert freed() is None
    finally:
        gc.enable()
