"""What a file or folder holds: a verdict, facts, and hints where something is off."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from streamembed.cli.monitor_options import monitor_line
from streamembed.cli.rejected_rows import none_accepted
from streamembed.data.column_roles import folded
from streamembed.drift.monitor import Monitor
from streamembed.engine import diagnostics
from streamembed.engine.engine import Engine
from streamembed.engine.picture import Picture
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import DamagedFileError, MissingFileError, ParameterError, said
from streamembed.logs.event_log import LogDescription, describe_log
from streamembed.methods.options import Config
from streamembed.numeric import codec
from streamembed.runs import origin, run_folder
from streamembed.runs.run_reader import read_run
from streamembed.storage import archive

__all__ = ["Finding", "find"]

# What tells the folder of a run from one of logs.
RUN = ("timeline.parquet", "run.db")


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found at a path.

    Attributes
    ----------
    verdict : str
        One line: what it is, how much of it there is, whether all is well.
    facts : dict
        All of it, JSON-ready, with every digit.
    hints : tuple of str
        What is off, and what to do.
    brief : dict or None
        What people are shown instead of some facts; None of a name leaves the fact out.
    """

    verdict: str
    facts: dict[str, Any]
    hints: tuple[str, ...] = ()
    brief: dict[str, Any] | None = None


def find(path: Path) -> Finding:
    """What a log, a run folder, a snapshot or another saved file holds."""
    if not path.exists():
        raise MissingFileError(f"{path} does not exist")
    if path.is_dir() and (path / "run.db").exists() and not (path / "timeline.parquet").exists():
        return _find_stored(path)
    if path.is_dir() and run_folder.unfinished(path):
        raise ParameterError(run_folder.UNFINISHED.format(path))
    if path.is_dir() and any((path / name).exists() for name in RUN):
        return _find_run(path)
    kind = archive.kind_of(path) if path.is_file() else None
    if kind == "snapshot":
        return _find_snapshot(Snapshot.load(path))
    if kind == "engine":
        return _find_engine(Engine.load(path))
    if kind is not None:  # what an estimator saved: its numbers, without arrays and states
        header = archive.read_table(path, kind)[1]
        plain = {k: v for k, v in header.items() if v != codec.ARRAY and not isinstance(v, dict)}
        return Finding(kind, {"kind": kind, **plain})
    return _find_log(describe_log(path))


# ---------------------------------------------------------------------- runs


def _find_stored(path: Path) -> Finding:
    """What was committed to a run that is learned into, or to a replay that is not finished."""
    with read_run(path) as run:
        positions = run.positions
        facts: dict[str, Any] = {
            "kind": "run that is learned into" if run.kind == "online" else "unfinished replay",
            **{key: value for key, value in run.origin.items() if key not in ("kind", "columns")},
            "snapshots kept": positions,
            "rejected": run.rejected().num_rows,
            "timeline": run.timeline().num_rows,
        }
        kept = f"{_many(len(positions), 'snapshot')} kept"
        where = f", committed to event {positions[-1]:,}" if positions else ", no snapshot yet"
        told = f"{facts['kind']}: {kept}{where}"
        hints: tuple[str, ...] = ()
        if run.kind != "online":
            hints = ("it is still running, or was ended: the same command again goes on",)
        brief: dict[str, Any] = {"kind": None, "engine": _unusual(dict(run.origin["engine"]))}
        if positions:
            final = _find_snapshot(run.snapshot())
            facts["newest snapshot"] = final.facts
            brief["newest snapshot"] = {k: v for k, v in final.facts.items() if k != "kind"}
            hints += tuple(f"newest snapshot: {hint}" for hint in final.hints)
        hints += _add_monitor(run.monitor(), facts, brief)
    return Finding(told, facts, hints, brief)


