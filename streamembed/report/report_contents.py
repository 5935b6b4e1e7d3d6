"""The contents of a page as plain values: a function of the commits of the run only."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from streamembed.engine.snapshot import Snapshot
from streamembed.errors import NotReadyError, ParameterError
from streamembed.report.drift_figures import describe_drift
from streamembed.report.history import describe_history, describe_metrics
from streamembed.report.json_values import shorten_text
from streamembed.report.monitor_section import MonitorSection, read_monitor_section
from streamembed.report.scatter_plots import (
    MOST_POINTS,
    ScatterReference,
    describe_scatter_plot,
    select_labels,
)
from streamembed.runs.checkpoint_writer import PARTITIONS
from streamembed.runs.run_events import find_events, read_progress
from streamembed.runs.run_reader import RunReader, read_run

# Rows and reasons in the tables of rejected rows.
MOST_REJECTED, MOST_REASONS = 200, 20
STATE_DESCRIPTIONS = {
    "finished": "finished: its log was read to the end",
    "unfinished": "unfinished: a replay is writing it, or ended early",
    "open": "open: a program can add events",
}


def read_contents(run: str | os.PathLike[str]) -> dict[str, Any]:
    """Read the contents of a page, JSON-ready; another process may write to the run.

    Raises
    ------
    MissingFileError
        There is no run.
    DamagedFileError, FileError
        It cannot be read.
    """
    with read_run(run) as reader:
        return collect_contents(reader)


def collect_contents(reader: RunReader) -> dict[str, Any]:
    """Collect the contents from an open reader, all as of the same commit."""
    return reader.at_once(lambda: _collect_contents(reader))


def _collect_contents(reader: RunReader) -> dict[str, Any]:
    if reader.kind == PARTITIONS:
        raise ParameterError(
            f"{reader.path} was learned in partitions, and contains no events to show: embed "
            "them with transform, or replay the log without --workers"
        )
    monitor = read_monitor_section(reader)
    snapshots = _load_snapshots(reader)
    reference = _choose_reference(snapshots, monitor)
    ids = {key for snapshot in snapshots for key in snapshot.ids.tolist()}
    events = find_events(reader, ids)
    labels = select_labels(events)
    origin = reader.origin
    contents = {
        "run": _describe_run(reader, snapshots),
        "reference": _describe_reference(reference, monitor),
        "labels": [shorten_text(name) for name in labels],
        "scatter_plots": [
            describe_scatter_plot(snapshot, reference, events, labels) for snapshot in snapshots
        ],
        "history": describe_history(reader.timeline(), origin.get("engine", {})),
        "metrics": describe_metrics(snapshots[-1]) if snapshots else [],
        "drift": describe_drift(monitor),
        "rejected": _describe_rejected(reader),
        "settings": dict(_list_settings(origin)),
    }
    return {
        **contents,
        "asked": _describe_engine(origin, snapshots),
        "notes": list(_list_notes(contents)),
    }


def _describe_engine(origin: Mapping[str, Any], snapshots: list[Snapshot]) -> dict[str, Any]:
    """The parameters of the engine that figures depend on."""
    engine = origin.get("engine", {})
    k = len(snapshots[-1].eigenvalues) if snapshots else int(engine.get("n_components", 2))
    return {
        "n_components": k,
        "metrics": [shorten_text(name) for name in engine.get("metrics") or ()],
    }


def _load_snapshots(reader: RunReader) -> list[Snapshot]:
    """Load the stored snapshots, oldest first; a writer may drop some meanwhile."""
    snapshots = []
    for position in dict.fromkeys(reader.positions):
        try:
            snapshots.append(reader.snapshot(position))
        except (ParameterError, NotReadyError):
            continue
    return snapshots


def _choose_reference(
    snapshots: list[Snapshot], monitor: MonitorSection | None
) -> ScatterReference | None:
    """The reference of scatter plots: the monitor's, or the first support of full size."""
    if not snapshots:
        return None
    largest = max(len(snapshot.ids) for snapshot in snapshots)
    first = next(snapshot for snapshot in snapshots if 2 * len(snapshot.ids) >= largest)
    if monitor is None or not _has_points(monitor):
        return ScatterReference(first.points, first.ids.tolist(), first)
    reference_ids = set(monitor.reference.ids)
    shared = [len(reference_ids & set(snapshot.ids.tolist())) for snapshot in snapshots]
    nearest = snapshots[shared.index(max(shared))] if max(shared) else first
    return ScatterReference(monitor.reference.points, monitor.reference.ids, nearest)


