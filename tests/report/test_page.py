"""The page as a file, its pictures, and the command that writes them."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from streamembed.report import figures
from streamembed.report.page import render_page, write_page
from streamembed.report.report_contents import read_contents
from streamembed.runs.run_reader import RunReader
from tests.cli.test_cli import call
from tests.report import runs
from tests.report.fake import fake_monitored


class Parts(HTMLParser):
    """Tags with their attributes, and what stands in scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        """Note it."""
        self.tags.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        """What a script says."""
        if self.tags and self.tags[-1][0] == "script":
            self.scripts[-1] += data


@pytest.fixture
def run(finished_run: Path) -> Path:
    return finished_run


@pytest.fixture
def hostile(hostile_run: Path) -> Path:
    return hostile_run


@pytest.mark.long
def test_the_same_run_gives_the_same_page(run: Path, tmp_path: Path) -> None:
    """In another process, with other things drawn before; and no time or path is in it."""
    written = write_page(run, tmp_path / "a.html").read_bytes()
    assert write_page(run, tmp_path / "b.html").read_bytes() == written
    program = f"from streamembed.report.page import write_page; write_page({str(run)!r}, 'c.html')"
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True)
    assert (tmp_path / "c.html").read_bytes() == written
    assert str(run.parent).encode() not in written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html", "c.html"]


def test_nothing_is_fetched(run: Path, tmp_path: Path) -> None:
    """No tag names an address, no style imports one, and the page forbids it to its scripts."""
    page = write_page(run, tmp_path / "a.html").read_text()
    parts = Parts(page)
    for tag, attributes in parts.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert not re.search(r"@import|url\(", page.split("</style>")[0])
    [policy] = [
        a["content"] for t, a in parts.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "connect-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert ("html", {"lang": "en"}) in parts.tags


def test_texts_of_a_run_are_no_markup(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, ids, labels and sentences that would be: no tag more than in another page."""
    monkeypatch.setattr(RunReader, "monitor", lambda _: fake_monitored(240, worst=runs.ATTACK))
    parts = Parts(write_page(hostile, tmp_path / "a.html").read_text())
    assert [tag for tag, _ in parts.tags].count("script") == 5
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in parts.tags)
    state = json.loads(parts.scripts[2])
    assert state["scatter_plots"][-1]["id"][0].startswith("180</script>")
    assert state["drift"]["notes"][0].startswith(f"events are autocorrelated{runs.ATTACK}: so")
    assert state["drift"]["notes"][0].endswith("so that alarms come too often")  # in full
    assert state["metrics"][0]["features"] == sorted(runs.HOSTILE_NAMES)


def files_of(run: Path) -> list[str]:
    """What is there, but for what SQLite has beside a database that another test reads."""
    return sorted(path.name for path in run.iterdir() if not path.name.startswith("run.db-"))


def test_what_cannot_be_written_is_an_error(run: Path, tmp_path: Path) -> None:
    """One line, a documented exit code, and nothing in the run folder."""
    before = files_of(run)
    assert call("report", run).exit_code == 2
    assert call("report", run, "-o", run / "a.html").exit_code == 2
    assert call("report", tmp_path / "none", "-o", tmp_path / "a.html").exit_code == 4
    assert call("report", run, "-o", tmp_path / "none" / "a.html").exit_code == 4
    assert files_of(run) == before


def test_without_bokeh_the_error_says_how_to_install_it(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the page, and for the page that follows a run."""
    monkeypatch.setattr(figures, "MISSING_BOKEH", "No module named 'bokeh'")
    done = call("report", run, "-o", tmp_path / "a.html")
    assert done.exit_code == 2
    assert "pip install 'streamembed[report]'" in done.stderr
    assert call("watch", run).exit_code == 2


def test_nothing_else_imports_bokeh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is missing one module knows, and all can be imported."""
    for name in ("bokeh", "bokeh.core.json_encoder"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "bokeh" in runpy.run_path(figures.__file__)["MISSING_BOKEH"]
    package = Path(figures.__file__).parents[1]
    named = [path.name for path in package.rglob("*.py") if "import bokeh" in path.read_text()]
    named += [path.name for path in package.rglob("*.py") if "from bokeh" in path.read_text()]
    assert named == ["figures.py"]


@pytest.mark.parametrize("kind", ["cold", "distances"])
def test_other_runs_have_a_page(kind: str, tmp_path: Path) -> None:
    """Without pictures, points, labels or any snapshot."""
    page = render_page(read_contents(runs.KINDS[kind](tmp_path)))
    assert len(Parts(page).scripts) == 5


def test_the_command(run: Path, tmp_path: Path) -> None:
    """It writes what it is asked for, and says where."""
    done = call("report", run, "-o", tmp_path / "a.html")
    assert done.exit_code == 0, done.output
    assert done.stdout.split() == [str(tmp_path / "a.html")]
