"""`Engine.learn` of data frames and Arrow tables: reserved names, lists, and kinds of numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import (
    BadRowError,
    ColumnWarning,
    FeatureError,
    InputError,
)
from streamembed.logs import open_log

N = 60
X = np.random.default_rng(0).normal(size=(N, 3))
NAMES = ("a", "b", "c")
COLUMNS = dict(zip(NAMES, X.T, strict=True))
MAKERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "arrow": pa.table,
    "batch": pa.record_batch,
    "pandas": pd.DataFrame,
    "polars": pl.DataFrame,
}


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 40, "warm_up": 20, "chunk_size": 5, **changes})


class Capsule:
    """What a relation of duckdb is to us: an object with an Arrow stream, read once."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())
def test_reserved_columns_have_their_use(make: Callable[..., Any]) -> None:
    """Ids, labels where metrics learn them, and times are no features, as in a log."""
    ids, kinds = [f"e{j}" for j in range(N)], ["p", "q", "r"] * 20
    table = make({"id": ids, "label": kinds, "event_time": list(range(N)), **COLUMNS})
    engine, twin = small(metrics=("fenn",)), small(metrics=("fenn",))
    for start in range(0, N, 20):
        part = table.slice(start, 20) if hasattr(table, "slice") else table[start : start + 20]
        engine.learn(part)
    twin.learn(make(COLUMNS), y=kinds, ids=ids)
    ours, theirs = engine.snapshot(), twin.snapshot()
    assert ours.ids.tolist() == theirs.ids.tolist() == ids[20:]
    np.testing.assert_array_equal(ours.coordinates, theirs.coordinates)
    assert ours.metrics["fenn"] == theirs.metrics["fenn"]
    np.testing.assert_array_equal(ours.transform(table), theirs.transform(make(COLUMNS)))
    bare = small()
    bare.learn(table, ids=range(N))
    assert (bare.feature_names, bare.support_ids.tolist()) == (NAMES, list(range(20, N)))


def test_dicts_are_split_as_tables_are() -> None:
    """Their reserved keys became features, without a word."""
    ids, kinds = [f"e{j}" for j in range(N)], ["p", "q", "r"] * 20
    table = pa.table({"id": ids, "label": kinds, "event_time": list(range(N)), **COLUMNS})
    options: dict[str, Any] = {
        "metrics": ("fenn",), "clock": "event_time", "memory": "landmarks", "half_life": 9.0
    }  # fmt: skip
    engine, twin = small(**options), small(**options)
    rows = table.to_pylist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine.learn(rows[:20])
        engine.learn(rows[20:])
    twin.learn(table)
    ours, theirs = engine.snapshot(), twin.snapshot()
    assert ours.ids.tolist() == theirs.ids.tolist()
    np.testing.assert_array_equal(ours.coordinates, theirs.coordinates)
    assert ours.metrics["fenn"] == theirs.metrics["fenn"]
    np.testing.assert_array_equal(ours.transform(rows), theirs.transform(table))
    rows[3] = {key: rows[3][key] for key in NAMES}
    done = small(on_bad_row="skip").learn(rows)
    assert [(row.index, row.reason) for row in done.rejected] == [(3, "the id is null")]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_the_first_dict_decides_about_a_y(cut: int) -> None:
    """Beside an x it is a coordinate, in every cut of the stream."""
    rows = [{"a": 0.5, "y": 1.0}, {"a": 0.1, "x": 1.0, "y": 2.0}, {"a": 1.5, "y": 3.0}] * 9
    engine = small(on_bad_row="skip")
    with pytest.warns(ColumnWarning, match="'y'"):
        results = [engine.learn(rows[i : i + cut]) for i in range(0, 27, cut)]
    assert engine.feature_names == ("a",)
    assert sum(result.accepted for result in results) == 18
    others = small()
    others.learn([{"x": 1.0, "y": 2.0}] * 30)
    assert others.feature_names == ("x", "y")


def test_features_are_chosen_by_name_or_pattern() -> None:
    """Of every call; columns of text are no trouble then."""
    table = pl.DataFrame({**COLUMNS, "target": X[:, 0], "note": ["n"] * N})
    engine = small()
    for _ in range(2):
        engine.learn(table, features=["[ab]", "target"])
    assert engine.feature_names == ("a", "b", "target")


