"""`PCA`: laws of the house, policies of the faces, forgetting, merging, files."""

from __future__ import annotations

import copy
import pickle
import warnings
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import decomposition
from sklearn.datasets import load_digits

from streamembed.errors import (
    BadRowError,
    DamagedFileError,
    DegenerateMapWarning,
    FeatureError,
    InputError,
    MissingFileError,
    NotReadyError,
    ParameterError,
)
from streamembed.estimators import PCA
from streamembed.estimators.pca import PrincipalAxes
from streamembed.numeric.arrays import Floats
from tests.sealed import read_sealed, write_sealed

DIGITS = load_digits().data
RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((130, 4)) @ np.diag([3.0, 2.0, 1.0, 0.5]) + 5.0
NAMES = ["w", "x", "y", "z"]
DICTS = [dict(zip(NAMES, row, strict=True)) for row in POINTS.tolist()]
KINDS: dict[str, dict[str, Any]] = {
    "all": {},
    "whitened": {"whiten": True, "n_components": 3},
    "window": {"window": 33},
    "window, svd": {"window": 33, "solver": "svd"},
    "half-life": {"half_life": 20.0},
    "svd": {"solver": "svd", "rank": 3},
    "svd, half-life": {"solver": "svd", "half_life": 20.0},
}


def learned(X: Any, **params: Any) -> PCA:
    model = PCA(**params)
    model.learn_many(X)
    return model


def assert_same_axes(left: PrincipalAxes, right: PrincipalAxes, tolerance: float) -> None:
    np.testing.assert_allclose(left.mean, right.mean, rtol=tolerance)
    np.testing.assert_allclose(left.singular_values, right.singular_values, rtol=tolerance)
    np.testing.assert_allclose(left.total_variance, right.total_variance, rtol=tolerance)
    overlap = np.abs(np.sum(left.components * right.components, axis=1))
    np.testing.assert_allclose(overlap, 1.0, atol=tolerance)


# ------------------------------------------------------------------------------------- the laws


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(1, 129), max_size=8), st.booleans())
def test_any_split_gives_the_same_bits(kind: str, cuts: list[int], with_gaps: bool) -> None:
    """Also where features come and go, and where somebody reads in between."""
    rows = [dict(row) for row in DICTS]
    if with_gaps:
        for i in range(0, 130, 4):
            del rows[i][NAMES[i % 3]]
    one, many = PCA(**KINDS[kind]), PCA(**KINDS[kind])
    for row in rows:
        one.learn_one(row)
    for start, stop in zip([0, *sorted(set(cuts))], [*sorted(set(cuts)), 130], strict=True):
        many.learn_many(rows[start:stop])
        many.transform_one(rows[0])
    assert pickle.dumps(one) == pickle.dumps(many)
    assert one.transform_one(rows[0]) == many.transform_one(rows[0])


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_counts_at_once(kind: str) -> None:
    """From the second on, axes are those of the rows so far, in the middle of chunks too."""
    model = PCA(**KINDS[kind])
    for i, row in enumerate(DICTS):
        model.learn_one(row)
        if i < 1 or kind.startswith("svd"):
            continue
        rows, weights = POINTS[: i + 1], np.ones(i + 1)
        if kind.startswith("window"):
            rows, weights = rows[-33:], weights[-33:]
        if kind == "half-life":
            weights = 0.5 ** (np.arange(i, -1, -1) / 20.0)
        mean = weights @ rows / weights.sum()
        s = np.linalg.svd(np.sqrt(weights)[:, None] * (rows - mean), compute_uv=False)
        axes = model.snapshot()
        assert axes.position == i + 1
        assert axes.count == pytest.approx(weights.sum())
        np.testing.assert_allclose(axes.mean, mean)
        k = min(i, model.n_components)
        np.testing.assert_allclose(axes.singular_values[:k], s[:k], rtol=1e-9)
        assert axes.cut == tuple(range(k, model.n_components))
        assert axes.met in ((None,) if axes.solver == "svd" else (True,))
        assert axes.tail < 1e-14  # all four axes are kept: the sum of squares twice, rounded


