"""The metric without labels: laws of the stream, what it must find and must leave alone."""

from __future__ import annotations

import inspect
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from sklearn.datasets import load_wine

from scenarios.unsupervised_table import draw_heat_map
from streamembed.errors import (
    BadRowError,
    DamagedFileError,
    FeatureError,
    NotReadyError,
    ParameterError,
)
from streamembed.estimators.replicate import learn_metric
from streamembed.estimators.unsupervised_pipeline import UnsupervisedPipeline
from streamembed.numeric import codec
from streamembed.pairs import pair_memory
from streamembed.storage import archive


def strip(n: int, seed: int = 0, d: int = 4) -> np.ndarray:
    """Three clusters along the first feature; the others are noise of other units."""
    rng = np.random.default_rng((seed, n))
    points = rng.standard_normal((n, d)) * np.linspace(1.0, 30.0, d)
    points[:, 0] += 5.0 * rng.integers(0, 3, n)
    return points


def small(**changes: Any) -> UnsupervisedPipeline:
    given = {"size": 80, "warm_up": 60, "chunk_size": 20, "candidates": 20, "buffer": 120}
    return UnsupervisedPipeline(**{**given, **changes})


def same(one: UnsupervisedPipeline, other: UnsupervisedPipeline) -> bool:
    """Metric and remembered pairs of all replicates, bit for bit."""
    if not np.array_equal(one.metric.matrix, other.metric.matrix) or one.fit != other.fit:
        return False
    for left, right in zip(one.replicates, other.replicates, strict=True):
        mine, theirs = codec.pack(left.pairs), codec.pack(right.pairs)
        if mine[1] != theirs[1] or not all(
            np.array_equal(mine[0][k], theirs[0][k]) for k in mine[0]
        ):
            return False
    return True


def standardised(pipeline: UnsupervisedPipeline, points: np.ndarray) -> np.ndarray:
    """The metric in units of the standardised features."""
    spread = points.std(axis=0)
    spread[spread == 0] = 1.0
    return pipeline.metric.matrix * np.outer(spread, spread)


# ---------------------------------------------------------------- laws of the stream


@given(cuts=st.lists(st.integers(0, 210), max_size=8), reads=st.booleans())
@settings(max_examples=3, deadline=None)
def test_how_the_stream_is_cut_does_not_matter(cuts: list[int], reads: bool) -> None:
    """One call, any calls, and with reading in between: the same bits."""
    points = strip(210)
    whole, parts = small(), small()
    whole.learn(points)
    for part in np.split(points, sorted(cuts)):
        parts.learn(part)
        if reads and parts.ready:
            assert parts.metric is parts.metric
    assert parts.position == 210
    assert same(whole, parts)


@pytest.mark.parametrize("memory", ["window", "landmarks", "all"])
@pytest.mark.parametrize("stop", [30, 60, 95])
@pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
def test_save_load_continue(tmp_path: Path, memory: str, stop: int) -> None:
    """Stopped anywhere, before the warm-up or amid a chunk, it goes on as if never stopped."""
    points = strip(140, 1)
    whole = small(memory=memory, by_mass=memory == "landmarks")
    whole.learn(points[:stop])
    whole.save(tmp_path / "saved")
    loaded = UnsupervisedPipeline.load(tmp_path / "saved")
    for pipeline in (whole, loaded):
        pipeline.learn(points[stop:])
    assert same(whole, loaded)


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    """One changed byte is found."""
    path = tmp_path / "saved"
    pipeline = small()
    pipeline.learn(strip(70))
    pipeline.save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(DamagedFileError):
        UnsupervisedPipeline.load(path)


def test_a_flush_is_an_event():
    """A short chunk is learned; the next cut is where it would have been."""
    points = strip(130, 2)
    pipeline = small()
    with pytest.raises(NotReadyError):
        pipeline.flush()
    pipeline.learn(points[:70])
    before = pipeline.metric
    pipeline.flush()
    assert pipeline.fit.position == 70
    assert pipeline.metric is not before
    pipeline.flush()
    assert pipeline.fit.position == 70
    pipeline.learn(points[70:])
    assert pipeline.fit.position == 120
    assert pipeline.position == 130


