"""The project's own files agree with each other: versions, Pythons, commands, pages."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import yaml

import streamembed as se
from streamembed.storage import archive

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def list_versions(classifiers: list[str]) -> list[str]:
    return re.findall(r"Python :: (3\.\d+)", "\n".join(classifiers))


def test_the_version_has_one_source() -> None:
    """The build reads it off the code; a citation repeats it."""
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert PROJECT["tool"]["hatch"]["version"]["path"] == "streamembed/version.py"
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert str(citation["version"]) == se.__version__
    assert f"\n## {se.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_pages_name_the_layout_of_files() -> None:
    """That of the code."""
    assert f"of the layout, {archive.VERSION} now" in (ROOT / "docs/files.md").read_text()
    assert f"layout, {archive.VERSION} now" in (ROOT / "docs/reference/stability.md").read_text()
    assert f"layout version {archive.VERSION} " in (ROOT / "CHANGELOG.md").read_text()


def test_a_citation_has_what_its_format_asks_for() -> None:
    """Keys of the format 1.2.0; every reference has a title and authors."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference)


def test_a_fork_runs_every_python_that_is_promised() -> None:
    """On both systems; the lowest is that of pyproject.toml."""
    matrix = WORKFLOW["jobs"]["test"]["strategy"]["matrix"]
    versions = list_versions(PROJECT["project"]["classifiers"])
    assert matrix["python"] == versions
    assert PROJECT["project"]["requires-python"] == f">={versions[0]}"
    assert [name.partition("-")[0] for name in matrix["os"]] == ["ubuntu", "macos"]


def test_workflows_and_pages_call_targets_that_exist() -> None:
    """`make NAME` is a target of the Makefile, wherever it stands."""
    steps = [step.get("run", "") for job in WORKFLOW["jobs"].values() for step in job["steps"]]
    texts = [*steps, *((ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md"))]
    called = {name for text in texts for name in re.findall(r"(?:^|`)make ([\w-]+)", text, re.M)}
    assert {"test", "lowest", "docs"} <= called <= TARGETS


def test_pages_name_files_that_exist() -> None:
    """Paths to modules in backticks, from the package or the root of the repository."""
    folders = [ROOT / "streamembed", ROOT, ROOT / "streamembed" / "methods"]
    for page in [ROOT / "README.md", *PAGES]:
        text = re.sub(r"```.*?```", "", page.read_text(), flags=re.S)
        for name in re.findall(r"`([\w/]+\.py)`", text):
            assert any((folder / name).is_file() for folder in folders), f"{page.name}: {name}"
