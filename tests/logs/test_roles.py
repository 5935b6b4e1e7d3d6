"""Roles of columns: ids, times and targets never become features without a warning."""

from __future__ import annotations

import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import streamembed as se
from streamembed.cli.commands import main
from streamembed.errors import ColumnWarning, FeatureError, InputError, LogError, ParameterError
from streamembed.logs.event_log import describe_log, open_log

N = 60
RNG = np.random.default_rng(0)
PLAIN = {"a": RNG.normal(size=N), "b": RNG.integers(0, 5, N)}
SMALL: dict[str, Any] = {"size": 40, "warm_up": 20, "chunk_size": 5}


def write(path: Path, rows: int = N, **columns: Any) -> Path:
    pq.write_table(pa.table({**PLAIN, **columns}).slice(0, rows), path)
    return path


LOOKS = {
    "id by name": ("user_id", RNG.permutation(N), "named like an id"),
    "id in one word": ("PassengerId", RNG.permutation(N), "named like an id"),
    "uuid": ("UUID", RNG.permutation(N), "named like an id"),
    "time by name": ("timestamp", RNG.normal(size=N), "named like a time"),
    "date by name": ("birth_date", RNG.normal(size=N), "named like a time"),
    "target by name": ("Target", RNG.normal(size=N), "named like a target"),
    "y alone": ("y", RNG.normal(size=N), "named like a target"),
    "ascending": ("row", np.arange(N) * 3 + 7, "whole numbers that ascend, like ids or times"),
    "unsigned": (
        "row",
        np.arange(N, dtype="u8") + np.uint64(2**63),
        "whole numbers that ascend, like ids or times",
    ),
    "seconds": (
        "at",
        1_700_000_000 + np.arange(N) // 3,
        "large and never falling, like times",
    ),
    "float seconds": (
        "at",
        1.7e9 + np.cumsum(RNG.random(N)),
        "large and never falling, like times",
    ),
}


@pytest.mark.parametrize(("name", "values", "why"), LOOKS.values(), ids=LOOKS.keys())
def test_what_looks_like_something_else_is_left_out_and_named(
    tmp_path: Path, name: str, values: Any, why: str
) -> None:
    """Of logs with a warning; `Engine.learn` refuses it; a choice by its full name settles it."""
    path = write(tmp_path / "log", **{name: values})
    with pytest.warns(ColumnWarning, match=f"{name}.*{why}.*settle it with features="):
        log = open_log(path)
    assert log.feature_names == ("a", "b")
    assert dict(log.columns.left_out) == {name: why}
    assert log.columns.doubtful == (name,)
    assert describe_log(path).columns == log.columns
    with pytest.warns(ColumnWarning):
        run = se.replay(path, se.Engine(**SMALL), tmp_path / "run")
    kept = pq.read_schema(tmp_path / "run" / "timeline.parquet").metadata[b"streamembed-columns"]
    assert json.loads(kept) == run.columns.as_dict()
    assert json.loads(kept)["left_out"] == {name: why}
    assert name in open_log(path, ["a", name]).feature_names
    table = pq.read_table(path)
    engine = se.Engine(**SMALL)
    with pytest.raises(FeatureError, match=f"may be no features: '{name}' .{why}"):
        engine.learn(table)
    assert engine.position == 0
    assert engine.learn(table, features=["a", "b", name]).accepted == N
    assert engine.feature_names == tuple(sorted(["a", "b", name]))
    assert engine.learn(table).accepted == N


