"""``transform``: embed new events with a saved snapshot into a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import click

from streamembed.cli.command_options import add_features_option, add_role_options, check_logs_exist
from streamembed.cli.exit_codes import DAMAGED, exit_with
from streamembed.cli.terminal_text import echo
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    LogError,
    NotAFileError,
    ParameterError,
    check_path,
    format_count,
    quote,
)
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice
from streamembed.runs import run_folder
from streamembed.runs.log_transform import transform_log
from streamembed.runs.run_reader import read_run
from streamembed.storage.database import DATABASE_NAME, LOCK


@click.command("transform")
@click.argument("snapshot", metavar="SNAPSHOT|RUN")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option(
    "-o",
    "--output",
    required=True,
    metavar="FILE",
    help="Output file: .arrow for IPC, else Parquet.",
)
@add_features_option
@add_role_options
@click.option("--overwrite", is_flag=True, help="Replace an existing FILE.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    snapshot: str,
    logs: tuple[str, ...],
    output: str,
    features: list[str] | None,
    overwrite: bool,
    as_json: bool,
    **roles: str | None,
) -> None:
    """Embed the events of logs with a saved snapshot.

    A RUN folder stands for its final snapshot. FILE must not be an
    input, nor be in the folder of a log. It has the ids, labels and times of the LOG. Rows that
    cannot be embedded keep their place, with nulls and a reason. A snapshot of distances takes logs
    of distances to its objects, in the order of its ids.
    """
    path = _find_snapshot_file(Path(check_path(snapshot, "snapshot")))
    inputs = [path]
    if path != Path(snapshot):
        inputs = [path.parent / name for name in (*run_folder.RUN_FILES, LOCK)]
    for source in inputs:
        if run_folder.is_same_path(output, source):
            raise ParameterError(
                f"output={quote(output)} is the input {source}: choose another file"
            )
    loaded_snapshot = Snapshot.load(path)
    chosen = features or loaded_snapshot.feature_names or None
    log = open_with_choice(check_logs_exist(logs), parse_choice(chosen, **roles))
    if path != Path(snapshot) and (inherited := _inherit_roles(path.parent, output, roles, log)):
        log = open_with_choice([*logs], parse_choice(chosen, **{**roles, **inherited}))
    summary = transform_log(loaded_snapshot, log, output, overwrite=overwrite)
    if as_json:
        click.echo(json.dumps(summary))
    else:
        events = format_count(summary["embedded"], "event")
        echo(f"{events} embedded, {summary['rejected']:,} rejected: {output}")
    if summary["damage"] is not None:
        exit_with(LogError(summary["damage"]), DAMAGED)


def _inherit_roles(
    run: Path, output: str, roles: Mapping[str, str | None], log: EventLog
) -> dict[str, str]:
    """Columns that had a role in the run and are in the log, where no other was chosen.

    Raises
    ------
    ParameterError
        The output lies in the log of the run.
    """
    with read_run(run) as reader:
        places, columns = reader.log_places, reader.origin.get("columns", {})
    if run_folder.lies_in(Path(output), map(Path, places)):
        raise ParameterError(
            f"output={quote(output)} lies in the log of {run}: choose another place"
        )
    given = {role: columns.get(role) for role, name in roles.items() if name is None}
    return {role: name for role, name in given.items() if name in log.columns.left_out}


def _find_snapshot_file(path: Path) -> Path:
    """The file of the snapshot: the path itself, or the final snapshot of a run folder."""
    if not path.is_dir():
        return path
    file = path / "snapshot.arrow"
    if not file.exists():
        hint = "pass a run folder, or the file of a saved snapshot"
        if (path / "timeline.parquet").exists():
            hint = (
                "its log ended during the warm-up (see replay --warm-up), or all of its rows were "
                "rejected"
            )
        elif (path / DATABASE_NAME).exists():
            hint = (
                "its replay is still running, or was killed; wait until it ends, or repeat the "
                "command to resume it"
            )
        raise NotAFileError(f"{path} is a folder without snapshot.arrow: {hint}")
    return file
