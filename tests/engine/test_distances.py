"""Things without coordinates: the map of their distances, and every way to get a row wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios.streams import swiss_roll
from streamembed.errors import BadRowError, FeatureError, InputError
from streamembed.estimators import DiffusionMap
from tests.oracles import oracle

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")

MEMORIES = ["window", "landmarks", "all"]
N, SIZE = 260, 90


def small(memory: str = "window", **changes: Any) -> se.Engine:
    parameters = {"size": SIZE, "warm_up": 50, "scaling": None, "memory": memory, "chunk_size": 10}
    return se.Engine(**{**parameters, **changes})


def things(n: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    points = swiss_roll(n, seed)
    return points, cdist(points, points)


def row_for(engine: se.Engine, d: np.ndarray) -> np.ndarray:
    """What the contract asks of the next row, from the matrix of all distances."""
    t = engine.position
    if engine.config.memory == "landmarks":
        waiting = np.arange(t - engine.pending, t)
        return d[t, np.concatenate([engine.support_positions, waiting])]
    return d[t, max(0, t - SIZE) if engine.config.memory == "window" else 0 : t]


# ---------------------------------------------------------------- the same as points


def test_distances_that_no_points_have() -> None:
    """City blocks, shortest paths, random symmetric numbers: at full rank the batch answer."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((120, 2))
    noise = np.abs(rng.standard_normal((120, 120))) + 0.5
    kinds = {
        "city blocks": cdist(points, points, "cityblock"),
        "counts": np.round(3.0 * cdist(points, points)),
        "noise": np.triu(noise, 1) + np.triu(noise, 1).T,
    }
    for name, d in kinds.items():
        engine = small(
            "all", rank=110, kernel="gaussian", bandwidth=1.0, n_components=3, tolerance=1e-8
        )
        engine.learn_distances(d)
        snapshot = engine.snapshot()
        kernel = np.exp(-(d**2))
        q = kernel.sum(axis=1)
        laplacian = kernel / np.outer(q, q)
        delta = laplacian.sum(axis=1)
        s = laplacian / np.sqrt(np.outer(delta, delta))
        truth = np.linalg.eigvalsh(s)[::-1][1:4]
        np.testing.assert_allclose(snapshot.eigenvalues, truth, atol=1e-6, err_msg=name)
        assert snapshot.certificate.met
        vectors = snapshot.psi * np.sqrt(snapshot.stationary)[:, None]
        assert oracle.true_residual(s, vectors, snapshot.eigenvalues) < 1e-6


def test_rescaling_chooses_a_new_bandwidth_from_the_ring() -> None:
    """Distances are never scaled; the bandwidth follows them."""
    d = things(200)[1]
    for memory in MEMORIES:
        engine = small(memory)
        engine.learn_distances(2.0 * d[:100, :100])
        before = engine.snapshot()
        engine.rescale()
        after = engine.snapshot()
        assert after.frame.epoch == before.frame.epoch + 1
        np.testing.assert_array_equal(after.ids, before.ids)
        assert after.bandwidth != before.bandwidth


# ---------------------------------------------------------------- what is accepted


def test_rows_come_in_every_shape() -> None:
    """Matrix, ragged lists, with the own distance, as an Arrow column, float32: the same."""
    d = things(60)[1]
    ragged = [d[t, :t].tolist() for t in range(60)]
    expected = small("all", warm_up=20)
    expected.learn_distances(ragged)
    shapes = {
        "matrix": d,
        "arrays": [d[t, :t] for t in range(60)],
        "with the own distance": [d[t, : t + 1] for t in range(60)],
        "arrow": pa.array(ragged, pa.list_(pa.float64())),
        "chunked": pa.chunked_array([ragged[:7], ragged[7:]], pa.list_(pa.float64())),
        "objects": np.array([*(np.array(row) for row in ragged)], dtype=object),
    }
    for name, rows in shapes.items():
        engine = small("all", warm_up=20)
        assert engine.learn_distances(rows).accepted == 60, name
        np.testing.assert_array_equal(
            engine.snapshot().coordinates, expected.snapshot().coordinates, err_msg=name
        )


def test_a_matrix_goes_on_where_the_stream_is() -> None:
    """(n, m + n): distances to the m things before, and to one another."""
    d = things()[1]
    for memory in MEMORIES:
        one, other = small(memory), small(memory)
        one.learn_distances(d)
        other.learn_distances(d[:100, :100])
        if memory == "landmarks":  # to the end of the chunk by the landmarks, beyond it by all
            held = other.support_positions
            other.learn_distances(d[100:105][:, [*held, *range(100, 105)]])
            other.learn_distances(d[105:, :])
        else:
            other.learn_distances(d[100:, (10 if memory == "window" else 0) :])
        np.testing.assert_array_equal(one.snapshot().coordinates, other.snapshot().coordinates)


