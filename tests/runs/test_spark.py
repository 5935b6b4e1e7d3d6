"""Data frames of Spark: rows as of one process, batches that come twice. One session for all."""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed import spark as on_spark
from streamembed.errors import FeatureError, InputError, ParameterError

ROOT = Path(__file__).resolve().parents[2]
SETTINGS: dict[str, Any] = {"size": 60, "n_components": 3, "memory": "landmarks", "warm_up": 50}
X = np.random.default_rng(0).standard_normal((400, 2))
JAVA = shutil.which("java") is not None or "JAVA_HOME" in os.environ
NEEDED = pytest.mark.skipif(
    on_spark.types is None or not JAVA,
    reason="Spark is not installed (the extra [spark]), or Java is not",
)
pytestmark = pytest.mark.filterwarnings(
    "ignore::streamembed.errors.ResolutionWarning", "ignore::ResourceWarning"
)


def table(points: Any) -> Any:
    return pa.table({"x": points[:, 0], "y": points[:, 1]})


@pytest.fixture(scope="module")
def snapshot() -> se.Snapshot:
    engine = se.Engine(**SETTINGS)
    engine.learn(table(X))
    return engine.snapshot()


def run_of(folder: Path, batches: list[Any]) -> bytes:
    """What a loop without Spark gives: the engine of its run."""
    for number, rows in enumerate(batches):  # opened anew each time, as it is there
        with se.open_run(folder, SETTINGS) as run:
            run.learn(rows, batch_id=f"spark {number}")
    return engine_of(folder)


def engine_of(folder: Path) -> bytes:
    with se.read_run(folder) as reader:
        return reader.engine().to_bytes()


class Frame:
    """What of a data frame of Spark `learn_batches` asks for."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def toArrow(self) -> Any:  # noqa: N802
        return self.rows


# ---------------------------------------------------------------- without Spark


def test_without_spark_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, snapshot: se.Snapshot, tmp_path: Path
) -> None:
    """Of both functions."""
    monkeypatch.setattr(on_spark, "types", None)
    for call in (
        lambda: on_spark.transform(None, snapshot),
        lambda: on_spark.learn_batches(tmp_path / "run"),
    ):
        with pytest.raises(ParameterError, match=r'pip install "streamembed\[spark\]"'):
            call()


def test_a_batch_of_rows_is_placed_as_any_table(snapshot: se.Snapshot) -> None:
    """To the bit; what cannot be placed says why; other columns stay; columns may be renamed."""
    points = X[:5].copy()
    points[1, 0] = np.nan
    rows = pa.record_batch(
        {"b": points[:, 1], "name": ["p", "q", "r", "s", "t"], "a": [*points[:4, 0], None]}
    )
    found = on_spark.place_batch(snapshot, rows, ("a", "b"))
    assert found.schema.names == [
        *("b", "name", "a"),
        *("diffusion_map_0", "diffusion_map_1", "diffusion_map_2", "coverage", "reason"),
    ]
    assert found.column("name").to_pylist() == ["p", "q", "r", "s", "t"]
    assert found.column("reason").to_pylist() == [*(None, "NaN in 'x'", None, None, "null in 'x'")]
    good, (bad, worse) = [0, 2, 3], (1, 4)
    plain, coverage = snapshot.transform_with_coverage(table(X[good]))
    for name in plain.column_names:
        column = found.column(name).to_pylist()
        assert [column[at] for at in good] == plain.column(name).to_pylist()
        assert column[bad] is column[worse] is None
    assert [found.column("coverage").to_pylist()[at] for at in good] == coverage.tolist()
    assert on_spark.place_batch(snapshot, rows.slice(0, 0), ("a", "b")).num_rows == 0
    assert on_spark.place_batch(snapshot, rows.slice(1, 1), ("a", "b")).num_rows == 1


def test_a_batch_is_learned_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Repeated, even by another process, it changes nothing; with other rows it is refused."""
    monkeypatch.setattr(on_spark, "types", object())
    batches = [table(X[:150]), table(X[150:250]), table(X[:0]), table(X[250:])]
    expected = run_of(tmp_path / "plain", batches)
    for number, rows in enumerate(batches):
        for _ in range(2):
            learn = on_spark.learn_batches(tmp_path / "run", SETTINGS)
            learn(Frame(rows), number)
    assert engine_of(tmp_path / "run") == expected
    with pytest.raises(InputError, match="'spark 1' was learned before, and with other rows"):
        learn(Frame(table(X[100:250])), 1)
    with pytest.raises(InputError, match="with other rows"):  # in another order
        learn(Frame(batches[1].take(list(range(99, -1, -1)))), 1)
    assert engine_of(tmp_path / "run") == expected
    with pytest.raises(ParameterError, match="name='' must be printable text"):
        on_spark.learn_batches(tmp_path / "run", name="")


