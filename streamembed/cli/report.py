"""``report``: a run as one self-contained page."""

from __future__ import annotations

import click

from streamembed.errors import ParameterError
from streamembed.report.page import write_page
from streamembed.report.static_figures import write_static_figures


@click.command("report")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="HTML file to write.")
@click.option("--png", metavar="DIR", help="Folder to create, with each figure as a PNG.")
def command(run: str, output: str | None, png: str | None) -> None:
    """Write a page about a run: drift, scatter plots, geometry, metrics.

    The page is one file that works without a network; the same run gives the same bytes. The run
    may be unfinished or still written to: the page shows what is committed. The page needs the
    extra report, --png needs the extra pictures.
    """
    if output is None and png is None:
        raise ParameterError("no output is given: use -o report.html, --png DIR, or both")
    if output is not None:
        click.echo(write_page(run, output))
    if png is not None:
        for path in write_static_figures(run, png):
            click.echo(path)
