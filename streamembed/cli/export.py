"""``export``: a run as files that any reader of Arrow and Parquet opens."""

from __future__ import annotations

import click

from streamembed.runs.run_export import export

__all__ = ["command"]


@click.command("export")
@click.argument("run", metavar="RUN")
@click.option("-o", "--output", required=True, metavar="DIR", help="Folder, empty or not there.")
def command(run: str, output: str) -> None:
    """Write what a run holds as Arrow and Parquet files.

    snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet. The run may be
    unfinished, and be written to meanwhile: it is what was committed by then.
    """
    for path in export(run, output):
        click.echo(path)