def test_it_is_scikit_learns_on_digits() -> None:
    """Of all events, and of the last 500; whitened and back."""
    for window in (None, 500):
        model = learned(DIGITS, n_components=5, whiten=True, window=window)
        part = DIGITS if window is None else DIGITS[-window:]
        batch = decomposition.PCA(5, whiten=True, svd_solver="full").fit(part)
        axes = model.snapshot()
        signs = np.sign(np.sum(axes.components * batch.components_, axis=1))
        placed = model.transform_many(part)
        np.testing.assert_allclose(placed, signs * batch.transform(part), atol=1e-9)
        np.testing.assert_allclose(placed, axes.transform(part), atol=1e-12)
        np.testing.assert_allclose(axes.explained_variance, batch.explained_variance_, rtol=1e-10)
        back = axes.inverse_transform(placed)
        np.testing.assert_allclose(back, batch.inverse_transform(batch.transform(part)), atol=1e-9)


def test_the_svd_is_near_and_knows_its_tail() -> None:
    """On digits, at the usual rank; the total variance is exact."""
    batch = decomposition.PCA(3, svd_solver="full").fit(DIGITS)
    axes = learned(DIGITS, n_components=3, solver="svd").snapshot()
    outside = batch.components_ - batch.components_ @ axes.components.T @ axes.components
    assert np.linalg.norm(outside, 2) < 2e-2
    assert (axes.residual, axes.met, axes.rank, axes.solver) == (None, None, 23, "svd")
    assert 0.0 < axes.tail < 0.2
    assert axes.total_variance == pytest.approx(DIGITS.var(axis=0, ddof=1).sum(), rel=1e-12)


def test_auto_takes_moments_for_a_thousand_features_or_a_window() -> None:
    """And the svd beyond."""
    X = np.random.default_rng(1).standard_normal((25, 1001))
    assert learned(X).snapshot().solver == "svd"
    assert learned(X[:, :1000]).snapshot().solver == "moments"
    assert learned(X[:3], window=5).snapshot().solver == "moments"


@pytest.mark.parametrize("kind", KINDS)
def test_reading_changes_nothing(kind: str) -> None:
    """Pickles are equal before and after; twice without news is the same object."""
    model = learned(DICTS[:47], **KINDS[kind])
    before = pickle.dumps(model)
    axes = model.snapshot()
    assert model.snapshot() is axes
    model.transform_many(DICTS)
    assert pickle.dumps(model) == before
    model.learn_one(DICTS[50])
    assert model.snapshot() is not axes


@pytest.mark.parametrize("kind", KINDS)
def test_a_pickled_estimator_goes_on_where_it_stopped(kind: str) -> None:
    """From the first chunk and from mid-chunk, bit for bit."""
    for events in (7, 45):
        going = learned(DICTS[:events], **KINDS[kind])
        loaded = pickle.loads(pickle.dumps(going))
        for model in (going, loaded):
            model.learn_many(DICTS[events:])
        assert going.transform_one(DICTS[0]) == loaded.transform_one(DICTS[0])


@pytest.mark.parametrize("kind", KINDS)
def test_a_refused_call_changes_nothing(kind: str) -> None:
    """Arrays for names, another width, no table."""
    model, places = learned(DICTS[:45], **KINDS[kind]), learned(POINTS[:45], **KINDS[kind])
    for one, X in ((model, POINTS), (places, POINTS[:, :3]), (places, DICTS), (model, 5)):
        before = pickle.dumps(one)
        for call in (one.learn_many, one.transform_many):
            with pytest.raises(InputError):
                call(X)
        assert pickle.dumps(one) == before


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_flat(kind: str) -> None:
    """The pickle does not grow by 1 % in four times the events."""
    X = np.random.default_rng(2).standard_normal((2000, 4))
    model = learned(X[:500], **KINDS[kind])
    before = len(pickle.dumps(model))
    model.learn_many(X[500:])
    assert len(pickle.dumps(model)) <= 1.01 * before


def test_what_is_handed_in_may_be_changed_afterwards() -> None:
    """Nothing of the caller's is kept by reference."""
    X = POINTS.copy()
    model, plain = learned(X[:45], window=33), learned(POINTS[:45], window=33)
    X[:] = 0.0
    assert pickle.dumps(model) == pickle.dumps(plain)


# ------------------------------------------------------------------------------------ the policies


def test_the_cold_start_is_zeros_of_the_final_width() -> None:
    """Before the second event; then the line through two, and zeros beyond it."""
    model = PCA(n_components=3)
    assert not model.transform_many(POINTS).any()
    for events in range(2):
        assert model.transform_one(DICTS[0]) == {"pca_0": 0.0, "pca_1": 0.0, "pca_2": 0.0}
        assert not model.ready
        with pytest.raises(NotReadyError, match=f"{events} events have arrived"):
            model.snapshot()
        model.learn_one(DICTS[events])
    assert model.ready
    one, two = (list(model.transform_one(row).values()) for row in DICTS[:2])
    assert abs(one[0] - two[0]) == pytest.approx(np.linalg.norm(POINTS[0] - POINTS[1]))
    assert (one[1], one[2]) == (0.0, 0.0)
    assert model.snapshot().cut == (1, 2)


