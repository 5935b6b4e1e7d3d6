"""The contents of a page as plain values: a function of the commits of the run only."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from streamembed.drift.monitor import Monitor
from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.engine.snapshot import Snapshot
from streamembed.report.drift_figures import describe_drift
from streamembed.report.history import describe_history, describe_metrics
from streamembed.report.json_values import shorten_text
from streamembed.report.scatter_plots import (
    MOST_POINTS,
    ScatterReference,
    describe_scatter_plot,
    select_labels,
)
from streamembed.runs import chains
from streamembed.runs.run_reader import EventMetadata, RunReader, read_run
from streamembed.runs.summary import describe_run

# Characters of a kept column that are shown.
LONGEST_KEPT = 200
# Events of clusters that are listed, the newest.
MOST_CLUSTER_EVENTS = 20
# Rows and reasons in the tables of rejected rows.
MOST_REJECTED, MOST_REASONS = 200, 20


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
    return reader.read_at_one_moment(lambda: _collect_contents(reader))


def _collect_contents(reader: RunReader) -> dict[str, Any]:
    facts, monitor = describe_run(reader), reader.monitor()
    snapshots = [reader.snapshot(position) for position in dict.fromkeys(reader.positions)]
    reference = _choose_reference(snapshots, monitor)
    alarms = () if monitor is None else monitor.alarms
    ids = {key for snapshot in snapshots for key in snapshot.ids.tolist()}
    ids |= {event[0] for alarm in alarms for event in alarm.events}
    ids |= {key for alarm in alarms if alarm.explanation for key in alarm.explanation.members}
    clusters = _list_clusters(reader)
    ids |= {key for row in clusters for key in row["exemplars"]}
    events = reader.find_events(ids)
    labels, n_labels = select_labels(events)
    drift = describe_drift(monitor)
    origin = reader.origin
    contents = {
        "run": _describe_run(reader, facts, snapshots),
        "reference": _describe_reference(reference, monitor),
        "labels": [shorten_text(name) for name in labels],
        "n_labels": n_labels,
        "scatter_plots": [
            describe_scatter_plot(snapshot, reference, events, labels) for snapshot in snapshots
        ],
        "history": describe_history(reader.timeline(), origin.get("engine", {})),
        "metrics": describe_metrics(snapshots[-1]) if snapshots else [],
        "drift": drift,
        "groups": _describe_groups(clusters),
        "kept": _describe_kept(reader.kept_columns, events),
        "rejected": _describe_rejected(reader, facts["reasons"]),
        "settings": dict(_list_settings(origin)),
    }
    notes, figures = list(_list_notes(contents)), _describe_figures(origin, snapshots, drift)
    figures["kept"] = bool(reader.kept_columns)
    return {**contents, "figures": figures, "notes": notes}


def _describe_figures(
    origin: Mapping[str, Any], snapshots: list[Snapshot], drift: Mapping[str, Any] | None
) -> dict[str, Any]:
    """What the figures of the run depend on, beside their data."""
    engine = origin.get("engine", {})
    k = len(snapshots[-1].eigenvalues) if snapshots else int(engine.get("n_components", 2))
    channels = () if drift is None else drift["channels"]
    return {
        "eigenvalues": k,
        "metrics": [shorten_text(name) for name in engine.get("metrics") or ()],
        "channels": [channel for channel in channels if channel not in ALL_CHANNELS],
    }


def _choose_reference(
    snapshots: list[Snapshot], monitor: Monitor | None
) -> ScatterReference | None:
    """The reference of scatter plots: the monitor's, or the first support of full size."""
    if not snapshots or (len(snapshots) == 1 and not _has_reference(monitor)):
        return None  # nothing that it could be compared with
    largest = max(len(snapshot.ids) for snapshot in snapshots)
    first = next(snapshot for snapshot in snapshots if 2 * len(snapshot.ids) >= largest)
    if not _has_reference(monitor):
        return ScatterReference(first.points, first.ids.tolist(), first)
    points, ids = monitor.reference[0], monitor.reference[1].tolist()
    shared = [len(set(ids) & set(snapshot.ids.tolist())) for snapshot in snapshots]
    nearest = snapshots[shared.index(max(shared))] if max(shared) else first
    return ScatterReference(points, ids, nearest)


