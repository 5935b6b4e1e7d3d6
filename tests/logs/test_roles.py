"""Roles of columns: what is named like ids, times and targets is left out with a warning."""

from __future__ import annotations

import json
import tempfile
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
from streamembed.estimators import FENN, ITML, PCA, DiffusionMap
from streamembed.logs.event_log import open_log
from streamembed.runs.verification import verify

N = 60
RNG = np.random.default_rng(0)
PLAIN = {"a": RNG.normal(size=N), "b": RNG.integers(0, 5, N)}
SMALL: dict[str, Any] = {"size": 40, "warm_up": 20, "chunk_size": 5}


def write(path: Path, rows: int = N, **columns: Any) -> Path:
    pq.write_table(pa.table({**PLAIN, **columns}).slice(0, rows), path)
    return path


SUSPICIOUS = {
    "user_id": "named like an id",
    "PassengerId": "named like an id",
    "UUID": "named like an id",
    "__index_level_0__": "the index of a pandas frame",
    "Unnamed: 0": "the index of a pandas frame",
    "timestamp": "named like a time",
    "birth_date": "named like a time",
    "birthDate": "named like a time",
    "created_at": "named like a time",
    "ts": "named like a time",
    "Target": "named like a target",
    "labels": "named like a target",
    "y_true": "named like a target",
    "y": "named like a target",
}


def door_of_engines(table: pa.Table) -> tuple[str, ...]:
    engine = se.Engine(**SMALL)
    engine.learn(table)
    return engine.feature_names


def door_of_checks(table: pa.Table) -> tuple[str, ...]:
    engine = se.Engine(**SMALL)
    engine.apply(engine.check(table))
    return engine.feature_names


def door_of_runs(table: pa.Table) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as folder, se.open_run(f"{folder}/run", SMALL) as run:
        run.learn(table)
        names: tuple[str, ...] = run.snapshot().feature_names
        return names


def door_of_monitors(table: pa.Table) -> tuple[str, ...]:
    monitor = se.Monitor(n_reference=100)
    monitor.learn(table)
    return monitor._state.names


def door_of_maps(table: pa.Table) -> tuple[str, ...]:
    model = DiffusionMap(warm_up=20, size=40)
    model.learn_many(table)
    return model.engine.feature_names


def door_of_axes(table: pa.Table) -> tuple[str, ...]:
    model = PCA()
    model.learn_many(table)
    return model.feature_names


def door_of_events(table: pa.Table) -> tuple[str, ...]:
    model = FENN()
    for row in table.to_pylist() if isinstance(table, pa.Table) else table:
        model.learn_one(row, row["a"] > 0)
    return model.feature_names


def door_of_pairs(table: pa.Table) -> tuple[str, ...]:
    model = ITML()
    model.learn_pairs(table[:30], table[30:], [True, False] * 15)
    return model.feature_names


DOORS = [
    door_of_engines, door_of_checks, door_of_runs, door_of_monitors, door_of_maps, door_of_axes,
    door_of_events, door_of_pairs,
]  # fmt: skip


@pytest.mark.parametrize("kind", ["table", "dicts"])
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__.removeprefix("door_of_"))
def test_one_rule_at_every_door(door: Any, kind: str) -> None:
    """Suspicious columns are left out with one warning, of tables as of dicts."""
    table = pa.table({**PLAIN, **{name: RNG.permutation(N) for name in SUSPICIOUS}})
    with pytest.warns(ColumnWarning, match="'PassengerId' .named like an id") as given:
        assert door(table if kind == "table" else table.to_pylist()) == ("a", "b")
    assert len(given) == 1
    for name, why in SUSPICIOUS.items():
        assert f"{name!r} ({why})" in str(given[0].message)


@pytest.mark.parametrize("kind", ["table", "dicts"])
def test_features_chosen_or_learned_are_features_whatever_their_names(kind: str) -> None:
    """Reserved names too, and without a warning."""
    table = pa.table({**PLAIN, "user_id": RNG.permutation(N), "id": RNG.permutation(N)})
    rows: Any = table if kind == "table" else table.to_pylist()
    names = ["a", "id", "user_id"]
    engine = se.Engine(**SMALL)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        engine.learn(rows, features=names)
        assert engine.feature_names == tuple(names)
        engine.learn(table.select(names) if kind == "table" else table.select(names).to_pylist())
        assert engine.position == 2 * N
        patterned = se.Engine(**SMALL)
        patterned.learn(rows, features=["[ab]"])
        patterned.learn(rows)
    assert patterned.feature_names == ("a", "b")
    with pytest.raises(FeatureError, match=r"'user\*'.*\['user_id'\] must be named in full"):
        se.Engine().learn(rows, features=["user*"])


