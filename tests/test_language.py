"""Names in the field's words: one class a name, one file a name, no words of the builders' own."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted((ROOT / "streamembed").rglob("*.py"))
# Words that have a standard one, which docs/glossary.md and the code use instead.
PRIVATE = {
    *("told", "said", "tell", "found", "made", "held", "room", "rung", "climb", "ladder", "strand"),
    *("course", "taught", "untaught", "teach", "crew", "advice", "restless", "intake", "breath"),
    *("woken", "louder", "loudest", "quiet", "twins", "spool", "ledger", "silence", "heard"),
    *("anew", "afresh", "mend", "births", "puts", "somebody", "nobody", "whoever", "things"),
    *("standing", "gone"),
}
# Names that stay, and why.
EXCEPTIONS = {
    "births": "field of saved states",
    "breath": "field of saved layouts",
    "course": "field of saved metrics",
    "standing": "field of saved monitors",
    "rung": "public attribute of snapshots, and a column of timelines",
    "taught": "public attribute of metric certificates and of Labelled",
    "not_held": "public attribute of Labelled",
    "gone": "public attribute of comparisons, and a field of saved pairs",
    "n_found": "a count of what a search found",
}
WORDS_OF_PAGES = re.compile(
    r"\b(anew|afresh|somebody|nobody|whoever|hangs? on|gone on|climb(s|ed)?|ladder|twins)\b", re.I
)


def identifiers(tree: ast.AST) -> set[str]:
    """Names of classes, functions, parameters and variables that a file defines."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def test_every_class_name_is_unique() -> None:
    """But `State` and `Info`, which every algorithm of metrics has."""
    counts = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    )
    assert {name for name, count in counts.items() if count > 1} <= {"State", "Info"}


def test_every_file_name_is_unique() -> None:
    """A name leads to one file."""
    counts = Counter(path.name for path in SOURCES)
    assert {name for name, count in counts.items() if count > 1} == {"__init__.py"}


def test_identifiers_are_in_the_words_of_the_field() -> None:
    """None of the builders' own words, but for names that files and callers rely on."""
    private = {
        name
        for path in SOURCES
        for name in identifiers(ast.parse(path.read_text()))
        if PRIVATE & {word.lower() for word in re.findall(r"[A-Z]?[a-z]+", name)}
    }
    assert private - set(EXCEPTIONS) == set()
    assert set(EXCEPTIONS) <= private, "an exception that is no longer needed"


@pytest.mark.parametrize(
    "page",
    [
        path
        for path in [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
        if "decisions" not in path.parts and path.name != "results.md"
    ],
    ids=lambda path: path.name,
)
def test_pages_are_in_the_words_of_the_field(page: Path) -> None:
    """Pages for users; decisions and results are records of their time."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert [match.group(0) for match in WORDS_OF_PAGES.finditer(text)] == []