def _many(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _find_run(path: Path) -> Finding:
    try:
        timeline = pq.read_table(path / "timeline.parquet", columns=["position", "met", "epoch"])
        made = origin.unpack(pq.read_metadata(path / "timeline.parquet").metadata)
        if made is not None and made.get("embed") == "none":  # partitions: all are learned
            events = learned = max(timeline["position"].to_pylist(), default=0)
            names = [name for name in _tables_in(path) if name != "embedding.parquet"]
        else:
            table = pq.read_table(path / "embedding.parquet", columns=["learned"])["learned"]
            events, learned, names = len(table), pc.sum(table).as_py() or 0, _tables_in(path)
        tables = {name: _describe_table(path / name) for name in names}
    except FileNotFoundError as error:
        raise DamagedFileError(
            f"the run {path} lacks a table ({said(error)}): the same replay again makes it"
        ) from error
    except MemoryError:  # Arrow's is an ArrowException
        raise
    except (pa.ArrowException, ValueError) as error:
        raise DamagedFileError(
            f"a table of the run {path} is damaged ({error}): replay the log again"
        ) from error
    met = timeline["met"].to_pylist()
    epochs = len(set(timeline["epoch"].to_pylist()))
    facts: dict[str, Any] = {
        "kind": "run",
        "events": events,
        "learned": learned,
        "rejected": tables["rejected.parquet"]["rows"],
        "snapshots": len(met),
        "certificates met": sum(map(bool, met)),
        **(made or {}),
        "tables": tables,
    }
    missed = [
        at for at, one in zip(timeline["position"].to_pylist(), met, strict=True) if one is False
    ]
    hints = _hints_of_run(path, facts, missed)
    brief: dict[str, Any] = {"kind": None, "tables": {k: _tell_table(t) for k, t in tables.items()}}
    if made is not None:
        shared = {"on_bad_row": Config().on_bad_row}  # the replay has its own
        brief["engine"] = _unusual({**made["engine"], **shared})
    if (path / "run.db").exists():
        with read_run(path) as run:
            hints += _add_monitor(run.monitor(), facts, brief)
    if (path / "snapshot.arrow").exists():
        tolerance = made["engine"].get("tolerance") if made is not None else None
        known = tolerance if isinstance(tolerance, float) else None
        final = _find_snapshot(Snapshot.load(path / "snapshot.arrow"), known)
        facts["final snapshot"] = final.facts
        brief["final snapshot"] = {k: v for k, v in final.facts.items() if k != "kind"}
        hints += tuple(f"final snapshot: {hint}" for hint in final.hints)
    elif met:
        hints += (f"{path / 'snapshot.arrow'} is missing: the same replay again makes it",)
    if diagnostics.is_restless(epochs, len(met)):
        hints += (diagnostics.restless(epochs, len(met)),)
    return Finding(_verdict_of_run(facts, missed), facts, hints, brief)


def _add_monitor(
    monitor: Monitor | None, facts: dict[str, Any], brief: dict[str, Any]
) -> tuple[str, ...]:
    """Enter what the monitor of a run has seen, if it has one; its notes are hints."""
    if monitor is None:
        return ()
    facts["monitor"] = {
        "state": monitor.state,
        "ert": monitor.ert,
        "alarms": len(monitor.alarms),
        "notes": monitor.notes,
    }
    brief["monitor"] = monitor_line(monitor)
    return monitor.notes


def _tables_in(path: Path) -> list[str]:
    """Names of the tables of a run; without those that every run has it is damaged."""
    always = ("embedding.parquet", "rejected.parquet", "timeline.parquet")
    names = [name for name in run_folder.FILES if name.endswith(".parquet")]
    return [name for name in names if name in always or (path / name).exists()]


def _describe_table(path: Path) -> dict[str, Any]:
    found = pq.read_metadata(path)
    return {"rows": found.num_rows, "columns": list(found.schema.to_arrow_schema().names)}


def _verdict_of_run(facts: dict[str, Any], missed: list[int]) -> str:
    count = facts["snapshots"]
    told = f"run: {facts['events']:,} events, {facts['rejected']:,} rejected; "
    if not count:
        told += "no snapshot"
    elif not facts["certificates met"] and not missed:
        told += f"{count:,} snapshots without a tolerance"
    else:
        told += f"{count:,} snapshots, "
        told += f"{len(missed):,} certificates NOT met" if missed else "all certificates met"
    return told + ("; the log was NOT read to its end" if facts.get("whole") is False else "")


def _hints_of_run(path: Path, facts: dict[str, Any], missed: list[int]) -> tuple[str, ...]:
    hints = []
    if facts.get("whole") is False:
        hints.append(
            "the log was not read to its end: it is damaged, or the replay was interrupted or "
            "stopped at a row; the same command again goes on"
        )
    if facts["rejected"] and not facts["events"] and facts.get("embed") != "none":
        hints.append(none_accepted(path, facts["rejected"]))
    elif not facts["snapshots"]:
        hints.append("the log ended before the warm-up: there is no snapshot (see --warm-up)")
    if missed:
        last = f" to {missed[-1]:,}" if len(missed) > 1 else ""
        hints.append(
            f"{len(missed):,} of {facts['snapshots']:,} certificates are not met, at events "
            f"{missed[0]:,}{last}: see the columns residual and outside_bound of timeline.parquet"
        )
    return tuple(hints)


def _tell_table(table: dict[str, Any]) -> str:
    return f"{table['rows']:,} rows: {', '.join(folded(table['columns']))}"


def _unusual(parameters: dict[str, Any]) -> str:
    """Parameters that are not the defaults; tuples may have become lists in a file."""
    usual = Config().as_dict()
    told = [
        f"{name}={value!r}"
        for name, value in parameters.items()
        if (tuple(value) if isinstance(value, list) else value) != usual.get(name)
    ]
    return f"{', '.join(told)}; defaults otherwise" if told else "all defaults"


# ---------------------------------------------------------------------- snapshots, engines, logs


def _find_snapshot(snapshot: Snapshot, tolerance: float | None = None) -> Finding:
    n, k = snapshot.coordinates.shape
    facts = {
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
        "picture": None if snapshot.picture is None else _describe_picture(snapshot.picture),
    }
    residual = f"residual {snapshot.certificate.residual:.4g}"
    verdict = (
        f"snapshot: {n:,} points in {k} coordinates after {snapshot.position:,} events; "
        + {
            True: f"certificate met, {residual}",
            False: f"certificate NOT met, {residual}",
            None: f"no tolerance, {residual} is an estimate",
        }[snapshot.certificate.met]
    )
    return Finding(verdict, facts, diagnostics.hints(snapshot, tolerance), {"kind": None})


def _describe_picture(picture: Picture) -> dict[str, Any]:
    return {
        "neighbours kept": float(picture.kept.mean()),
        "kept when laid out": picture.kept_then,
        "age in chunks": picture.age,
        "epoch": picture.epoch,
        "radius": picture.radius,
    }


def _find_engine(engine: Engine) -> Finding:
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
    brief |= {"kind": None, "parameters": _unusual(engine.config.as_dict())}
    return Finding(f"saved engine: {engine.position:,} events, {state}", facts, (), brief)


def _find_log(found: LogDescription) -> Finding:
    damages = [damage for damage in found.damages if damage]
    facts = {
        "kind": "log",
        "holds": found.kind,
        "files": [str(file) for file in found.files],
        "formats": list(found.formats),
        "rows": list(found.rows),
        "damages": damages,
        "features": list(found.feature_names),
        "list column": found.list_column,
        "reserved": list(found.reserved),
        "ignored": list(found.ignored),
    }
    counts = [rows for rows in found.rows if rows is not None]
    rows = (
        f"{sum(counts):,} rows" if len(counts) == len(found.rows) else "an unknown number of rows"
    )
    files = "1 file" if len(found.files) == 1 else f"{len(found.files):,} files"
    what = f"of {len(found.feature_names):,} features" if found.feature_names else "of distances"
    verdict = f"log: {rows} {what} in {files}" + ("; DAMAGED" if damages else "")
    hints = tuple(
        f"{damage}: what comes before is read, replay says where it ends" for damage in damages
    )
    return Finding(verdict, facts, hints, {"kind": None})