def _has_reference(monitor: Monitor | None) -> TypeGuard[Monitor]:
    return monitor is not None and monitor.state != "collecting"


def _describe_reference(reference: ScatterReference | None, monitor: Monitor | None) -> str:
    if reference is None:
        return ""
    if _has_reference(monitor):
        return f"the {len(reference.ids):,} events of the monitor's reference"
    return (
        f"the {len(reference.ids):,} events of the first full stored snapshot, at event "
        f"{reference.snapshot.position:,}"
    )


def _describe_run(
    reader: RunReader, facts: Mapping[str, Any], snapshots: list[Snapshot]
) -> dict[str, Any]:
    newest = snapshots[-1] if snapshots else None
    return {
        "name": shorten_text(reader.path.resolve().name),
        "kind": reader.kind,
        "state": facts["state"],
        "description": facts["verdict"],
        "begun": reader.begun,
        "accepted": facts["events"],
        "rejected": facts["rejected"],
        "position": facts["position"],
        "kept": [snapshot.position for snapshot in snapshots],
        "met": None if newest is None else newest.certificate.met,
        "residual": None if newest is None else float(f"{newest.certificate.residual:.3g}"),
    }


def _describe_rejected(reader: RunReader, reasons: Mapping[str, int]) -> dict[str, Any]:
    table = reader.rejected()
    rows = table.slice(0, MOST_REJECTED).to_pylist()
    return {
        "total": table.num_rows,
        "rows": [
            [
                row["offset"],
                "" if row.get("id") is None else shorten_text(row["id"]),
                shorten_text(row["reason"]),
            ]
            for row in rows
        ],
        "reasons": [[shorten_text(key), count] for key, count in reasons.items()][:MOST_REASONS],
    }


def _list_clusters(reader: RunReader) -> list[dict[str, Any]]:
    """Rows of the table of clusters: those of the last picture, and all with an event."""
    table = reader.table("clusters")
    rows = [] if table is None else table.to_pylist()
    return [row for row in rows if row["members"] is not None or row["event"] is not None]


def _describe_groups(clusters: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Groups of the last picture with typical events; and which began and ended when."""
    groups = [row for row in clusters if row["members"]]
    of = {shorten_text(key): row["cluster"] for row in groups for key in row["members"]}
    events = [row for row in clusters if row["event"] is not None][-MOST_CLUSTER_EVENTS:]
    return {
        "position": groups[0]["position"] if groups else 0,
        "rows": [
            [row["cluster"], row["size"], [shorten_text(key) for key in row["exemplars"]]]
            for row in groups
        ],
        "of": of,
        "events": [
            [row["position"], row["cluster"], row["event"], row["other"], row["size"]]
            for row in reversed(events)
        ],
    }


def _describe_kept(columns: Sequence[str], events: Mapping[Any, EventMetadata]) -> dict[str, Any]:
    """The columns that the run kept beside its events, shortened, by the id of the event."""
    texts = {
        shorten_text(key): [shorten_text(event.kept[name] or "", LONGEST_KEPT) for name in columns]
        for key, event in events.items()
    }
    return {"columns": list(columns), "events": texts if columns else {}}


def _list_settings(origin: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in sorted(origin.items()):
        if isinstance(value, Mapping):
            yield from _list_settings(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", shorten_text(", ".join(map(str, value)) or "none")
        else:
            yield f"{prefix}{name}", "none" if value is None else shorten_text(value)


def _list_notes(contents: Mapping[str, Any]) -> Iterator[str]:
    """List what is not drawn, and why."""
    if contents["run"]["kind"] == chains.PARTITIONS:
        yield (
            "The log was learned in partitions: the points are the landmarks of all of them; "
            "positions and labels are not kept."
        )
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
