"""What callers pass by mistake: refused by type or kept whole, never learned in silence."""

from __future__ import annotations

import copy
import datetime
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.sparse

import streamembed as se
from scenarios.fuzz import inputs
from streamembed import estimators
from streamembed.data.times import read_times
from streamembed.errors import (
    BadRowError,
    DegenerateMapWarning,
    DuplicateIdError,
    FeatureError,
    InputError,
    ParameterError,
    StreamembedError,
)
from streamembed.estimators import DiffusionMap
from streamembed.logs import write_log

X = np.random.default_rng(0).normal(size=(60, 3))
NAMES = ["a", "b", "c"]
FRAME = pa.table(dict(zip(NAMES, X.T, strict=True)))
VECTORS = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)
DISTANCES = np.linalg.norm(X[:, None] - X, axis=2)


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 40, "warm_up": 20, "chunk_size": 5, **changes})


def learned(**changes: Any) -> se.Engine:
    engine = small(**changes)
    engine.learn(X)
    return engine


def test_hostile_calls_are_refused_by_type() -> None:
    """A sample of the fuzz: success or an error of the family, no warning, nothing changed."""
    result = inputs.run(100, seed=7)
    assert result.failures == {}
    assert result.refused > 20


# ------------------------------------------------------------------ ids


def test_a_long_id_costs_its_own_length() -> None:
    """The ids of 300 events, one of two million characters, are no table of that width."""
    engine = se.Engine(size=200, warm_up=50, chunk_size=100)
    ids = [f"i{j}" for j in range(300)]
    ids[290] = "x" * 2_000_000
    engine.learn(np.random.default_rng(0).normal(size=(300, 2)), ids=ids)
    assert len(pickle.dumps(engine.support_ids)) < 3_000_000  # as a table it would be 1.6 GB
    assert engine.snapshot().ids.tolist() == ids[100:]


def test_ids_that_differ_by_a_trailing_zero_are_two(tmp_path: Path) -> None:
    """The id "a" is not "a" with a NUL behind it, in memory and in files."""
    ids = [f"k{j}" for j in range(58)] + ["a\0", "a"]
    engine = small()
    engine.learn(X, ids=ids)
    assert engine.snapshot().ids.tolist()[-2:] == ["a\0", "a"]
    engine.snapshot().save(tmp_path / "s")
    engine.save(tmp_path / "e")
    assert se.Snapshot.load(tmp_path / "s").ids.tolist()[-2:] == ["a\0", "a"]
    loaded = se.Engine.load(tmp_path / "e")
    assert loaded.support_ids.tolist() == engine.support_ids.tolist()
    with pytest.raises(DuplicateIdError):
        loaded.learn(X[:1], ids=["a\0"])


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (np.full(4, 2**64 - 1, "u8") - np.arange(4, dtype="u8"), "18446744073709551615.*64 bits"),
        ([2**63, 1, 2, 3], "9223372036854775808.*64 bits"),
        ([10**30, 1, 2, None], "64 bits"),
        ([1, "a", 2, "b"], "whole numbers and strings"),
        ([True, False, True, False], "ids has True"),
        (np.array([True, False, True, False]), "ids has True"),
        ([1.0, 2.0, 3.0, 4.0], "ids has 1.0"),
        ([[1], [1, 2], [3], [4]], "ids has"),
        (["\ud800", "a", "b", "c"], "not valid Unicode"),
        (np.arange(4).astype("M8[ns]"), "datetime64"),
        ({1, 2, 3, 4}, "ids is a set"),
        ({1: 1, 2: 2, 3: 3, 4: 4}, "ids is a dict"),
        ("abcd", "ids is a str"),
        (np.array(3), r"shape \(\)"),
    ],
    ids=str,
)
def test_ids_are_refused_or_kept_whole(ids: Any, says: str) -> None:
    """Nothing wraps around, and nothing is made text on the way."""
    with pytest.raises(InputError, match=says):
        small().learn(X[:4], ids=ids)


