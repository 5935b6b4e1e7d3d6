"""The picture of two rings can be drawn again, and is small."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from scenarios.pictures import at_work


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    """Of a stream of one moment; certified at every snapshot."""
    points, moments, residuals = at_work.record(1000)
    assert [moment.snapshot.position for moment in moments] == [1000]
    assert residuals[:, 1].max() <= at_work.TOLERANCE
    at_work.draw(tmp_path / "picture.png", points, moments, residuals)
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_is_small() -> None:
    """And the gallery shows it."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    assert at_work.PICTURE.stat().st_size < 150_000
    assert str(at_work.PICTURE.relative_to(docs)) in (docs / "gallery.md").read_text()