@pytest.mark.parametrize(
    "columns",
    [
        {"y": PLAIN["a"], "x": PLAIN["a"]},
        {"acid": PLAIN["a"], "grid": PLAIN["a"], "response_time": PLAIN["a"]},
        {"count": np.arange(N) // 2, "falls": -np.arange(N), "ramp": np.linspace(0, 1, N)},
        {"large": 1e9 + RNG.normal(size=N), "constant": np.full(N, 10**12)},
        {"flag": np.arange(N) > 3},
    ],
    ids=str,
)
def test_ordinary_columns_are_features(tmp_path: Path, columns: dict[str, Any]) -> None:
    """Coordinates, words that end in id, durations, counts with repetitions, ramps of fractions."""
    path = write(tmp_path / "log", **columns)
    assert set(open_log(path).feature_names) == {"a", "b", *columns}
    assert se.Engine(**SMALL).learn(pq.read_table(path)).accepted == N


def test_few_rows_tell_nothing(tmp_path: Path) -> None:
    """Nine whole numbers may ascend by chance."""
    assert "row" in open_log(write(tmp_path / "log", rows=9, row=np.arange(N))).feature_names


@pytest.mark.parametrize("rows", [1, 7, 60])
def test_the_layout_of_the_log_does_not_show(tmp_path: Path, rows: int) -> None:
    """The first fifty rows of the log are looked at, in however many files and batches."""
    row = np.arange(N)
    row[55:] = 0
    table = pa.table({**PLAIN, "row": row})
    for j, start in enumerate(range(0, N, rows)):
        part = table.slice(start, rows)
        if j % 2:
            pq.write_table(part, tmp_path / f"{j:02d}")
        else:
            with pa.ipc.new_stream(str(tmp_path / f"{j:02d}"), table.schema) as writer:
                writer.write_table(part, max_chunksize=3)
    with pytest.warns(ColumnWarning, match="'row'"):
        assert open_log(tmp_path).columns.doubtful == ("row",)


def test_columns_of_other_names_have_the_uses(tmp_path: Path) -> None:
    """Ids, labels and times of the chosen columns, in `replay` and in what it writes."""
    names = np.array([f"e{j}" for j in range(N)])
    kinds, at = np.where(np.arange(N) % 2, "p", "q"), pa.array(range(N), pa.timestamp("s"))
    path = write(tmp_path / "log", key=names, kind=kinds, at=at, extra=PLAIN["a"], id=names[::-1])
    uses: dict[str, Any] = {"id": "key", "label": "kind", "time": "at", "exclude": ["ex*"]}
    log = open_log(path, **uses)
    assert log.feature_names == ("a", "b")
    assert (log.columns.id, log.columns.label, log.columns.time) == ("key", "kind", "at")
    assert log.columns.left_out == {"extra": "excluded", "id": "string"}
    assert str(log.columns) == (
        "features: a, b; id: key; label: kind; time: at; left out: extra (excluded), id (string)"
    )
    run = se.replay(path, se.Engine(**SMALL), tmp_path / "run", **uses)
    written = pq.read_table(run.path / "embedding.parquet")
    assert written["id"].to_pylist() == names.tolist()
    assert written["label"].to_pylist() == kinds.tolist()
    assert written["event_time"].type == pa.timestamp("s") or written["event_time"].null_count == 0


def test_a_reserved_column_can_be_excluded(tmp_path: Path) -> None:
    """Then there are no ids, and it is no feature either."""
    path = write(tmp_path / "log", id=np.arange(N), label=np.arange(N))
    log = open_log(path, exclude=["id", "label"])
    assert (log.has_ids, log.columns.id, log.label_type) == (False, None, None)
    assert log.columns.left_out == {"id": "excluded", "label": "excluded"}
    assert log.feature_names == ("a", "b")


def test_wrong_choices_are_refused(tmp_path: Path) -> None:
    """By type, naming the argument and what there is."""
    path = write(tmp_path / "log", when=PLAIN["a"])
    for error, says, choice in (
        (FeatureError, "id='user' is not a column of", {"id": "user"}),
        (FeatureError, r"no column 'q\*' to exclude", {"exclude": ["q*"]}),
        (ParameterError, "exclude='a' must be a list", {"exclude": "a"}),
        (ParameterError, "label=5 must be the name of a column", {"label": 5}),
        (ParameterError, "'when' is in id= and in label=", {"id": "when", "label": "when"}),
        (ParameterError, "is in features= and in exclude=", {"features": "a", "exclude": ["a"]}),
    ):
        if choice.get("features"):
            choice["features"] = ["a"]
        with pytest.raises(error, match=says):
            open_log(path, **choice)
    with pytest.raises(ParameterError, match="pass them to open_log"):
        se.replay(open_log(path), se.Engine(), tmp_path / "run", label="when")
    with pytest.raises(FeatureError, match=r"'t\*' matches no numeric.*\['target'\] must be named"):
        open_log(write(tmp_path / "2", target=PLAIN["a"]), ["t*"])
    only = pa.table({"target": PLAIN["a"]})
    pq.write_table(only, tmp_path / "3")
    with pytest.raises(FeatureError, match="no numeric column that looks like a feature, only"):
        open_log(tmp_path / "3")


def test_the_command_names_the_columns_first(tmp_path: Path) -> None:
    """One line on standard error with what settles it, and in the object of --json."""
    path = write(tmp_path / "log", user_id=np.arange(N), note=np.full(N, "n"))
    base = ["replay", str(path), "--run", str(tmp_path / "run"), "--size", "40", "--overwrite"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        done = CliRunner().invoke(main, base)
        said = (
            "features: a, b; id: none; label: none; time: none; left out: note (string), user_id "
            "(named like an id); settle it with --features, --exclude, --id, --label or --time"
        )
        assert done.exit_code == 0
        assert done.stderr.splitlines()[0] == said
        done = CliRunner().invoke(main, [*base, "--id", "user_id", "--exclude", "note", "--json"])
    told = json.loads(done.stdout)["columns"]
    assert (told["id"], told["left_out"]) == ("user_id", {"note": "excluded"})
    output = str(tmp_path / "new.parquet")
    snapshot = str(tmp_path / "run" / "snapshot.arrow")
    done = CliRunner().invoke(
        main, ["transform", snapshot, str(path), "-o", output, "--id", "user_id"]
    )
    assert done.exit_code == 0
    assert pq.read_table(output)["id"].to_pylist() == list(range(N))


def test_an_engine_reads_the_columns_that_it_knows(tmp_path: Path) -> None:
    """A second log needs no choice: what was a feature is one."""
    path = write(tmp_path / "log", target=PLAIN["a"])
    engine = se.Engine(**SMALL)
    se.replay(path, engine, tmp_path / "run", features=["a", "target"])
    again = se.replay(path, engine, tmp_path / "run-2")
    assert again.columns.features == ("a", "target")


# ------------------------------------------------------------------ folders and patterns


def test_folders_named_key_value_are_read_through(tmp_path: Path) -> None:
    """In the order of their names; the keys are no columns."""
    for j, day in enumerate(("day=1", "day=2")):
        folder = tmp_path / "log" / day / "hour=0"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"a": [float(j), j + 0.5]}), folder / "part.parquet")
        (folder / "_SUCCESS").write_bytes(b"")
    (tmp_path / "log" / "other").mkdir()
    log = open_log(tmp_path / "log")
    assert (log.feature_names, log.n_rows) == (("a",), 4)
    assert np.concatenate([part.points for part in log]).ravel().tolist() == [0, 0.5, 1, 1.5]