def test_ids_of_any_kind_of_whole_number_or_text_are_kept() -> None:
    """Small unsigned ones, numpy's scalars, series, masks; as int64 and str."""
    for ids in (np.arange(60, dtype="u8"), [np.int32(j) for j in range(60)], pd.Series(range(60))):
        engine = small()
        engine.learn(X, ids=ids)
        assert engine.support_ids.dtype == np.int64
        assert engine.support_ids[-1] == 59
    engine = small(on_bad_row="skip")
    named = np.ma.array([f"k{j}" for j in range(60)], mask=np.arange(60) == 3)
    done = engine.learn(X, ids=named)
    assert [(row.index, row.reason) for row in done.rejected] == [(3, "the id is null")]
    assert type(engine.snapshot().ids[0]) is str


# ------------------------------------------------------------------ masks


def test_masked_values_are_nulls() -> None:
    """Refused or set aside like the nulls of Arrow, never learned."""
    hidden = np.ma.masked_greater(X, 1.5)
    rows = int(hidden.mask.any(axis=1).sum())
    for given in (hidden, [[np.ma.masked, 1.0, 2.0], [1.0, 2.0, 3.0]]):
        with pytest.raises(BadRowError, match="null in '"):
            small().learn(given)
    engine, bare = small(on_bad_row="skip"), small()
    done = engine.learn(hidden)
    assert (done.accepted, len(done.rejected)) == (60 - rows, rows)
    bare.learn(X[~hidden.mask.any(axis=1)])
    assert engine.snapshot().coordinates.tobytes() == bare.snapshot().coordinates.tobytes()
    snapshot = bare.snapshot()
    with pytest.raises(BadRowError, match="null in '"):
        snapshot.transform(hidden)
    with pytest.raises(BadRowError, match="null in '"):
        snapshot.transform([np.ma.masked_greater(row, -9.0) for row in X[:2]])
    plain = np.ma.array(X, mask=False)
    np.testing.assert_array_equal(snapshot.transform(plain), snapshot.transform(X))


# ------------------------------------------------------------------ tables


def _twice() -> Any:
    return pd.DataFrame(X, columns=["a", "a", "b"])


def _deep() -> Any:
    columns = pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])
    return pd.DataFrame(X, columns=columns)


STRANGE: list[tuple[str, Callable[[], Any]]] = [
    ("datetime64[ns]", lambda: X.astype("M8[ns]")),
    ("datetime64[D]", lambda: X.astype("M8[D]")),
    ("timedelta64[ns]", lambda: X.astype("m8[ns]")),
    ("lists of datetime64", lambda: [[np.datetime64("2020", "ns")] * 3] * 4),
    ("objects of datetime", lambda: np.full((4, 3), datetime.datetime(2020, 1, 1), dtype=object)),
    ("text of numbers", lambda: X.astype(str)),
    ("bytes of numbers", lambda: X.astype(str).astype("S")),
    ("objects of text", lambda: X.astype(str).astype(object)),
    ("complex", lambda: X.astype(complex)),
    ("records", lambda: np.zeros(4, dtype=[("a", float)])),
    ("sparse", lambda: scipy.sparse.csr_matrix(X)),
    ("a frame with one name twice", _twice),
    ("a frame with names of two levels", _deep),
    ("a sparse frame of complex", lambda: pd.DataFrame(X.astype(complex))),
    ("a series of polars", lambda: pl.Series(X[:, 0])),
    ("a lazy frame", lambda: pl.DataFrame(X).lazy()),
    ("keys 1 and '1'", lambda: [{1: 1.0, "1": 2.0}]),
    ("huge whole numbers", lambda: [[10**400, 1, 2]]),
    ("dicts of huge numbers", lambda: [{"a": 10**400}]),
    ("dicts of complex", lambda: [{"a": np.complex128(1 + 1j)}]),
    ("dicts of datetimes", lambda: [{"a": np.datetime64("2020", "ns")}]),
    ("longdouble beyond the doubles", lambda: np.full((4, 3), np.longdouble("1e400"))),
    ("a set", lambda: {1.0, 2.0}),
    ("a generator", lambda: (row for row in X)),
    ("a list of Arrow arrays of lists", lambda: [VECTORS, VECTORS]),
]


@pytest.mark.parametrize("make", [make for _, make in STRANGE], ids=[name for name, _ in STRANGE])
def test_strange_tables_are_refused(make: Callable[[], Any]) -> None:
    """By type, without a warning, by whatever takes points."""
    engine = small()
    with pytest.raises(InputError):
        engine.learn(make())
    assert engine.position == 0
    with pytest.raises(InputError):
        learned().snapshot().transform(make())


