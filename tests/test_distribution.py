"""What a user gets: wheel and sdist, what they contain, and a wheel that works alone."""

from __future__ import annotations

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import importlib.metadata, pathlib, sys
sys.path.insert(0, sys.argv[1])
import numpy as np
import streamembed as se
from streamembed.report.page import _read_asset
assert pathlib.Path(se.__file__).is_relative_to(sys.argv[1]), se.__file__
assert importlib.metadata.version("streamembed") == se.__version__
assert _read_asset("page.html")
engine = se.Engine(size=60, warm_up=50)
engine.learn(np.random.default_rng(0).standard_normal((60, 3)))
print(engine.snapshot().coordinates.shape)
"""


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist, built as `python -m build` does."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


def list_package() -> set[str]:
    """The files of the package: modules, the assets of the report, and the marker of types."""
    suffixes = {".py", ".js", ".css", ".html", ".typed"}
    return {
        str(path.relative_to(ROOT))
        for path in (ROOT / "streamembed").rglob("*")
        if path.suffix in suffixes
    }


def test_the_wheel_holds_the_package_and_its_licence(distribution: Path) -> None:
    """No tests, no images, no golden files."""
    (path,) = distribution.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
        metadata = {name.partition(".dist-info/")[2] for name in {*wheel.namelist()} - names}
    assert names == list_package()
    assert metadata == {"METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE"}
    assert path.stat().st_size < 2_000_000


def test_the_sdist_holds_what_the_wheel_is_built_from(distribution: Path) -> None:
    """The package and the files of pyproject.toml; .gitignore is hatchling's own habit."""
    (path,) = distribution.glob("*.tar.gz")
    with tarfile.open(path) as sdist:
        names = {member.name.partition("/")[2] for member in sdist.getmembers() if member.isfile()}
    files = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff"}
    assert names == list_package() | files | {"PKG-INFO", ".gitignore"}


def test_the_wheel_works_in_an_empty_folder(distribution: Path, tmp_path: Path) -> None:
    """Installed beside the dependencies of this environment."""
    (wheel,) = distribution.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run(*pip, "--target", tmp_path / "site", wheel, cwd=tmp_path)
    program = run(sys.executable, "-c", PROGRAM, tmp_path / "site", cwd=tmp_path)
    assert program == "(60, 2)\n"


@pytest.mark.long
def test_the_wheel_installs_into_a_new_environment(distribution: Path, tmp_path: Path) -> None:
    """With its dependencies from the package index, and no others; the command is there."""
    (wheel,) = distribution.glob("*.whl")
    run(sys.executable, "-m", "venv", tmp_path / "new", cwd=tmp_path)
    run(tmp_path / "new/bin/pip", "install", "--quiet", wheel, cwd=tmp_path)
    assert run(tmp_path / "new/bin/streamembed", "--version", cwd=tmp_path)
    (site,) = (tmp_path / "new/lib").glob("python*/site-packages")
    assert run(tmp_path / "new/bin/python", "-c", PROGRAM, site, cwd=tmp_path) == "(60, 2)\n"
