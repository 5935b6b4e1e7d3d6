"""Files that this version wrote: every later one must load them, and give the same.

``python -m tests.runs.test_golden_runs`` writes them; it is run once a layout, and never again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.runs.verification import verify

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
POINTS = np.random.default_rng(42).standard_normal((90, 3))
ENGINES: dict[str, dict[str, Any]] = {
    "diffusion_map": {"metrics": ("itml", "fenn")},
    "laplacian_eigenmaps": {"picture": True},
    "landmarks": {"memory": "landmarks", "half_life": 50},
    "pca": {"method": "pca"},
    "isomap": {"method": "isomap"},
    "lle": {"method": "lle"},
    "linear_eigenmap": {"method": "linear_eigenmap"},
}


def engine_of(name: str) -> se.Engine:
    fixed: dict[str, Any] = {"size": 30, "warm_up": 20}
    if name != "pca":
        fixed["n_neighbors"] = 5
    method = {"method": name} if name == "laplacian_eigenmaps" else {}
    engine = se.Engine(**{**fixed, **method, **ENGINES[name]})
    labels = ["a", "b"] * 35 if engine.config.metrics else None
    engine.learn(POINTS[:70], labels)
    return engine


@pytest.mark.parametrize("name", ENGINES)
def test_saved_engines_and_snapshots_load(name: str) -> None:
    """Coordinates, transforms and metrics as they were, to 1e-12; and the engine learns on."""
    expected = json.loads((GOLDEN / "expected.json").read_text())[name]
    engine = se.Engine.load(GOLDEN / f"{name}.engine.arrow")
    snapshot = se.Snapshot.load(GOLDEN / f"{name}.snapshot.arrow")
    for found in (engine.snapshot(), snapshot):
        np.testing.assert_allclose(found.coordinates, expected["coordinates"], atol=1e-12)
        np.testing.assert_allclose(found.transform(POINTS[70:]), expected["new"], atol=1e-12)
        for metric, matrix in expected["metrics"].items():
            np.testing.assert_allclose(found.metrics[metric].matrix, matrix, rtol=1e-12)
        if expected["picture"] is not None:
            assert found.picture is not None
            np.testing.assert_allclose(found.picture.coordinates, expected["picture"], atol=1e-12)
    assert engine.learn(POINTS[70:]).accepted == 20


def test_a_run_is_opened(tmp_path: Path) -> None:
    """Verified, read, and gone on with."""
    shutil.copytree(GOLDEN / "run", tmp_path / "run")
    assert not verify(tmp_path / "run").troubles
    with se.open_run(tmp_path / "run") as run:
        assert run.position == 70
        assert run.learn(POINTS[70:]).accepted == 20


def write() -> None:
    """The files of this version."""
    GOLDEN.mkdir(exist_ok=True)
    expected = {}
    for name in ENGINES:
        engine = engine_of(name)
        snapshot = engine.snapshot()
        engine.save(GOLDEN / f"{name}.engine.arrow")
        snapshot.save(GOLDEN / f"{name}.snapshot.arrow")
        expected[name] = {
            "coordinates": snapshot.coordinates.tolist(),
            "new": snapshot.transform(POINTS[70:]).tolist(),
            "metrics": {key: one.matrix.tolist() for key, one in snapshot.metrics.items()},
            "picture": None if snapshot.picture is None else snapshot.picture.coordinates.tolist(),
        }
    (GOLDEN / "expected.json").write_text(json.dumps(expected) + "\n")
    shutil.rmtree(GOLDEN / "run")
    with se.open_run(GOLDEN / "run", {"size": 30, "warm_up": 20}, checkpoint_every=40) as run:
        for start in range(0, 70, 10):
            run.learn(POINTS[start : start + 10], batch_id=str(start))
    (GOLDEN / "run" / ".lock").unlink()


if __name__ == "__main__":
    write()
