"""Snapshots and saved engines: immutable, bit for bit from the file, damage always found."""

from __future__ import annotations

import pickle
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.errors import BadRowError, DamagedFileError, FeatureError, InputError

POINTS = np.random.default_rng(0).standard_normal((300, 3))


def list_arrays(snapshot: se.Snapshot) -> list[str]:
    names = [each.name for each in fields(snapshot)]
    return [name for name in names if isinstance(getattr(snapshot, name), np.ndarray)]


def engine_of(ids: bool = False, **changes: object) -> se.Engine:
    engine = se.Engine(**{"size": 80, "chunk_size": 5, "n_components": 3, **changes})  # type: ignore[arg-type]
    engine.learn(POINTS[:203], ids=[f"event {i}" for i in range(203)] if ids else None)
    return engine


@pytest.fixture(scope="module")
def snapshot() -> se.Snapshot:
    return engine_of().snapshot()


def test_a_snapshot_does_not_change_while_the_engine_learns() -> None:
    """Learning a whole window more leaves every array as it was, asked for before or after."""
    engine, other = engine_of(), engine_of()
    snapshot, asked_later = engine.snapshot(), other.snapshot()
    before = {name: np.copy(getattr(snapshot, name)) for name in list_arrays(snapshot)}
    distances = snapshot.diffusion_distances()
    engine.learn(POINTS[203:])
    other.learn(POINTS[203:])
    for name, value in before.items():
        np.testing.assert_array_equal(getattr(snapshot, name), value)
        np.testing.assert_array_equal(getattr(asked_later, name), value)
    assert asked_later.frame == snapshot.frame
    np.testing.assert_array_equal(snapshot.diffusion_distances(), distances)


def test_coordinates_are_normalised(snapshot: se.Snapshot) -> None:
    """sum(pi) = 1, sum(pi psi) = 0, sum(pi psi^2) = 1, coordinates are turned."""
    pi, psi = snapshot.stationary, snapshot.psi
    assert pi.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(pi @ psi, 0.0, atol=1e-9)
    np.testing.assert_allclose(psi.T @ (pi[:, None] * psi), np.eye(3), atol=1e-9)
    columns = snapshot.carried_psi * snapshot.carried_eigenvalues**snapshot.diffusion_time
    np.testing.assert_allclose(snapshot.coordinates, columns @ snapshot.rotation, atol=1e-12)


def test_each_row_is_transformed_alone(snapshot: se.Snapshot) -> None:
    """transform(X)[i] is transform(X[i : i + 1]), whatever the tile, to rounding."""
    new = np.random.default_rng(1).standard_normal((600, 3))
    together = snapshot.transform(new)
    alone = np.concatenate([snapshot.transform(row[None]) for row in new])
    np.testing.assert_allclose(together, alone, rtol=1e-10, atol=1e-12)


def test_far_points_get_their_nearest_neighbours_limit_at_one_bandwidth() -> None:
    """However far, coordinates are finite, coverage is 0, and the nearest point decides."""
    engine = se.Engine(size=80, n_components=3, kernel="gaussian", axes="eigen")
    engine.learn(np.random.default_rng(0).standard_normal((120, 3)))
    snapshot = engine.snapshot()
    far = np.array([[1e6, 0.0, 0.0], [-1e6, 2e5, 0.0], [1e140, 1e140, 1e140]])
    assert np.isfinite(snapshot.transform(far)).all()
    assert snapshot.coverage(far).tolist() == [0.0, 0.0, 0.0]
    direction = snapshot.points @ np.array([1.0, 0.0, 0.0]) / snapshot.scale[0]
    nearest = int(np.argmax(direction))
    known = snapshot.eigenvalues
    expected = snapshot.psi[nearest] / known * known**snapshot.diffusion_time
    np.testing.assert_allclose(snapshot.transform(far[:1])[0], expected, rtol=1e-3)


def test_transform_refuses_what_learn_refuses(snapshot: se.Snapshot) -> None:
    """Wrong width and NaN are errors that name the argument."""
    with pytest.raises(FeatureError, match="X has 2 columns; it must have 3"):
        snapshot.transform(np.zeros((1, 2)))
    with pytest.raises(BadRowError, match="NaN in '1'"):
        snapshot.transform(np.array([[0.0, np.nan, 0.0]]))


def test_named_features_are_mapped_in_transform() -> None:
    """Columns in another order, frames or dicts: the same coordinates."""
    table = pa.table({"z": POINTS[:, 2], "x": POINTS[:, 0], "y": POINTS[:, 1]})
    engine = se.Engine(size=80)
    engine.learn(table)
    snapshot = engine.snapshot()
    assert snapshot.feature_names == ("x", "y", "z")
    expected = snapshot.transform(table.slice(0, 4).select(["y", "x", "z"]))
    np.testing.assert_array_equal(snapshot.transform(table.slice(0, 4)), expected)
    dicts = [{"y": y, "z": z, "x": x} for x, y, z in POINTS[:4].tolist()]
    np.testing.assert_array_equal(snapshot.transform(dicts), expected)


