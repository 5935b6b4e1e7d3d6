"""Pages name files, functions and commands that exist; facts of the sources."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from scenarios import fenn_table
from scenarios.run import SCENARIOS
from scenarios.streams import MissingDataError
from streamembed.metrics import discriminant, fenn, scatter

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def list_definitions(path: Path) -> set[str]:
    """Names that a file defines; none where there is no file."""
    if not path.is_file():
        return set()
    nodes = ast.parse(path.read_text()).body
    targets = [each for node in nodes if isinstance(node, ast.Assign) for each in node.targets]
    named = [node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return {"", *named, *(each.id for each in targets if isinstance(each, ast.Name))}


def test_pages_name_files_functions_and_commands_that_exist() -> None:
    """Below the folder of the package, of tests or of scenarios."""
    wrong = []
    for page in PAGES:
        text = page.read_text()
        spans = re.findall(r"`((?:tests|scenarios)/[\w/]+\.py)(?:::(\w+))?`", text)
        if page.stem == "sources":
            spans += [
                (f"streamembed/{file}", name)
                for file, name in re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
                if not file.startswith(("tests/", "scenarios/"))
            ]
        wrong += [each for each in spans if each[1] not in list_definitions(ROOT / each[0])]
        for module, words in re.findall(r"python -m (scenarios[\w.]*)([^`\n]*)", text):
            names = re.findall(r" ([a-z][\w-]+)", words) if module == "scenarios.run" else []
            if not importlib.util.find_spec(module) or not set(names) <= set(SCENARIOS):
                wrong.append((module, words))
    assert wrong == []


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_energies_of_fenn_are_the_ratios_of_lda(n_classes: int) -> None:
    """Of classes of equal size, E = 1 / (1 + N/(N - 1) r) with r the ratio of LDA (Inaba, 3.4)."""
    rng = np.random.default_rng(n_classes)
    classes = np.repeat(np.arange(n_classes), 40)
    points = rng.standard_normal((len(classes), 6)) + rng.standard_normal((n_classes, 6))[classes]
    moments = scatter.update(scatter.init(6), points, classes)
    ratios = discriminant.decompose(moments).ratios
    energies = fenn.compute_spectrum(scatter.compute_scatters(moments)).energies[: n_classes - 1]
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