def test_more_components_than_features() -> None:
    """The rest are zeros, and one warning says so once the features are settled."""
    model = PCA(n_components=6)
    model.learn_many(POINTS[:19])
    with pytest.warns(
        DegenerateMapWarning, match="above .* features, 4: 2 of 6 .*; use n_components=4"
    ):
        model.learn_one(dict(enumerate(POINTS[19])))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.learn_many(POINTS[20:])
        axes = model.snapshot()
    assert axes.cut == (4, 5)
    assert axes.transform(POINTS[:3]).shape == (3, 6)
    assert axes.explained_variance_ratio.sum() == pytest.approx(1.0)
    back = axes.inverse_transform(axes.transform(POINTS))
    np.testing.assert_allclose(back, POINTS, atol=1e-10)


def test_missing_values_are_imputed_by_means() -> None:
    """Absent, null, NaN, text, infinities become the mean so far; unknown features are counted."""
    odd, filled = ([dict(row) for row in DICTS] for _ in range(2))
    for i, value in enumerate([None, float("nan"), "text", float("inf"), 1e300, "absent"]):
        if value == "absent":
            del odd[60 + 10 * i]["x"]
        else:
            odd[60 + 10 * i]["x"] = value
        there = [row["x"] for row in odd[: 70 + 10 * i] if isinstance(row.get("x"), float)]
        usable = [value for value in there if abs(value) < 1e75]
        filled[60 + 10 * i]["x"] = float(np.mean(usable))  # the chunk's own included
    odd[61]["new"] = 3.0
    model, plain = learned(odd), learned(filled)
    assert (model.imputed, model.ignored) == (6, 1)
    assert_same_axes(model.snapshot(), plain.snapshot(), 1e-12)
    gap = {name: value for name, value in DICTS[0].items() if name != "x"}
    known = [row["x"] for i, row in enumerate(DICTS) if i not in range(60, 120, 10)]
    mean = float(np.mean(known))
    assert list(model.transform_one(gap).values()) == pytest.approx(
        list(model.transform_one({**gap, "x": mean}).values())
    )
    assert list(model.transform_one({})) == ["pca_0", "pca_1"]


def test_a_feature_without_a_number_is_a_constant() -> None:
    """All NaN: its loadings are 0, nothing else is touched."""
    odd = [{**row, "empty": float("nan")} for row in DICTS]
    axes = learned(odd).snapshot()
    assert axes.feature_names == ("empty", *NAMES)
    assert not axes.components[:, 0].any()
    np.testing.assert_allclose(axes.components[:, 1:], learned(DICTS).snapshot().components)


def test_features_are_those_of_the_first_twenty_events() -> None:
    """In any order; one that emerges among them is part of it, one after it is not."""
    model = PCA()
    for i, row in enumerate(DICTS[:40]):
        names = NAMES[:2] if i < 10 else [*NAMES[:3], *(["z"] if i >= 25 else [])]
        model.learn_one({name: row[name] for name in reversed(names)})
    assert model.feature_names == model.snapshot().feature_names == ("w", "x", "y")
    assert (model.imputed, model.ignored) == (10, 15)


FRAMES = {
    "pandas": pd.DataFrame(DICTS, index=range(100, 230)),
    "polars": pl.DataFrame(DICTS),
    "table": pa.Table.from_pylist(DICTS),
    "record batch": pa.RecordBatch.from_pylist(DICTS),
    "dicts": DICTS,
}


def numbers(table: Any) -> Floats:
    """A table of any kind as an array."""
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    frame = table.to_pandas() if isinstance(table, pa.Table) else pd.DataFrame(table)
    if isinstance(table, pl.DataFrame):
        frame = table.to_pandas()
    found: Floats = frame.to_numpy()
    return found


@pytest.mark.parametrize("kind", FRAMES)
def test_every_kind_of_frame_comes_back(kind: str) -> None:
    """The same state from each, coordinates in the caller's kind."""
    X = FRAMES[kind]
    model, plain = learned(X, n_components=4), learned(DICTS, n_components=4)
    placed = model.transform_many(X)
    assert type(placed) is type(X)
    np.testing.assert_allclose(numbers(placed), numbers(plain.transform_many(DICTS)), atol=1e-12)
    if kind == "pandas":
        assert placed.index.equals(X.index)


