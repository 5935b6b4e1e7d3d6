"""The pictures of the maps can be drawn again, are small, and are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from scenarios import gallery

DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_cities_are_drawn(tmp_path: Path) -> None:
    """From the scenario's own maps."""
    gallery.draw_cities(tmp_path / "cities.png")
    assert (tmp_path / "cities.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["embedding-gallery.png", "cities.png"])
def test_the_pictures_of_the_guide_are_small(name: str) -> None:
    """And the guide shows them."""
    assert (gallery.IMAGES / name).stat().st_size < 400_000
    assert f"../images/{name}" in (DOCS / "guides" / "which-map.md").read_text()
