"""``inspect``: what a file or folder holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DamagedFileError, MissingFileError
from streamembed.logs.reader import describe_log
from streamembed.numeric import codec
from streamembed.runs import folder
from streamembed.storage import archive

__all__ = ["command"]


@click.command("inspect")
@click.argument("path", metavar="PATH")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(path: str, as_json: bool) -> None:
    """Show what a log, a snapshot, a saved engine or a run folder contains."""
    facts = inspect_path(Path(path))
    if as_json:
        click.echo(json.dumps(facts))
        return
    for line in write_lines(facts):
        click.echo(line)


def write_lines(facts: dict[str, Any], indent: str = "") -> Iterator[str]:
    """One line a fact, what is inside another indented below it."""
    for name, value in facts.items():
        if isinstance(value, dict):
            yield f"{indent}{name}"
            yield from write_lines(value, indent + "  ")
        elif isinstance(value, (list, tuple)):
            yield f"{indent}{name:18s} {', '.join(map(_show, value)) or '-'}"
        else:
            yield f"{indent}{name:18s} {_show(value)}"


def _show(value: object) -> str:
    """A fact as text; where there is none, a dash."""
    return "-" if value is None else str(value)


def inspect_path(path: Path) -> dict[str, Any]:
    """What a log, a run folder, a snapshot or another saved file holds, JSON-ready."""
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    if path.is_dir() and folder.unfinished(path):
        raise DamagedFileError(folder.UNFINISHED.format(path))
    if path.is_dir() and (path / "timeline.parquet").exists():
        return _inspect_run(path)
    kind = archive.kind_of(path) if path.is_file() else None
    if kind == "snapshot":
        return _inspect_snapshot(Snapshot.load(path))
    if kind == "engine":
        engine = Engine.load(path)
        return {
            "kind": "saved engine",
            "position": engine.position,
            "pending": engine.pending,
            "ready": engine.ready,
            "features": list(engine.feature_names),
            **engine.config.as_dict(),
        }
    if kind is not None:  # what an estimator saved: its numbers, without arrays and states
        header = archive.read_table(path, kind)[1]
        plain = {k: v for k, v in header.items() if v != codec.ARRAY and not isinstance(v, dict)}
        return {"kind": kind, **plain}
    found = describe_log(path)
    return {
        "kind": "log",
        "holds": found.kind,
        "files": [str(file) for file in found.files],
        "formats": list(found.formats),
        "rows": list(found.rows),
        "damages": [damage for damage in found.damages if damage],
        "features": list(found.feature_names),
        "list column": found.list_column,
        "reserved": list(found.reserved),
        "ignored": list(found.ignored),
    }


def _inspect_run(path: Path) -> dict[str, Any]:
    try:
        met = pq.read_table(path / "timeline.parquet", columns=["met"])["met"].to_pylist()
        facts: dict[str, Any] = {
            "kind": "run",
            "events": pq.read_metadata(path / "embedding.parquet").num_rows,
            "rejected": pq.read_metadata(path / "rejected.parquet").num_rows,
            "snapshots": len(met),
            "certificates met": sum(bool(one) for one in met),
        }
    except pa.ArrowException as error:
        raise DamagedFileError(
            f"a table of the run {path} is damaged ({error}): replay the log again"
        ) from error
    if (path / "snapshot.arrow").exists():
        facts["final snapshot"] = _inspect_snapshot(Snapshot.load(path / "snapshot.arrow"))
    return facts


def _inspect_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    n, k = snapshot.coordinates.shape
    return {
        "kind": "snapshot",
        "method": snapshot.method,
        "kernel": snapshot.kernel,
        "position": snapshot.position,
        "points": n,
        "n_components": k,
        "features": list(snapshot.feature_names),
        "resolution": snapshot.resolution,
        "n_connected": snapshot.n_connected,
        "eigenvalues": snapshot.eigenvalues.tolist(),
        "bandwidth": snapshot.bandwidth,
        "alpha": snapshot.alpha,
        "diffusion_time": snapshot.diffusion_time,
        "certificate": asdict(snapshot.certificate),
        "metrics": list(snapshot.metrics),
        "picture": None if snapshot.picture is None else _inspect_picture(snapshot.picture),
    }


def _inspect_picture(picture: Picture) -> dict[str, Any]:
    return {
        "neighbours kept": float(picture.kept.mean()),
        "kept when laid out": picture.kept_then,
        "age in chunks": picture.age,
        "epoch": picture.epoch,
        "radius": picture.radius,
    }