def test_the_snapshot_is_strict() -> None:
    """It imputes nothing, and takes the features that were learned, in any order."""
    axes = learned(FRAMES["pandas"]).snapshot()
    turned = FRAMES["pandas"][NAMES[::-1]]
    np.testing.assert_array_equal(axes.transform(turned), axes.transform(FRAMES["polars"]))
    with pytest.raises(FeatureError, match="no feature names"):
        axes.transform(POINTS)
    with pytest.raises(BadRowError, match="NaN"):
        axes.transform([{**DICTS[0], "x": float("nan")}])
    with pytest.raises(FeatureError, match="coordinates has 3 columns; it must have 2"):
        axes.inverse_transform(np.zeros((1, 3)))
    with pytest.raises(InputError, match="finite"):
        axes.inverse_transform([[np.nan, 0.0]])


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_components": 0}, "n_components=0"),
        ({"n_components": 2**40}, "must be at most 10000"),
        ({"solver": "full"}, "solver='full'"),
        ({"rank": 1}, "rank=1"),
        ({"rank": "most"}, "rank='most'"),
        ({"rank": 5, "solver": "moments"}, "rank=5 is of the svd"),
        ({"rank": 5, "window": 10}, "rank=5 is of the svd"),
        ({"window": 1}, "window=1"),
        ({"window": 10, "half_life": 5.0}, "use one of them"),
        ({"half_life": 0.5}, "half_life=0.5"),
        ({"whiten": 1}, "whiten=1"),
    ],
)
def test_wrong_parameters_are_refused_at_once(params: dict[str, Any], message: str) -> None:
    """When the object is built."""
    with pytest.raises(ParameterError, match=message):
        PCA(**params)


def test_a_window_of_many_features_by_the_svd() -> None:
    """More features than events: exact while the rank holds the window, near where it does not."""
    rng = np.random.default_rng(8)
    X = rng.standard_normal((400, 300)) * np.arange(1.0, 301.0) ** -1.0
    for rank, tolerance in ((80, 1e-10), (25, 0.1)):  # 0.031 measured at rank 25
        model = PCA(3, solver="svd", window=80, rank=rank)
        for start in range(0, 400, 20):
            model.learn_many(X[start : start + 20])
            part = X[max(0, start + 20 - 80) : start + 20]
            if start == 0:
                continue
            batch = decomposition.PCA(3, svd_solver="full").fit(part)
            axes = model.snapshot()
            outside = batch.components_ - batch.components_ @ axes.components.T @ axes.components
            assert np.linalg.norm(outside, 2) < tolerance
            assert axes.total_variance == pytest.approx(part.var(axis=0, ddof=1).sum(), rel=1e-10)
            assert (axes.tail > 1e-3) == (rank == 25 and len(part) > 25)


# ------------------------------------------------------------------------------------- merging


@pytest.mark.parametrize("sizes", [(60, 70), (5, 125), (125, 5), (4, 6), (0, 130), (130, 0)])
@pytest.mark.parametrize("kind", ["all", "svd, full"])
def test_merged_halves_are_the_whole(kind: str, sizes: tuple[int, int]) -> None:
    """To 1e-10 at full rank, whatever waits and however early; the other stays as it is."""
    params: dict[str, Any] = {"solver": "svd", "rank": 4} if kind == "svd, full" else {}
    rows = DICTS[: sum(sizes)]
    left, right = learned(rows[: sizes[0]], **params), learned(rows[sizes[0] :], **params)
    before = pickle.dumps(right)
    left.merge(right)
    assert pickle.dumps(right) == before
    assert left.position == len(rows)
    assert_same_axes(left.snapshot(), learned(rows, **params).snapshot(), 1e-10)
    left.learn_many(DICTS)
    twice = learned([*rows, *DICTS], **params)
    assert_same_axes(left.snapshot(), twice.snapshot(), 1e-10)


def test_what_cannot_be_merged_stays_as_it_is() -> None:
    """Itself, other parameters, other features, windows."""
    model = learned(DICTS)
    others: list[tuple[Any, type[Exception], str]] = [
        (model, ParameterError, "itself"),
        (PCA(n_components=3), ParameterError, "n_components=3"),
        (learned([{"a": float(i), "b": 1.0} for i in range(30)]), FeatureError, "'a', 'b'"),
    ]
    before = pickle.dumps(model)
    for other, error, message in others:
        with pytest.raises(error, match=message):
            model.merge(other)
        assert pickle.dumps(model) == before
    with pytest.raises(ParameterError, match="no common last events"):
        PCA(window=5).merge(PCA(window=5))