def _has_points(monitor: MonitorSection) -> bool:
    """Whether the monitor's reference can be drawn: with distances it has no points."""
    return 0 < len(monitor.reference.ids) == len(monitor.reference.points)


def _describe_reference(reference: ScatterReference | None, monitor: MonitorSection | None) -> str:
    if reference is None:
        return ""
    if monitor is not None and _has_points(monitor):
        return f"the {len(monitor.reference.ids):,} events of the monitor's reference"
    return (
        f"the {len(reference.ids):,} events of the first full stored snapshot, at event "
        f"{reference.snapshot.position:,}"
    )


def _describe_run(reader: RunReader, snapshots: list[Snapshot]) -> dict[str, Any]:
    """Describe the progress of the run."""
    progress = read_progress(reader)
    state = "finished" if reader.finished else "unfinished" if reader.kind == "replay" else "open"
    newest = snapshots[-1] if snapshots else None
    return {
        "name": shorten_text(reader.path.resolve().name),
        "kind": reader.kind,
        "state": state,
        "description": STATE_DESCRIPTIONS[state],
        "begun": reader.begun,
        "accepted": progress.accepted,
        "rejected": progress.rejected,
        "position": progress.position,
        "kept": [snapshot.position for snapshot in snapshots],
        "features": [shorten_text(name) for name in (newest.feature_names if newest else ())],
        "met": None if newest is None else newest.certificate.met,
        "residual": None if newest is None else float(f"{newest.certificate.residual:.3g}"),
        "epoch": None if newest is None else newest.frame.epoch,
    }


def _describe_rejected(reader: RunReader) -> dict[str, Any]:
    table = reader.rejected()
    rows = table.slice(0, MOST_REJECTED).to_pylist()
    reasons = Counter(table["reason"].to_pylist())
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    return {
        "total": table.num_rows,
        "rows": [
            [
                row["offset"],
                "" if row["id"] is None else shorten_text(row["id"]),
                shorten_text(row["reason"]),
            ]
            for row in rows
        ],
        "reasons": [[shorten_text(reason), count] for reason, count in ranked[:MOST_REASONS]],
    }


def _list_settings(origin: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """List the parameters of the run as text."""
    for name, value in sorted(origin.items()):
        if isinstance(value, Mapping):
            yield from _list_settings(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", shorten_text(", ".join(map(str, value)) or "none")
        else:
            yield f"{prefix}{name}", "none" if value is None else shorten_text(value)


def _list_notes(contents: Mapping[str, Any]) -> Iterator[str]:
    """List what is not drawn, and why."""
    for plot in contents["scatter_plots"]:
        if (drawn := len(plot["id"])) < plot["points"]:
            yield (
                f"Of the {plot['points']:,} points at event {plot['position']:,}, {drawn:,} are "
                f"drawn, evenly spaced (at most {MOST_POINTS:,})."
            )
    history = contents["history"]
    if (drawn := len(history["position"])) < history["rows"]:
        yield f"Of {history['rows']:,} snapshots {drawn:,} are drawn in the histories."
    drift = contents["drift"]
    if drift is not None:
        if drift["drawn"] < drift["segments"]:
            yield (
                f"{drift['segments']:,} segments of the monitor are drawn as {drift['drawn']:,}: "
                "of neighbouring ones the highest."
            )
        if drift["unknown"]:
            yield f"{drift['unknown']:,} values of the monitor are not numbers, and are not drawn."
    if (listed := len(contents["rejected"]["rows"])) < contents["rejected"]["total"]:
        yield f"Of {contents['rejected']['total']:,} rejected rows the first {listed:,} are listed."