@pytest.mark.parametrize(
    "make", [lambda: memoryview(X), lambda: np.asmatrix(X), lambda: X.astype(object)]
)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_unusual_tables_that_can_be_read_are_read(make: Callable[[], Any]) -> None:
    """Memory views, matrices, arrays of Python floats."""
    engine = small()
    assert engine.learn(make()).accepted == 60
    np.testing.assert_array_equal(engine.snapshot().coordinates, learned().snapshot().coordinates)


@pytest.mark.parametrize(
    "y",
    [
        {0, 1},
        dict.fromkeys(range(60), 1),
        b"0" * 60,
        bytearray(60),
        np.array(3),
        np.zeros((60, 1)),
        "0" * 60,
        5,
        np.arange(60).astype("M8[s]"),
        [1j] * 60,
        [2**2000] * 60,
        (j for j in range(60)),
    ],
    ids=lambda y: type(y).__name__,
)
def test_labels_are_a_sequence_of_labels(y: Any) -> None:
    """Sets have no order, dicts have keys, bytes are numbers: none of them are labels."""
    engine = small(metrics=("fenn",))
    with pytest.raises(InputError):
        engine.learn(X, y=y)
    assert engine.position == 0


@pytest.mark.parametrize(
    "rows",
    [
        [[], [10**400]],
        [[], ["1"]],
        [[], [1j]],
        memoryview(X),
        np.array(3),
        pa.array(["a"]),
        pa.array([{"a": 1.0}]),
        pa.chunked_array([pa.array([{"a": 1.0}])]),
    ],
)
def test_distances_are_rows_of_numbers(rows: Any) -> None:
    """By type, however large or strange the numbers."""
    engine, met = small(), small()
    with pytest.raises(InputError):
        engine.learn_distances(rows)
    assert engine.position == 0
    met.learn_distances(DISTANCES)
    with pytest.raises(InputError):
        met.snapshot().transform_distances(rows)


def test_messages_for_distances_are_about_distances() -> None:
    """`coverage` named `transform_distances`, and a map of equal distances named features."""
    met, equal = small(), small(method="laplacian_eigenmaps")
    met.learn_distances(DISTANCES)
    for name in ("transform", "coverage"):
        with pytest.raises(FeatureError, match=f"use {name}_distances"):
            getattr(met.snapshot(), name)(X)
    equal.learn_distances(np.ones((60, 60)) - np.eye(60))
    with pytest.warns(DegenerateMapWarning, match="look at their distances"):
        equal.snapshot()


# ------------------------------------------------------------------ parameters