@pytest.mark.parametrize("kind", ["large_string", "str"])
def test_text_is_left_out(kind: str) -> None:
    """Of tables and of dicts, with a warning once; a log leaves it out, too."""
    table, engine = pl.DataFrame({**COLUMNS, "note": ["n"] * N}), small()
    given = table if kind == "large_string" else table.to_dicts()
    with pytest.warns(ColumnWarning, match=rf"'note' \({kind}\)"):
        engine.learn(given)
    assert engine.learn(given).accepted == N
    assert engine.feature_names == ("a", "b", "c")


LISTS: dict[str, Callable[[], Any]] = {
    "fixed": lambda: pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 3)}),
    "sliced": lambda: pa.table(
        {"e": pa.FixedSizeListArray.from_arrays(pa.array(np.tile(X.ravel(), 2)), 3)}
    ).slice(N),
    "lists": lambda: pa.table({"e": X.tolist()}),
    "chunks": lambda: pa.concat_tables([pa.table({"e": X[:9].tolist()})] * 0 or [
        pa.table({"e": X[:9].tolist()}), pa.table({"e": X[9:].tolist()})]),
    "polars array": lambda: pl.DataFrame({"e": X}, schema={"e": pl.Array(pl.Float64, 3)}),
    "polars list": lambda: pl.DataFrame({"e": X.tolist()}),
    "arrays in pandas": lambda: pd.DataFrame({"e": list(X)}),
    "lists in pandas": lambda: pd.DataFrame({"e": X.tolist()}),
    "a capsule": lambda: Capsule(pa.table({"e": X.tolist()})),
    "with ids": lambda: pa.table({"e": X.tolist(), "id": list(range(N))}),
}  # fmt: skip


@pytest.mark.parametrize("make", LISTS.values(), ids=LISTS.keys())
def test_a_column_of_lists_is_a_matrix(make: Callable[[], Any]) -> None:
    """Its features are known by place, as those of an array, for learning and transforming."""
    engine, twin = small(), small()
    engine.learn(make())
    twin.learn(X)
    assert engine.feature_names == ("0", "1", "2")
    ours, theirs = engine.snapshot(), twin.snapshot()
    np.testing.assert_array_equal(ours.coordinates, theirs.coordinates)
    np.testing.assert_array_equal(ours.transform(make()), theirs.transform(X))


def test_lists_that_cannot_be_rows() -> None:
    """Of another length or null: bad rows; beside others: to be chosen; of text: refused."""
    rows: list[Any] = X.tolist()
    rows[3], rows[5], rows[7] = [1.0], None, [1.0, None, 2.0]
    engine = small(on_bad_row="skip")
    done = engine.learn(pa.table({"e": rows}))
    assert [(row.index, row.reason) for row in done.rejected] == [
        (3, "'e' has 1 numbers instead of 3"),
        (5, "null in '0'"),
        (7, "null in '1'"),
    ]
    done = engine.learn(pa.table({"e": [[1.0], [1.0, 2.0, 3.0]]}))
    assert (done.accepted, done.rejected[0].index) == (1, 0)
    with pytest.raises(BadRowError, match="'e' has 1 numbers instead of 3"):
        small().learn(pl.DataFrame({"e": rows}))
    both = pa.table({"e": X.tolist(), "a": X[:, 0]})
    with pytest.raises(FeatureError, match=r"has vectors beside other columns \(\['e'\]\): select"):
        small().learn(both)
    assert small().learn(both, features=["e"]).accepted == N
    with pytest.raises(FeatureError, match=r"no column that is a feature, only 'e' \(list<.*name"):
        small().learn(pa.table({"e": [["x"]] * N}))
    short = pa.array([[1.0, 2.0]] * 4)
    assert len(engine.learn(pa.table({"e": short})).rejected) == 4
    with pytest.raises(FeatureError, match="X has 2 columns; it must have 3"):
        engine.learn(pa.table({"e": short.cast(pa.list_(pa.float64(), 2))}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Capsule(pa.table(COLUMNS)),
        lambda: pd.DataFrame({name: pd.array(x, "Float64") for name, x in COLUMNS.items()}),
        lambda: pd.DataFrame(COLUMNS).convert_dtypes(dtype_backend="pyarrow"),
    ],
    ids=["capsule", "nullable", "pyarrow backend"],
)
def test_other_frames_are_the_same_numbers(make: Callable[[], Any]) -> None:
    """Objects with an Arrow stream, as of duckdb, and the nullable columns of pandas."""
    engine, twin = small(), small()
    engine.learn(make())
    twin.learn(pa.table(COLUMNS))
    np.testing.assert_array_equal(engine.snapshot().coordinates, twin.snapshot().coordinates)


