"""The pages of sources name files, functions, parameters and commands that exist."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from scenarios import fenn_table
from scenarios.run import SCENARIOS
from scenarios.streams import MissingDataError
from streamembed import estimators
from streamembed.metrics import discriminant, fenn, scatter

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs" / "algorithms").glob("sources*.md"))
# Words of certificates, infos and parameters that stand alone on the pages, and whose they are.
FIELDS: dict[str, Any] = {
    "negative_mass": se.Certificate,
    "n_informative": fenn.Spectrum,
    "radius": estimators.LaplacianEigenmaps,
    "bandwidth": estimators.LaplacianEigenmaps,
    "distances": se.Mahalanobis,
    "squared_distances": se.Mahalanobis,
    "tail": importlib.import_module("streamembed.estimators.pca").PrincipalAxes,
    "total_variance": importlib.import_module("streamembed.estimators.pca").PrincipalAxes,
}


def resolve_file(name: str) -> None:
    """``folder/file.py``, or ``folder/file.py::function``."""
    file, _, function = name.partition("::")
    own = file.startswith(("tests/", "scenarios/"))
    path = ROOT / file if own else ROOT / "streamembed" / file
    assert path.is_file(), f"{file} is not a file"
    if not function:
        return
    defined: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert function in defined, f"{file} does not define {function}"


def resolve_name(name: str) -> Any:
    """A public name below ``streamembed``: ``Engine``, ``Mahalanobis.of``, ``estimators.FENN``."""
    first, *rest = name.split(".")
    if first == "estimators":
        assert rest, "of estimators, name one"
        first, *rest = rest
        assert first in estimators.__all__, f"estimators.{first} is not public"
        value = getattr(estimators, first)
    else:
        assert first in se.__all__, f"{first} is not public"
        value = getattr(se, first)
    for part in rest:
        if not hasattr(value, part):  # a field of a frozen class with slots or without default
            assert part in getattr(value, "__dataclass_fields__", {}), f"{name} has no {part}"
            return None
        value = getattr(value, part)
    return value


def resolve_call(text: str) -> None:
    """``Class(parameter=value)``: the parameters exist, and the values are accepted."""
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    built = resolve_name(ast.unparse(call.func))
    values = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    inspect.signature(built).bind_partial(**values)
    built(**values)


def resolve_command(text: str) -> None:
    """``python -m module``; of ``scenarios.run``, the scenarios that it names."""
    module, *rest = text.removeprefix("python -m ").split()
    assert importlib.util.find_spec(module), f"{module} is not a module"
    if module == "scenarios.run":
        for word in rest:
            assert word.startswith("--") or word in SCENARIOS, f"{word} is not a scenario"


def resolve(span: str) -> None:
    """What stands in backticks exists: command, file, call, field, parameter or name."""
    if span.startswith("python -m "):
        resolve_command(span)
    elif re.fullmatch(r"[\w/]+\.py(::\w+)?", span):
        resolve_file(span)
    elif re.fullmatch(r"[\w.]+\(.+\)", span):
        resolve_call(span)
    elif span in FIELDS:
        kind = FIELDS[span]
        names = {*dir(kind), *getattr(kind, "__dataclass_fields__", {})}
        assert span in names | set(inspect.signature(kind).parameters), span
    elif match := re.fullmatch(r"(\w+)=(.+)", span):
        parameters = {
            name
            for each in (se.Engine, *(getattr(estimators, one) for one in estimators.__all__))
            for name in inspect.signature(each).parameters
        }
        assert match[1] in parameters, f"{match[1]} is no parameter"
    else:
        resolve_name(span)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_the_pages_of_sources_name_exists(page: Path) -> None:
    """Every span of code, and every row of a table has as many cells as its head."""
    text = page.read_text()
    wrong = []
    for span in re.findall(r"`([^`]+)`", text):
        try:
            resolve(span.replace("\n", " "))
        except (AssertionError, TypeError, ValueError, se.errors.StreamembedError) as error:
            wrong.append(f"{span}: {error}")
    assert wrong == []
    cells = 0
    for line in text.splitlines():
        cells = 0 if not line.startswith("|") else cells or line.count("|")
        assert line.count("|") == cells, line
    assert len(text.split()) <= 1800


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_energies_of_fenn_are_the_ratios_of_lda(n_classes: int) -> None:
    """Of classes of equal size, E = 1 / (1 + N/(N - 1) r) with r the ratio of LDA (Inaba, 3.4)."""
    rng = np.random.default_rng(n_classes)
    classes = np.repeat(np.arange(n_classes), 40)
    points = rng.standard_normal((len(classes), 6)) + rng.standard_normal((n_classes, 6))[classes]
    moments = scatter.update(scatter.init(6), points, classes)
    ratios = discriminant.decompose(moments).ratios
    energies = fenn.compute_spectrum(scatter.measure(moments)).energies[: n_classes - 1]
    expected = 1.0 / (1.0 + n_classes / (n_classes - 1) * ratios)
    # both come from an SVD of offsets of size 1
    np.testing.assert_allclose(energies, expected, atol=1e-12)


def test_table_1_of_fenn() -> None:
    """Dimensions, examples and classes of the data sets are those that the source lists."""
    sizes = {
        "balance-scale": (4, 625, 3),
        "glass": (9, 214, 6),
        "ionosphere": (34, 351, 2),
        "tic-tac-toe": (9, 958, 2),
        "segment": (19, 2310, 7),
        "iris": (4, 150, 3),
        "wine": (13, 178, 3),
        "wdbc": (30, 569, 2),
        "car": (6, 1728, 4),
        "waveform": (21, 5000, 3),
    }
    for name, row in fenn_table.ROWS.items():
        try:
            points, classes = fenn_table.load(row.file)
        except MissingDataError as absent:
            pytest.skip(str(absent))
        assert (points.shape[1], len(points), len(np.unique(classes))) == sizes.pop(name)
    assert not sizes
