"""The contents of a file or folder: a verdict, facts, and hints about problems."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.cli.flag_names import name_flags
from streamembed.cli.monitor_options import describe_monitor, format_monitor_status
from streamembed.cli.summary import format_all_rejected, list_axes_warnings
from streamembed.data.column_roles import abbreviate_names
from streamembed.drift.monitor import Monitor
from streamembed.engine import diagnostics
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    MissingFileError,
    ParameterError,
    check_path,
    summarise_error,
)
from streamembed.logs.event_log import LogDescription, describe_log
from streamembed.logs.paths import is_uri
from streamembed.methods.options import Config
from streamembed.methods.registry import METHODS
from streamembed.numeric import codec
from streamembed.runs import origin, run_folder
from streamembed.runs.run_reader import read_run
from streamembed.storage import archive

# A folder with one of these is a run, not a folder of logs.
RUN_FILES = ("timeline.parquet", "run.db")


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
    if is_uri(location) or location == "-":
        return _inspect_log(describe_log(location))
    path = Path(check_path(location))
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    if path.is_dir() and (path / "run.db").exists() and not (path / "timeline.parquet").exists():
        return _inspect_stored_run(path)
    if path.is_dir() and run_folder.is_unfinished(path):
        raise ParameterError(run_folder.UNFINISHED.format(path))
    if path.is_dir() and any((path / name).exists() for name in RUN_FILES):
        return _inspect_run(path)
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


def _inspect_stored_run(path: Path) -> Inspection:
    with read_run(path) as run:
        positions = run.positions
        facts: dict[str, Any] = {
            "kind": "run that is learned into" if run.kind == "online" else "unfinished replay",
            **{key: value for key, value in run.origin.items() if key not in ("kind", "columns")},
            "snapshots kept": positions,
            "rejected": run.rejected().num_rows,
            "timeline": run.timeline().num_rows,
        }
        stored = f"{_format_count(len(positions), 'snapshot')} kept"
        where = f", committed to event {positions[-1]:,}" if positions else ", no snapshot yet"
        verdict = f"{facts['kind']}: {stored}{where}"
        hints: tuple[str, ...] = ()
        if run.kind != "online":
            hints = ("it is running, or was stopped: run the same command again to resume",)
        brief: dict[str, Any] = {
            "kind": None,
            "engine": _format_changed_parameters(dict(run.origin["engine"])),
        }
        if positions:
            hints += _add_snapshot("newest snapshot", run.snapshot(), None, facts, brief)
        hints += _add_monitor(run.monitor(), facts, brief)
    return Inspection(verdict, facts, hints, brief)


def _format_count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _inspect_run(path: Path) -> Inspection:
    try:
        timeline = pq.read_table(path / "timeline.parquet", columns=["position", "met", "epoch"])
        replay_origin = origin.from_metadata(pq.read_metadata(path / "timeline.parquet").metadata)
        # in partitions all events are learned, and none is embedded
        if replay_origin is not None and replay_origin.get("embed") == "none":
            events = learned = max(timeline["position"].to_pylist(), default=0)
            table_names = [name for name in _list_tables(path) if name != "embedding.parquet"]
        else:
            table = pq.read_table(path / "embedding.parquet", columns=["learned"])["learned"]
            events, learned = len(table), pc.sum(table).as_py() or 0
            table_names = _list_tables(path)
        tables = {name: _describe_table(path / name) for name in table_names}
    except FileNotFoundError as error:
        raise DamagedFileError(
            f"the run {path} lacks a table ({summarise_error(error)}): "
            "run the same replay again to create it"
        ) from error
    except MemoryError:  # Arrow's is an ArrowException
        raise
    except (pa.ArrowException, ValueError) as error:
        raise DamagedFileError(
            f"a table of the run {path} is damaged ({error}): replay the log again"
        ) from error
    met = timeline["met"].to_pylist()
    facts: dict[str, Any] = {
        "kind": "run",
        "events": events,
        "learned": learned,
        "rejected": tables["rejected.parquet"]["rows"],
        "snapshots": len(met),
        "certificates met": sum(map(bool, met)),
        **(replay_origin or {}),
        "tables": tables,
    }
    positions = timeline["position"].to_pylist()
    missed = [at for at, is_met in zip(positions, met, strict=True) if is_met is False]
    hints = _list_run_hints(path, facts, missed)
    brief: dict[str, Any] = {
        "kind": None,
        "tables": {
            name: f"{table['rows']:,} rows: {', '.join(abbreviate_names(table['columns']))}"
            for name, table in tables.items()
        },
    }
    if replay_origin is not None:
        shared = {"on_bad_row": Config().on_bad_row}  # the replay has its own
        brief["engine"] = _format_changed_parameters({**replay_origin["engine"], **shared})
    if (path / "run.db").exists():
        with read_run(path) as run:
            hints += _add_monitor(run.monitor(), facts, brief)
    final = None
    if (path / "snapshot.arrow").exists():
        tolerance = replay_origin["engine"].get("tolerance") if replay_origin is not None else None
        tolerance = tolerance if isinstance(tolerance, float) else None
        final = Snapshot.load(path / "snapshot.arrow")
        hints += _add_snapshot("final snapshot", final, tolerance, facts, brief)
    elif met:
        hints += (f"{path / 'snapshot.arrow'} is missing: run the same replay again to create it",)
    hints += tuple(list_axes_warnings(timeline["epoch"].to_pylist(), final))
    return Inspection(_format_run_verdict(facts, missed), facts, hints, brief)


def _add_snapshot(
    title: str,
    snapshot: Snapshot,
    tolerance: float | None,
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


def _list_tables(path: Path) -> list[str]:
    """Names of the tables of a run; a run that lacks one of the required tables is damaged."""
    always = ("embedding.parquet", "rejected.parquet", "timeline.parquet")
    names = [name for name in run_folder.FILES if name.endswith(".parquet")]
    return [name for name in names if name in always or (path / name).exists()]


def _describe_table(path: Path) -> dict[str, Any]:
    metadata = pq.read_metadata(path)
    return {"rows": metadata.num_rows, "columns": list(metadata.schema.to_arrow_schema().names)}


def _format_run_verdict(facts: dict[str, Any], missed: list[int]) -> str:
    count = facts["snapshots"]
    verdict = f"run: {facts['events']:,} events, {facts['rejected']:,} rejected; "
    if not count:
        verdict += "no snapshot"
    elif not facts["certificates met"] and not missed:
        verdict += f"{count:,} snapshots without a tolerance"
    else:
        verdict += f"{count:,} snapshots, "
        verdict += f"{len(missed):,} certificates NOT met" if missed else "all certificates met"
    return verdict + ("; the log was NOT read to the end" if facts.get("whole") is False else "")


def _list_run_hints(path: Path, facts: dict[str, Any], missed: list[int]) -> tuple[str, ...]:
    hints = []
    if facts.get("whole") is False:
        hints.append(
            "the log was not read to the end: it is damaged, or the replay was interrupted or "
            "stopped at a row; run the same command again to resume"
        )
    if facts["rejected"] and not facts["events"] and facts.get("embed") != "none":
        hints.append(format_all_rejected(path, facts["rejected"]))
    elif not facts["snapshots"]:
        hints.append("the log ended during the warm-up: there is no snapshot (see --warm-up)")
    if missed:
        last = f" to {missed[-1]:,}" if len(missed) > 1 else ""
        hints.append(
            f"{len(missed):,} of {facts['snapshots']:,} certificates are not met, at events "
            f"{missed[0]:,}{last}: see the columns residual and outside_bound of timeline.parquet"
        )
    return tuple(hints)


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
    question = description.question and name_flags(description.question)
    facts = {
        "kind": "log",
        "holds": None if question else description.kind,
        "files": [str(file) for file in description.files],
        "formats": list(description.formats),
        "rows": list(description.rows),
        "damages": damages,
        "features": list(description.feature_names),
        "list column": description.list_column,
        "reserved": list(description.reserved),
        "ignored": list(description.ignored),
        "columns": description.column_types,
        "question": question,
    }
    counts = [count for count in description.rows if count is not None]
    rows = "an unknown number of rows"
    if len(counts) == len(description.rows):
        rows = f"{sum(counts):,} rows"
    names = description.feature_names
    what = f"of {len(names):,} features" if names else "of distances"
    if question:
        what = f"of {_format_count(len(description.column_types), 'column')}"
    files = _format_count(len(description.files), "file")
    verdict = f"log: {rows} {what} in {files}" + ("; DAMAGED" if damages else "")
    hints = tuple(
        f"{damage}: rows before it can be read, replay reports where they end" for damage in damages
    )
    brief: dict[str, Any] = {"kind": None, "question": None}
    if question:
        hints += (f"replay will ask: {question}",)
        brief.update(dict.fromkeys(("holds", "features", "list column", "reserved", "ignored")))
    else:
        brief["columns"] = None
    return Inspection(verdict, facts, hints, brief)
