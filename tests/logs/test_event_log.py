"""Arrow event logs: every layout gives the same rows, and damage never gives a wrong one."""

from __future__ import annotations

import datetime
import decimal
import os
import re
import tracemalloc
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.data.column_roles import Columns
from streamembed.errors import (
    FeatureError,
    InputError,
    LogError,
    MissingFileError,
    ParameterError,
    TimeOrderWarning,
)
from streamembed.logs.event_log import (
    BYTES_PER_BATCH,
    ROWS_PER_BATCH,
    LogBatch,
    open_log,
    write_distance_log,
    write_log,
)
from streamembed.logs.log_file import FORMATS
from streamembed.logs.paths import probe_files

# Arrow before 26 has no nulls of fixed-size lists in Parquet.
HAS_NULL_VECTORS = int(pa.__version__.split(".")[0]) >= 26
FORMATS_OF_NULL_VECTORS = [
    each for each in sorted(FORMATS) if HAS_NULL_VECTORS or each != "parquet"
]
NAMES = ["b", "a", "c"]
POINTS = np.random.default_rng(1).normal(size=(53, 3))
SORTED_POINTS = POINTS[:, [1, 0, 2]]  # columns by name


def write_table(path: Path, table: pa.Table, format: str = "stream", **options: Any) -> Path:
    """Write any Arrow table in one of the formats."""
    if format == "parquet":
        pq.write_table(table, path, **options)
        return path
    new = pa.ipc.new_stream if format == "stream" else pa.ipc.new_file
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema) as writer:
        writer.write_table(table, **options)
    return path


def stacked(batches: Iterable[LogBatch]) -> np.ndarray:
    """All points, after a check that the offsets count the rows."""
    points = [np.zeros((0, 0))]
    offset = 0
    for batch in batches:
        assert batch.offset == offset
        assert batch.points.dtype == np.float64
        assert batch.points.flags.c_contiguous
        assert batch.nulls.shape == batch.points.shape
        offset += len(batch.points)
        points.append(batch.points)
    return np.concatenate(points[1:]) if len(points) > 1 else points[0]


def only(path: Path, **options: Any) -> LogBatch:
    """The one batch of a small log."""
    (batch,) = open_log(path, **options)
    return batch


def read_until_damage(path: Path, width: int = 3) -> tuple[np.ndarray, LogError | None]:
    """The rows that come before the error, and the error; any other exception is a failure."""
    found = [np.zeros((0, width))]
    try:
        for batch in open_log(path):
            found.append(batch.points)
    except LogError as error:
        return np.concatenate(found), error
    return np.concatenate(found), None


def ipc_with_marks(format: str, rows: list[int], schema: pa.Schema | None = None) -> Any:
    """Bytes of a small IPC log of POINTS, and where each of its batches ends."""
    sink = pa.BufferOutputStream()
    schema = schema or pa.schema([(name, pa.float64()) for name in NAMES])
    new = pa.ipc.new_stream if format == "stream" else pa.ipc.new_file
    marks = []
    start = 0
    with new(sink, schema) as writer:
        for count in rows:
            columns = [pa.array(POINTS[start : start + count, j]) for j in range(3)]
            writer.write_batch(pa.record_batch(columns, schema=schema))
            start += count
            marks.append(sink.tell())
    return sink.getvalue().to_pybytes(), marks


# ------------------------------------------------------------------------------ layouts and files


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("rows_per_batch", [1, 7, 53, 1000])
def test_every_layout_gives_the_same_rows(tmp_path: Path, format: str, rows_per_batch: int) -> None:
    """One file or a folder of them, in any format and batch size, holds the same log."""
    whole, folder = tmp_path / "whole", tmp_path / "folder"
    folder.mkdir()
    options: dict[str, Any] = {"format": format, "rows_per_batch": rows_per_batch}
    ids = np.arange(53) * 7
    write_log(whole, POINTS, NAMES, ids, **options)
    for k, part in enumerate(np.array_split(np.arange(53), 3)):
        write_log(folder / f"{k}", POINTS[part], NAMES, ids[part], **options)
    for path in (whole, folder):
        log = open_log(path)
        assert log.feature_names == ("a", "b", "c")
        assert log.id_type == pa.int64()
        np.testing.assert_array_equal(stacked(log), SORTED_POINTS)
        np.testing.assert_array_equal(np.concatenate([b.ids for b in log]), ids)
        assert not any(batch.nulls.any() for batch in log)