def test_memory_is_flat():
    """In a window nothing grows with the stream."""
    pipeline, sizes = small(), []
    for seed in range(6):
        pipeline.learn(strip(200, seed))
        sizes.append([len(s.engine.support_ids) for s in pipeline.replicates])
        assert all(len(replicate.pairs.pairs) <= 120 for replicate in pipeline.replicates)
    assert sizes == [[80, 40, 40]] * 6


def test_the_halves_share_no_event_and_miss_none():
    """Every learned event is in exactly one half; the halves are of one size."""
    pipeline = small(memory="all")
    points = strip(200, 3)
    pipeline.learn(points)
    whole, first, second = (replicate.engine for replicate in pipeline.replicates)
    assert first.position == second.position == 100
    rows = [replicate.engine.snapshot().points for replicate in pipeline.replicates]
    assert len(whole.support_ids) == 200
    center, scale = points[:60].mean(axis=0), points[:60].std(axis=0)
    halves = np.sort(np.concatenate(rows[1:])[:, 0])
    held = len(halves)  # those that wait for their own chunk are not in a support yet
    assert held >= 180
    everything = np.sort((points[:, 0] - center[0]) / scale[0])
    # the same standardisation, by numpy's sums here: a few eps
    assert all(np.abs(everything - value).min() < 1e-12 for value in halves)


# ---------------------------------------------------------------- what it must find


def test_noise_features_are_shrunk():
    """Four blobs in 2 of 10 standardised features: k-NN gains a point in a hundred, or more."""
    gains = []
    for seed in range(3):
        rng = np.random.default_rng((seed, 1000))
        labels = rng.integers(0, 4, 1000)
        corners = 1.93 * np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])
        clean = corners[labels] + rng.standard_normal((1000, 2))
        points = np.column_stack([clean, rng.standard_normal((1000, 8))])
        points /= points.std(axis=0)
        learned = UnsupervisedPipeline.from_points(points, seed=seed)
        found = [
            np.mean(
                [
                    np.bincount(labels[near[1:]], minlength=4).argmax() == labels[near[0]]
                    for near in cKDTree(rows).query(rows, 6)[1]
                ]
            )
            for rows in (points, learned.transform(points))
        ]
        gains.append(found[1] - found[0])
    # .025 measured; .8645 -> .889
    assert np.mean(gains) >= 0.01


def test_wine_reproduces_on_halves():
    """On real data with structure the factor is above .3 (.5 measured, on a neighbour graph)."""
    points, _ = load_wine(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(points))
    pipeline = UnsupervisedPipeline.from_points(points[order])
    assert pipeline.fit.factor > 0.3
    assert pipeline.fit.status == "ok"


@pytest.mark.parametrize("graph", ["neighbors", "kernel"])
@pytest.mark.parametrize("seed", range(3))
def test_a_uniform_grid_teaches_nothing(graph: str, seed: int) -> None:
    """On the grid 5^4 the halves do not agree, and the metric is that of standardised features."""
    axes = np.meshgrid(*[np.arange(1.0, 6.0)] * 4)
    points = np.column_stack([axis.ravel() for axis in axes])
    pipeline = UnsupervisedPipeline.from_points(points, graph=graph, seed=seed)
    assert pipeline.fit.factor < 0.1
    # exp(s L) with s < .1 and entries of L below .1
    np.testing.assert_allclose(standardised(pipeline, points), np.eye(4), atol=0.02)


def test_pairs_by_euclidean_distance_teach_nothing():
    """The source's 'Euclidean + ITML': its pairs satisfy their own bounds; A = I bit for bit."""
    points = strip(200, 4)
    plain = UnsupervisedPipeline.from_points(
        points,
        graph=lambda rows, count: (rows[:, :count], np.ones(count)),
        diffusion_time=None,
        shrunk=False,
    )
    scale = plain._scale
    assert np.array_equal(plain.metric.matrix, np.eye(4) / scale / scale[:, None])
    assert plain.fit.n_similar > 50


def test_without_shrink_there_is_one_replicate():
    """shrunk=False: the factor is 1, and no halves are kept."""
    pipeline = small(shrunk=False)
    pipeline.learn(strip(100, 5))
    assert len(pipeline.replicates) == 1
    assert (pipeline.fit.factor, pipeline.fit.n_halves) == (1.0, (0, 0))


def test_units_of_features_do_not_matter():
    """Features in other units (powers of two: exact) give the same distances."""
    points = strip(160, 6)
    units = np.array([2.0**20, 1.0, 2.0**-15, 8.0])
    one, two = small(), small()
    one.learn(points)
    two.learn(points * units)
    wanted = one.metric.matrix / np.outer(units, units)
    np.testing.assert_allclose(two.metric.matrix, wanted, rtol=1e-9)


