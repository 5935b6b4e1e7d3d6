"""The built site: links, search, and what axe-core finds in a browser, on a desk and on a phone."""

from __future__ import annotations

import functools
import json
import subprocess
import threading
from collections.abc import Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import pytest

from streamembed.cli import commands
from streamembed.methods.options import DEFAULTS
from tests.report.browser import FOUND, WHY, Page, chromium

ROOT = Path(__file__).resolve().parents[1]
SPHINX = ROOT / ".venv-docs/bin/sphinx-build"
AXE = next(ROOT.glob(".venv-docs/lib/python*/site-packages/axe_*/axe.min.js"), None)
in_a_browser = pytest.mark.skipif(FOUND is None, reason=WHY)
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not SPHINX.exists(), reason="no Sphinx in .venv-docs: run make docs"),
]
VIEWS = [(1400, False), (1400, True), (400, False), (400, True)]
# Pages that Sphinx makes and nothing links.
UNLINKED = {"_modules/index.html", "genindex.html", "py-modindex.html", "search.html"}
IS_LOADED = "document.readyState === 'complete' && location.href"
CHECK = """axe.run({resultTypes: ["violations"]}).then(({violations}) => [
    ...violations.flatMap(({id, nodes}) => nodes.map(({target}) => id + " " + target.join(" "))),
    ...(document.scrollingElement.scrollWidth > innerWidth ? ["wider than the window"] : []),
])"""


class Links(HTMLParser):
    """Where a page leads, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.anchors.add(value or "")
            elif name in ("href", "src") and value and not urlsplit(value).scheme:
                self.links.add(value)


class QuietHandler(SimpleHTTPRequestHandler):
    """Without a line for every request."""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make docs` builds it."""
    folder = tmp_path_factory.mktemp("site")
    options = ["--fail-on-warning", "--quiet", "--doctree-dir", folder / "trees"]
    subprocess.run([SPHINX, *options, ROOT / "docs", folder / "html"], check=True)
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a server on this machine has the site."""
    handler = functools.partial(QuietHandler, directory=site)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as browser:
        yield browser.page()


def go(page: Page, address: str) -> None:
    """Open an address, and wait until the page is there."""
    page.send("Page.navigate", url=address)
    page.wait(f"{IS_LOADED} === {json.dumps(address)}")


def list_pages(site: Path) -> list[Path]:
    """All but copies of the source code."""
    return [path for path in sorted(site.rglob("*.html")) if "_modules" not in path.parts]


def test_every_link_leads_somewhere_and_every_page_is_linked(site: Path) -> None:
    """Files and anchors; of pages, from another page."""
    pages = {path: Links(path) for path in site.rglob("*.html")}
    broken, linked = [], set()
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file() or (
                anchor and target in pages and anchor not in pages[target].anchors
            ):
                broken.append((path.relative_to(site), link))
            elif target != path:
                linked.add(target)
    assert broken == []
    assert {str(path.relative_to(site)) for path in pages.keys() - linked} <= UNLINKED


@in_a_browser
@pytest.mark.skipif(
    AXE is None, reason="no axe-core: .venv-docs/bin/pip install --no-deps axe-playwright-python"
)
@pytest.mark.parametrize(("width", "is_dark"), VIEWS)
def test_axe_finds_nothing(site: Path, address: str, page: Page, width: int, is_dark: bool) -> None:
    """Contrast, names, landmarks, order of headings, tables, pages wider than the window."""
    assert AXE is not None
    axe = AXE.read_text()
    page.view(width, 900, dark=is_dark)
    found = {}
    for path in list_pages(site):
        go(page, address + str(path.relative_to(site)))
        page.ask(axe + "; 0")
        found[str(path.relative_to(site))] = page.ask(CHECK)
    assert {name: faults for name, faults in found.items() if faults} == {}


def list_flags() -> list[str]:
    """Of all commands."""
    found = set()
    for name in commands.COMMANDS:
        command = commands.load_command(name)
        for parameter in command.params:
            found |= {flag for flag in parameter.opts if flag.startswith("--")}
    return sorted(found)


@in_a_browser
def test_search_finds_parameters_and_flags(address: str, page: Page) -> None:
    """The page that explains a parameter of `Engine`, or a flag, is the first result."""
    queries = dict.fromkeys(DEFAULTS, "parameters.html")
    queries |= dict.fromkeys(list_flags(), "cli.html")
    missing = []
    for query, expected in queries.items():
        go(page, f"{address}search.html?q={quote(query)}")
        page.wait(
            "document.querySelector('.search-summary')?.textContent.match(/finished|not match/)"
        )
        links = page.ask(
            "Array.from(document.querySelectorAll('#search-results li a'), a => a.pathname)"
        )
        if links[:1] != [f"/{expected}"]:
            missing.append((query, links[:3]))
    assert missing == []