def test_columns_are_mapped_by_name(tmp_path: Path) -> None:
    """Files may order their columns differently, and ignored columns may differ."""
    write_table(tmp_path / "0", pa.table({"y": [1.0], "x": [2], "note": ["n"]}))
    day = datetime.date(2020, 1, 1)
    write_table(tmp_path / "1", pa.table({"x": [4.0], "when": [day], "y": [3]}))
    log = open_log(tmp_path)
    assert stacked(log).tolist() == [[2.0, 1.0], [4.0, 3.0]]
    assert tuple(log.columns.left_out) == ("note", "when")


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_log_without_rows_is_a_log(tmp_path: Path, format: str) -> None:
    """No rows, and record batches of no rows, give no batches and no error."""
    write_log(tmp_path / "none", np.zeros((0, 3)), NAMES, format=format)
    assert list(open_log(tmp_path / "none")) == []
    if format != "parquet":
        (tmp_path / "gaps").write_bytes(ipc_with_marks(format, [0, 2, 0, 0, 3, 0])[0])
        assert [len(batch.points) for batch in open_log(tmp_path / "gaps")] == [2, 3]


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_large_record_batches_are_sliced(tmp_path: Path, format: str) -> None:
    """No batch has more than 65,536 rows or 32 MiB of points, whatever the file holds."""
    long = np.arange(150_000.0)[:, None]
    write_log(tmp_path / "long", long, ["x"], format=format, rows_per_batch=150_000)
    batches = list(open_log(tmp_path / "long"))
    np.testing.assert_array_equal(stacked(batches), long)
    assert max(len(batch.points) for batch in batches) == ROWS_PER_BATCH
    wide = np.arange(4500.0 * 1000).reshape(4500, 1000)
    names = [f"{j:04}" for j in range(1000)]
    write_log(tmp_path / "wide", wide, names, format=format, rows_per_batch=4500)
    batches = list(open_log(tmp_path / "wide"))
    np.testing.assert_array_equal(stacked(batches), wide)
    assert max(batch.points.nbytes for batch in batches) <= BYTES_PER_BATCH


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_memory_does_not_grow_with_the_log(tmp_path: Path, format: str) -> None:
    """Twice as many rows need no more memory, in numpy's or in Arrow's hands."""
    peaks = []
    for name, n in (("warm", 5_000), ("short", 135_000), ("long", 270_000)):
        path = tmp_path / name
        write_log(path, np.ones((n, 8)), list("abcdefgh"), format=format, rows_per_batch=2_000)
        log = open_log(path)
        before = pa.total_allocated_bytes()
        arrow = rows = 0
        tracemalloc.start()
        for batch in log:
            rows += len(batch.points)
            arrow = max(arrow, pa.total_allocated_bytes() - before)
        peak = arrow + tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert rows == n
        # This batch and the next, in Arrow's memory and in numpy's, and some buffers.
        assert peak < 4 * 8 * 8 * ROWS_PER_BATCH + 2**21
        peaks.append(peak)
    # Garbage is collected at other moments, and a longer Parquet footer is a few kB larger.
    assert peaks[2] <= 1.25 * peaks[1] + 2**19


# ---------------------------------------------------------------------------------------- columns


def test_every_numeric_type_becomes_float64(tmp_path: Path) -> None:
    """Integers, floats, booleans, decimals and dictionaries of numbers are features."""
    integers = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    columns = {name: pa.array([0, 1, None, 100], getattr(pa, name)()) for name in integers}
    columns |= {name: pa.array([0.5, 1, None, 100], name) for name in ("float32", "float64")}
    columns["half"] = pa.array(np.array([0.5, 1, np.nan, 100], np.float16), from_pandas=True)
    columns["boolean"] = pa.array([False, True, None, True])
    columns["decimal"] = pa.array([decimal.Decimal(v) for v in ("0.5", "1")] + [None] * 2)
    columns["large"] = pa.array([decimal.Decimal("0.5"), None, None, None], pa.decimal256(60, 4))
    columns["coded"] = pa.array([0.5, 1.0, None, 100.0]).dictionary_encode()
    columns["beyond 2**53"] = pa.array([2**53 + 1, 2**64 - 1, None, 0], pa.uint64())
    batch = only(write_table(tmp_path / "x", pa.table(columns), "parquet"))
    names = sorted(columns)
    assert open_log(tmp_path / "x").feature_names == tuple(names)
    for j, name in enumerate(names):
        expected = [np.nan if v is None else float(v) for v in columns[name].to_pylist()]
        np.testing.assert_array_equal(batch.points[:, j], expected, err_msg=name)
        np.testing.assert_array_equal(batch.nulls[:, j], columns[name].is_null(), err_msg=name)


@pytest.mark.filterwarnings("ignore::streamembed.errors.ColumnWarning")
def test_columns_that_are_not_numeric_are_ignored_and_listed(tmp_path: Path) -> None:
    """Text, times, lists, structs and nulls do not disturb; the reserved are never features."""
    columns = {
        "x": pa.array([1.0, 2.0]),
        "text": pa.array(["a", "b"]),
        "coded": pa.array(["a", "b"]).dictionary_encode(),
        "time": pa.array([1, 2], pa.timestamp("us", "UTC")),
        "list": pa.array([[1.0], [2.0]]),
        "struct": pa.array([{"x": 1.0}, {"x": 2.0}]),
        "null": pa.nulls(2),
        "id": pa.array([5, 6]),
        "label": pa.array([0.5, 0.25]),
        "event_time": pa.array([7, 8]),
    }
    for format in FORMATS:
        path = write_table(tmp_path / format, pa.table(columns), format)
        log = open_log(path)
        assert log.feature_names == ("x",)
        assert tuple(log.columns.left_out) == ("coded", "list", "null", "struct", "text", "time")
        assert only(path).points.tolist() == [[1.0], [2.0]]


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (["p*"], ("p1", "p10", "p2", "p[a]")),
        (["p?"], ("p1", "p2")),
        (["p[0-9]*", "q"], ("p1", "p10", "p2", "q")),
        (["p*", "p1"], ("p1", "p10", "p2", "p[a]")),
        (["p[a]"], ("p[a]",)),
        (["[!p]"], ("Q", "q")),
    ],
)
def test_features_may_be_patterns(
    tmp_path: Path, features: list[str], expected: tuple[str, ...]
) -> None:
    """Of numeric columns, in which case counts; a column of exactly that name goes before."""
    names = ["p1", "p2", "p10", "p[a]", "q", "Q"]
    table = pa.table({**{name: [1.0] for name in names}, "pt": ["t"], "id": [1], "label": [0.5]})
    assert open_log(write_table(tmp_path / "x", table), features).feature_names == expected


