"""Runs that several files of these tests read, and none writes to."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.report import runs


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.KINDS["finished"](tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="session")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return runs.hostile(tmp_path_factory.mktemp("hostile"))