class Celsius(pa.ExtensionType):
    """A type of somebody else, of numbers."""

    def __init__(self) -> None:
        super().__init__(pa.float64(), "tests.celsius")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage_type: Any, serialized: bytes) -> Any:
        return cls()


WHOLE = np.round(10 * X[:, 0])
STORAGES: dict[str, Callable[[], Any]] = {
    "bool8": lambda: pa.ExtensionArray.from_storage(
        pa.bool8(), pa.array((X[:, 0] > 0).astype("i1"))
    ),
    "own type": lambda: pa.ExtensionArray.from_storage(Celsius(), pa.array(X[:, 0])),
    "runs": lambda: pc.run_end_encode(pa.array(WHOLE)),
    "dictionary": lambda: pa.array(WHOLE).dictionary_encode(),
    "chunks": lambda: pa.chunked_array([pc.run_end_encode(pa.array(WHOLE[:9])),
                                        pc.run_end_encode(pa.array(WHOLE[9:]))]),
    "decimal256": lambda: pa.array([Decimal(int(x)) for x in WHOLE], pa.decimal256(50, 3)),
}  # fmt: skip


@pytest.mark.parametrize("make", STORAGES.values(), ids=STORAGES.keys())
def test_numbers_in_any_storage_are_numbers(make: Callable[[], Any], tmp_path: Path) -> None:
    """Extensions of numbers, runs and dictionaries: for tables and logs alike."""
    column = make()
    expected = (X[:, 0] > 0) if getattr(column, "type", None) == pa.bool8() else WHOLE
    expected = X[:, 0] if isinstance(column.type, Celsius) else expected
    table = pa.table({"c": column, "b": X[:, 1]})
    engine = small()
    engine.learn(table)
    snapshot = engine.snapshot()
    np.testing.assert_array_equal(snapshot.points, np.c_[X[:, 1], expected][20:])
    np.testing.assert_array_equal(snapshot.transform(table)[20:].shape, (N - 20, 2))
    with pa.ipc.new_stream(str(tmp_path / "log"), table.schema) as writer:
        writer.write_table(table)
    log = open_log(tmp_path / "log")
    assert log.feature_names == ("b", "c")
    np.testing.assert_array_equal(np.concatenate([part.points for part in log])[:, 1], expected)


@pytest.mark.parametrize("shape", [(N, 3), (N, 3, 1)])
def test_tensors_are_vectors(shape: tuple[int, ...], tmp_path: Path) -> None:
    """Arrow's own type of embeddings was refused, or left out beside a number."""
    tensors = pa.FixedShapeTensorArray.from_numpy_ndarray(X.reshape(shape).copy())
    engine = small()
    for X_ in (tensors, pa.table({"e": tensors}), pa.table({"e": tensors, "id": range(N)})):
        engine = small()
        engine.learn(X_)
        assert engine.feature_names == ("0", "1", "2")
        np.testing.assert_array_equal(engine.snapshot().points, X[20:])
    pq.write_table(pa.table({"e": tensors, "clicks": X[:, 0]}), tmp_path / "log")
    with pytest.raises(FeatureError, match=r"several possible sets of features .*\['e'\]"):
        open_log(tmp_path / "log")
    log = open_log(tmp_path / "log", ["e"])
    np.testing.assert_array_equal(np.concatenate([part.points for part in log]), X)


FOREIGN: dict[str, Callable[[], Any]] = {
    "sparse": lambda: pd.DataFrame({"a": X[:, 0], "c": pd.arrays.SparseArray(WHOLE)}),
    "long double": lambda: pd.DataFrame({"a": X[:, 0], "c": WHOLE.astype(np.longdouble)}),
    "large integers": lambda: pd.DataFrame(
        {"a": X[:, 0], "c": pd.Series([int(x) + 10**20 for x in WHOLE], dtype=object)}
    ),
    "int128": lambda: pl.DataFrame({"a": X[:, 0], "c": WHOLE.astype(int)}).with_columns(
        pl.col("c").cast(pl.Int128)
    ),
    "objects": lambda: pl.DataFrame(
        {"a": X[:, 0], "c": pl.Series(WHOLE.tolist(), dtype=pl.Object)}
    ),
}


@pytest.mark.parametrize("make", FOREIGN.values(), ids=FOREIGN.keys())
def test_numbers_of_which_arrow_has_no_type_are_numbers(make: Callable[[], Any]) -> None:
    """Their errors were those of Arrow."""
    engine = small()
    assert engine.learn(make()).accepted == N
    above = 1e20 if engine.snapshot().points[0, 1] > 1e19 else 0.0
    np.testing.assert_array_equal(engine.snapshot().points[:, 1], above + WHOLE[20:])