# ---------------------------------------------------------------------------------------- vectors


def vector_table(points: np.ndarray, kind: Any = None, **columns: Any) -> pa.Table:
    """A table with one fixed-size list column."""
    flat = pa.array(points.ravel(), kind or pa.float64())
    vectors = pa.FixedSizeListArray.from_arrays(flat, points.shape[1])
    return pa.table({"embedding": vectors, **columns})


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.int16()])
def test_a_vector_column_holds_features_by_place(tmp_path: Path, format: str, kind: Any) -> None:
    """In order, "10" after "9", whatever the type of the values, slices and batches."""
    points = np.arange(53.0 * 12).reshape(53, 12)
    table = vector_table(points, kind, label=["a"] * 53)
    options = {"row_group_size": 20} if format == "parquet" else {"max_chunksize": 20}
    write_table(tmp_path / "x", table.slice(5), format, **options)
    log = open_log(tmp_path / "x")
    assert log.feature_names == tuple(str(j) for j in range(12))
    assert (log.kind, log.columns.list_column, log.ordered) == ("points", "embedding", True)
    np.testing.assert_array_equal(stacked(log), points[5:])


@pytest.mark.parametrize("format", FORMATS_OF_NULL_VECTORS)
def test_nulls_of_vectors_are_nulls_of_their_rows(tmp_path: Path, format: str) -> None:
    """A null list is a row of nulls; a NaN is none."""
    rows = [[1.0, 2.0], None, [3.0, None], [float("nan"), 4.0]]
    table = pa.table({"v": pa.array(rows, pa.list_(pa.float64(), 2))})
    batch = only(write_table(tmp_path / "x", table, format))
    nan = np.nan
    np.testing.assert_array_equal(batch.points, [[1, 2], [nan, nan], [3, nan], [nan, 4]])
    np.testing.assert_array_equal(batch.nulls, [[0, 0], [1, 1], [0, 1], [0, 0]])


def test_vectors_are_chosen_by_name_or_by_place(tmp_path: Path) -> None:
    """Beside other columns they are taken when asked for, by name or by the places they have."""
    points = np.arange(6.0).reshape(2, 3)
    other = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4.0)), 2)
    path = write_table(tmp_path / "x", vector_table(points, x=[1.0, 2.0], v=other))
    for features in (["embedding"], ["2", "0", "1"]):
        log = open_log(path, features)
        np.testing.assert_array_equal(stacked(log), points)
        assert tuple(log.columns.left_out) == ("v", "x")
    assert open_log(path, ["x"]).columns.list_column is None
    numbered = {"0": [1.0, 2.0], "1": [1.0, 2.0], "2": [1.0, 2.0]}
    with pytest.raises(FeatureError, match=r"'embedding\[0\]' of the . numbers of 'embedding'"):
        open_log(path, features=["embedding[0]"])
    path = write_table(tmp_path / "y", vector_table(points, **numbered))
    assert (
        open_log(path, ["0", "1", "2"]).columns.list_column is None
    )  # columns of these names go before


def test_the_first_list_says_how_long_lists_are(tmp_path: Path) -> None:
    """Other rows are no points."""
    path = write_table(tmp_path / "x", pa.table({"embedding": [None, [1.0, 2.0], [3.0]]}))
    assert only(path).faults == {2: "'embedding' has 1 numbers instead of 2"}


# ----------------------------------------------------------------------------------------- errors

