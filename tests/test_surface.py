"""What is public is written down, documented and executable."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

import streamembed as se
from streamembed import errors, estimators, logs
from streamembed.methods.options import Config

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
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


# What a block of code calls or reads to get one of these.
HANDED_OUT_BY = {
    "Alarm": "alarm",
    "Call": "check",
    "Certificate": "certificate",
    "Client": "connect",
    "Frame": "frame",
    "Labelled": "label",
    "LandmarkSet": "landmark_set",
    "Learned": "accepted",
    "Picture": "picture",
    "Replayed": "replay",
    "Run": "open_run",
    "RunReader": "read_run",
    "Snapshot": "snapshot",
    "Transformed": "transform",
}


def members(kind: type) -> list[str]:
    """Public methods and properties of a class."""
    return [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]


def test_the_public_names_are_those_written_down() -> None:
    """`__all__` is exact."""
    assert sorted(se.__all__) == sorted(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    """A block of code on a page uses it, or what hands it out."""
    pages = "".join(page.read_text() for page in [ROOT / "README.md", *DOCS.rglob("*.md")])
    code = "".join(re.findall(r"```python\n(.*?)```", pages, re.S))
    assert re.search(rf"\b{HANDED_OUT_BY.get(name, name)}\b", code)


@pytest.mark.parametrize("module", [se, estimators, logs], ids=lambda module: module.__name__)
def test_names_and_members_have_docstrings(module: Any) -> None:
    """From which the reference is made: their own, or an entry in that of their class."""
    missing = []
    for name in module.__all__:
        public = getattr(module, name)
        text = inspect.getdoc(public) or ""
        assert text, name
        for member in members(public) if inspect.isclass(public) else ():
            value = getattr(public, member)
            is_default = isinstance(value, (int, str, float, tuple, type(None)))
            entry = re.search(rf"^(\w+, )*{member}\b", text, re.MULTILINE)
            if not (is_default or entry or inspect.getdoc(value)):
                missing.append(f"{name}.{member}")
    assert missing == []


def test_every_parameter_is_documented() -> None:
    """In the engine's docstring."""
    text = inspect.getdoc(se.Engine) or ""
    for name in inspect.signature(Config).parameters:
        assert re.search(rf"^{name}$", text, re.MULTILINE), name


def test_every_error_is_drawn_and_explained() -> None:
    """The tree in the module's docstring has them all, and the page says what to do."""
    page = (DOCS / "guides" / "errors.md").read_text()
    for name in errors.__all__:
        assert name in (errors.__doc__ or "")
        assert f"`{name}`" in page


def test_every_certificate_field_is_documented() -> None:
    """What a reader of a certificate must know."""
    text = inspect.getdoc(se.Certificate) or ""
    for name in se.Certificate.__dataclass_fields__:
        assert re.search(rf"^{name}\b", text, re.MULTILINE), name


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