def test_the_metric_follows_the_stream():
    """When the feature with the clusters changes, so do the pairs behind the metric."""
    pipeline = small(size=200, shrunk=False, buffer=200)
    pipeline.learn(strip(300, 7))
    before = standardised(pipeline, strip(300, 7))
    moved = strip(600, 8)
    moved[:, [0, 3]] = moved[:, [3, 0]] * np.array([30.0, 1 / 30.0])[[1, 0]]
    pipeline.learn(moved)
    assert all(replicate.pairs.pairs.births.min() >= 700 for replicate in pipeline.replicates)
    assert not np.allclose(before, standardised(pipeline, strip(300, 7)), atol=0.05)


# ---------------------------------------------------------------- bad inputs


def test_all_points_equal():
    """Nothing to tell apart: Euclidean distance, and a status."""
    pipeline = small()
    pipeline.learn(np.full((100, 3), 2.5))
    assert np.array_equal(pipeline.metric.matrix, np.eye(3))
    assert pipeline.fit.status == "no pairs"


def test_duplicate_rows():
    """Five points, many times each: pairs are of different points, the metric is finite."""
    points = np.repeat(np.random.default_rng(0).standard_normal((5, 3)), 30, axis=0)
    pipeline = UnsupervisedPipeline.from_points(points[np.random.default_rng(1).permutation(150)])
    assert np.isfinite(pipeline.metric.matrix).all()
    found = pipeline.replicates[0].pairs
    assert found.counts.degenerate > 0
    assert (np.abs(found.pairs.differences).max(axis=1, initial=1.0) > 0).all()


def test_constant_features_stay_as_they_are():
    """A feature that never varies keeps unit weight and moves nothing else."""
    points = strip(150, 9)
    wider = np.column_stack([points, np.full(150, 7.0)])
    one, two = small(n_components=4), small(n_components=4)
    one.learn(points)
    two.learn(wider)
    np.testing.assert_allclose(two.metric.matrix[4, :4], 0.0, atol=1e-12)
    assert np.linalg.eigvalsh(two.metric.matrix)[0] > 0


@pytest.mark.filterwarnings("ignore:k >= N")
def test_more_features_than_events():
    """d > n: as many coordinates as the halves can have, and a positive definite metric."""
    points = np.random.default_rng(3).standard_normal((24, 60))
    pipeline = UnsupervisedPipeline.from_points(points)
    assert pipeline.metric.matrix.shape == (60, 60)
    assert np.linalg.eigvalsh(pipeline.metric.matrix)[0] > 0


def test_one_feature():
    """d = 1 has one metric up to a factor."""
    pipeline = UnsupervisedPipeline.from_points(np.random.default_rng(4).standard_normal((80, 1)))
    assert pipeline.metric.matrix.shape == (1, 1)
    assert pipeline.metric.matrix[0, 0] > 0


@pytest.mark.parametrize("graph", ["neighbors", "kernel", draw_heat_map])
def test_disconnected_parts_and_isolated_points(graph: Any) -> None:
    """Two parts that no edge joins, and points far from everything: finite, positive definite."""
    rng = np.random.default_rng(5)
    points = rng.standard_normal((160, 3))
    points[:80, 0] += 1e4
    points[::40] *= 1e3
    pipeline = UnsupervisedPipeline.from_points(points[rng.permutation(160)], graph=graph)
    assert np.isfinite(pipeline.metric.matrix).all()
    assert np.linalg.eigvalsh(pipeline.metric.matrix)[0] > 0


def test_nan_is_refused_and_nothing_is_learned():
    """A call with a bad row leaves everything as it was."""
    points = strip(150, 10)
    clean, dirty = small(), small()
    clean.learn(points)
    dirty.learn(points[:90])
    bad = points[90:].copy()
    bad[30, 2] = np.nan
    with pytest.raises(BadRowError, match="NaN"):
        dirty.learn(bad)
    with pytest.raises(FeatureError):
        dirty.learn(points[:5, :3])
    assert dirty.position == 90
    dirty.learn(points[90:])
    assert same(clean, dirty)


