"""The glossary is in order, and names nothing that does not exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import streamembed as se
from streamembed import errors, estimators, logs

GLOSSARY = (Path(__file__).resolve().parents[1] / "docs" / "glossary.md").read_text()


def own(kind: Any) -> set[str]:
    """Public methods, properties, fields and annotated attributes of a class."""
    found = {name for name, _ in inspect.getmembers(kind)} | set(inspect.get_annotations(kind))
    return {name for name in found if not name.startswith("_")}


def existing() -> set[str]:
    """Names that an entry may mention: public objects, their members and their parameters."""
    modules = (se, estimators, logs, errors)
    public = {name: getattr(module, name) for module in modules for name in module.__all__}
    found = set(public)
    for name, made in public.items():
        if name in errors.__all__:
            continue
        found |= set(inspect.signature(made).parameters)
        found |= own(made) if inspect.isclass(made) else set()
    return found


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
