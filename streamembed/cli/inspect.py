"""``inspect``: the contents of a file or folder, the verdict first."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click

from streamembed.cli.show import print_facts
from streamembed.data.column_roles import LOG_REMEDY, ColumnChoice
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    FeatureError,
    MissingFileError,
    check_path,
    format_count,
)
from streamembed.logs.event_log import open_files
from streamembed.logs.paths import probe_files
from streamembed.logs.place import is_uri
from streamembed.numeric import codec
from streamembed.runs.run_reader import read_run
from streamembed.runs.summary import describe_run, describe_snapshot
from streamembed.storage import archive
from streamembed.storage.database import DATABASE_NAME


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, with every digit.")
def command(path: str, as_json: bool) -> None:
    """Show what a log, a snapshot, a saved engine or a run folder contains."""
    facts = inspect_path(path)
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_facts(facts)


def inspect_path(location: str) -> dict[str, Any]:
    """The facts of a log, a run folder, a snapshot or another saved file; of a URI, a log."""
    if is_uri(location):
        return _describe_log(location)
    path = Path(check_path(location))
    if not os.path.exists(path):  # that of pathlib raises where a name is too long
        raise MissingFileError(f"{path} does not exist")
    if path.is_dir() and (path / DATABASE_NAME).exists():
        with read_run(path) as run:
            return describe_run(run)
    kind = archive.read_kind(path) if path.is_file() else None
    if kind == "snapshot":
        return describe_snapshot(Snapshot.load(path))
    if kind == "engine":
        return _describe_engine(Engine.load(path))
    if kind is not None:  # a saved estimator: its numbers, without arrays and states
        header = archive.unseal(archive.read_bytes(path), kind, path, lambda _, facts: facts)
        plain = {k: v for k, v in header.items() if v != codec.ARRAY and not isinstance(v, dict)}
        return {"kind": kind, "verdict": kind, "hints": [], **plain}
    return _describe_log(location)


def _describe_engine(engine: Engine) -> dict[str, Any]:
    state = "ready"
    if not engine.ready:
        missing = engine.config.warm_up_events - engine.position
        state = f"{missing:,} events before its first snapshot"
    return {
        "kind": "saved engine",
        "verdict": f"saved engine: {engine.position:,} events, {state}",
        "hints": [],
        "position": engine.position,
        "pending": engine.pending,
        "ready": engine.ready,
        "features": list(engine.feature_names),
        "parameters": engine.config.as_dict(),
    }


def _describe_log(location: str) -> dict[str, Any]:
    files, log = probe_files(location), None
    damages = [file.damage for file in files if file.damage]
    counts = [file.rows for file in files if file.rows is not None]
    rows = f"{sum(counts):,} rows" if len(counts) == len(files) else "an unknown number of rows"
    types = {name: str(kind) for name, kind in files[0].columns or ()}
    hints = [
        f"{damage}: rows before it can be read, replay reports where they end" for damage in damages
    ]
    try:
        log = open_files(files, ColumnChoice(), ())
    except FeatureError as error:
        what = f"of {format_count(len(types), 'column')}"
        hints.append(f"replay refuses the log: {error}")
    else:
        n = len(log.feature_names)
        what = f"of {format_count(n, 'feature')}" if n else "of distances"
        if log.columns.suspicious:
            hints.append(f"suspicious columns are left out: {LOG_REMEDY}")
    count = format_count(len(files), "file")
    return {
        "kind": "log",
        "verdict": f"log: {rows} {what} in {count}" + ("; DAMAGED" if damages else ""),
        "hints": hints,
        "holds": None if log is None else log.kind,
        "files": [str(file) for file in files],
        "formats": [file.format for file in files],
        "rows": [file.rows for file in files],
        "damages": damages,
        "columns": types,
        **({} if log is None else log.columns.as_dict()),
    }
