"""The pictures of the maps can be drawn again, are small, and are shown."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from PIL import Image

from scenarios.pictures import animation, gallery

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


def test_the_animation_is_small_and_shown() -> None:
    """On the first page, and in its guide; more than sixty frames."""
    path = gallery.IMAGES / "live-map.webp"
    assert path.stat().st_size < 800_000
    with Image.open(path) as image:
        assert image.n_frames > 60  # type: ignore[attr-defined]
    assert "docs/images/live-map.webp" in (DOCS.parent / "README.md").read_text()
    assert "../images/live-map.webp" in (DOCS / "guides" / "live-map.md").read_text()


def test_digits_come_class_after_class() -> None:
    """The first window has none of the last classes."""
    points, labels = animation.drifting_digits()
    assert len(points) == len(labels) == 1797
    assert labels[: animation.WINDOW].max() < 5
    assert labels[-animation.WINDOW :].min() > 4
