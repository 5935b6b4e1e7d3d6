"""Pair logs: what they are, what is set aside, and that the cut of the files does not matter."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import BadRowError, FeatureError, ParameterError
from streamembed.logs.event_log import write_log
from streamembed.logs.pair_log import open_pairs

RNG = np.random.default_rng(0)
POINTS = RNG.standard_normal((300, 3))
NAMES = ["a", "b", "c"]
LEFT, RIGHT = RNG.integers(300, size=(2, 120))
SIMILAR = np.abs(POINTS[LEFT, 0] - POINTS[RIGHT, 0]) < 0.7


def columns(chosen: slice = slice(None)) -> dict[str, Any]:
    sides = {
        f"{name}_{side}": POINTS[rows[chosen], j]
        for side, rows in ((1, LEFT), (2, RIGHT))
        for j, name in enumerate(NAMES)
    }
    return {**sides, "similar": SIMILAR[chosen]}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "log", POINTS, NAMES)
    return tmp_path / "log"


def small(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 100, "metrics": ("itml", "geometric_mean"), **changes})


def test_a_pair_log_is_learned_as_its_pairs(tmp_path: Path, log: Path) -> None:
    """The same metrics as `learn_pairs` at the end of the warm-up, however the files are cut."""
    twin = small()
    twin.learn(POINTS[:50])
    twin.learn_pairs(POINTS[LEFT], POINTS[RIGHT], SIMILAR)
    twin.learn(POINTS[50:])
    for k, cuts in enumerate(([120], [1, 64, 120])):
        folder = tmp_path / f"pairs {k}"
        folder.mkdir()
        for i, (start, stop) in enumerate(pairwise([0, *cuts])):
            pq.write_table(pa.table(columns(slice(start, stop))), folder / str(i))
        done = se.replay(log, small(), tmp_path / f"run {k}", pairs=folder)
        assert (done.pairs, done.rejected_pairs) == (120, 0)
        assert done.snapshot is not None
        for name, metric in twin.snapshot().metrics.items():
            np.testing.assert_array_equal(done.snapshot.metrics[name].matrix, metric.matrix)
            assert metric.certificate["source"] == "given"


def test_rows_that_cannot_be_learned_are_set_aside(tmp_path: Path, log: Path) -> None:
    """Null, NaN, neither true nor false: with their row and reason; or an error under raise."""
    table = columns()
    table["similar"] = SIMILAR.astype(float)
    table["similar"][4] = 0.5
    table["a_2"] = table["a_2"].copy()
    table["a_2"][7] = np.nan
    table["b_1"] = pa.array([None if i == 9 else v for i, v in enumerate(table["b_1"].tolist())])
    pq.write_table(pa.table(table), tmp_path / "pairs")
    done = se.replay(log, small(), tmp_path / "run", pairs=tmp_path / "pairs")
    assert (done.pairs, done.rejected_pairs) == (117, 3)
    aside = pq.read_table(done.path / "rejected_pairs.parquet").to_pylist()
    assert [(row["offset"], row["reason"]) for row in aside] == [
        (4, "'similar' is 0.5; it must be true or false"),
        (7, "NaN in 'a_2'"),
        (9, "null in 'b_1'"),
    ]
    with pytest.raises(BadRowError, match="row 4 of the pair log cannot be learned"):
        se.replay(log, small(), tmp_path / "two", pairs=tmp_path / "pairs", on_bad_row="raise")


def test_what_is_no_pair_log_is_refused_before_anything_is_learned(
    tmp_path: Path, log: Path
) -> None:
    """No `similar`, half of a pair, other features, an engine without such metrics."""
    whole = columns()
    wrong = {
        "no boolean column 'similar'": {k: v for k, v in whole.items() if k != "similar"},
        r"lacks the columns \['b_2'\]": {k: v for k, v in whole.items() if k != "b_2"},
        r"unexpected columns \['d'\]": {**whole, "d": whole["a_1"]},
        "the pair log has the features": {k: v for k, v in whole.items() if k[0] != "c"},
    }
    for i, (says, table) in enumerate(wrong.items()):
        pq.write_table(pa.table(table), tmp_path / f"pairs {i}")
        engine = small()
        with pytest.raises(FeatureError, match=says):
            se.replay(log, engine, tmp_path / f"run {i}", pairs=tmp_path / f"pairs {i}")
        assert engine.position == 0
        assert not (tmp_path / f"run {i}").exists()
    pq.write_table(pa.table(whole), tmp_path / "pairs")
    with pytest.raises(ParameterError, match="learns no metrics"):
        se.replay(log, se.Engine(), tmp_path / "run", pairs=tmp_path / "pairs")


def test_a_pair_log_reads_as_pairs(tmp_path: Path) -> None:
    """Both points in the order of the features, whatever the order of the columns."""
    table = columns()
    shuffled = {name: table[name] for name in sorted(table, reverse=True)}
    pq.write_table(pa.table(shuffled), tmp_path / "pairs")
    (part,) = open_pairs(tmp_path / "pairs")
    np.testing.assert_array_equal(part.left, POINTS[LEFT])
    np.testing.assert_array_equal(part.right, POINTS[RIGHT])
    np.testing.assert_array_equal(part.similar, SIMILAR)
