"""What newcomers and attackers found in their first hour; each was wrong once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import BadRowError, ColumnWarning, ParameterError
from streamembed.estimators import FENN, PCA
from streamembed.logs import open_log
from tests.cli.test_cli import call

RNG = np.random.default_rng(5)
POINTS = RNG.standard_normal((400, 3))
FRAME = pd.DataFrame(POINTS, columns=list("abc"))


def test_snapshots_of_named_features_are_compared() -> None:
    """Events that came between them were refused as an array of unknown columns."""
    engine = se.Engine(size=100)
    engine.learn(FRAME[:150])
    earlier = engine.snapshot()
    engine.learn(FRAME[150:190])
    found = engine.snapshot().compare(earlier)
    assert (found.shared, 0 < found.covered <= 1) == (60, True)


def test_an_id_that_is_used_again_is_another_event() -> None:
    """It counted as shared, and all that was said of it was of unrelated points."""
    engine = se.Engine(size=60, warm_up=60)
    engine.learn(POINTS[:60], ids=np.arange(60))
    earlier = engine.snapshot()
    engine.learn(POINTS[60:120], ids=np.arange(100, 160))
    engine.learn(POINTS[120:180], ids=np.arange(60))
    assert engine.snapshot().compare(earlier).shared == 0


@pytest.mark.parametrize("first", [0, 20])
def test_empty_parquet_files_are_passed_over(tmp_path: Path, first: int) -> None:
    """As Spark leaves them; they were read as numbers of rows."""
    table = pa.Table.from_pandas(FRAME)
    for name, part in enumerate((table[:first], table[:0], table[first:])):
        pq.write_table(part, tmp_path / f"{name}.parquet")
    log = open_log(tmp_path)
    assert (log.n_rows, log.feature_names) == (400, ("a", "b", "c"))


def test_estimators_tell_at_the_first_events() -> None:
    """However their features are settled; and a `merge` tells what is new to it."""
    suspicious = FRAME.assign(user_id=range(400))
    early = PCA()
    with pytest.warns(ColumnWarning, match="user_id"):
        early.learn_many(suspicious[:15])
    early.flush()
    assert early.feature_names == ("a", "b", "c")
    one, other = FENN(), FENN()
    labels = [bool(v) for v in POINTS[:, 0] > 0]
    one.learn_many(FRAME[:30], labels[:30])
    with pytest.warns(ColumnWarning, match="user_id"):
        other.learn_many(suspicious[30:63], labels[30:63])
    with pytest.warns(ColumnWarning, match="user_id"):
        one.merge(other)


class Once:
    """A table that can be read only once."""

    def __init__(self, table: pa.Table) -> None:
        self.left = [table]

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.left.pop().__arrow_c_stream__(requested_schema)


def test_a_source_is_read_once() -> None:
    """By transform, too, which gives its kind back."""
    engine = se.Engine(size=100)
    engine.learn(FRAME[:150])
    table = pa.Table.from_pandas(FRAME[:20], preserve_index=False)
    assert engine.snapshot().transform(Once(table)).column_names[0] == "diffusion_map_0"


def test_a_run_is_not_put_where_it_would_be_read(tmp_path: Path) -> None:
    """A folder named ``key=value`` is read with the one above it."""
    (tmp_path / "log" / "day=1").mkdir(parents=True)
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "log" / "day=1" / "a.parquet")
    with pytest.raises(ParameterError, match=r"the folder .* from which the log is read"):
        se.replay(tmp_path / "log", se.Engine(), tmp_path / "log" / "day=2")


def test_the_summary_says_why_rows_were_rejected(tmp_path: Path) -> None:
    """A column of nulls rejected every row, and the advice was about the warm-up."""
    path = tmp_path / "log.parquet"
    pq.write_table(pa.table({"a": POINTS[:, 0], "gone": pa.nulls(400, pa.float64())}), path)
    done = call("replay", path, "--run", tmp_path / "run")
    assert "with the reason: null in 'gone' (400)" in done.stderr
    assert "warm-up" not in done.stdout
    done = call("replay", path, "--run", tmp_path / "two", "--max-rejected", "5%")
    assert (done.exit_code, "more than max_rejected allows" in done.stderr) == (2, True)
    with pytest.raises(BadRowError, match=r"400 of 400 .*\(12\)"):
        se.replay(path, se.Engine(), tmp_path / "three", max_rejected=12)
    with pytest.raises(ParameterError, match="max_rejected='much'"):
        se.replay(path, se.Engine(), tmp_path / "four", max_rejected="much")


def test_a_run_that_lacks_a_table_is_told(tmp_path: Path) -> None:
    """It was read as a log, or as whole."""
    pq.write_table(pa.Table.from_pandas(FRAME), tmp_path / "log.parquet")
    se.replay(tmp_path / "log.parquet", se.Engine(size=100), tmp_path / "run", features=["a", "b"])
    (tmp_path / "run" / "snapshot.arrow").unlink()
    assert "snapshot.arrow is missing" in call("verify", tmp_path / "run").stdout
    (tmp_path / "run" / "timeline.parquet").unlink()
    done = call("inspect", tmp_path / "run")
    assert done.exit_code == 3
    assert "timeline.parquet is missing; repeat the replay to write it again" in done.stderr


def test_metrics_that_learned_nothing_are_a_hint(tmp_path: Path) -> None:
    """The verdict of `inspect` was that all is well."""
    frame = pa.Table.from_pandas(FRAME, preserve_index=False)
    pq.write_table(frame, tmp_path / "log.parquet")
    call("replay", tmp_path / "log.parquet", "--run", tmp_path / "run", "--metrics", "fenn")
    told = call("inspect", tmp_path / "run").stdout
    assert "the metrics fenn learned nothing" in told
