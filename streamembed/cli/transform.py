"""``transform``: new events through a saved snapshot into a file."""

from __future__ import annotations

import json
from pathlib import Path

import click

from streamembed.cli.command_options import existing, features_option
from streamembed.cli.exit_codes import DAMAGED, stop
from streamembed.cli.terminal_text import echo
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import LogError, NotAFileError, ParameterError, shown
from streamembed.logs.event_log import open_with_choice, parse_choice
from streamembed.runs import run_folder
from streamembed.runs.log_transform import transform_log

__all__ = ["command"]


@click.command("transform")
@click.argument("snapshot", metavar="SNAPSHOT|RUN")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("-o", "--output", required=True, metavar="FILE", help=".arrow for IPC, else Parquet.")
@features_option
@click.option("--id", "id_column", metavar="NAME", help="Column of ids.  [default: id]")
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    snapshot: str,
    logs: tuple[str, ...],
    output: str,
    features: list[str] | None,
    id_column: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Embed the events of logs with a saved snapshot.

    Of a RUN folder that is the final snapshot. A LOG of - is standard input. FILE must not be one
    of the inputs, nor lie in the folder of a log. Rows that cannot be embedded keep their place,
    with nulls and a reason. A snapshot of distances takes logs of distances to its objects, in the
    order of its ids.
    """
    path = _snapshot_in(Path(snapshot))
    inputs = [path] if path == Path(snapshot) else [path.parent / name for name in run_folder.KNOWN]
    for read in inputs:
        if run_folder.same(output, read):
            raise ParameterError(f"output={shown(output)} is the input {read}: choose another file")
    loaded = Snapshot.load(path)
    chosen = parse_choice(features or loaded.feature_names or None, id=id_column)
    log = open_with_choice(existing(logs), chosen)
    facts = transform_log(loaded, log, output, overwrite=overwrite)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        echo(f"{facts['embedded']} events embedded, {facts['rejected']} rejected: {output}")
    if facts["damage"] is not None:
        stop(LogError(facts["damage"]), DAMAGED)


def _snapshot_in(path: Path) -> Path:
    """The file of the snapshot: what was named, or of a run folder the final one."""
    if not path.is_dir():
        return path
    if run_folder.unfinished(path):
        raise ParameterError(run_folder.UNFINISHED.format(path))
    inside = path / "snapshot.arrow"
    if not inside.exists():
        hint = (
            "its log ended before the warm-up (see replay --warm-up), or all of its rows were "
            "rejected"
            if (path / "timeline.parquet").exists()
            else "name a run folder, or the file of a saved snapshot"
        )
        raise NotAFileError(f"{path} is a folder that contains no snapshot.arrow: {hint}")
    return inside
