"""The glossary has the words of this package, in order, and names nothing that does not exist."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamembed as se
from streamembed import errors, estimators, logs
from streamembed.methods.options import Config

DOCS = Path(__file__).resolve().parents[1] / "docs"
GLOSSARY = (DOCS / "glossary.md").read_text()
PAGES = ("parameters.md", "api.md", "api-runs.md")
API = "\n".join((DOCS / name).read_text() for name in PAGES)
ENTRIES = re.findall(r"^- (.+?): .*(?:\n  .*)*", GLOSSARY, re.MULTILINE)
# Of scikit-learn, river, Arrow and linear algebra.
WORDS_OF_THE_FIELD = {"eigenvalues", "feature_names", "ids", "points", "transform"}


def own(kind: Any) -> set[str]:
    """Public methods, properties, fields and annotated attributes of a class."""
    found = {name for name, _ in inspect.getmembers(kind)} | set(inspect.get_annotations(kind))
    return {name for name in found if not name.startswith("_")}


def public() -> dict[str, Any]:
    """Every public object by name."""
    return {
        name: getattr(module, name)
        for module in (se, estimators, logs, errors)
        for name in module.__all__
    }


def required() -> Iterator[str]:
    """Words of this package that a reader of the public surface meets."""
    yield from public()
    yield from own(se.Snapshot) - {"of"}  # how the engine makes one


def explained() -> Iterator[str]:
    """Names that the reference explains in a row of a table, or in the list of errors."""
    yield from errors.__all__
    yield from estimators.__all__
    yield from inspect.signature(Config).parameters
    yield from own(se.Certificate)


def has_section(name: str) -> bool:
    """Whether the reference has a section, a row or a sentence on what a name is."""
    return re.search(rf"(^(## |\| )?`|\bAn? `){name}[`(]", API, re.MULTILINE) is not None


def existing() -> set[str]:
    """Names that an entry may mention: public objects, their members and their parameters."""
    found = set(public())
    for name, made in public().items():
        if name in errors.__all__:
            continue
        found |= set(inspect.signature(made).parameters)
        found |= own(made) if inspect.isclass(made) else set()
    return found


@pytest.mark.parametrize("name", sorted(set(required()) - set(explained())))
def test_public_names_are_in_the_glossary_and_on_the_page(name: str) -> None:
    """In the reference; and in an entry, unless that page explains it, or the field does."""
    has_entry = any(f"`{name}`" in head for head in ENTRIES)
    assert has_entry or has_section(name) or name in WORDS_OF_THE_FIELD, f"no entry for {name}"
    assert re.search(rf"`\.?{name}\b", API), f"{name} is not in the reference"


@pytest.mark.parametrize("name", sorted(set(explained())))
def test_parameters_errors_and_estimators_are_in_the_tables(name: str) -> None:
    """Their words stand there alone; the glossary need not repeat them."""
    rows = "\n".join(re.findall(r"^\|.*", API, re.MULTILINE)) + API.split("\n## Errors")[1]
    assert f"`{name}`" in rows, f"{name} is in no table of the reference"


def test_the_glossary_names_only_what_exists() -> None:
    """What stands in code font is public: an object, a member or a parameter."""
    assert set(re.findall(r"`([^`]+)`", GLOSSARY)) <= existing()


@pytest.mark.parametrize(
    "section", GLOSSARY.split("\n## ")[1:], ids=lambda text: text.split("\n")[0]
)
def test_entries_are_in_order_and_unique(section: str) -> None:
    """Alphabetically by their first term."""
    heads = re.findall(r"^- [*`]+([^*`]+)", section, re.MULTILINE)
    assert heads == sorted(heads, key=str.lower)
    assert len(set(heads)) == len(heads)