def test_an_order_makes_rows_of_any_order_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where Spark has shuffled them; under another name the batch is another one."""
    monkeypatch.setattr(on_spark, "types", object())
    rows = table(X).append_column("id", pa.array(range(400)))
    learn = on_spark.learn_batches(tmp_path / "run", SETTINGS, order_by=["id"])
    learn(Frame(rows.take(np.random.default_rng(1).permutation(400))), 7)
    first = engine_of(tmp_path / "run")
    learn(Frame(rows), 7)
    assert engine_of(tmp_path / "run") == first
    with se.open_run(tmp_path / "plain", SETTINGS) as run:
        run.learn(rows)
    assert engine_of(tmp_path / "plain") == first
    others = table(X + 1.0).append_column("id", pa.array(range(400, 800)))
    on_spark.learn_batches(tmp_path / "run", features=["x", "y"], name="other")(Frame(others), 7)
    with se.read_run(tmp_path / "run") as reader:
        assert reader.engine().position == 800


# ---------------------------------------------------------------- with Spark


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    """Spark within this process, two threads of it."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  (an extra)

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        made = (
            SparkSession.builder.master("local[2]")
            .config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        made.sparkContext.setLogLevel("ERROR")
        yield made
        made.stop()


@NEEDED
@pytest.mark.spark
def test_rows_are_those_of_the_snapshot(
    session: Any, snapshot: se.Snapshot, tmp_path: Path
) -> None:
    """Of a data frame in several parts, to the bit; columns that are missing or there are named."""
    points = X.copy()
    points[[3, 300], 1] = np.nan
    rows = table(points).append_column("id", pa.array(range(400)))
    for part in range(4):
        pq.write_table(rows.slice(100 * part, 100), tmp_path / f"{part}.parquet")
    frame = session.read.parquet(str(tmp_path))
    found = on_spark.transform(frame.repartition(3), snapshot).toArrow().sort_by("id")
    expected = pa.Table.from_batches(
        [on_spark.place_batch(snapshot, part, ("x", "y")) for part in rows.to_batches()]
    )
    assert found.column("reason").null_count == 398
    assert found.drop_columns(["x", "y"]).equals(expected.drop_columns(["x", "y"]))
    with pytest.raises(FeatureError, match="dataframe has no column 'y'"):
        on_spark.transform(frame.select("x"), snapshot)
    with pytest.raises(FeatureError, match="are 1 columns, and this snapshot has 2"):
        on_spark.transform(frame, snapshot, ["x"])
    with pytest.raises(ParameterError, match="has the columns \\['coverage'\\] already"):
        on_spark.transform(frame.withColumnRenamed("id", "coverage"), snapshot)


@NEEDED
@pytest.mark.spark
def test_a_stream_that_repeats_a_batch_learns_it_once(session: Any, tmp_path: Path) -> None:
    """Spark forgets that a batch was done, as when it is killed before it wrote that down."""
    batches = [table(X[:150]), table(X[150:250]), table(X[250:])]
    (tmp_path / "rows").mkdir()
    calls: list[int] = []

    def go() -> None:
        learn = on_spark.learn_batches(tmp_path / "run", SETTINGS)

        def counted(frame: Any, number: int) -> None:
            calls.append(number)
            learn(frame, number)

        rows = session.readStream.schema("x double, y double").parquet(str(tmp_path / "rows"))
        query = (
            rows.writeStream.foreachBatch(counted)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    for number, part in enumerate(batches):
        pq.write_table(part, tmp_path / "rows" / f"{number}.parquet")
        go()
        if number == 1:
            for path in (tmp_path / "checkpoint" / "commits").glob("*1*"):
                path.unlink()
            go()
    assert calls == [0, 1, 1, 2]
    assert engine_of(tmp_path / "run") == run_of(tmp_path / "plain", batches)


@NEEDED
@pytest.mark.spark
def test_the_guide_runs(session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block of Python on its page, one after the other."""
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "guides" / "spark.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    assert names["learned"] == 600
    assert names["found"].num_rows == 600