def test_before_the_warm_up():
    """No metric yet, and the message says how many events are missing."""
    pipeline = small()
    with pytest.raises(NotReadyError, match="0 have arrived"):
        pipeline.metric  # noqa: B018 - reading raises
    pipeline.learn(strip(59))
    with pytest.raises(NotReadyError, match="takes 60 events and 59 have arrived"):
        pipeline.transform(strip(3))
    assert not pipeline.ready


@pytest.mark.parametrize(
    "changes",
    [
        {"gamma": 0.0},
        {"gamma": np.nan},
        {"diffusion_time": -1.0},
        {"n_components": 0},
        {"candidates": 0},
        {"percentiles": (50.0, 20.0)},
        {"size": 2},
        {"warm_up": 3},
        {"warm_up": 100},
        {"memory": "forever"},
        {"half_life": 10.0},
        {"graph": "circles"},
    ],
)
def test_bad_parameters_are_refused(changes: dict[str, Any]) -> None:
    """When the pipeline is built, not at the first event."""
    with pytest.raises(ParameterError):
        small(**changes)


def test_parameters_are_told_and_kept_as_plain_values() -> None:
    """`help` shows them with their defaults; numbers of any kind are kept as Python's own."""
    shown = inspect.signature(UnsupervisedPipeline).parameters
    assert (len(shown), shown["size"].default) == (20, 2000)
    kept = small(size=np.int32(90), gamma=Fraction(1, 2), percentiles=[10, 90]).settings
    assert (kept.size, kept.gamma, kept.percentiles) == (90, 0.5, (10.0, 90.0))
    assert {type(value) for value in (kept.size, kept.gamma)} == {int, float}
    with pytest.raises(TypeError, match="colour"):
        small(colour="red")


def test_halves_without_pairs_leave_standardised_distance():
    """As long as the halves cannot judge A, the metric is the identity, and says why."""
    pipeline = small()
    pipeline.learn(strip(100, 11))
    whole = pipeline.replicates[0].pairs
    matrix, fit = learn_metric(whole, (pair_memory.init(4), pair_memory.init(4)))
    assert np.array_equal(matrix, np.eye(4))
    assert fit.status == "halves not ready"


# ---------------------------------------------------------------- the graph


def test_a_graph_of_ones_own(tmp_path: Path) -> None:
    """A function as graph is used, and asked for again when the pipeline is loaded."""
    points = strip(120, 12)
    pipeline = small(graph=draw_heat_map)
    pipeline.learn(points[:90])
    pipeline.save(tmp_path / "saved")
    with pytest.raises(ParameterError, match="pass it as graph"):
        UnsupervisedPipeline.load(tmp_path / "saved")
    loaded = UnsupervisedPipeline.load(tmp_path / "saved", graph=draw_heat_map)
    for one in (pipeline, loaded):
        one.learn(points[90:])
    assert same(pipeline, loaded)


@pytest.mark.parametrize("graph", ["neighbors", "kernel"])
def test_the_order_of_a_batch_matters_little(graph: str) -> None:
    """Shuffled rows make other halves and draws; a clear metric stays what it is."""
    points = strip(300, 13) / np.linspace(1.0, 30.0, 4)
    points[:, 0] *= 2.0
    ratios = []
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(300)
        pipeline = UnsupervisedPipeline.from_points(points[order], graph=graph, shrunk=False)
        weights = np.diag(standardised(pipeline, points))
        ratios.append(weights[0] / weights[1:].mean())
    # the clusters' feature weighs more; by how much depends on 500 pairs of 44,850
    assert min(ratios) > (1.2 if graph == "neighbors" else 0.5)


def test_a_sealed_file_with_arrays_of_another_shape_is_damaged(tmp_path: Path) -> None:
    """Every array of a pipeline, a row short or with an axis more: it was an IndexError later."""
    pipeline = UnsupervisedPipeline(size=40, warm_up=24, chunk_size=8)
    pipeline.learn(np.random.default_rng(0).normal(size=(60, 3)))
    path = tmp_path / "pipeline"
    pipeline.save(path)
    table, header = archive.read_table(path, "unsupervised")
    arrays = archive.unpack(table)
    for name, array in arrays.items():
        for changed in (array[:-1], array[None]) if array.size else ():
            altered = archive.to_table({**arrays, name: changed})
            archive.write_table(path, altered, "unsupervised", header)
            with pytest.raises(DamagedFileError):
                UnsupervisedPipeline.load(path)
