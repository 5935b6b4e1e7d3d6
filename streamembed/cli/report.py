"""``report``: a run as one self-contained page."""

from __future__ import annotations

import click

from streamembed.report.page import write_page


@click.command("report")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", metavar="FILE", required=True, help="HTML file to write.")
@click.option(
    "--link",
    metavar="URL",
    help="Where an event can be seen: 'https://example.org/{url}', by a kept column or {id}.",
)
def command(run: str, output: str, link: str | None) -> None:
    """Write a page about a run: drift, scatter plots, geometry, metrics.

    The page is one file that works without a network; the same run gives the same bytes. The run
    may be unfinished or still written to: the page shows what is committed. It needs the extra
    report.
    """
    click.echo(write_page(run, output, link))