# --------------------------------------------------------------------------------------- stillness


@pytest.mark.parametrize("kind", ["window", "window, svd", "half-life", "svd, half-life"])
def test_frames_are_still_while_the_stream_drifts(kind: str) -> None:
    """Axes that turn through a whole circle, read after every 5 events: no column ever flips."""
    params = {
        "window": {"window": 200},
        "window, svd": {"window": 200, "solver": "svd"},
        "half-life": {"half_life": 100.0},
        "svd, half-life": {"solver": "svd", "half_life": 100.0},
    }[kind]
    rng = np.random.default_rng(3)
    model = PCA(n_components=2, **params)
    before: Floats | None = None
    for i in range(3000):
        angle = 2 * np.pi * i / 3000
        c, s = np.cos(angle), np.sin(angle)
        x = rng.standard_normal(3) * (4.0, 2.0, 0.5)
        model.learn_one({"0": c * x[0] - s * x[1], "1": s * x[0] + c * x[1], "2": x[2]})
        if i > 200 and i % 5 == 0:
            components = model.snapshot().components
            if before is not None:
                assert np.sum(components * before, axis=1).min() > 0.9
            before = components
    assert before is not None
    # a whole turn: the axes came back with the signs they had (largest loading positive)
    assert abs(before[0, 0]) > 0.8


# ------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("kind", KINDS)
def test_saved_axes_are_the_same(kind: str, tmp_path: Path) -> None:
    """Bit for bit, of names and of places; pickled and copied, too."""
    for rows in (DICTS[:77], POINTS[:77]):
        axes = learned(rows, **KINDS[kind]).snapshot()
        axes.save(tmp_path / "axes")
        again = PrincipalAxes.load(tmp_path / "axes")
        again.save(tmp_path / "again")
        assert (tmp_path / "again").read_bytes() == (tmp_path / "axes").read_bytes()
        for other in (again, pickle.loads(pickle.dumps(axes))):
            np.testing.assert_array_equal(other.transform(rows), axes.transform(rows))
            assert (other.residual, other.cut, other.met) == (axes.residual, axes.cut, axes.met)
            assert other.feature_names == axes.feature_names
            with pytest.raises(ValueError, match="read-only"):
                other.components[0, 0] = 1.0
        assert copy.deepcopy(axes) is axes
        with pytest.raises(FrozenInstanceError):
            axes.tail = 0.5  # type: ignore[misc]


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    """A flipped byte, another kind, parts that do not fit."""
    path = tmp_path / "axes"
    axes = learned(DICTS).snapshot()
    axes.save(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "flipped").write_bytes(data)
    table, header = read_sealed(path, "principal axes")
    write_sealed(tmp_path / "kind", table, "snapshot", header)
    for name, value in (
        ("feature_names", ["a", "a", "b", "c"]),
        ("feature_names", ["a"]),
        ("solver", "guess"),
        ("cut", [7]),
        ("met", "yes"),
    ):
        write_sealed(tmp_path / "parts", table, "principal axes", {**header, name: value})
        with pytest.raises(DamagedFileError):
            PrincipalAxes.load(tmp_path / "parts")
    for name in ("flipped", "kind"):
        with pytest.raises(DamagedFileError):
            PrincipalAxes.load(tmp_path / name)
    with pytest.raises(MissingFileError):
        PrincipalAxes.load(tmp_path / "nothing")


def test_flush_settles_the_features() -> None:
    """Nothing else is seen of it: what waits counts already."""
    model = learned(DICTS[:7])
    PCA().flush()
    before = model.snapshot()
    model.flush()
    assert (model.position, model.pending) == (7, 0)
    assert_same_axes(model.snapshot(), before, 1e-12)
    model.learn_one({**DICTS[8], "late": 1.0})
    assert model.ignored == 1


def test_flush_counts_the_gaps_of_the_first_events() -> None:
    """As the twentieth event does."""
    model = PCA()
    model.learn_many([{"a": 1.0, "b": 2.0}, {"a": 2.0}, {"a": float("nan"), "b": 1.0}])
    assert model.imputed == 0
    model.flush()
    assert (model.imputed, model.ignored) == (2, 0)
