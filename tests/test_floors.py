"""The floors of docs/architecture.md: imports point down, no circle in a package, a pure core."""

from __future__ import annotations

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "streamembed"
# Packages that take arrays and return arrays; what they may import beside one another.
PURE = {
    "numeric",
    "validation",
    "notebook",
    "geometry",
    "landmarks",
    "spectral",
    "manifold",
    "layout",
    "pairs",
    "metrics",
    "methods",
}
QUIET = {
    "numpy",
    "scipy",
    "dataclasses",
    "functools",
    "collections",
    "abc",
    "math",
    "numbers",
    "decimal",
    "difflib",
    "html",
    "types",
    "typing",
    "__future__",
}
EXTRAS = {
    "numeric.compilation": {"numba", "contextlib"},  # the extra ``fast``
    "methods.maps": {"pkgutil"},  # the classes that the table of methods names
}
LARGEST_PACKAGE = 31
# doors that import what is asked for, when it is
LATE = {"__init__", "cli.commands", "cli.replay", "data.values"}


def floors() -> dict[str, int]:
    """Package (or top-level file) to floor, from the table on the page."""
    page = (ROOT / "docs" / "architecture.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", page, re.MULTILINE)
    return {name: int(level) for level, cell in rows for name in re.findall(r"`(\w+)`", cell)}


LEVEL = floors()


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__") or "__init__"


ROOMS = {room_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}
PACKAGES = sorted({path.parent.name for path in PACKAGE.glob("*/__init__.py")})


def package_of(room: str) -> str:
    return room.split(".")[0]


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """Rooms of this package, and top names of others, that a file imports anywhere in it."""
    own: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            other |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            top, _, rest = (node.module or "").partition(".")
            if top != "streamembed":
                other.add(top)
                continue
            for alias in node.names:
                inside = f"{rest}.{alias.name}".strip(".")
                own.add(inside if inside in ROOMS else rest or "__init__")
    return own, other


def test_every_package_has_a_floor() -> None:
    """The table and the folders agree."""
    assert {package_of(room) for room in ROOMS} == set(LEVEL)


def test_imports_point_down() -> None:
    """From lower floors or the own package only; strangers on one floor stay strangers."""
    top = max(LEVEL.values())  # doors know one another: `python -m streamembed` is the command line
    levels = {room: LEVEL[package_of(room)] for room in ROOMS}
    upward = [
        f"{room} imports {imported}"
        for room, path in ROOMS.items()
        for imported in imports_of(path)[0]
        if package_of(imported) != package_of(room)
        and not levels[imported] == levels[room] == top
        and not levels[imported] < levels[room]
    ]
    assert upward == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_circle_in_a_package(package: str) -> None:
    """Its files can be read in an order in which each knows only those before it."""
    inside = {room for room in ROOMS if room.startswith(package + ".")}
    order = TopologicalSorter({room: imports_of(ROOMS[room])[0] & inside for room in inside})
    assert set(order.static_order()) == inside
    for room in inside:  # a room names the file that it needs, not the front of its own house
        assert package not in imports_of(ROOMS[room])[0], room
    assert len(inside) <= LARGEST_PACKAGE


@pytest.mark.parametrize("package", sorted(PURE))
def test_the_core_is_pure(package: str) -> None:
    """numpy, scipy and quiet standard modules: no I/O, clock, logging, river or Arrow."""
    for room, path in ROOMS.items():
        if package_of(room) != package:
            continue
        own, other = imports_of(path)
        assert other <= QUIET | EXTRAS.get(room, set()), room
        assert {package_of(name) for name in own} <= PURE | {"errors"}, room
        calls = (node for node in ast.walk(parse(path)) if isinstance(node, ast.Call))
        called = {ast.unparse(node.func) for node in calls}
        assert not called & {"open", "print", "np.random.seed", "np.save", "np.load"}, room


def test_nothing_is_imported_by_a_call() -> None:
    """But by those that say where each name is, and where a data frame is read."""
    for room in ROOMS.keys() - LATE:
        assert "importlib" not in imports_of(ROOMS[room])[1], room
        assert "__import__" not in ROOMS[room].read_text(), room


# Names with an underscore that other libraries give out.
FOREIGN = {"_exit", "_getframe", "_get_params", "_supervised"}


def private_names(path: Path) -> set[str]:
    """Names with an underscore that a file defines: functions, classes, variables, attributes."""
    names: set[str] = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.attr)
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


@pytest.mark.parametrize("package", sorted({package_of(room) for room in ROOMS}))
def test_no_private_door_leads_into_another_package(package: str) -> None:
    """Nothing reads `x._name` of an object of another package."""
    inside = [path for room, path in ROOMS.items() if package_of(room) == package]
    own = set().union(*map(private_names, inside))
    doors = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in inside
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in own | FOREIGN
    ]
    assert doors == []


def test_only_the_adapter_names_what_is_no_dependency() -> None:
    """No other room imports scikit-learn, pandas or polars, not even within a function."""
    for room, path in ROOMS.items():
        if room != "sklearn":
            assert not imports_of(path)[1] & {"sklearn", "pandas", "polars"}, room


def test_no_call_has_more_than_seven_positional_arguments() -> None:
    """Beyond, nobody can tell which is which. Compiled loops take no keywords."""
    long = [
        f"{room}:{node.lineno} {ast.unparse(node.func)}"
        for room, path in ROOMS.items()
        for node in ast.walk(parse(path))
        if isinstance(node, ast.Call) and len(node.args) > 7 and not room.endswith("_numba")
    ]
    assert long == []
