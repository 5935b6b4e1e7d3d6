"""A page of a run: one file that fetches nothing, whose bytes are a function of the run alone."""

from __future__ import annotations

import base64
import hashlib
import html
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamembed.errors import ParameterError, path_text, shown
from streamembed.report.figures import draw, need_bokeh, palettes, script
from streamembed.report.json_values import as_json
from streamembed.report.report_contents import read_contents
from streamembed.storage import archive
from streamembed.version import __version__

__all__ = ["page_of", "write_page"]

ASSETS = Path(__file__).parent / "assets"


def write_page(run: str | os.PathLike[str], output: str | os.PathLike[str]) -> Path:
    """Write the page of a run.

    Parameters
    ----------
    run
        A run of any kind; another process may be writing it.
    output
        The file; one that is there is replaced.

    Returns
    -------
    The file.

    Raises
    ------
    ParameterError
        Bokeh is not installed, or ``output`` is in the run.
    MissingFileError, DamagedFileError, FileError
        The run cannot be read, or the file cannot be written.
    """
    need_bokeh()
    target = Path(path_text(output, "output"))
    if target.resolve().is_relative_to(Path(path_text(run, "run")).resolve()):
        raise ParameterError(f"output={shown(str(target))} must not be in the run: it is read only")
    page = page_of(read_contents(run))
    with archive.replacing(target) as path:
        path.write_text(page, encoding="utf-8")
    return target


def page_of(contents: Mapping[str, Any], live: Mapping[str, Any] | None = None) -> str:
    """The page, as text.

    Parameters
    ----------
    contents
        See `streamembed.report.report_contents.read_contents`.
    live
        Of a page that follows a run: ``etag`` of these contents, ``every`` so many seconds it asks
        again, and it is ``stale`` after so many; None for a page that is written once.
    """
    metrics = list(contents["asked"]["metrics"])
    figures = draw(contents, contents["asked"]["n_components"], metrics)
    settings = {
        "figures": list(figures.names),
        "metrics": metrics,
        "palettes": palettes(),
        "live": None if live is None else dict(live),
    }
    bokeh, own = script(), _asset("page.js")
    policy = _policy((bokeh, own), "'self'" if live is not None else "'none'")
    parts = {
        "policy": html.escape(policy),
        "version": html.escape(__version__),
        "title": html.escape(contents["run"]["name"]),
        "style": _asset("page.css"),
        "settings": as_json(settings),
        "figures": figures.document.replace("<", "\\u003c"),
        "state": as_json(contents),
        "bokeh": bokeh,
        "page": own,
    }
    page = _asset("page.html")
    pieces = page.split("{{")
    made = [pieces[0]]
    for piece in pieces[1:]:  # once, from left to right: what is filled in is not looked at again
        name, _, rest = piece.partition("}}")
        made += [parts[name], rest]
    return "".join(made)


def _asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")


def _policy(scripts: tuple[str, ...], connect: str) -> str:
    """What a browser may do with the page: run these scripts, and fetch nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(one.encode()).digest()).decode() for one in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
