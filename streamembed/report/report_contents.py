"""What a page says of a run, as plain values: a function of what was committed alone."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from streamembed.engine.snapshot import Snapshot
from streamembed.errors import NotReadyError, ParameterError
from streamembed.report.drift_figures import drift_of
from streamembed.report.history import heat_maps, history_of
from streamembed.report.json_values import text
from streamembed.report.monitor_section import Monitored, monitored
from streamembed.report.scatter_plots import MOST_POINTS, Ground, cloud_of, names_of
from streamembed.runs.checkpoint_writer import PARTITIONS
from streamembed.runs.run_events import find_events, standing
from streamembed.runs.run_reader import RunReader, read_run

__all__ = ["contents_of", "read_contents"]

# Rows of a table of rejected rows, and reasons that are counted.
MOST_REJECTED, MOST_REASONS = 200, 20
STATES = {
    "finished": "finished: its log was read to the end",
    "unfinished": "unfinished: a replay is writing it, or ended early",
    "open": "open: a program learns into it",
}


def read_contents(run: str | os.PathLike[str]) -> dict[str, Any]:
    """What is to be said of a run, JSON-ready; another process may be writing it.

    Raises
    ------
    MissingFileError
        There is no run.
    DamagedFileError, FileError
        It cannot be read.
    """
    with read_run(run) as reader:
        return contents_of(reader)


def contents_of(reader: RunReader) -> dict[str, Any]:
    """The same of a run that is open, as of one moment."""
    return reader.at_once(lambda: _contents_of(reader))


def _contents_of(reader: RunReader) -> dict[str, Any]:
    if reader.kind == PARTITIONS:
        raise ParameterError(
            f"{reader.path} was learned in partitions, and holds no events to be shown: embed "
            "them with transform, or replay the log without --workers"
        )
    found = monitored(reader)
    snapshots = _kept(reader)
    ground = _ground(snapshots, found)
    ids = {key for snapshot in snapshots for key in snapshot.ids.tolist()}
    told = find_events(reader, ids)
    names = names_of(told)
    origin = reader.origin
    made = {
        "run": _run(reader, snapshots),
        "reference": _told_of(ground, found),
        "labels": [text(name) for name in names],
        "clouds": [cloud_of(one, ground, told, names) for one in snapshots],
        "history": history_of(reader.timeline(), origin.get("engine", {})),
        "metrics": heat_maps(snapshots[-1]) if snapshots else [],
        "drift": drift_of(found),
        "rejected": _rejected(reader),
        "settings": dict(_settings(origin)),
    }
    return {**made, "asked": _asked(origin, snapshots), "notes": list(_notes(made))}


def _asked(origin: Mapping[str, Any], snapshots: list[Snapshot]) -> dict[str, Any]:
    """What the engine was asked for, as far as figures hang on it."""
    engine = origin.get("engine", {})
    k = len(snapshots[-1].eigenvalues) if snapshots else int(engine.get("n_components", 2))
    return {"n_components": k, "metrics": [text(name) for name in engine.get("metrics") or ()]}


def _kept(reader: RunReader) -> list[Snapshot]:
    """The snapshots that are kept, oldest first; a writer may drop some meanwhile."""
    made = []
    for position in dict.fromkeys(reader.positions):
        try:
            made.append(reader.snapshot(position))
        except (ParameterError, NotReadyError):
            continue
    return made


def _ground(snapshots: list[Snapshot], found: Monitored | None) -> Ground | None:
    """What clouds are drawn upon: the monitor's reference, or the first support of full size."""
    if not snapshots:
        return None
    largest = max(len(one.ids) for one in snapshots)
    first = next(one for one in snapshots if 2 * len(one.ids) >= largest)
    if found is None or not _has_points(found):
        return Ground(first.points, first.ids.tolist(), first)
    held = set(found.reference.ids)
    shared = [len(held & set(one.ids.tolist())) for one in snapshots]
    nearest = snapshots[shared.index(max(shared))] if max(shared) else first
    return Ground(found.reference.points, found.reference.ids, nearest)


def _has_points(found: Monitored) -> bool:
    """Whether the monitor's reference can be drawn: of distances it has no points."""
    return 0 < len(found.reference.ids) == len(found.reference.points)


def _told_of(ground: Ground | None, found: Monitored | None) -> str:
    if ground is None:
        return ""
    if found is not None and _has_points(found):
        return f"the {len(found.reference.ids):,} events of the monitor's reference"
    return (
        f"the {len(ground.ids):,} events of the first full snapshot that is kept, at event "
        f"{ground.snapshot.position:,}"
    )


def _run(reader: RunReader, snapshots: list[Snapshot]) -> dict[str, Any]:
    """Where the run stands."""
    at = standing(reader)
    state = "finished" if reader.finished else "unfinished" if reader.kind == "replay" else "open"
    newest = snapshots[-1] if snapshots else None
    return {
        "name": text(reader.path.resolve().name),
        "kind": reader.kind,
        "state": state,
        "says": STATES[state],
        "begun": reader.begun,
        "accepted": at.accepted,
        "rejected": at.rejected,
        "position": at.position,
        "kept": [one.position for one in snapshots],
        "features": [text(name) for name in (newest.feature_names if newest else ())],
        "met": None if newest is None else newest.certificate.met,
        "residual": None if newest is None else float(f"{newest.certificate.residual:.3g}"),
        "epoch": None if newest is None else newest.frame.epoch,
    }


def _rejected(reader: RunReader) -> dict[str, Any]:
    table = reader.rejected()
    rows = table.slice(0, MOST_REJECTED).to_pylist()
    reasons = Counter(table["reason"].to_pylist())
    ranked = sorted(reasons.items(), key=lambda one: (-one[1], one[0]))
    return {
        "total": table.num_rows,
        "rows": [
            [row["offset"], "" if row["id"] is None else text(row["id"]), text(row["reason"])]
            for row in rows
        ],
        "reasons": [[text(reason), count] for reason, count in ranked[:MOST_REASONS]],
    }


def _settings(origin: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """How the run came about, a text for each parameter."""
    for name, value in sorted(origin.items()):
        if isinstance(value, Mapping):
            yield from _settings(value, f"{prefix}{name}.")
        elif isinstance(value, (list, tuple)):
            yield f"{prefix}{name}", text(", ".join(map(str, value)) or "none")
        else:
            yield f"{prefix}{name}", "none" if value is None else text(value)


def _notes(made: Mapping[str, Any]) -> Iterator[str]:
    """What is not drawn, and why."""
    for cloud in made["clouds"]:
        if (drawn := len(cloud["id"])) < cloud["points"]:
            yield (
                f"Of the {cloud['points']:,} points at event {cloud['position']:,}, {drawn:,} are "
                f"drawn, evenly chosen (at most {MOST_POINTS:,})."
            )
    history = made["history"]
    if (drawn := len(history["position"])) < history["rows"]:
        yield f"Of {history['rows']:,} snapshots {drawn:,} are drawn in the histories."
    drift = made["drift"]
    if drift is not None:
        if drift["drawn"] < drift["segments"]:
            yield (
                f"{drift['segments']:,} segments of the monitor are drawn as {drift['drawn']:,}: "
                "of neighbouring ones the highest."
            )
        if drift["unknown"]:
            yield f"{drift['unknown']:,} values of the monitor are no numbers, and not drawn."
    if (kept := len(made["rejected"]["rows"])) < made["rejected"]["total"]:
        yield f"Of {made['rejected']['total']:,} rejected rows the first {kept:,} are listed."
