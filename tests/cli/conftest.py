"""A log and its run, of the tests of the command line."""

from pathlib import Path

import pytest

from streamembed.logs import write_log
from tests.cli.test_cli import NAMES, POINTS, SMALL, call


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write_log(tmp_path / "log", POINTS, NAMES, ids=[f"e{i}" for i in range(230)])
    return tmp_path / "log"


@pytest.fixture
def run(tmp_path: Path, log: Path) -> Path:
    assert call("replay", log, "--run", tmp_path / "run", *SMALL).exit_code == 0
    return tmp_path / "run"