def test_set_aside_rows_count_for_the_rest_of_their_call() -> None:
    """The caller could not know: distances to them are dropped from the rows behind."""
    d = things()[1]
    bad = d.copy()
    spoiled = [20, 130, 131]
    for t in spoiled:
        bad[t, 3] = np.nan
    stays = [t for t in range(N) if t not in spoiled]
    for memory in ("landmarks", "all"):
        engine, clean = small(memory, on_bad_row="skip"), small(memory)
        done = engine.learn_distances([bad[t, :t] for t in range(N)])
        assert [row.index for row in done.rejected] == spoiled
        assert all("distance 3 is NaN" in row.reason for row in done.rejected)
        clean.learn_distances(d[np.ix_(stays, stays)])
        np.testing.assert_array_equal(engine.snapshot().coordinates, clean.snapshot().coordinates)


def test_set_aside_rows_count_in_a_full_window_too() -> None:
    """A row behind one that was set aside must reach one thing farther back."""
    d = things()[1]
    engine, clean = (small(on_bad_row="skip") for _ in range(2))
    engine.learn_distances(d[:150, :150])
    clean.learn_distances(d[:150, :150])
    rows = [d[150, 60:150], -d[151, 61:151], d[152, 61:152], d[153, 63:153], d[154, 62:154]]
    done = engine.learn_distances(rows)
    reasons = {row.index: row.reason for row in done.rejected}
    assert set(reasons) == {1, 3}
    assert "is -" in reasons[1]
    assert reasons[3] == (
        "it has 90 distances, expected 91 (one to each of the last 90 objects, and 1 rejected "
        "ones of this call)"
    )
    clean.learn_distances([d[150, 60:150]])
    clean.learn_distances([d[152, 61:151]])
    clean.learn_distances([d[154, [*range(62, 151), 152]]])
    assert engine.position == clean.position
    engine.flush()
    clean.flush()
    np.testing.assert_array_equal(engine.snapshot().coordinates, clean.snapshot().coordinates)


# ---------------------------------------------------------------- what is refused


def good(count: int) -> list[list[float]]:
    d = things(count + 5)[1]
    return [d[t, :t].tolist() for t in range(count + 5)]


WRONG: list[tuple[Any, str]] = [
    ([[1.0] * 9], r"row 0: it has 9 distances, expected 5 \(one to each of the last 5 objects\)"),
    ([[1.0] * 4], "row 0: it has 4 distances, expected 5"),
    ([[1.0, 2, 3, 4, -5]], r"row 0: distance 4 is -5; distances must not be negative"),
    ([[1.0, 2, float("nan"), 4, 5]], "row 0: distance 2 is NaN"),
    ([[1.0, 2, float("inf"), 4, 5]], "row 0: distance 2 is inf; it must be finite"),
    ([[1.0, 2, 1e200, 4, 5]], "row 0: distance 2 is 1e.200; it must be finite, at most 1e150"),
    ([[1.0, 2, 3, 4, 5, 6]], "the extra one would be its own distance, which must be 0 and is 6"),
    ([[1.0, 2, 3, 4, "x"]], "row 0: it is null or not a row of numbers"),
    ([None], "row 0: it is null"),
    ([[1.0] * 5, [1.0] * 5], "row 1: it has 5 distances, expected 6"),
]


@pytest.mark.parametrize(("rows", "says"), WRONG, ids=[says[:40] for _, says in WRONG])
def test_wrong_rows_are_named(rows: Any, says: str) -> None:
    """Which row, what it was, what it must be; nothing of the call is learned."""
    engine = small()
    engine.learn_distances(good(0))
    with pytest.raises(BadRowError, match=says):
        engine.learn_distances(rows)
    assert engine.position == 5


def test_a_matrix_must_be_symmetric_with_a_zero_diagonal() -> None:
    """Both entries and both things are named."""
    d = things(10)[1]
    asymmetric, loud = d.copy(), d.copy()
    asymmetric[7, 2] += 1.0
    loud[4, 4] = 0.5
    with pytest.raises(
        BadRowError, match=r"row 7: its distance to row 2 is .* in the other direction"
    ):
        small().learn_distances(asymmetric)
    with pytest.raises(BadRowError, match=r"row 4: its distance to itself is 0.5; it must be 0"):
        small().learn_distances(loud)
    rounded = d.astype(np.float32)  # computed twice in float32, entries differ in the last bits
    rounded[3, 1] *= 1.0000002
    assert small().learn_distances(rounded).accepted == 10


def test_points_and_distances_do_not_mix() -> None:
    """The first call settles what the engine learns."""
    points, d = things(60)
    engine = small()
    engine.learn_distances(d)
    with pytest.raises(InputError, match="this engine learns distances: use learn_distances"):
        engine.learn(points)
    other = small()
    other.learn(points)
    with pytest.raises(InputError, match="this engine learns points: use learn"):
        other.learn_distances([d[0]])
    with pytest.raises(FeatureError, match="learned from distances and has no features"):
        engine.snapshot().transform(points)