@pytest.mark.parametrize(
    ("column", "says"),
    [
        (X[:, 0] + 1j, r"column 'c' of X is not numeric: it has \(.*j\)"),
        (pd.Series([1, "a"] * (N // 2)), "column 'c' of X is not numeric: it has 'a'"),
    ],
    ids=["complex", "mixed"],
)
def test_what_is_no_number_is_named(column: Any, says: str) -> None:
    """Its column, and a value."""
    with pytest.raises(FeatureError, match=says):
        small().learn(pd.DataFrame({"a": X[:, 0], "c": column}))


def _kinds() -> list[Any]:
    """Columns of every type that Arrow can make of little."""
    return [
        pa.null(), pa.bool_(), pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.string(),
        pa.large_binary(), pa.binary(2), pa.date32(), pa.time64("us"), pa.timestamp("ns", "UTC"),
        pa.duration("s"), pa.month_day_nano_interval(), pa.decimal256(50, 3), pa.string_view(),
        pa.struct([("x", pa.int8())]), pa.map_(pa.string(), pa.int8()), pa.uuid(),
        pa.dense_union([pa.field("x", pa.int8())]), pa.run_end_encoded(pa.int32(), pa.float64()),
        pa.dictionary(pa.int8(), pa.float64()), pa.dictionary(pa.int8(), pa.string()),
        pa.list_(pa.list_(pa.float64())), pa.list_view(pa.float64()), pa.list_(pa.float64(), 0),
        pa.list_(pa.string()), pa.list_(pa.decimal128(5, 2)), pa.list_(pa.bool_(), 2),
        pa.list_(pa.dictionary(pa.int8(), pa.float64())), pa.fixed_shape_tensor(pa.float64(), [2]),
        pa.json_(), pa.bool8(), pa.opaque(pa.int8(), "x", "y"),
    ]  # fmt: skip


@pytest.mark.filterwarnings("ignore::streamembed.errors.ColumnWarning")
@pytest.mark.parametrize("kind", _kinds(), ids=str)
def test_no_exception_of_pyarrow_reaches_a_user(kind: Any) -> None:
    """A column of any type, alone or beside others, in any use: learned, or an error of ours."""
    engine = small(on_bad_row="skip", metrics=("fenn",))
    for name, rows in product(("a", "id", "label", "event_time"), (0, 3)):
        try:
            column = pa.nulls(rows, kind)
        except (pa.ArrowException, TypeError):
            pytest.skip("Arrow has no such array")
        for table in (
            pa.table({name: column}),
            pa.table({name: column, "b": pa.array(X[:rows, 0])}),
            pa.table({name: pa.chunked_array([], kind), "b": pa.chunked_array([], pa.float64())}),
        ):
            for call in (
                lambda table=table: engine.check(table),
                lambda table=table: engine.check(table, features=["a"]),
            ):
                with suppress(InputError):
                    call()


DICTS: dict[str, list[Any]] = {
    "text": ["note"] * N,
    "text, then numbers": ["note"] * 10 + [1.0] * (N - 10),
    "time": [pd.Timestamp(0)] * N,
    "dict": [{"a": 1.0}] * N,
    "list": [[1.0, 2.0]] * N,
}


@pytest.mark.filterwarnings("ignore::streamembed.errors.ColumnWarning")
@pytest.mark.parametrize("values", DICTS.values(), ids=DICTS.keys())
@pytest.mark.parametrize("size", [1, 7, N])
def test_what_dicts_hold_does_not_depend_on_the_cut(values: list[Any], size: int) -> None:
    """The first dict decides; values that are no numbers were judged by all rows of a call."""
    rows = [{"a": X[i, 0], "b": X[i, 1], "z": value} for i, value in enumerate(values)]
    whole, cut = small(on_bad_row="skip"), small(on_bad_row="skip")
    whole.learn(rows)
    for start in range(0, N, size):
        cut.learn(rows[start : start + size])
    assert whole.feature_names == cut.feature_names
    assert (whole.to_bytes(), whole.position) == (cut.to_bytes(), cut.position)


@pytest.mark.parametrize("name", ["createdAt", "updated at", "event time", "eventTime", "id "])
def test_names_of_times_and_ids_in_any_spelling(name: str) -> None:
    """Some were learned in silence."""
    engine = small()
    with pytest.warns(ColumnWarning, match=name):
        engine.learn(pl.DataFrame({**COLUMNS, name: X[:, 0]}))
    assert engine.feature_names == ("a", "b", "c")
