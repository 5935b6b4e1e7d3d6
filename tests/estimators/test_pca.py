"""`PCA`: laws of the house, policies of the faces, forgetting, merging, files."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn import decomposition
from sklearn.datasets import load_digits

from streamembed.errors import (
    BadRowError,
    DamagedFileError,
    FeatureError,
    InputError,
    MissingFileError,
    NotReadyError,
    ParameterError,
)
from streamembed.estimators import PCA
from streamembed.estimators.pca import PrincipalAxes
from streamembed.manifold import principal
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


def many_features() -> Floats:
    """Rows of 160 features, more than are decomposed whole; a direction of its own from row 205."""
    X = np.random.default_rng(4).standard_normal((260, 160)) * np.arange(1, 161) ** -0.5
    X[205:, -1] += 6.0
    return X


@pytest.mark.parametrize("kind", ["all", "window", "half-life"])
def test_waiting_rows_update_the_axes_of_the_last_chunk(kind: str) -> None:
    """Their residual is what it says, at most 1e-3; the bits are those of a single reading."""
    X, k = many_features(), 5
    params: dict[str, Any] = {"window": {"window": 150}, "half-life": {"half_life": 60.0}}
    model = learned(X[:190], n_components=k, **params.get(kind, {}))
    for i in range(190, len(X)):
        model.learn_many(X[i : i + 1])
        axes = model.snapshot()
        rows, weights = X[: i + 1], np.ones(i + 1)
        if kind == "window":
            rows, weights = rows[-150:], weights[-150:]
        if kind == "half-life":
            weights = 0.5 ** (np.arange(i, -1, -1) / 60.0)
        rows = np.sqrt(weights)[:, None] * (rows - weights @ rows / weights.sum())
        s, components = np.linalg.svd(rows, full_matrices=False)[1:]
        theta = axes.singular_values**2
        left = rows.T @ (rows @ axes.components.T) - axes.components.T * theta
        residual = np.linalg.norm(left, axis=0).max() / theta[0]
        assert residual == pytest.approx(axes.residual, rel=0.01, abs=1e-12)
        assert residual < (1e-3 if model.pending else 1e-5)
        # eigenvalues are good to the square of their residual, by the gap
        np.testing.assert_allclose(axes.singular_values, s[:k], rtol=1e-5)
        if i >= 215:  # the new direction leads at once
            assert abs(axes.components[0] @ components[0]) > 0.999
        if i % 23 == 0:
            alone = pickle.loads(pickle.dumps(model)).snapshot()
            np.testing.assert_array_equal(axes.components, alone.components)


def test_all_of_the_scatter_is_decomposed_once_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not once an event: reading after every event costs some products with few columns."""
    X, count = many_features()[:200], 0
    model = learned(X[:100], n_components=5)
    for name in ("dpotrf", "largest_pairs"):
        original = getattr(principal, name)

        def counted(*args: Any, original: Any = original, **options: Any) -> Any:
            nonlocal count
            count += 1
            return original(*args, **options)

        monkeypatch.setattr(principal, name, counted)
    for row in X[100:]:
        model.learn_many(row[None])
        model.snapshot()
    assert count <= 10 + 2  # and once for the reference, every hundred events


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


FRAMES = {
    "pandas": pd.DataFrame(DICTS, index=range(100, 230)),
    "polars": pl.DataFrame(DICTS),
    "table": pa.Table.from_pylist(DICTS),
    "record batch": pa.RecordBatch.from_pylist(DICTS),
    "dicts": DICTS,
}


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


# ------------------------------------------------------------------------------------- merging


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


def test_features_are_those_of_the_first_twenty_events() -> None:
    """In any order; one that emerges among them is part of it, one after it is not."""
    model = PCA()
    for i, row in enumerate(DICTS[:40]):
        names = NAMES[:2] if i < 10 else [*NAMES[:3], *(["z"] if i >= 25 else [])]
        model.learn_one({name: row[name] for name in reversed(names)})
    assert model.feature_names == model.snapshot().feature_names == ("w", "x", "y")
    assert (model.imputed, model.ignored) == (10, 15)