PLAIN: dict[str, tuple[Any, ...]] = {
    "n_components": (np.int64(2), np.uint8(2)),
    "size": (np.int32(40),),
    "bandwidth": (np.float32(1.5), Fraction(3, 2), Decimal("1.5"), np.str_("auto")),
    "alpha": (Fraction(1, 2), np.float16(0.5), 1, Decimal(1)),
    "diffusion_time": (np.int8(1),),
    "tolerance": (np.float64(1e-2), Fraction(1, 100)),
    "rank": (np.int64(9), np.str_("auto")),
    "chunk_size": (np.int64(5),),
    "warm_up": (np.int64(20),),
    "seed": (np.uint64(3), 2**100),
    "method": (np.str_("diffusion_map"),),
    "metrics": (["itml"], np.array(["itml"])),
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, vs in PLAIN.items() for v in vs])
def test_numbers_of_any_kind_are_parameters(name: str, value: Any, tmp_path: Path) -> None:
    """Kept as plain Python values: learned with, saved, pickled."""
    other = {"kernel": "gaussian"} if name == "bandwidth" else {}
    engine = learned(**{name: value}, **other)
    kept = getattr(engine.config, name)
    assert type(kept) in (int, float, str, tuple)
    engine.snapshot().save(tmp_path / "s")
    engine.save(tmp_path / "e")
    assert se.Engine.load(tmp_path / "e").config == engine.config
    assert pickle.loads(pickle.dumps(engine)).config == engine.config
    assert type(engine.snapshot().certificate.met) in (bool, type(None))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bandwidth", 10**400),
        ("alpha", 10**400),
        ("alpha", Decimal("sNaN")),
        ("n_components", 10**400),
        ("n_components", np.timedelta64(2, "D")),
        ("n_components", np.array([2, 3])),
        ("n_components", np.bool_(True)),
        ("method", np.array(["a", "b"])),
        ("bandwidth", np.array([1.0, 2.0])),
        ("rank", np.array([5, 6])),
        ("metrics", None),
        ("metrics", 5),
        ("metrics", {"itml"}),
        ("metrics", [None]),
    ],
)
def test_what_is_no_parameter_is_refused(name: str, value: Any) -> None:
    """By type, and the message can always be made."""
    with pytest.raises(ParameterError, match=name):
        small(**{name: value})


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: se.Monitor(n_reference=1000.0), r"1000\.0 must .*\(an int\) from 100 to 100000$"),
        (lambda: se.Monitor(n_reference=1e9), r"\(an int\) from 100 to 100000$"),
        (lambda: se.Monitor(n_reference=99), "=99 must be a whole number from 100 to 100000$"),
        (lambda: small(size=40.0), r"size=40\.0 must be a whole number \(an int\) of at least 3$"),
        (lambda: small(metrics=("itmll",)), "'discriminant': did you mean 'itml'\\?$"),
        (lambda: small(method="difusion_map"), "did you mean 'diffusion_map'\\?$"),
        (lambda: small(kernel="selftuning"), "did you mean 'self_tuning'\\?$"),
        (lambda: small(scaling="zzz"), "must be one of 'standard', 'global', None$"),
    ],
)
def test_a_parameter_is_refused_with_what_it_must_be(make: Callable[[], Any], says: str) -> None:
    """An int where a float stands, both ends of its range, the nearest of the words."""
    with pytest.raises(ParameterError, match=says):
        make()


@pytest.mark.parametrize("value", [None, 5, [], "x", 1.5, np.zeros(3)], ids=repr)
@pytest.mark.parametrize("kind", [se.Engine, se.Snapshot, se.Monitor, se.LandmarkSet])
def test_only_bytes_are_read_as_bytes(kind: Any, value: Any) -> None:
    """Something else ended in an AttributeError about `startswith`."""
    with pytest.raises(ParameterError, match=r"data=.* must be bytes"):
        kind.from_bytes(value)


@pytest.mark.parametrize("sets", [None, 5, np.array(4)], ids=repr)
def test_merging_takes_a_list(sets: Any) -> None:
    """Something that is no series ended in a bare "not iterable"."""
    with pytest.raises(InputError, match=r"sets is .*it must be a list of LandmarkSet"):
        se.merge(sets)


class Exhausted:
    """Something whose text and array need more memory than there is."""

    def __str__(self) -> str:
        raise MemoryError("boom")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise MemoryError("boom")


@pytest.mark.parametrize(
    "call",
    [
        lambda: small().learn([{Exhausted(): 1.0}]),
        lambda: estimators.PCA().learn_many([{Exhausted(): 1.0}]),
        lambda: learned(metrics=("itml",)).snapshot().metrics["itml"].transform(Exhausted()),
        lambda: estimators.ITML(prior=Exhausted()),
    ],
)
def test_a_memory_error_is_not_made_an_error_of_the_data(call: Callable[[], Any]) -> None:
    """It became a FeatureError about the name of a column."""
    with pytest.raises(MemoryError):
        call()


