"""Counters of the process that tests."""

from __future__ import annotations

from pathlib import Path

import prometheus_client
import pytest

from streamembed.serving.counters import share_counters


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where the counters of this process are."""
    monkeypatch.setenv("PROMETHEUS_MULTIPROC_DIR", "")
    monkeypatch.setattr(prometheus_client.values, "ValueClass", None)
    share_counters(str(tmp_path), "reader 0")
    return str(tmp_path)
