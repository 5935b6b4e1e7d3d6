"""The drift monitor's findings as a page draws them: run lengths on a log axis, alarms in words."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Array, Floats
from streamembed.report.json_values import number, numbers, text
from streamembed.report.monitor_section import CHANNELS, Monitored

__all__ = ["drift_of"]

# Segments a channel that are drawn: of more, the highest of each stretch of them.
MOST_SEGMENTS = 1_000
# Powers of ten above the run length asked for; what is higher is drawn at the top.
ABOVE = 8.0
LOUDEST = 10


def drift_of(found: Monitored | None) -> dict[str, Any] | None:
    """JSON-ready; None where nothing is monitored."""
    if found is None:
        return None
    table = found.timeline
    positions = table["position"].to_numpy().astype(np.int64)
    top = float(np.log10(found.ert)) + ABOVE if np.isfinite(found.ert) else 12.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        heights = np.log10(table["run_length"].to_numpy().astype(np.float64))
    known = ~np.isnan(heights)
    heights = np.clip(heights, 0.0, top)
    kinds = np.array(table["channel"].to_pylist(), dtype=object)
    memories = table["memory"].fill_null(0).to_numpy().astype(np.int64)
    states = np.array(table["state"].to_pylist(), dtype=object)
    edges = np.unique(positions)
    bins = np.searchsorted(edges, positions) * min(MOST_SEGMENTS, len(edges)) // max(len(edges), 1)
    stretches = _stretches(positions, states)
    if found.state != "watching" and found.position > (edges[-1] if len(edges) else 0):
        start = int(edges[-1]) if len(edges) else 0
        stretches.append({"start": start, "end": found.position, "state": found.state})
    channels = {}
    for channel in [*CHANNELS, *sorted(set(kinds.tolist()) - {*CHANNELS})]:
        rows = np.flatnonzero((kinds == channel) & known)
        if len(rows):
            best = _highest(rows, bins, heights)
            breaks = np.array([stretch["end"] for stretch in stretches], dtype=np.int64)
            x = np.append(positions[best], breaks)
            order = np.argsort(x, kind="stable")
            # a line does not go on where nothing was watched
            channels[channel] = {
                "x": x[order].tolist(),
                "y": numbers(np.append(heights[best], np.full(len(breaks), np.nan))[order]),
                "memory": np.append(memories[best], np.zeros_like(breaks))[order].tolist(),
            }
    return {
        "ert": number(found.ert),
        "asked": f"{found.ert:,.0f}" if np.isfinite(found.ert) else "ever",
        "state": found.state,
        "null": number(min(np.log10(found.ert), top)),
        "threshold": number(min(np.log10(found.threshold), top)),
        "top": number(top),
        "segments": len(edges),
        "drawn": min(MOST_SEGMENTS, len(edges)),
        "unknown": int((~known & (states == "watching")).sum()),
        "channels": channels,
        "stretches": stretches,
        "alarms": [_alarm(alarm, top) for alarm in found.alarms],
        "calibration": _calibration(found),
        "components": _components(found),
        "notes": [" ".join(note.split()) for note in found.notes],
    }


def _highest(rows: Array, bins: Array, heights: Floats) -> Array:
    """Of each stretch of segments the row with the highest value, in order."""
    order = rows[np.lexsort((heights[rows], bins[rows]))]
    is_last = np.append(np.diff(bins[order]) != 0, True)
    best: Array = order[is_last]
    return best


def _stretches(positions: Array, states: Array) -> list[dict[str, Any]]:
    """Where the monitor did not watch: from the end of the segment before."""
    made: list[dict[str, Any]] = []
    edges, first = np.unique(positions, return_index=True)
    before = 0
    for position, state in zip(edges.tolist(), states[first].tolist(), strict=True):
        if state != "watching":
            if made and made[-1]["state"] == state and made[-1]["end"] == before:
                made[-1]["end"] = position
            else:
                made.append({"start": before, "end": position, "state": state})
        before = position
    return made


def _alarm(alarm: Alarm, top: float) -> dict[str, Any]:
    height = np.log10(alarm.run_length) if alarm.run_length > 0 else 0.0
    return {
        "position": int(alarm.position),
        "onset": int(alarm.onset),
        "channel": text(alarm.channel),
        "memory": int(alarm.memory),
        "run_length": number(alarm.run_length),
        "height": number(np.clip(height, 0.0, top)),
        "sentence": " ".join(str(alarm.sentence).split()),
        "components": [[text(name), number(share)] for name, share in alarm.components],
        "features": [[text(name), number(size), number(p)] for name, size, p in alarm.features],
        "events": [
            [text(key), int(position), number(size)]
            for key, position, size in alarm.events[:LOUDEST]
        ],
    }


def _calibration(found: Monitored) -> dict[str, Any]:
    told = {text(k): number(v) for k, v in found.calibration.items() if k != "run_lengths"}
    lengths = np.asarray(found.calibration.get("run_lengths", ()), dtype=np.float64)
    return {"facts": told, "run_lengths": numbers(np.sort(lengths))}


def _components(found: Monitored) -> list[dict[str, Any]]:
    """Rows of the table of components and features, the largest share first."""
    if found.components is None:
        return []
    rows = found.components.to_pylist()
    rows.sort(key=lambda row: -(row.get("share") or 0.0))
    return [
        {k: text(v) if isinstance(v, str) else number(v) for k, v in row.items()} for row in rows
    ]