def test_memory_errors_of_arrow_are_not_made_errors_of_the_data(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Arrow's are of its own exceptions, too; of times and labels they became an InputError."""

    def full(*_: Any, **__: Any) -> Any:
        raise pa.lib.ArrowMemoryError("boom")

    monkeypatch.setattr(pa, "array", full)
    with pytest.raises(MemoryError):
        read_times([datetime.datetime(2020, 1, 1)], 1)
    with pytest.raises(MemoryError):
        write_log(tmp_path / "log", X, NAMES, labels=["a"] * 60)


# ------------------------------------------------------------------ river faces


@pytest.mark.parametrize("name", estimators.__all__)
@pytest.mark.parametrize("x", [5, None, [1, 2], "abc", {1: 1.0, "1": 2.0}], ids=repr)
def test_one_point_is_a_dict(name: str, x: Any) -> None:
    """Every face refuses anything else by type, for learning and for transforming."""
    kind = getattr(estimators, name)
    model = kind(**next(iter(kind._unit_test_params())))
    supervised = model._supervised
    with pytest.raises(InputError):
        _ = model.learn_one(x, 1) if supervised else model.learn_one(x)
    with pytest.raises(InputError):
        (model.predict_one if name == "LabelSpreading" else model.transform_one)(x)


def test_arrays_keep_their_column_order_in_the_river_face() -> None:
    """Twelve columns stay in their places: "10" comes after "9", for face, snapshot and engine."""
    wide = np.random.default_rng(1).normal(size=(60, 12)) * np.arange(1, 13)
    parameters: dict[str, Any] = {"size": 40, "warm_up": 20, "chunk_size": 5}
    face, engine = DiffusionMap(**parameters), se.Engine(**parameters)
    face.learn_many(wide)
    engine.learn(wide)
    assert face.snapshot().feature_names == tuple(map(str, range(12)))
    expected = engine.snapshot().transform(wide[:5])
    np.testing.assert_array_equal(face.snapshot().coordinates, engine.snapshot().coordinates)
    np.testing.assert_array_equal(face.snapshot().transform(wide[:5]), expected)
    np.testing.assert_array_equal(face.transform_many(wide[:5]), expected)


def test_named_features_refuse_arrays_everywhere() -> None:
    """Engine, snapshot and river faces alike: columns could be mixed up."""
    engine = small(metrics=("itml",))
    engine.learn(FRAME)
    face = DiffusionMap(size=40, warm_up=20, chunk_size=5)
    face.learn_many(FRAME)
    metric = estimators.FENN(chunk_size=5)
    metric.learn_many(FRAME, [j % 2 for j in range(60)])
    for call in (
        engine.learn,
        engine.snapshot().transform,
        engine.snapshot().coverage,
        face.learn_many,
        face.transform_many,
        face.snapshot().transform,
        metric.transform_many,
        lambda points: engine.learn_pairs(points, points, [True] * len(points)),
    ):
        with pytest.raises(FeatureError, match="no feature names"):
            call(X[:4])


# ------------------------------------------------------------------ immutability


def restored(snapshot: se.Snapshot) -> se.Snapshot:
    found: se.Snapshot = pickle.loads(pickle.dumps(snapshot))
    return found


@pytest.mark.parametrize("again", [lambda s: s, copy.copy, copy.deepcopy, restored])
def test_a_snapshot_cannot_be_changed(again: Callable[[se.Snapshot], se.Snapshot]) -> None:
    """Nor a copy, nor an unpickled one: no attribute, no array, no metric, no certificate."""
    snapshot = again(learned(metrics=("itml",)).snapshot())
    before = snapshot.transform(X[:3])
    for name in ("position", "coordinates", "metrics", "nothing"):
        with pytest.raises(FrozenInstanceError):
            setattr(snapshot, name, 7)
    with pytest.raises(FrozenInstanceError):
        del snapshot.coordinates
    parts = [getattr(snapshot, each.name) for each in fields(snapshot)]
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    assert len(arrays) == 19
    for array in (*arrays, snapshot.metrics["itml"].matrix, snapshot.metrics["itml"].factor):
        assert not array.flags.writeable
    with pytest.raises(TypeError):
        snapshot.metrics["mine"] = 1  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        snapshot.metrics["itml"].matrix = X  # type: ignore[misc]
    with pytest.raises(TypeError):
        snapshot.metrics["itml"].certificate["status"] = "ok"  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        snapshot.metrics["itml"].certificate.status = "ok"
    np.testing.assert_array_equal(snapshot.transform(X[:3]), before)
    np.testing.assert_array_equal(snapshot.diffusion_distances().shape, (40, 40))


def test_messages_can_always_be_made() -> None:
    """A value whose repr fails, or is endless, does not hide what is wrong with it."""

    class Rude:
        def __repr__(self) -> str:
            raise RuntimeError

    for value in (Rude(), 10**5000, "x" * 10**6):
        with pytest.raises(StreamembedError) as caught:
            small(n_components=value)
        assert len(str(caught.value)) < 400
