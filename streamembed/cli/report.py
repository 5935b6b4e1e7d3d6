"""``report``: a run as one page that fetches nothing."""

from __future__ import annotations

import click

from streamembed.errors import ParameterError
from streamembed.report.page import write_page
from streamembed.report.static_figures import write_prints

__all__ = ["command"]


@click.command("report")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", help="The page: one HTML file.")
@click.option("--png", metavar="DIR", help="Each figure as a PNG, in a folder that is made.")
def command(run: str, output: str | None, png: str | None) -> None:
    """Write a page about a run: drift, clouds, geometry, metrics.

    The page is one file that works without a network; the same run gives the same bytes. The run
    may be unfinished, and be written to meanwhile: it is what was committed by then. The page needs
    the extra report, pictures need the extra pictures.
    """
    if output is None and png is None:
        raise ParameterError("say where to: -o report.html, or --png DIR, or both")
    if output is not None:
        click.echo(write_page(run, output))
    if png is not None:
        for path in write_prints(run, png):
            click.echo(path)
