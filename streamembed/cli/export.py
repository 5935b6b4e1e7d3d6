"""``export``: a run as files for any reader of Arrow and Parquet."""

from __future__ import annotations

import click

from streamembed.runs.run_export import export


@click.command("export")
@click.argument("run", metavar="RUN")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="DIR",
    help="Folder to create; an existing one must be empty.",
)
def command(run: str, output: str) -> None:
    """Export a run as Arrow and Parquet files.

    Writes snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet, of what is
    committed; another process may still be writing. A finished run has these files in its folder.
    """
    for path in export(run, output):
        click.echo(path)