X, T = [1.0, 2.0], ["a", "b"]
VECTORS = pa.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]], pa.list_(pa.float64(), 3))
LISTS = pa.array([None, []], pa.list_(pa.float64()))
# Columns of the files of a log, the chosen features, and the error.
WRONG_COLUMNS: dict[str, tuple[list[dict[str, Any]], list[str] | None, str]] = {
    "no numbers": (
        [{"t": T, "id": [1, 2], "label": X}],
        None,
        r"only 't' \(string\), 'id' \(id\)",
    ),
    "missing": ([{"x": X}], ["y"], "'y' of .* is missing"),
    "text": ([{"x": X, "t": T}], ["x", "t"], "'t' of .* is of type string"),
    "no match": ([{"x1": X, "w": X}], ["w", "z*"], r"'z\*' .* without a match.* \['w', 'x1'\]"),
    "ids of lists": ([{"x": X, "id": [[1], []]}], None, "'id' .* has type list"),
    "lists of no length": ([{"v": LISTS}], None, "'v': lists of varying length .* fixed-size"),
    "distances": ([{"v": VECTORS, "distances": LISTS}], ["distances"], "of type list.* lists of v"),
    "vectors and numbers": (
        [{"v": VECTORS, "x": X}],
        None,
        r"several possible sets of features .*; choose .* \['v'\] or \['x'\]",
    ),
    "vectors": ([{"v": VECTORS, "w": VECTORS}], None, r"choose .* \['v'\] or \['w'\]"),
    "places of two vectors": (
        [{"v": VECTORS, "w": VECTORS}],
        ["0", "1", "2"],
        r"the vectors \['v', 'w'\], all of 3 numbers",
    ),
    "too few places": ([{"v": VECTORS}], ["0", "1"], "'0' of .* is missing; .* vectors"),
    "a name more": (
        [{"x": X}, {"x": X, "y": X}],
        None,
        r"1 has x, y, but .*0 has x \(.*more: \['y'\]",
    ),
    "another name": (
        [{"x": X, "w": X}, {"z": X, "x": X}],
        None,
        r"1 has .*\(missing: \['w'\], more: \['z'\]\)",
    ),
    "a match more": (
        [{"x1": X}, {"x1": X, "x2": X}],
        ["x*"],
        r"1 has x1, x2, but .*0 has x1 \(",
    ),
    "text in a later file": (
        [{"x": X}, {"x": T, "y": X}],
        None,
        r"1 has y, but .* has x \(missing: \['x'\]",
    ),
    "no numbers in a later file": ([{"x": X}, {"t": T}], None, "1 has no column that is a feature"),
    "sizes of vectors": (
        [{"v": VECTORS}, {"v": pa.array([[1.0]], pa.list_(pa.float64(), 1))}],
        None,
        r"1 has 1 numbers of .*, but .*0 has 3 numbers of",
    ),
    "distances and points": ([{"distances": LISTS}, {"x": X}], None, "1 has x, but .*0 has dist"),
    "ids in one file": (
        [{"x": X, "id": [1, 2]}, {"x": X}],
        None,
        "1 has no column 'id', which other files",
    ),
    "ids of two kinds": (
        [{"x": X, "id": [1, 2]}, {"x": X, "id": T}],
        None,
        "'id' has type string in .*1 and int64 in .*0",
    ),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_columns_that_are_no_log_are_feature_errors(tmp_path: Path, case: str) -> None:
    """When it is opened; the message names the file, the column and the remedy."""
    files, features, message = WRONG_COLUMNS[case]
    for k, columns in enumerate(files):
        write_table(tmp_path / f"{k}", pa.table(columns))
    with pytest.raises(FeatureError, match=message):
        open_log(tmp_path, features)


# -------------------------------------------------------------------------------------- distances

ROWS = [np.sqrt(np.arange(float(t))) for t in range(53)]


def distance_rows(log: Iterable[LogBatch]) -> list[Any]:
    """All rows, None for null, after a check of the batches."""
    rows: list[Any] = []
    for batch in log:
        assert batch.offset == len(rows)
        assert batch.points.shape == batch.nulls.shape == (len(batch), 0)
        assert batch.distances is not None
        rows += batch.distances
    return rows


@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("rows_per_batch", [1, 7, 256])
def test_a_distance_log_is_read_back(tmp_path: Path, format: str, rows_per_batch: int) -> None:
    """Ragged rows, nulls and ids survive; numeric columns beside them are no features."""
    rows = [*ROWS, None, np.array([1.0, np.nan])]
    ids = [f"k{i}" for i in range(55)]
    options: dict[str, Any] = {"format": format, "rows_per_batch": rows_per_batch}
    write_distance_log(tmp_path / "x", rows, ids, list(range(55)), **options)
    log = open_log(tmp_path / "x")
    assert (log.kind, log.feature_names, log.columns.list_column) == ("distances", (), "distances")
    assert not log.ordered
    found = distance_rows(log)
    assert found[53] is None
    for row, expected in zip(found, rows, strict=True):
        if row is not None:
            assert row.dtype == np.float64
            np.testing.assert_array_equal(row, expected)
    assert np.concatenate([batch.ids for batch in log]).tolist() == ids
    assert [label for batch in log for label in batch.labels.to_pylist()] == list(range(55))
    assert log.columns == Columns((), "distances", id="id", label="label")
    assert log.kind == "distances"


@pytest.mark.parametrize(
    ("kind", "formats"),
    [
        (pa.list_(pa.float32()), FORMATS),
        (pa.large_list(pa.int32()), FORMATS),
        (pa.list_(pa.float64(), 2), FORMATS_OF_NULL_VECTORS),
        (pa.list_view(pa.float64()), ("stream", "file")),  # Parquet has none
        (pa.large_list_view(pa.uint8()), ("stream", "file")),
    ],
)
def test_every_kind_of_list_holds_distances(tmp_path: Path, kind: Any, formats: Any) -> None:
    """Lists, large lists, fixed-size lists and list views of any float or integer."""
    rows = [[1, 2], None, [3, None], [5, 6]]
    table = pa.table({"distances": pa.array(rows, kind), "x": [1.0] * 4})
    for format in formats:
        path = write_table(tmp_path / format, table.slice(1), format)
        log = open_log(path)
        assert (log.kind, tuple(log.columns.left_out)) == ("distances", ("x",))
        found = distance_rows(log)
        assert found[0] is None
        np.testing.assert_array_equal(found[1:], [[3, np.nan], [5, 6]])
        assert open_log(path, ["x"]).kind == "points"  # features were asked for


# -------------------------------------------------------------------------------------------- ids


def test_ids_that_cannot_be_held_are_feature_errors(tmp_path: Path) -> None:
    """Integers beyond int64 and bytes that are no text when they are met, fractions at once."""
    for k, ids in enumerate((pa.array([2**63], pa.uint64()), pa.array([b"\xff"]))):
        log = open_log(write_table(tmp_path / f"{k}", pa.table({"x": [1.0], "id": ids})))
        with pytest.raises(FeatureError, match=r"write it .* ids as int64 or string"):
            list(log)
    with pytest.raises(FeatureError, match=r"'id' of .* has type double; it must contain"):
        open_log(write_table(tmp_path / "fractions", pa.table({"x": [1.0], "id": [1.0]})))


# ------------------------------------------------------------------------------- labels and times


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_labels_and_times_are_carried(tmp_path: Path, format: str) -> None:
    """They keep their values, types and nulls, slice by slice, and are None where absent."""
    n = ROWS_PER_BATCH + 10
    labels = pa.array(["u", None] * (n // 2)).dictionary_encode()
    times = pa.array(np.arange(n), pa.timestamp("us", "UTC"))
    table = pa.table({"x": np.zeros(n), "label": labels, "event_time": times})
    log = open_log(write_table(tmp_path / "x", table, format))
    assert (log.label_type, log.event_time_type) == (pa.string(), times.type)
    batches = list(log)
    assert len(batches) > 1
    assert pa.concat_arrays([batch.labels for batch in batches]).equals(labels.dictionary_decode())
    assert pa.concat_arrays([batch.event_times for batch in batches]).equals(times)
    write_log(tmp_path / "y", POINTS, NAMES, format=format)
    log = open_log(tmp_path / "y")
    assert log.id_type is None
    assert log.label_type is None
    batch = next(iter(log))
    assert batch.ids is None
    assert batch.labels is None
    assert batch.event_times is None


STAMPS = pa.array([datetime.datetime(2024, 1, 1, 12, 30, 15)])
SECONDS = pa.array([1704112215])
# Columns of two files whose values can stand in one column, and those values.
JOINT_COLUMNS: dict[str, tuple[pa.Array, pa.Array, list[Any]]] = {
    "nulls and integers": (pa.nulls(1), pa.array([7]), [None, 7]),
    "narrow and wide integers": (pa.array([7], pa.int8()), pa.array([300]), [7, 300]),
    "unsigned and signed": (pa.array([7], pa.uint64()), pa.array([-1]), [7, -1]),
    "integers with a gap are floats": (pa.array([7]), pa.array([None, 8.0]), [7.0, None, 8.0]),
    "a dictionary": (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), ["a", "b"]),
    "texts": (pa.array(["a"], pa.large_string()), pa.array(["b"], pa.string_view()), ["a", "b"]),
    "units": (
        STAMPS.cast("timestamp[s]"),
        STAMPS.cast("timestamp[ms]"),
        [STAMPS[0].as_py(), STAMPS[0].as_py()],
    ),
}
# Columns whose values would mean something else in one another's type.
OTHER_COLUMNS: dict[str, tuple[pa.Array, pa.Array]] = {
    "timestamps and epoch seconds": (STAMPS, SECONDS),
    "dates and timestamps": (STAMPS.cast("date32", safe=False), STAMPS),
    "local and absolute times": (STAMPS, STAMPS.cast(pa.timestamp("us", "UTC"))),
    "booleans and integers": (pa.array([True]), pa.array([3])),
    "booleans and floats": (pa.array([True]), pa.array([0.5])),
    "float32 and float64": (pa.array([0.1], pa.float32()), pa.array([0.1])),
    "text and integers": (pa.array(["1"]), pa.array([1])),
    "text and floats": (pa.array(["1"]), pa.array([1.0])),
    "text and booleans": (pa.array(["true"]), pa.array([True])),
    "integers and lists": (pa.array([5]), pa.array([[5]])),
}


@pytest.mark.parametrize("case", JOINT_COLUMNS)
def test_columns_of_several_types_keep_their_values(tmp_path: Path, case: str) -> None:
    """Whichever file comes first; a file without the column has nulls."""
    column = "event_time" if case == "units" else "label"
    first, second, values = JOINT_COLUMNS[case]
    for k, part in enumerate((first, second)):
        write_table(tmp_path / f"{k}", pa.table({"x": np.ones(len(part)), column: part}))
    write_table(tmp_path / "2", pa.table({"x": [1.0]}))
    paths = [tmp_path / "0", tmp_path / "1", tmp_path / "2"]
    for order in (paths, paths[::-1]):
        with warnings.catch_warnings(action="ignore", category=TimeOrderWarning):
            batches = list(open_log(order))
        columns = [batch.labels if column == "label" else batch.event_times for batch in batches]
        read = [value for part in columns for value in part.to_pylist()]
        assert sorted(map(repr, read)) == sorted(map(repr, [*values, None]))
        assert len({part.type for part in columns}) == 1


@pytest.mark.parametrize("case", OTHER_COLUMNS)
def test_types_of_other_values_are_refused(tmp_path: Path, case: str) -> None:
    """When the log is opened, with both files and both types; epoch seconds became 1970 once."""
    column = "event_time" if "time" in case else "label"
    for order in (OTHER_COLUMNS[case], OTHER_COLUMNS[case][::-1]):
        for k, part in enumerate(order):
            write_table(tmp_path / f"{k}", pa.table({"x": [1.0], column: part}))
        types = [re.escape(str(part.type)) for part in order]
        found = rf"{column}' has type {types[1]} in .*1 and {types[0]} in .*0.*write it in one type"
        with pytest.raises(FeatureError, match=found):
            open_log(tmp_path)


@pytest.mark.parametrize("column", ["id", "label", "event_time"])
@pytest.mark.parametrize("is_coded", [False, True])
def test_views_are_carried_through_a_run(tmp_path: Path, column: str, is_coded: bool) -> None:
    """As polars writes text and categories to Arrow files; Arrow selects no rows of views."""
    words = pa.array([f"w{k}" for k in range(60)], pa.string_view())
    if is_coded:
        words = pa.DictionaryArray.from_arrays(pa.array(range(60), pa.uint8()), words)
    x = np.random.default_rng(0).normal(size=60)
    x[7] = np.nan  # a row that is left out
    table = pa.table({"x": x, "z": np.cos(x), column: words})
    write_table(tmp_path / "log", table, "file")
    settings: dict[str, Any] = {"size": 50, "n_components": 1, "warm_up": 10, "chunk_size": 10}
    done = se.replay(tmp_path / "log", se.Engine(**settings), tmp_path / "run")
    assert (done.accepted, done.rejected) == (59, 1)
    read = pq.read_table(tmp_path / "run" / "embedding.parquet")[column].to_pylist()
    assert read == [f"w{k}" for k in range(60) if k != 7]


def test_values_that_do_not_fit_are_feature_errors(tmp_path: Path) -> None:
    """When they are met, with the row: a float cannot hold 2**53 + 1."""
    write_table(tmp_path / "0", pa.table({"x": [1.0], "label": [1.0]}))
    write_table(tmp_path / "1", pa.table({"x": [1.0], "label": [2**53 + 1]}))
    batches = iter(open_log(tmp_path))
    assert next(batches).labels.to_pylist() == [1.0]
    with pytest.raises(FeatureError, match=r"'label' of .*1 has values, from row 1 of the log on"):
        next(batches)


def test_what_files_are_is_known_without_reading_them(tmp_path: Path) -> None:
    """Files, formats, rows and the role of every column, damage that shows, without reading."""
    table = pa.table({"x": [1.0, 2.0], "label": [1, 2], "t": ["a", "b"]})
    for name, format in (("0", "stream"), ("1", "file"), ("2", "parquet"), ("3", "file")):
        write_table(tmp_path / name, table, format)
    (tmp_path / "3").write_bytes((tmp_path / "3").read_bytes()[:-1])
    files = *whole, cut = probe_files(tmp_path)
    assert [file.place.address for file in files] == [tmp_path / name for name in "0123"]
    assert [file.format for file in files] == ["stream", "file", "parquet", "file"]
    assert [(file.rows, file.damage) for file in whole] == [(None, None), (2, None), (2, None)]
    assert "its footer cannot be read" in str(cut.damage)
    assert whole[0].columns == tuple(zip(table.column_names, table.schema.types, strict=True))
    assert open_log(tmp_path).columns == Columns(("x",), label="label", left_out={"t": "string"})


# ----------------------------------------------------------------------------------------- damage


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_a_log_cut_at_any_byte_gives_its_whole_batches_then_an_error(
    tmp_path: Path, format: str
) -> None:
    """A cut stream gives its whole batches, a file without its footer none; both say so."""
    write_log(tmp_path / "parquet", POINTS[:6], NAMES, format="parquet", rows_per_batch=2)
    data, marks = (tmp_path / "parquet").read_bytes(), []
    if format != "parquet":
        data, marks = ipc_with_marks(format, [2, 3, 1])
    for cut in range(0, len(data), 1 if format == "stream" else 5):
        path = tmp_path / f"{cut}"
        path.write_bytes(data[:cut])
        points, error = read_until_damage(path)
        read = zip([2, 3, 1], marks, strict=True) if format == "stream" else ()
        whole = sum(rows for rows, mark in read if mark <= cut)
        np.testing.assert_array_equal(points, SORTED_POINTS[:whole], err_msg=f"cut at {cut}")
        assert error is not None, f"cut at {cut} is not noticed"
        assert str(path) in str(error)
        if whole:
            assert f"{whole} complete rows" in str(error)
    path.write_bytes(data)
    points, error = read_until_damage(path)
    np.testing.assert_array_equal(points, SORTED_POINTS[:6])
    assert error is None


def test_a_stream_whose_last_values_look_like_the_end_marker(tmp_path: Path) -> None:
    """int32 -1, 0 are the bytes of the marker: a stream cut behind them is still cut."""
    schema = pa.schema([("a", pa.int32())])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        column = pa.array([5] * 14 + [-1, 0], pa.int32())
        writer.write_batch(pa.record_batch([column], schema=schema))
        mark = sink.tell()
    data = sink.getvalue().to_pybytes()
    assert data[mark - 8 : mark] == data[-8:]  # it does look like it
    (tmp_path / "cut").write_bytes(data[:mark])
    (tmp_path / "whole").write_bytes(data)
    assert len(stacked(open_log(tmp_path / "whole"))) == 16
    with pytest.raises(LogError, match=r"end-of-stream marker is missing; 16 complete rows"):
        list(open_log(tmp_path / "cut"))


def test_bytes_behind_the_end_of_a_stream_are_not_dropped_silently(tmp_path: Path) -> None:
    """Two streams in one file: the first is read, and the rest is reported."""
    data, _ = ipc_with_marks("stream", [2, 3])
    path = tmp_path / "two"
    path.write_bytes(data + data)
    points, error = read_until_damage(path)
    np.testing.assert_array_equal(points, SORTED_POINTS[:5])
    assert f"{len(data)} bytes follow its end-of-stream marker" in str(error)


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_files_before_a_damaged_one_are_read(tmp_path: Path, format: str) -> None:
    """A file that cannot even tell its schema is an error when it is reached, not before."""
    write_log(tmp_path / "0", POINTS, NAMES, format=format)
    write_log(tmp_path / "1", POINTS, NAMES, format=format)
    write_log(tmp_path / "2", POINTS, NAMES, format=format)
    (tmp_path / "1").write_bytes((tmp_path / "1").read_bytes()[:60])
    points, error = read_until_damage(tmp_path)
    np.testing.assert_array_equal(points, SORTED_POINTS)
    assert str(tmp_path / "1") in str(error)
    assert "0 complete rows" in str(error)
    assert open_log(tmp_path).n_rows is None
    assert "cannot be read" in str(probe_files(tmp_path)[1].damage)


@pytest.mark.filterwarnings("ignore::streamembed.errors.ColumnWarning")
@pytest.mark.parametrize("format", sorted(FORMATS))
@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("rows", ["points", "distances", "vectors"])
def test_flipped_bits_never_escape_as_another_exception(
    tmp_path: Path, format: str, compression: str | None, rows: str
) -> None:
    """Damage anywhere gives rows of the right width, LogError or FeatureError; nothing else.

    In the first bytes it makes the file one of another format.
    """
    table = pa.table(
        {
            "a": pa.array([1.0, None, 3.0] * 20),
            "coded": pa.array([1.0, 2.0, 3.0] * 20).dictionary_encode(),
            "id": pa.array(["u", "v", None] * 20),
            "label": pa.array(["u", "v", "w"] * 20).dictionary_encode(),
            "event_time": pa.array(range(60), pa.timestamp("s")),
            "t": pa.array([[1], [2, 3], None] * 20),
        }
    )
    if rows == "distances":
        table = table.append_column("distances", pa.array([[1.0], [2.0, 3.0], None] * 20))
    elif rows == "vectors":
        vectors = pa.array([[1.0], [2.0], None] * 20, pa.list_(pa.float64(), 1))
        table = table.select(["id", "label"]).append_column("v", vectors)
    if format == "parquet":
        pq.write_table(table, tmp_path / "whole", row_group_size=20, compression=compression)
    else:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        new = pa.ipc.new_stream if format == "stream" else pa.ipc.new_file
        sink = pa.BufferOutputStream()
        with new(sink, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=20)
        (tmp_path / "whole").write_bytes(sink.getvalue())
    data = (tmp_path / "whole").read_bytes()
    rng = np.random.default_rng(5)
    for k, place in enumerate(rng.integers(len(data), size=60).tolist()):
        damaged = bytearray(data)
        damaged[place] ^= 1 << int(rng.integers(8))
        path = tmp_path / f"{k}"
        path.write_bytes(damaged)
        try:
            for batch in open_log(path):
                assert batch.points.shape[1] in ((0, 1, 2) if rows == "distances" else (1, 2))
                batch.labels is None or batch.labels.to_pylist()
        except (LogError, FeatureError):
            continue
        except ParameterError:
            assert place < 8


@pytest.mark.parametrize("format", sorted(FORMATS))
def test_files_that_change_after_opening_are_log_errors(tmp_path: Path, format: str) -> None:
    """A file that vanished, was emptied, cut short or has other columns by now is an error."""
    path = tmp_path / "x"
    write_log(path, POINTS, NAMES, format=format)
    log = open_log(path)
    path.unlink()
    with pytest.raises(LogError, match="0 complete rows"):
        list(log)
    path.write_bytes(b"")
    with pytest.raises(LogError, match="0 complete rows"):
        list(log)
    write_log(path, POINTS, ["b", "a", "z"], format=format)
    with pytest.raises(LogError, match="cannot be read to the end"):
        list(log)
    write_log(path, POINTS[:9], NAMES, format=format)
    if format != "stream":
        with pytest.raises(LogError, match="declares 53 rows; 9 complete rows"):
            list(log)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        *(
            (head, LogError, "cannot be read to the end: its .* cannot be read")
            for head in (b"AR", b"\xff\xff", b"PAR")
        ),
        (b"\0" * 100, ParameterError, r"begins with b'(\\x00){8}': convert it"),
        (b"", LogError, r"x is empty \(0 bytes\)"),
        ("missing", LogError, "x is missing"),
        ("pipe", LogError, "neither a file nor a folder"),  # opening it would wait for a writer
        ("folder", ParameterError, "folder without log files"),
    ],
)
def test_what_is_no_log_is_an_error(
    tmp_path: Path, content: Any, error: type[Exception], message: str
) -> None:
    """Each has its own message."""
    path = tmp_path / "x"
    if content == "pipe":
        os.mkfifo(path)
    elif content == "folder":
        path.mkdir()
        (path / ".hidden").write_bytes(b"x")
    elif content != "missing":
        path.write_bytes(content)
    with pytest.raises(error, match=message):
        open_log(path)


