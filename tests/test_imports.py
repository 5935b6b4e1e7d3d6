"""What is imported for whom: nobody waits for what was not asked for."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

import streamembed as se
from streamembed.cli import commands

ROOT = Path(__file__).resolve().parents[1]
HEAVY = {"numba", "numpy", "pandas", "pyarrow", "river", "scipy", "sklearn"}
HEAVY_PARTS = {"scipy.stats", "scipy.optimize"}


def imported_by(program: str) -> set[str]:
    """Heavy packages that a program has imported when it ends."""
    told = f"import json, sys\ntry:\n    {program}\nfinally:\n    print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=False)
    modules: list[str] = json.loads(done.stdout.splitlines()[-1])
    return HEAVY & {name.split(".")[0] for name in modules} | HEAVY_PARTS & {*modules}


def command(*arguments: str) -> str:
    return f"from streamembed.cli import main; main({[*arguments]}, standalone_mode=False)"


@pytest.mark.parametrize(
    "program",
    [
        "import streamembed; streamembed.__version__",
        "import streamembed; dir(streamembed)",
        command("--version"),
        command("--help"),
        "from streamembed import errors",
    ],
)
def test_the_door_opens_at_once(program: str) -> None:
    """Version and help took four seconds of numba, scipy, river and Arrow once."""
    assert imported_by(program) == set()


@pytest.mark.slow
def test_a_name_brings_what_it_needs() -> None:
    """And no more: an engine takes no river, and no numba until it draws a picture."""
    engine = imported_by("from streamembed import Engine")
    assert {"numpy", "pyarrow", "scipy"} <= engine
    assert not {"numba", "pandas", "river", "sklearn", "scipy.stats", "scipy.optimize"} & engine
    assert not {"pyarrow", "river"} & imported_by("from streamembed import Certificate")


def test_the_help_of_a_replay_needs_no_engine() -> None:
    """Its options come from the words of the parameters: no numpy, no Arrow, and no river."""
    assert imported_by(command("replay", "--help")) == set()


def test_every_public_name_is_where_the_door_says() -> None:
    """The table, the imports for type checkers and `__all__` name the same."""
    assert sorted(se._HOMES) == sorted(se.__all__)
    tree = ast.parse((ROOT / "streamembed" / "__init__.py").read_text())
    typed = {
        alias.name: (node.module or "").removeprefix("streamembed").strip(".")
        for block in tree.body
        if isinstance(block, ast.If)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert typed == {**se._HOMES, **dict.fromkeys(se._PACKAGES, "")}
    assert {*se.__all__, *se._PACKAGES} <= {*dir(se)}
    for name in (*se._HOMES, *se._PACKAGES):
        assert getattr(se, name).__name__.split(".")[-1] == name


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_every_command_is_where_the_door_says(name: str) -> None:
    """Under its own name, with the purpose that the list of commands tells."""
    found = commands.load_command(name)
    assert found.name == name
    first, purpose = (found.help or "").split("\n")[0], commands.COMMANDS[name]
    assert first == purpose
