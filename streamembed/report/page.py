"""The page of a run: one self-contained file, whose bytes are a function of the run only."""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from streamembed.errors import ParameterError, check_path, quote
from streamembed.report.figures import draw_figures, get_palettes, get_script, require_bokeh
from streamembed.report.json_values import encode_json
from streamembed.report.report_contents import read_contents
from streamembed.storage import archive
from streamembed.version import __version__

ASSETS = Path(__file__).parent / "assets"


def write_page(
    run: str | os.PathLike[str], output: str | os.PathLike[str], link: str | None = None
) -> Path:
    """Write the page of a run.

    Parameters
    ----------
    run
        A run of any kind; another process may be writing it.
    output
        The file; an existing one is replaced.
    link
        Where an event can be seen, such as ``"https://example.org/{url}"``: names in braces are
        columns that the run has kept, or ``{id}``.

    Returns
    -------
    The file.

    Raises
    ------
    ParameterError
        Bokeh is not installed, ``output`` is in the run, or ``link`` names another column.
    MissingFileError, DamagedFileError, FileError
        The run cannot be read, or the file cannot be written.
    """
    require_bokeh()
    target = Path(check_path(output, "output"))
    if target.resolve().is_relative_to(Path(check_path(run, "run")).resolve()):
        raise ParameterError(
            f"output={quote(str(target))} must not be in the run, which is read-only"
        )
    contents = read_contents(run)
    _check_link(link, contents["kept"]["columns"])
    page = render_page(contents, link=link)
    with archive.replace_file(target) as path:
        path.write_text(page, encoding="utf-8")
    return target


def _check_link(link: str | None, columns: Sequence[str]) -> None:
    if link is None:
        return
    if not re.match(r"https?://|{", link):
        raise ParameterError(f"link={quote(link)} must begin with https://, http:// or a column")
    names = re.findall(r"{([^{}]*)}", link)
    for name in names:
        if name not in ("id", *columns):
            raise ParameterError(
                f"link={quote(link)} names {quote(name)}, and the run has kept "
                f"{quote(list(columns))}: replay it with keep={quote(name)}, or use {{id}}"
            )
    if not names:
        raise ParameterError(f"link={quote(link)} must name a column, such as {{id}}")


def render_page(
    contents: Mapping[str, Any],
    live: Mapping[str, Any] | None = None,
    link: str | None = None,
) -> str:
    """Render the page as text.

    Parameters
    ----------
    contents
        See `streamembed.report.report_contents.read_contents`.
    live
        For a page that follows a run: the ``etag`` of these contents, the seconds between requests
        ``every``, and the seconds without a commit after which it is ``stale``; None for a page
        that is written once.
    link
        As in `write_page`.
    """
    figures = draw_figures(contents)
    settings = {
        "figures": list(figures.names),
        "lines": {name: asdict(figure) for name, figure in figures.lines.items()},
        "metrics": contents["figures"]["metrics"],
        "palettes": get_palettes(),
        "live": None if live is None else dict(live),
        "link": link,
    }
    bokeh_script, page_script = get_script(), _read_asset("page.js")
    policy = _format_policy((bokeh_script, page_script), "'self'" if live is not None else "'none'")
    parts = {
        "policy": html.escape(policy),
        "version": html.escape(__version__),
        "title": html.escape(contents["run"]["name"]),
        "style": _read_asset("page.css"),
        "settings": encode_json(settings),
        "figures": figures.document.replace("<", "\\u003c"),
        "state": encode_json(contents),
        "bokeh": bokeh_script,
        "page": page_script,
    }
    pieces = _read_asset("page.html").split("{{")
    output = [pieces[0]]
    for piece in pieces[1:]:  # one pass from left to right: inserted text is not scanned again
        name, _, rest = piece.partition("}}")
        output += [parts[name], rest]
    return "".join(output)


def _read_asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _format_policy(scripts: tuple[str, ...], connect: str) -> str:
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    allowed = " ".join(f"'sha256-{script}'" for script in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