def test_new_rows_are_checked_too() -> None:
    """transform_distances: length, sign, NaN; inf is an unknown distance, but not for all."""
    d = things(80)[1]
    engine = small(warm_up=20)
    engine.learn_distances(d[:60, :60], ids=[f"t{i}" for i in range(60)])
    snapshot = engine.snapshot()
    row = d[70, :60].copy()
    known = snapshot.transform_distances([row])
    row[5] = np.inf  # exp(-d^2) of a far thing is nothing anyhow
    far = int(np.argmax(d[70, :60]))
    row = d[70, :60].copy()
    row[far] = np.inf
    np.testing.assert_allclose(snapshot.transform_distances([row]), known, atol=0.05)
    for bad, says in (
        (row[:-1], "59 distances for a support of 60 objects"),
        (
            np.where(np.arange(60) == 3, -1.0, row),
            "the distance to object 't3' is -1; it must not be negative",
        ),
        (np.where(np.arange(60) == 3, np.nan, row), "the distance to object 't3' is nan"),
        (np.full(60, np.inf), "no distance is finite"),
    ):
        with pytest.raises(BadRowError, match=says):
            snapshot.transform_distances([bad])


# ---------------------------------------------------------------- in river's manner


def test_river_takes_distances_by_id() -> None:
    """Any order of the keys; the own id has distance 0; the engine beneath learns the same."""
    d = things(120)[1]
    names = [f"thing {i}" for i in range(120)]
    for memory in MEMORIES:
        parameters = {"memory": memory, "size": SIZE, "warm_up": 50, "metric": "precomputed"}
        model = DiffusionMap(**parameters, chunk_size=10)
        engine = small(memory)
        rng = np.random.default_rng(0)
        for t in range(120):
            held = [] if t == 0 else model.engine.distance_row_ids.tolist()
            keys = [names.index(name) for name in held] + [t]
            rng.shuffle(keys)
            x = {names[i]: float(d[t, i]) for i in keys}
            if not model.ready:
                assert model.transform_one(x) == {"diffusion_map_0": 0.0, "diffusion_map_1": 0.0}
            model.learn_one(x)
            engine.learn_distances([row_for(engine, d)], ids=[names[t]])
        np.testing.assert_array_equal(model.snapshot().coordinates, engine.snapshot().coordinates)
        x = {name: float(d[5, names.index(name)]) for name in model.snapshot().ids.tolist()}
        row = np.array([list(x.values())])
        expected = model.snapshot().transform_distances(row)[0]
        assert list(model.transform_one(x).values()) == expected.tolist()
        many = list(model.transform_many([x, x])[1].values())
        assert many == pytest.approx(expected.tolist(), rel=1e-12)  # two rows, another product


def test_river_refuses_what_it_cannot_know() -> None:
    """A missing thing, a forgotten one, two new ones, no number: named, and nothing is learned."""
    model = DiffusionMap(metric="precomputed", warm_up=20, size=30)
    model.learn_one({"a": 0.0})
    model.learn_one({"b": 0.0, "a": 1.0})
    for x, says in (
        ({"c": 0.0, "b": 1.0}, r"x lacks the distance to \['a'"),
        ({"b": 1.0, "a": 1.0}, "x has 0 keys besides the objects that the engine holds"),
        ({"b": 1.0, "a": 1.0, "c": 0.0, "z": 2.0}, "x has 2 keys besides the objects"),
        (
            {"b": 1.0, "a": 1.0, "z": 2.0},
            "the distance to 'z' is 2.0, but the engine holds no such object",
        ),
        ({"b": 1.0, "a": "far", "z": 0.0}, "the distance to 'a' is 'far'; it must be a number"),
        ({"b": 1.0, "a": -1.0, "z": 0.0}, "distance 0 is -1; distances must not be negative"),
    ):
        with pytest.raises(InputError, match=says):
            model.learn_one(x)
    assert model.engine.position == 2
    with pytest.raises(se.errors.ParameterError, match="metric='cosin' must be one of"):
        DiffusionMap(metric="cosin")


def test_river_transforms_by_what_is_known() -> None:
    """Things that are not in the snapshot are ignored, missing ones unknown; none is an error."""
    d = things(80)[1]
    model = DiffusionMap(metric="precomputed", warm_up=20, size=30)
    model.learn_many([{"t0": 0.0}])
    for t in range(1, 80):
        held = model.engine.distance_row_ids.tolist()
        model.learn_one({**{name: d[t, int(name[1:])] for name in held}, f"t{t}": 0.0})
    ids = model.snapshot().ids.tolist()
    near = {name: d[60, int(name[1:])] for name in ids}
    assert model.transform_one({**near, "stranger": 1.0}) == model.transform_one(near)
    some = dict(sorted(near.items(), key=lambda item: item[1])[:20])
    assert np.isfinite(list(model.transform_one(some).values())).all()
    with pytest.raises(InputError, match=r"x .row 0. has no distance to any of the 30 objects"):
        model.transform_one({"stranger": 1.0})
