"""What is public is written down, documented and executable."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path

import pytest

import streamembed as se
from streamembed import errors
from streamembed.methods.options import Config

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / name for name in ("parameters.md", "api.md", "api-runs.md")]
API = "\n".join(page.read_text() for page in PAGES)
PUBLIC = [
    "Alarm",
    "Call",
    "Certificate",
    "Client",
    "Command",
    "Engine",
    "Frame",
    "Labelled",
    "LandmarkSet",
    "Learned",
    "Mahalanobis",
    "Monitor",
    "PairGenerator",
    "Picture",
    "Replayed",
    "Run",
    "RunReader",
    "Snapshot",
    "Transformed",
    "connect",
    "merge",
    "open_run",
    "read_run",
    "replay",
    "replay_partitions",
]


def members(kind: type) -> list[str]:
    """Public methods and properties of a class."""
    return [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]


def test_the_public_names_are_those_written_down() -> None:
    """`__all__` is exact."""
    assert sorted(se.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_public_names_are_documented(name: str) -> None:
    """In the code, and in the reference."""
    assert inspect.getdoc(getattr(se, name))
    assert f"`{name}" in API


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    """One that runs: in its section, or, of a served run, in the guide that starts a server."""
    pages = [*PAGES, ROOT / "docs" / "guides" / "serving.md"]
    blocks = re.findall(r"```python\n(.*?)```", "".join(page.read_text() for page in pages), re.S)
    used = {"Client": "connect", "Transformed": "transform"}.get(name, name)
    assert any(re.search(rf"\b{used}\b", block) for block in blocks)


@pytest.mark.parametrize(
    "kind",
    [
        *(
            se.Call,
            se.Client,
            se.Engine,
            se.Snapshot,
            se.Picture,
            se.LandmarkSet,
            se.Mahalanobis,
        ),
        *(se.Monitor, se.PairGenerator, se.Transformed),
    ],
    ids=lambda k: k.__name__,
)
def test_members_are_documented(kind: type) -> None:
    """Every public method and property has a docstring and is on the page, in its own section."""
    section = API.split(f"## `{kind.__name__}")[1].split("\n## ")[0]
    for name in members(kind):
        told = re.search(rf"^{name}\b", inspect.getdoc(kind) or "", re.MULTILINE)
        assert inspect.getdoc(getattr(kind, name)) or told, name
        assert re.search(rf"`\.?{name}\b", section), name


def test_every_parameter_is_documented() -> None:
    """In the engine's docstring and on the page."""
    text = inspect.getdoc(se.Engine) or ""
    for name in inspect.signature(Config).parameters:
        assert re.search(rf"^{name}$", text, re.MULTILINE), name
        assert f"`{name}`" in API, name


def test_every_error_is_drawn_and_documented() -> None:
    """The tree in the module's docstring has them all, and so has the page."""
    for name in errors.__all__:
        assert name in (errors.__doc__ or "")
        assert f"`{name}`" in API


def test_every_certificate_field_is_on_the_page() -> None:
    """What a reader of a certificate must know."""
    for name in se.Certificate.__dataclass_fields__:
        assert f"`{name}`" in API


def test_the_navigation_of_the_site_names_every_page_once() -> None:
    """The five doors of the front page, and the index of each folder."""
    docs = ROOT / "docs"
    list_pages = runpy.run_path(str(docs / "conf.py"))["list_pages"]
    front = (docs / "index.md").read_text()
    named = re.findall(r"^([a-z/-]+)$", front, re.MULTILINE)
    for index in sorted(docs.glob("*/index.md")):
        pages = list_pages(index.read_text())
        named += [str((index.parent / page).resolve().relative_to(docs)) for page in pages]
    pages = [str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")]
    assert sorted(named) == sorted(set(pages) - {"index"})


def test_the_front_page_has_five_doors() -> None:
    """The README links what the front page of the site lists first."""
    doors = re.findall(r"^([a-z/-]+)$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)[:5]
    table = (ROOT / "README.md").read_text().split("## Where to go")[1].split("\n## ")[0]
    assert re.findall(r"^\| \[.+?\]\(docs/([a-z/-]+)\.md\)", table, re.MULTILINE) == doors


def test_every_picture_is_in_the_gallery() -> None:
    """None is forgotten, and none is large."""
    gallery = (ROOT / "docs" / "gallery.md").read_text()
    for path in (ROOT / "docs" / "images").iterdir():
        assert f"images/{path.name}" in gallery
        assert path.stat().st_size < 800_000


def test_links_lead_somewhere() -> None:
    """Relative links of all pages name files that exist."""
    for path in [*sorted((ROOT / "docs").rglob("*.md")), *sorted(ROOT.glob("*.md"))]:
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / target).exists(), f"{path.name}: {target}"
