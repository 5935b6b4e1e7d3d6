"""The page in a browser: what is painted, what moves, what a reader without a mouse can do."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.report import watch_server
from streamembed.report.page import write_page
from tests.report import runs
from tests.report.browser import FOUND, WHY, Browser, Page, chromium
from tests.report.fake import fake_monitored

pytestmark = pytest.mark.skipif(FOUND is None, reason=WHY)
COLOURS = {"class 0": (0, 114, 178), "class 1": (230, 159, 0), "class 2": (0, 158, 115)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def monitored(hostile_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with a monitor; every text of it would like to be markup."""
    folder = tmp_path_factory.mktemp("monitored")
    ids = [f"{i}{runs.ATTACK}" for i in range(240)]
    found = fake_monitored(240, points=runs.POINTS[160:], ids=ids[160:], worst=runs.ATTACK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(se.RunReader, "monitor", lambda _: found)
        return write_page(hostile_run, folder / "report.html")


@pytest.fixture(scope="module")
def finished(finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(finished_run, tmp_path_factory.mktemp("finished") / "report.html")


@pytest.fixture
def page(browser: Browser) -> Page:
    made = browser.page()
    made.view(1280, 800)
    return made


def opened(page: Page, path: Path) -> None:
    page.open(path.as_uri())
    assert page.errors == []


def is_offline(page: Page, path: Path) -> bool:
    """Nothing but the page itself was asked for."""
    return {url for url in page.asked if not url.startswith("data:")} == {path.as_uri()}


def painted(picture: Any, colour: tuple[int, int, int]) -> int:
    """Pixels of a colour, nearly."""
    found = np.round(255 * picture[..., :3]).astype(int)
    return int((np.abs(found - np.array(colour)).max(axis=-1) <= 24).sum())


def test_the_points_are_painted_and_the_slider_moves_it(
    page: Page, finished: Path, tmp_path: Path
) -> None:
    """Points in the colours of their labels; other points at another position; no network."""
    opened(page, finished)
    newest = page.column("scatter", "x")
    picture = page.picture(tmp_path / "a.png", "#figure-scatter-main")
    for colour in COLOURS.values():
        assert painted(picture, colour) > 100, colour
    assert len(newest) == 60
    page.ask("document.getElementById('position').focus()")
    for kind in ("keyDown", "keyUp"):
        page.send(
            "Input.dispatchKeyEvent", type=kind, key="Home", code="Home", windowsVirtualKeyCode=36
        )
    page.settle()
    assert page.column("scatter", "id")[0] == "e0"
    assert page.column("scatter", "x")[:20] != newest[:20]
    assert "1 of " in page.ask("document.getElementById('position-text').textContent")
    moved = page.picture(tmp_path / "b.png", "#figure-scatter-main")
    assert moved.shape == picture.shape
    assert not np.array_equal(moved, picture)
    assert page.column("spectrum:shown", "x") == [40]
    assert page.errors == []
    assert is_offline(page, finished)


def test_alarms_are_drawn_and_explained(page: Page, monitored: Path, tmp_path: Path) -> None:
    """Marks, onsets, the null, the alarm line; a button leads from an event to its point."""
    opened(page, monitored)
    assert page.column("drift:alarms", "x") == [220]
    assert page.column("drift:onsets", "x") == [160]
    assert page.column("drift:null", "y1") == [4]
    assert len(page.column("drift:unwatched", "x0")) == 2
    assert page.ask("document.getElementById('asked').textContent").endswith(
        "asked: one false alarm in 10,000 events"
    )
    picture = page.picture(tmp_path / "a.png", "#figure-drift")
    assert painted(picture, (213, 94, 0)) > 100
    assert page.ask("document.querySelector('.alarm p').textContent").startswith("Mean of")
    note = page.ask("document.querySelector('#drift-notes p').textContent")
    assert note.startswith(f"events are autocorrelated{runs.ATTACK}: so that alarms come too often")
    assert page.ask("document.querySelectorAll('.alarm button').length") == 10
    order = page.ask("Array.from(document.querySelector('#alarms').children, (one) => one.tagName)")
    assert order == ["P", "ARTICLE", "P"]  # what follows an alarm was below the last one
    page.ask("document.querySelectorAll('.alarm button')[9].click()")
    page.settle()
    assert page.ask("document.querySelector('#selected tbody td').textContent").startswith("169<")
    page.ask("document.querySelector('#legend-drift button').click()")
    hidden = "Bokeh.documents[0].get_model_by_name('line:coverage').visible"
    assert page.ask(hidden) is False
    assert page.errors == []


def test_texts_of_a_run_do_nothing(page: Page, monitored: Path) -> None:
    """Neither in tables nor on the canvas nor under the mouse."""
    opened(page, monitored)
    x, y = page.ask(
        "(() => { const v = Object.values(Bokeh.index.roots ?? Bokeh.index)"
        ".find(v => v.model.name === 'figure-scatter-main');"
        " v.el.scrollIntoView(); const f = v.frame, s = v.model.renderers.at(-1).data_source;"
        " const b = v.el.getBoundingClientRect();"
        " const x = f.x_scale.compute(s.data.x[0]), y = f.y_scale.compute(s.data.y[0]);"
        " const o = v.canvas_view.el.getBoundingClientRect(); return [o.x + x, o.y + y]; })()"
    )
    page.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    page.settle()
    assert page.ask("window.hacked") is None
    assert page.ask("document.querySelectorAll('img').length") == 0
    assert "<img" in page.ask("document.querySelector('.alarm').textContent")
    assert page.errors == []
    assert is_offline(page, monitored)


@pytest.mark.parametrize("dark", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_phone_and_the_dark(page: Page, monitored: Path, dark: bool, tmp_path: Path) -> None:
    """Nothing is wider than 375 pixels; figures take the colours of the page."""
    page.view(375, 800, dark)
    opened(page, monitored)
    assert page.ask("document.documentElement.scrollWidth") <= 375
    widths = page.ask(
        "[...document.querySelectorAll('.plot')].map(p => p.getBoundingClientRect().width)"
    )
    assert max(widths) <= 375
    picture = page.picture(tmp_path / "a.png", "#figure-spectrum")
    assert (np.median(picture[..., :3]) < 0.3) == dark


def test_a_reader_without_a_mouse(page: Page, monitored: Path) -> None:
    """Every figure has a name and a caption, every control a label; headings go down by one."""
    opened(page, monitored)
    names = page.ask(
        "[...document.querySelectorAll('.plot')].map(p => p.getAttribute('aria-label'))"
    )
    assert len(names) == 9
    assert all(names)
    bare = "[...document.querySelectorAll('input, select')].filter(i => !i.labels.length).length"
    assert page.ask(bare) == 0
    levels = page.ask("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    reached = set()
    for _ in range(12):
        page.press("Tab", 9)
        reached.add(page.ask("document.activeElement.textContent.slice(0, 20)"))
    assert {"Skip to the figures", "Drift", "coverage"} <= reached


def test_the_live_page_grows_and_says_when_it_is_stale(
    page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process writes; and when the server has gone."""
    monkeypatch.setattr(watch_server, "POLL_SECONDS", 0.2)
    run = runs.unfinished(tmp_path)
    made = watch_server.create_server(run)
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    try:
        page.open(f"http://127.0.0.1:{made.server_address[1]}/")
        before = int(page.ask("document.documentElement.dataset.position"))
        assert before < 240
        program = (
            "import streamembed as se; from tests.report import runs;"
            f"se.replay({str(tmp_path / 'log')!r}, se.Engine(**runs.SMALL), {str(run)!r},"
            " **runs.EVERY)"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program], cwd=Path(__file__).parents[2]
        ) as writer:
            page.wait("document.documentElement.dataset.position === '240'")
            page.wait("document.getElementById('live').textContent.startsWith('Finished')")
        assert writer.returncode == 0
        assert page.column("scatter", "id")[-1] == "e239"
        assert page.errors == []
    finally:
        made.shutdown()
        made.server_close()
        thread.join()
    page.wait("document.getElementById('live').textContent.startsWith('Stale since')")
    assert "does not answer" in page.ask("document.getElementById('live').textContent")