def test_a_cut_file_or_another_kind_is_refused(tmp_path: Path) -> None:
    """A truncated file, an engine in place of a snapshot, and anything else say what they are."""
    engine = engine_of()
    engine.snapshot().save(tmp_path / "s.arrow")
    engine.save(tmp_path / "e.arrow")
    with pytest.raises(DamagedFileError, match="is a saved engine; it must be a saved snapshot"):
        se.Snapshot.load(tmp_path / "e.arrow")
    with pytest.raises(DamagedFileError, match="is a saved snapshot"):
        se.Engine.load(tmp_path / "s.arrow")
    data = (tmp_path / "s.arrow").read_bytes()
    (tmp_path / "cut.arrow").write_bytes(data[: len(data) // 2])
    with pytest.raises(DamagedFileError, match=r"checksum|not a file"):
        se.Snapshot.load(tmp_path / "cut.arrow")
    (tmp_path / "other").write_bytes(b"not arrow")
    with pytest.raises(DamagedFileError, match="not a snapshot that this release saved"):
        se.Snapshot.load(tmp_path / "other")


def test_every_attribute_is_in_the_file(tmp_path: Path) -> None:
    """Whatever a snapshot declares comes back, bit for bit; pickled ones have it too."""
    snapshot = engine_of(ids=True).snapshot()
    snapshot.save(tmp_path / "s.arrow")
    for again in (se.Snapshot.load(tmp_path / "s.arrow"), pickle.loads(pickle.dumps(snapshot))):
        for name in se.Snapshot.__annotations__:
            found, wanted = getattr(again, name), getattr(snapshot, name)
            if isinstance(wanted, np.ndarray):
                assert found.dtype == wanted.dtype, name
                np.testing.assert_array_equal(found, wanted, err_msg=name)
            else:
                assert found == wanted, name


@pytest.mark.parametrize("version", [99, 1])
def test_another_layout_is_refused(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of a later release, or of an earlier layout, says so, instead of being misread."""
    monkeypatch.setattr("streamembed.storage.archive.VERSION", version)
    engine_of().snapshot().save(tmp_path / "s.arrow")
    monkeypatch.undo()
    with pytest.raises(DamagedFileError, match=f"layout version {version}.*and save it again"):
        se.Snapshot.load(tmp_path / "s.arrow")


def test_saving_over_a_file_is_whole_or_nothing(tmp_path: Path) -> None:
    """No temporary file is left, and the old file is there until the new one is."""
    path = tmp_path / "s.arrow"
    path.write_bytes(b"old")
    engine_of().snapshot().save(path)
    assert [each.name for each in tmp_path.iterdir()] == ["s.arrow"]
    se.Snapshot.load(path)


def test_loading_runs_no_code_and_no_pickle(tmp_path: Path) -> None:
    """Under an audit hook that forbids pickle, exec, compile and import, files load."""
    engine = engine_of(ids=True)
    engine.save(tmp_path / "e.arrow")
    engine.snapshot().save(tmp_path / "s.arrow")
    program = f"""
        import sys
        import scipy.spatial  # before the guard: it and names are imported late
        from streamembed import Engine, Snapshot
        folder = {str(tmp_path)!r}
        forbidden = ("pickle.", "exec", "compile", "import", "marshal.", "subprocess.", "os.system")
        def guard(event, args):
            if event.startswith(forbidden):
                raise SystemExit(f"{{event}} {{args}}")
        sys.addaudithook(guard)
        snapshot = Snapshot.load(folder + "/s.arrow")
        engine = Engine.load(folder + "/e.arrow")
        assert (engine.snapshot().coordinates == snapshot.coordinates).all()
        assert snapshot.transform(snapshot.points).shape == (80, 3)
        print("loaded")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "loaded\n", done.stdout + done.stderr


@pytest.mark.parametrize("method", ["transform", "coverage", "transform_with_coverage"])
def test_errors_say_what_fits_a_snapshot(method: str) -> None:
    """It learns nothing, and has no ``on_bad_row``."""
    points = np.random.default_rng(0).standard_normal((60, 3))
    engine = se.Engine(size=50)
    engine.learn(points)
    ask = getattr(engine.snapshot(), method)
    points[1, 1] = np.nan
    with pytest.raises(BadRowError, match=r"1 of 60 rows of X .*nothing was transformed") as caught:
        ask(points)
    assert "learn" not in str(caught.value)
    assert "on_bad_row" not in str(caught.value)
    with pytest.raises(InputError, match=r"X is a dict; .*single point x pass \[x\]") as refused:
        ask({"0": 1.0})
    assert "learn" not in str(refused.value)


def test_any_arrow_reader_opens_a_snapshot(tmp_path: Path, snapshot: se.Snapshot) -> None:
    """The file is a plain Arrow table, one row a support point."""
    snapshot.save(tmp_path / "s.arrow")
    table = pa.ipc.open_stream(tmp_path / "s.arrow").read_all()
    assert table.num_rows == 80
    np.testing.assert_array_equal(np.array(table["coordinates"].to_pylist()), snapshot.coordinates)