def test_patterns_of_paths(tmp_path: Path) -> None:
    """Several, with other paths between them; one that matches nothing is refused."""
    for name in ("b1.parquet", "b2.parquet", "a.parquet"):
        pq.write_table(pa.table({"a": [1.0]}), tmp_path / name)
    log = open_log([str(tmp_path / "b*.parquet"), tmp_path / "a.parquet"])
    assert [path.name for path in log.paths] == ["b1.parquet", "b2.parquet", "a.parquet"]
    with pytest.raises(ParameterError, match="which matches nothing"):
        open_log(str(tmp_path / "c*"))
    done = CliRunner().invoke(main, ["replay", str(tmp_path / "c*"), "--run", str(tmp_path / "r")])
    assert (done.exit_code, "matches nothing" in done.stderr) == (2, True)


def test_a_folder_without_logs_is_no_damage(tmp_path: Path) -> None:
    """Wrong usage, and the message says what is in it."""
    folder = tmp_path / "log"
    (folder / "inner").mkdir(parents=True)
    with pytest.raises(ParameterError, match=r"without log files; it has the folders \['inner'\]"):
        open_log(folder)
    (folder / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ParameterError, match=r"table\.csv is CSV, not Arrow or Parquet"):
        open_log(folder)
    done = CliRunner().invoke(main, ["replay", str(folder), "--run", str(tmp_path / "r")])
    assert done.exit_code == 2


# ------------------------------------------------------------------ lists


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64())])
def test_lists_of_one_length_are_vectors(tmp_path: Path, kind: Any) -> None:
    """Rows of another length are set aside, with the reason; null ones too."""
    X = RNG.normal(size=(N, 3)).astype(np.float32).astype(float)
    rows: list[Any] = X.tolist()
    rows[52], rows[53] = [1.0, 2.0], None
    pq.write_table(pa.table({"e": pa.array(rows, kind), "label": ["a"] * N}), tmp_path / "log")
    log = open_log(tmp_path / "log")
    assert (log.feature_names, log.list_column, log.ordered) == (("0", "1", "2"), "e", True)
    engine = se.Engine(**SMALL)
    run = se.replay(log, engine, tmp_path / "run")
    rejected = pq.read_table(run.path / "rejected.parquet").to_pylist()
    assert [(row["offset"], row["reason"]) for row in rejected] == [
        (52, "'e' has 2 numbers instead of 3"),
        (53, "null in '0'"),
    ]
    twin = se.Engine(**SMALL)
    twin.learn(np.delete(X, [52, 53], axis=0))
    np.testing.assert_array_equal(engine.snapshot().points, twin.snapshot().points)
    again = se.replay(tmp_path / "log", engine, tmp_path / "run-2")
    assert again.accepted == N - 2


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.decimal128(5, 2)), pa.list_view(pa.float64()), pa.list_(pa.bool_()),
        pa.list_(pa.float64(), 2), pa.list_(pa.float64(), 0), pa.list_(pa.list_(pa.int8())),
        pa.run_end_encoded(pa.int32(), pa.float64()), pa.dictionary(pa.int8(), pa.int64()),
        pa.dense_union([pa.field("x", pa.int8())]), pa.uuid(), pa.month_day_nano_interval(),
        pa.fixed_shape_tensor(pa.float64(), [2]), pa.bool8(), pa.float16(), pa.string_view(),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("name", ["a", "id", "label", "event_time"])
@pytest.mark.parametrize("others", [{}, {"b": [1.0] * 12}], ids=["alone", "beside"])
def test_no_exception_of_pyarrow_reaches_a_reader(
    tmp_path: Path, kind: Any, name: str, others: dict[str, Any]
) -> None:
    """A log with a column of any type, in any use: read, or an error of ours."""
    table = pa.table({name: pa.nulls(12, kind), **others})
    with pa.ipc.new_file(str(tmp_path / "log"), table.schema) as writer:
        writer.write_table(table, max_chunksize=5)
    for choice in ({}, {"features": ["a"]}, {"exclude": [name]}):
        with suppress(InputError, LogError, ParameterError):
            log = open_log(tmp_path / "log", **choice)
            assert sum(len(part) for part in log) == 12
