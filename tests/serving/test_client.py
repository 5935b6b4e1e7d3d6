"""Errors of a client before any call, and without a server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import streamembed as se
from streamembed.errors import (
    ColumnWarning,
    InputError,
    ParameterError,
)
from tests.serving.served import serving


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8815", "http://127.0.0.1:8815", "grpc://127.0.0.1", "grpc://a@b:1"),
        *(8815, None, "grpc+unix:///socket", "grpc://127.0.0.1:8815/path"),
    ],
)
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    """The message shows one."""
    with pytest.raises(ParameterError, match="must be such as grpc://"):
        se.connect(url)


@pytest.mark.parametrize("token", [b"x", 7, "ä", "a\nb"])
def test_a_token_that_is_none_is_refused(token: Any) -> None:
    """And is not shown."""
    with pytest.raises(ParameterError, match="must be text") as told:
        se.connect("grpc://127.0.0.1:1", token=token)
    assert str(token) not in str(told.value)


def test_ids_and_labels_of_a_table_are_sent(tmp_path: Path) -> None:
    """As `Run.learn` takes them from the same table; they were dropped without a word once."""
    points = np.random.default_rng(3).standard_normal((80, 2))
    parameters = {"size": 50, "warm_up": 40, "metrics": ("fenn",)}
    columns = {"x": points[:, 0], "y": points[:, 1], "z": points.sum(1)}
    names = [f"e{i}" for i in range(80)]
    table = pa.table({**columns, "id": names, "label": [*"ab"] * 40})
    with se.open_run(tmp_path / "local", parameters) as run:
        run.learn(table)
        expected = run.snapshot()
    with se.open_run(tmp_path / "run", parameters):
        pass
    served = tmp_path / "run"
    with serving(served, "--learn") as server, server.client() as client:
        assert client.learn(table).accepted == 80
    with se.open_run(served) as run:
        snapshot = run.snapshot()
    assert snapshot.ids.tolist() == expected.ids.tolist() == names[-50:]
    np.testing.assert_array_equal(
        snapshot.metrics["fenn"].matrix, expected.metrics["fenn"].matrix, strict=True
    )


def test_a_label_column_is_left_out_where_no_metric_learns(tmp_path: Path) -> None:
    """As `Run.learn` leaves it out; after a transform, too, which knows nothing of metrics."""
    points = np.random.default_rng(3).standard_normal((80, 2))
    table = pa.table({"x": points[:, 0], "y": points[:, 1], "label": [*"ab"] * 40})
    with se.open_run(tmp_path / "local", {"size": 50, "warm_up": 40}) as run:
        run.learn(table)
        expected = run.snapshot()
    with se.open_run(tmp_path / "run", {"size": 50, "warm_up": 40}) as run:
        run.learn(table[:60])
    with serving(tmp_path / "run", "--learn") as server, server.client() as client:
        client.transform(table.drop_columns(["label"])[:3])
        assert client.learn(table[60:]).accepted == 20
        with pytest.raises(InputError, match="learns no metrics"):
            client.learn(table[:2], y=["a", "b"])
    with se.open_run(tmp_path / "run") as run:
        np.testing.assert_array_equal(run.snapshot().coordinates, expected.coordinates, strict=True)


def test_suspicious_columns_are_left_out_by_clients(tmp_path: Path) -> None:
    """With a warning, of dicts; a plain client of Flight is refused, for nobody hears a warning."""
    rows = [{"user_id": float(i), "x": i % 7.0, "z": i % 5.0, "id": i} for i in range(60)]
    with se.open_run(tmp_path / "run", {"size": 50, "warm_up": 40}):
        pass
    with serving(tmp_path / "run", "--learn") as server, server.client() as client:
        batch = pa.RecordBatch.from_pylist([{"user_id": 1.0, "x": 2.0}])
        path = fl.FlightDescriptor.for_path("learn")
        writer, _ = server.flight().do_put(path, batch.schema)
        with pytest.raises(
            (fl.FlightError, pa.ArrowException), match=r"'user_id' .named like an id"
        ):
            writer.close()
        with pytest.warns(ColumnWarning, match=r"'user_id' .named like an id"):
            assert client.learn(rows).accepted == 60
    with se.open_run(tmp_path / "run") as run:
        assert run.snapshot().feature_names == ("x", "z")
        assert run.snapshot().ids.tolist() == list(range(10, 60))
