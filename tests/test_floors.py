"""The floors of docs/architecture.md: imports point down, the core is pure, no room without one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "streamembed"

# Lowest first; rooms of one floor do not know each other. A new file must be given a floor here.
FLOORS: list[set[str]] = [
    {"errors", "core", "core.arrays"},
    {"core.linalg", "parameters"},
    {
        "core.bregman",
        "core.codec",
        "core.graph",
        "core.histogram",
        "core.kernel",
        "core.mahalanobis",
        "core.pencil",
        "core.separation",
        "core.spread",
    },
    {"core.balance", "core.evidence"},
    {
        "core.certificate",
        "core.components",
        "core.eig_dml",
        "core.extension",
        "core.filtered",
        "core.frame",
        "core.itml",
        "core.itml_fast",
        "core.landmarks",
        "core.lego",
        "core.mirror_prox",
        "core.neighbors",
        "core.pairs",
        "core.probes",
        "core.scatter",
        "core.shrink",
        "core.support",
        "core.svd",
        "core.tracker",
        "core.view",
    },
    {"core.contrast", "core.fenn", "core.must_link", "core.reproduction"},
    {"batch"},
    {"labels", "reservoir", "metric_learning", "metric_learning.examples"},
    {"metric_learning.learner", "metric_learning.paired"},
    {"metric_learning.course", "metric_learning.eig_dml", "metric_learning.itml"},
    {"metric_learning.moments", "metric_learning.must_link"},
    {"metric_learning.table"},
    {"learners"},
    {"config", "chunk", "ids", "state", "threads", "archive"},
    {"axes", "cost", "distances", "logfile", "progress", "saved"},
    {"logcolumns"},
    {"logwriter"},
    {"eventlog"},
    {"flow", "ladder"},
    {"publish", "pairlog", "runfolder"},
    {"snapshot", "intake"},
    {"engine", "generator"},
    {"feed", "strands"},
    {"recorder", "unsupervised"},
    {"runs"},
    # the river faces: what they share, then family by family
    {"estimators.parameters", "estimators.rows"},
    {"estimators.precomputed"},
    {"estimators.metric", "estimators.diffusion", "estimators.unsupervised"},
    {"estimators.merging", "estimators.itml"},
    {"estimators.contrast", "estimators.eig_dml", "estimators.moments", "estimators.must_link"},
    {"estimators"},
    {"", "demo", "cli"},
    {"__main__", "sklearn"},  # nobody imports these
]
# Facades that re-export their own floor: they may look sideways.
FACADES = {"estimators", "", "cli"}
CORE_MAY_IMPORT = {"numpy", "scipy", "dataclasses", "collections", "typing", "__future__"}
CORE_MAY_IMPORT |= {"types"}
EXTRAS = {"core.itml_fast": {"numba", "contextlib"}}  # the extra ``fast``, where it is installed
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def room_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


ROOMS = {room_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imports_of(path: Path) -> tuple[set[str], set[str]]:
    """Rooms of this package, and top names of others, that a file imports anywhere in it."""
    own: set[str] = set()
    other: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
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
                own.add(inside if inside in ROOMS else rest)
    return own, other


def test_every_room_has_a_floor() -> None:
    """The written list and the files agree."""
    assert set(ROOMS) == set(LEVEL)


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_down(room: str) -> None:
    """A room imports from lower floors only; strangers on its own floor stay strangers."""
    own, _ = imports_of(ROOMS[room])
    for imported in own - {room}:
        if imported == "" and room in {"demo", "cli", "__main__"}:
            continue  # the version and the public names
        allowed = LEVEL[room] if room in FACADES else LEVEL[room] - 1
        assert LEVEL[imported] <= allowed, f"{room} imports {imported}"


@pytest.mark.parametrize("room", [room for room in ROOMS if room.startswith("core")])
def test_the_core_is_pure(room: str) -> None:
    """numpy, scipy and quiet standard modules: no I/O, clock, logging, river or Arrow."""
    own, other = imports_of(ROOMS[room])
    assert other <= CORE_MAY_IMPORT | EXTRAS.get(room, set())
    assert all(name.startswith("core") or name == "errors" for name in own)
    source = ROOMS[room].read_text()
    assert "np.random.seed" not in source
    assert "open(" not in source


@pytest.mark.parametrize("room", ROOMS)
def test_no_import_hides_in_a_function(room: str) -> None:
    """Imports stand at the top, except those of optional extras."""
    optional = {"matplotlib"}
    for node in ast.walk(ast.parse(ROOMS[room].read_text())):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for inner in ast.walk(node):
            names: set[str] = set()
            if isinstance(inner, ast.Import):
                names = {alias.name.split(".")[0] for alias in inner.names}
            elif isinstance(inner, ast.ImportFrom):
                names = {(inner.module or "").split(".")[0]}
            assert names <= optional, f"{room}: {node.name} imports {names}"


def test_only_the_adapter_names_what_is_no_dependency() -> None:
    """No other room imports scikit-learn, pandas or polars, not even within a function."""
    source = "\n".join(path.read_text() for room, path in ROOMS.items() if room != "sklearn")
    for name in ("sklearn", "pandas", "polars"):
        assert f"import {name}" not in source
        assert f"from {name}" not in source
