"""The contents of a file or folder: a verdict, facts, and hints about problems."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from streamembed.cli.monitor_options import describe_monitor, format_monitor_status
from streamembed.cli.summary import format_all_rejected, list_axes_warnings
from streamembed.data.column_roles import LOG_REMEDY, abbreviate_names
from streamembed.drift.monitor import Monitor
from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import MissingFileError, ParameterError, check_path, format_count
from streamembed.logs.event_log import LogDescription, describe_log
from streamembed.logs.place import is_uri
from streamembed.methods.options import Config
from streamembed.methods.registry import METHODS
from streamembed.numeric import codec
from streamembed.runs import run_folder
from streamembed.runs.run_reader import read_run
from streamembed.runs.run_summary import NAMES, RunSummary, summarise_run
from streamembed.storage import archive
from streamembed.storage.database import DATABASE_NAME


@dataclass(frozen=True, slots=True)
class Inspection:
    """The contents of a path."""

    verdict: str  # one line: what it is, its size, whether it is intact
    facts: dict[str, Any]  # all facts, JSON-ready, with every digit
    hints: tuple[str, ...] = ()  # Problems, and what to do about them
    # Shorter values that replace facts in text output; None leaves a fact out.
    brief: dict[str, Any] | None = None


def inspect_path(location: str) -> Inspection:
    """Inspect a log, a run folder, a snapshot or another saved file; of a URI, a log."""
    if is_uri(location):
        return _inspect_log(describe_log(location))
    path = Path(check_path(location))
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    if path.is_dir() and (path / DATABASE_NAME).exists():
        return _inspect_run(path)
    if path.is_dir() and run_folder.is_unfinished(path):
        raise ParameterError(run_folder.UNFINISHED.format(path))
    kind = archive.read_kind(path) if path.is_file() else None
    if kind == "snapshot":
        return _inspect_snapshot(Snapshot.load(path))
    if kind == "engine":
        return _inspect_engine(Engine.load(path))
    if kind is not None:  # a saved estimator: its numbers, without arrays and states
        header = archive.read_table(path, kind)[1]
        plain = {k: v for k, v in header.items() if v != codec.ARRAY and not isinstance(v, dict)}
        return Inspection(kind, {"kind": kind, **plain})
    return _inspect_log(describe_log(path))


# ---------------------------------------------------------------------- runs


def _inspect_run(path: Path) -> Inspection:
    with read_run(path) as run:
        summary, monitor = summarise_run(run), run.monitor()
        kept, newest = run.positions, run.snapshot() if run.positions else None
        origin, title = run.origin, "newest snapshot"
    facts: dict[str, Any] = {
        "kind": NAMES[summary.state],
        "events": summary.events,
        "learned": summary.learned,
        "rejected": summary.rejected,
        "position": summary.position,
        "snapshots": len(summary.positions),
        "certificates met": sum(map(bool, summary.met)),
        "snapshots kept": kept,
        **{name: fact for name, fact in origin.items() if name not in ("kind", "columns")},
    }
    if summary.state in ("finished", "stopped"):
        facts["whole"] = summary.state == "finished"
        title = "final snapshot"
        if summary.state == "stopped" and (path / "snapshot.arrow").exists():
            newest = Snapshot.load(path / "snapshot.arrow")
    shared = {"on_bad_row": Config().on_bad_row}  # the replay has its own
    brief: dict[str, Any] = {
        "kind": None,
        "engine": _format_changed_parameters({**facts["engine"], **shared}),
    }
    hints = tuple(_list_run_hints(path, summary))
    if "whole" in facts:
        _add_tables(path, facts, brief)
    hints += _add_monitor(monitor, facts, brief)
    if newest is not None:
        tolerance = facts["engine"].get("tolerance")
        hints += _add_snapshot(title, newest, tolerance, facts, brief)
    hints += tuple(list_axes_warnings(list(summary.epochs), newest))
    return Inspection(summary.verdict, facts, hints, brief)


def _add_tables(path: Path, facts: dict[str, Any], brief: dict[str, Any]) -> None:
    """Add the rows and columns of the tables of a finished run."""
    tables = {}
    for name in run_folder.FILES:
        if name.endswith(".parquet") and (path / name).exists():
            metadata = pq.read_metadata(path / name)
            columns = list(metadata.schema.to_arrow_schema().names)
            tables[name] = {"rows": metadata.num_rows, "columns": columns}
    facts["tables"] = tables
    brief["tables"] = {
        name: f"{table['rows']:,} rows: {', '.join(abbreviate_names(table['columns']))}"
        for name, table in tables.items()
    }


def _add_snapshot(
    title: str,
    snapshot: Snapshot,
    tolerance: Any,
    facts: dict[str, Any],
    brief: dict[str, Any],
) -> tuple[str, ...]:
    """Add the last snapshot of a run; its hints name it."""
    final = _inspect_snapshot(snapshot, tolerance)
    facts[title] = final.facts
    brief[title] = {**final.facts, **(final.brief or {})}
    del brief[title]["kind"]
    return tuple(f"{title}: {hint}" for hint in final.hints)


def _add_monitor(
    monitor: Monitor | None, facts: dict[str, Any], brief: dict[str, Any]
) -> tuple[str, ...]:
    """Add the status of the monitor of a run, if it has one; its notes are hints."""
    if monitor is None:
        return ()
    facts["monitor"] = {**describe_monitor(monitor), "alarms": len(monitor.alarms)}
    brief["monitor"] = format_monitor_status(monitor)
    return monitor.notes


def _list_run_hints(path: Path, summary: RunSummary) -> Iterator[str]:
    if summary.state == "unfinished":
        yield "it is running, or was stopped: run the same command again to resume"
    if summary.state == "stopped":
        yield (
            "the log was not read to the end: it is damaged, or the replay was interrupted or "
            "stopped at a row; run the same command again to resume"
        )
    if summary.state == "finished" and summary.rejected and not summary.events:
        yield format_all_rejected(path, summary)
    elif not summary.positions:
        yield "the warm-up has not ended: there is no snapshot (see --warm-up)"
    elif summary.state == "finished" and not (path / "snapshot.arrow").exists():
        yield f"{path / 'snapshot.arrow'} is missing: run the same replay again to create it"
    if missed := summary.missed:
        last = f" to {missed[-1]:,}" if len(missed) > 1 else ""
        yield (
            f"{len(missed):,} of {len(summary.positions):,} certificates are not met, at events "
            f"{missed[0]:,}{last}: see the columns residual and outside_bound of the timeline"
        )


def _format_changed_parameters(parameters: dict[str, Any]) -> str:
    """Parameters that differ from the defaults; a file may have lists for tuples."""
    defaults = Config().as_dict()
    changed = [
        f"{name}={value!r}"
        for name, value in parameters.items()
        if (tuple(value) if isinstance(value, list) else value) != defaults.get(name)
    ]
    return f"{', '.join(changed)}; defaults otherwise" if changed else "all defaults"


# ---------------------------------------------------------------------- snapshots, engines, logs


def _inspect_snapshot(snapshot: Snapshot, tolerance: float | None = None) -> Inspection:
    n, k = snapshot.coordinates.shape
    facts: dict[str, Any] = {
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
        **_list_kernel_parameters(snapshot),
        "certificate": asdict(snapshot.certificate),
        "frame": asdict(snapshot.frame),
        "metrics": list(snapshot.metrics),
        "picture": None,
    }
    if (picture := snapshot.picture) is not None:
        facts["picture"] = {
            "neighbours kept": float(picture.kept.mean()),
            "kept when laid out": picture.kept_then,
            "age in chunks": picture.age,
            "epoch": picture.epoch,
            "radius": picture.radius,
        }
    residual, age = f"residual {snapshot.certificate.residual:.4g}", snapshot.certificate.bound_age
    residual += f", its bound {age:,} events old" if age else ""
    status = {
        True: f"certificate met, {residual}",
        False: f"certificate NOT met, {residual}",
        None: f"no tolerance, {residual} is an estimate",
    }[snapshot.certificate.met]
    verdict = (
        f"snapshot: {n:,} points in {k} coordinates after {snapshot.position:,} events; {status}"
    )
    brief = {"kind": None, "frame": describe_frame(snapshot.frame, k)}
    return Inspection(verdict, facts, diagnostics.describe_all(snapshot, tolerance), brief)


def _list_kernel_parameters(snapshot: Snapshot) -> dict[str, float]:
    """Those that the method has, as they are used."""
    names = set(METHODS[snapshot.method].options) & {
        "bandwidth",
        "width",
        "alpha",
        "diffusion_time",
    }
    names.discard("bandwidth" if snapshot.kernel == "self_tuning" else "width")
    if snapshot.kernel == "binary":
        names.discard("bandwidth")
    return {name: getattr(snapshot, name) for name in sorted(names)}


def _inspect_engine(engine: Engine) -> Inspection:
    facts = {
        "kind": "saved engine",
        "position": engine.position,
        "pending": engine.pending,
        "ready": engine.ready,
        "features": list(engine.feature_names),
        **engine.config.as_dict(),
    }
    state = "ready"
    if not engine.ready:
        missing = engine.config.warm_up_events - engine.position
        state = f"{missing:,} events before its first snapshot"
    brief: dict[str, Any] = dict.fromkeys(engine.config.as_dict())
    brief |= {"kind": None, "parameters": _format_changed_parameters(engine.config.as_dict())}
    return Inspection(f"saved engine: {engine.position:,} events, {state}", facts, (), brief)


def _inspect_log(description: LogDescription) -> Inspection:
    damages = [damage for damage in description.damages if damage]
    error = description.error
    columns = description.columns
    used = {} if columns is None else columns.as_dict()
    used = {name.replace("_", " "): fact for name, fact in used.items()}
    facts = {
        "kind": "log",
        "holds": None if error else description.kind,
        "files": [str(file) for file in description.files],
        "formats": list(description.formats),
        "rows": list(description.rows),
        "damages": damages,
        "columns": description.column_types,
        **used,
        "error": error,
    }
    counts = [count for count in description.rows if count is not None]
    rows = "an unknown number of rows"
    if len(counts) == len(description.rows):
        rows = f"{sum(counts):,} rows"
    if columns is None:
        what = f"of {format_count(len(description.column_types), 'column')}"
    else:
        n = len(columns.features)
        what = f"of {format_count(n, 'feature')}" if n else "of distances"
    files = format_count(len(description.files), "file")
    verdict = f"log: {rows} {what} in {files}" + ("; DAMAGED" if damages else "")
    hints = tuple(
        f"{damage}: rows before it can be read, replay reports where they end" for damage in damages
    )
    brief: dict[str, Any] = {"kind": None, "error": None}
    if columns is None:
        hints += (f"replay refuses the log: {error}",)
        brief["holds"] = None
    else:
        brief |= {"columns": None, "suspicious": None, "left out": columns.list_left_out()}
        if columns.suspicious:
            hints += (f"suspicious columns are left out: {LOG_REMEDY}",)
    return Inspection(verdict, facts, hints, brief)