# ---------------------------------------------------------------------------------------- writing


POINT_LOG = {"path": "x", "points": POINTS, "feature_names": NAMES}
DISTANCE_LOG = {"path": "x", "rows": ROWS}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        *(
            (options | changes, error, message)
            for options in (POINT_LOG, DISTANCE_LOG)
            for changes, error, message in (
                ({"format": "csv"}, ParameterError, "format='csv' must be one of"),
                ({"rows_per_batch": 0}, ParameterError, "rows_per_batch=0 must"),
                ({"ids": [1, 2]}, InputError, "ids has 2 entries; it must have 53"),
                ({"labels": [1, 2]}, InputError, "labels has 2 entries; it must have 53"),
                ({"ids": [1, "a"] * 26 + [1]}, InputError, "ids are not a column"),
                ({"path": "missing/x"}, MissingFileError, "create it first"),
            )
        ),
        (POINT_LOG | {"points": [1.0, 2.0, 3.0]}, InputError, "has shape"),
        (POINT_LOG | {"points": np.zeros((2, 3, 2))}, InputError, "has shape"),
        (
            POINT_LOG | {"points": np.zeros((2, 0)), "feature_names": []},
            FeatureError,
            "of the 0 columns",
        ),
        (POINT_LOG | {"feature_names": ["a", "b"]}, FeatureError, "of the 3 columns of points"),
        (POINT_LOG | {"feature_names": ["a", "b", "a"]}, FeatureError, "different names"),
        (POINT_LOG | {"feature_names": ["a", "b", "id"]}, FeatureError, "none of"),
        (POINT_LOG | {"feature_names": np.array("auto")}, FeatureError, "list of different names"),
        (DISTANCE_LOG | {"rows": [[1.0], ["far"]]}, InputError, "row 1 of rows is not a row of n"),
        (DISTANCE_LOG | {"rows": [[], [[1.0]]]}, InputError, "row 1 of rows is not a row of n"),
    ],
)
def test_writing_refuses(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Every wrong argument is named, before a file is there."""
    write = write_distance_log if "rows" in options else write_log
    with pytest.raises(error, match=message):
        write(**options | {"path": tmp_path / options["path"]})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("first", [0, 1])
def test_lists_behind_row_groups_without_rows_are_read(tmp_path: Path, first: int) -> None:
    """A Parquet file of lists without rows, or the only one, was an AttributeError."""
    table = pa.table({"v": [[1.0, 2.0]] * 5})
    pq.write_table(table[:0], tmp_path / "0.parquet")
    pq.write_table(table[:first], tmp_path / "1.parquet")
    pq.write_table(table, tmp_path / "2.parquet")
    log = open_log(tmp_path)
    assert (log.columns.list_column, log.columns.features) == ("v", ("0", "1"))
    assert sum(len(rows.points) for rows in log.batches()) == 5 + first


def test_several_paths_are_read_in_the_order_given(tmp_path: Path) -> None:
    """A list may mix files and folders, str and Path, and is not sorted."""
    (tmp_path / "folder").mkdir()
    for value, name in enumerate(("z", "folder/b", "folder/a", "y")):
        write_log(tmp_path / name, [[float(value)]], ["x"])
    log = open_log([tmp_path / "z", str(tmp_path / "folder"), tmp_path / "y"])
    assert stacked(log).ravel().tolist() == [0.0, 2.0, 1.0, 3.0]
