"""Metrics in partitions: learned from the labels of each, and merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.metrics import catalog
from streamembed.runs.log_replay import Replayed
from streamembed.runs.partitioned import replay_partitions
from streamembed.runs.verification import verify

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
FILES = ("snapshot.arrow", "landmarks.arrow", "timeline.parquet", "rejected.parquet")
FIXED: dict[str, Any] = {"size": 60, "n_components": 3, "chunk_size": 50, "snapshot_every": 200}
# Whose merged sums are those of the whole stream, to rounding.
NAMES = tuple(name for name in catalog.NAMES if name != "itml")
EXACT = ("contrast", "geometric_mean", "must_link", "fenn", "discriminant")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of 900 rows, two classes, a fifth of the labels unknown, a bad row each."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("log")
    for part, order in enumerate((["a", "b"], ["b", "a"], ["a", "b"])):
        side = rng.integers(0, 2, 900)
        names = np.array(["a", "b"])[side]
        points = rng.standard_normal((900, 3)) * [1.0, 3.0, 0.5] + np.outer(names == "a", [2, 0, 0])
        names[0] = order[0]  # classes come in another order
        points[500, 1] = np.nan
        labels = [
            None if hidden else str(name)
            for hidden, name in zip(rng.random(900) < 0.2, names, strict=True)
        ]
        columns = dict(zip("xyz", points.T, strict=True))
        pq.write_table(pa.table({**columns, "label": labels}), folder / f"{part}.parquet")
    return folder


def replayed(log: Path, run: Path, **changes: Any) -> Replayed:
    return replay_partitions(str(log), run, **{"workers": 1, "metrics": NAMES, **FIXED, **changes})


def files_of(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in FILES]


def test_metrics_are_those_of_the_whole_stream(log: Path, tmp_path: Path) -> None:
    """Where the merge is exact; the others have learned all labels of all partitions."""
    done = replayed(log, tmp_path / "run")
    engine = se.Engine(metrics=NAMES, memory="landmarks", size=60)
    se.replay(str(log), engine, tmp_path / "whole")
    engine.flush()
    whole = engine.snapshot()
    assert done.snapshot is not None
    assert done.learned == whole.position == 2697
    for name in NAMES:
        merged, alone = done.snapshot.metrics[name], whole.metrics[name]
        assert merged.certificate["labelled"] == alone.certificate["labelled"] > 2000
        assert merged.certificate.fitted
        if name in EXACT:
            np.testing.assert_allclose(merged.matrix, alone.matrix, rtol=1e-8, atol=1e-10)
        else:  # they remember pairs: the same directions matter
            relative = np.linalg.norm(merged.matrix - alone.matrix) / np.linalg.norm(alone.matrix)
            assert relative < 0.5, name


def test_workers_leave_no_trace_in_metrics(log: Path, tmp_path: Path) -> None:
    """The same bytes of two processes; a run that is verified, and whose engine goes on."""
    replayed(log, tmp_path / "one")
    replayed(log, tmp_path / "two", workers=2)
    assert files_of(tmp_path / "one") == files_of(tmp_path / "two")
    assert not verify(tmp_path / "one").troubles
    with se.read_run(tmp_path / "one") as run:
        engine, snapshot = run.engine(), run.snapshot()
    for name in NAMES:
        matrix = engine.snapshot().metrics[name].matrix
        np.testing.assert_array_equal(matrix, snapshot.metrics[name].matrix)
    table = pq.read_table(log / "0.parquet").slice(0, 100)
    assert engine.learn(table).accepted == 100
    again = se.Engine.from_bytes(engine.to_bytes())
    assert again.snapshot().metrics["fenn"].certificate["labelled"] > 2050