@pytest.mark.parametrize("name", SUSPICIOUS)
def test_suspicious_columns_of_a_log_are_left_out_and_named(tmp_path: Path, name: str) -> None:
    """With a warning; a choice by its full name settles it."""
    path, why = write(tmp_path / "log", **{name: RNG.permutation(N)}), SUSPICIOUS[name]
    with pytest.warns(ColumnWarning, match=f"{name}.*{why}.*decide with features="):
        log = open_log(path)
    assert log.feature_names == ("a", "b")
    assert dict(log.columns.left_out) == {name: why}
    assert log.columns.suspicious == (name,)
    assert name in open_log(path, ["a", name]).feature_names


@pytest.mark.parametrize(
    "columns",
    [
        {"y": PLAIN["a"], "x": PLAIN["a"]},
        {"acid": PLAIN["a"], "grid": PLAIN["a"], "response_time": PLAIN["a"]},
        {"row": np.arange(N), "count": np.arange(N) // 2, "at": 1.7e9 + np.arange(N)},
        {"flag": np.arange(N) > 3},
    ],
    ids=str,
)
def test_other_names_are_features_whatever_their_values(
    tmp_path: Path, columns: dict[str, Any]
) -> None:
    """Coordinates, words that end in id, durations, counters."""
    path = write(tmp_path / "log", **columns)
    assert set(open_log(path).feature_names) == {"a", "b", *columns}
    assert se.Engine(**SMALL).learn(pq.read_table(path)).accepted == N


@pytest.mark.parametrize("first", [0, 1], ids=["null first", "null later"])
@pytest.mark.parametrize(
    "values",
    [PLAIN["a"].tolist(), [[1.0, 2.0]] * N, list(range(N)), ["t"] * N],
    ids=["numbers", "lists", "ids", "labels"],
)
def test_a_column_without_a_value_in_one_file_is_missing_there(
    tmp_path: Path, first: int, values: list[Any]
) -> None:
    """It has the type null there, which refused the log, or made it one without the column."""
    name = "id" if values[1] == 1 else "label" if values[0] == "t" else "c"
    others = {} if name == "c" and isinstance(values[0], list) else {"a": PLAIN["a"]}
    for j in (0, 1):
        column = pa.nulls(N) if j == first else pa.array(values)
        pq.write_table(pa.table({**others, name: column}), tmp_path / f"{j}")
    log = open_log(tmp_path)
    if name != "c":
        got = [value for part in log for value in getattr(part, f"{name}s").__array__().tolist()]
        missing, present = got[first * N :][:N], got[(1 - first) * N :][:N]
        assert (missing, present) == ([None] * N, values)
        return
    points = np.concatenate([part.points for part in log])[:, len(others) :]
    nulls = np.concatenate([part.nulls for part in log])[:, len(others) :]
    assert nulls[first * N :][:N].all()
    assert nulls.sum() == nulls.size / 2
    there = np.reshape(values, (N, -1))
    np.testing.assert_array_equal(points[(1 - first) * N :][:N], there)


def test_what_a_log_without_features_has_is_listed(tmp_path: Path) -> None:
    """Columns with types and roles, and what to do; it named columns that were not there."""
    pq.write_table(pa.table({"id": range(N), "note": ["n"] * N}), tmp_path / "log")
    with pytest.raises(
        FeatureError,
        match=r"no column that is a feature, only 'id' \(id\), 'note' \(string\); name",
    ):
        open_log(tmp_path / "log")
    pq.write_table(pa.table({"t": ["n"] * N}), tmp_path / "log")
    with pytest.raises(FeatureError, match=r"only 't' \(string\)") as caught:
        open_log(tmp_path / "log")
    assert "event_time" not in str(caught.value)


def test_columns_of_other_names_have_the_roles(tmp_path: Path) -> None:
    """Ids, labels and times of the chosen columns, in `replay` and in what it writes."""
    names = np.array([f"e{j}" for j in range(N)])
    kinds, at = np.where(np.arange(N) % 2, "p", "q"), pa.array(range(N), pa.timestamp("s"))
    path = write(tmp_path / "log", key=names, kind=kinds, at=at, extra=PLAIN["a"], id=names[::-1])
    roles: dict[str, Any] = {"id": "key", "label": "kind", "time": "at", "exclude": ["ex*"]}
    log = open_log(path, **roles)
    assert log.feature_names == ("a", "b")
    assert (log.columns.id, log.columns.label, log.columns.time) == ("key", "kind", "at")
    assert log.columns.left_out == {"extra": "excluded", "id": "string, named like an id"}
    assert str(log.columns) == (
        "features: a, b; id: key; label: kind; time: at; left out: extra (excluded), "
        "id (string, named like an id)"
    )
    run = se.replay(path, se.Engine(**SMALL), tmp_path / "run", **roles)
    written = pq.read_table(run.path / "embedding.parquet")
    assert written["id"].to_pylist() == names.tolist()
    assert written["label"].to_pylist() == kinds.tolist()
    assert written["event_time"].type == pa.timestamp("s") or written["event_time"].null_count == 0


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
    path = write(tmp_path / "2", target=PLAIN["a"])
    with pytest.raises(FeatureError, match=r"'t\*' .* without a match.*\['target'\] must be"):
        open_log(path, ["t*"])


def test_a_time_that_is_text_is_refused(tmp_path: Path) -> None:
    """It was kept as a text once."""
    path = write(tmp_path / "log", when=["1970-01-01"] * N)
    with pytest.raises(FeatureError, match="time='when' has type string; times must be timestamps"):
        open_log(path, time="when")


def test_the_command_names_the_columns_first(tmp_path: Path) -> None:
    """One line on standard error with what settles it, and in the object of --json."""
    path = write(tmp_path / "log", user_id=np.arange(N), note=np.full(N, "n"))
    base = ["replay", str(path), "--run", str(tmp_path / "run"), "--size", "40", "--overwrite"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ColumnWarning)
        done = CliRunner().invoke(main, base)
        said = (
            "features: a, b; id: none; label: none; time: none; left out: note (string), user_id "
            "(named like an id); decide with features=, exclude=, id=, label= or time="
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
    with pytest.raises(ParameterError, match="without log files: name the files"):
        open_log(folder)
    (folder / "table.csv").write_text("a,b\n1,2\n")
    with pytest.raises(ParameterError, match=r"table\.csv is neither Arrow nor Parquet"):
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
    assert (log.feature_names, log.columns.list_column, log.ordered) == (("0", "1", "2"), "e", True)
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


@pytest.mark.parametrize("short", [[], [1.0]])
def test_one_short_list_among_the_first_rows_is_a_rejected_row(tmp_path: Path, short: Any) -> None:
    """Wherever it is: the commonest length of the first rows is that of all. It refused the log."""
    X = RNG.normal(size=(N, 3))
    for place in (0, 7):
        rows: list[Any] = X.tolist()
        rows[place] = short
        pq.write_table(pa.table({"e": rows}), tmp_path / "log")
        assert open_log(tmp_path / "log").feature_names == ("0", "1", "2")
        run = se.replay(tmp_path / "log", se.Engine(**SMALL), tmp_path / f"run-{place}")
        (rejected,) = pq.read_table(run.path / "rejected.parquet").to_pylist()
        says = f"'e' has {len(short)} numbers instead of 3"
        assert (rejected["offset"], rejected["reason"]) == (place, says)
        done = se.Engine(**SMALL, on_bad_row="skip").learn(pa.table({"e": rows}))
        assert [(row.index, row.reason) for row in done.rejected] == [(place, says)]


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.list_(pa.float64(), 16)])
def test_a_vector_and_numbers_are_features_together(tmp_path: Path, kind: Any) -> None:
    """Of a log, a table or a run; the vector is one block that weighs as one of the numbers."""
    vectors = (RNG.normal(size=(N, 16)) * 3.0).astype(np.float32).astype(float)
    names, numbers = ["latency", "embedding"], RNG.normal(size=(N, 2)) * 3.0
    columns = {"embedding": pa.array(vectors.tolist(), kind), "latency": numbers[:, 0]}
    table = pa.table({**columns, "other": numbers[:, 1]})
    pq.write_table(table, tmp_path / "log")
    log = open_log(tmp_path / "log", names)
    parts = [*(f"embedding[{j}]" for j in range(16)), "latency"]
    assert set(log.feature_names) == {*parts}
    assert (log.columns.vectors, log.columns.list_column) == (("embedding",), None)
    engine, twin = se.Engine(**SMALL), se.Engine(**SMALL)
    run = se.replay(log, engine, tmp_path / "run")
    twin.learn(table, features=names)
    expected = engine.snapshot()
    for other in (twin.snapshot(), se.read_run(run.path).snapshot()):
        np.testing.assert_array_equal(expected.coordinates, other.coordinates)
    plain = se.Engine(**SMALL)
    plain.learn(np.column_stack([vectors, numbers[:, 0]]))
    order = [parts.index(name) for name in log.feature_names]
    for _ in range(2):
        scale = plain.snapshot().scale * ([4.0] * 16 + [1.0])
        np.testing.assert_array_equal(engine.snapshot().scale, scale[order])
        engine.rescale()
        plain.rescale()
    np.testing.assert_array_equal(
        expected.transform(table.drop("other"))[:3], expected.transform(table.select(names))[:3]
    )
    known = open_log(tmp_path / "log", expected.feature_names)
    assert known.feature_names == expected.feature_names
    assert verify(run.path).troubles == ()
    with pytest.raises(FeatureError, match="choose"):
        se.Engine(**SMALL).learn(table)


@pytest.mark.filterwarnings("ignore::streamembed.errors.ColumnWarning")
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


@pytest.mark.parametrize(
    "asked", [{"features": ["sped"]}, {"exclude": ["sped"]}, {"id": "sped"}, {"label": "sped"}]
)
def test_misspelt_columns_had_no_suggestion(tmp_path: Path, asked: dict[str, Any]) -> None:
    """The nearest column of the log."""
    write(tmp_path / "log", speed=RNG.normal(size=N))
    with pytest.raises(FeatureError, match=r"did you mean 'speed'\?"):
        open_log(tmp_path / "log", **asked)
