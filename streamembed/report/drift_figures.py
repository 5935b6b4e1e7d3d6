"""The results of the drift monitor for a page: run lengths on a log axis, alarms as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.drift.alarm import Alarm
from streamembed.numeric.arrays import Array, Floats
from streamembed.report.json_values import round_number, round_numbers, shorten_text
from streamembed.report.monitor_section import CHANNELS, MonitorSection

# Segments drawn per channel; of more, the highest of each group of neighbours.
MOST_SEGMENTS = 1_000
# Powers of ten above the requested run length; higher values are drawn at the top.
DECADES_ABOVE = 8.0
MOST_EVENTS = 10


def describe_drift(section: MonitorSection | None) -> dict[str, Any] | None:
    """Describe the timeline and the alarms, JSON-ready; None without a monitor."""
    if section is None:
        return None
    table = section.timeline
    positions = table["position"].to_numpy().astype(np.int64)
    top = float(np.log10(section.ert)) + DECADES_ABOVE if np.isfinite(section.ert) else 12.0
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        heights = np.log10(table["run_length"].to_numpy().astype(np.float64))
    is_known = ~np.isnan(heights)
    heights = np.clip(heights, 0.0, top)
    channel_names = np.array(table["channel"].to_pylist(), dtype=object)
    memories = table["memory"].fill_null(0).to_numpy().astype(np.int64)
    states = np.array(table["state"].to_pylist(), dtype=object)
    edges = np.unique(positions)
    bins = np.searchsorted(edges, positions) * min(MOST_SEGMENTS, len(edges)) // max(len(edges), 1)
    intervals = _find_unwatched_intervals(positions, states)
    if section.state != "watching" and section.position > (edges[-1] if len(edges) else 0):
        start = int(edges[-1]) if len(edges) else 0
        intervals.append({"start": start, "end": section.position, "state": section.state})
    channels = {}
    for channel in [*CHANNELS, *sorted(set(channel_names.tolist()) - {*CHANNELS})]:
        rows = np.flatnonzero((channel_names == channel) & is_known)
        if len(rows):
            highest = _select_highest(rows, bins, heights)
            gaps = np.array([interval["end"] for interval in intervals], dtype=np.int64)
            x = np.append(positions[highest], gaps)
            order = np.argsort(x, kind="stable")
            # a line is interrupted where the monitor did not watch
            channels[channel] = {
                "x": x[order].tolist(),
                "y": round_numbers(np.append(heights[highest], np.full(len(gaps), np.nan))[order]),
                "memory": np.append(memories[highest], np.zeros_like(gaps))[order].tolist(),
            }
    return {
        "ert": round_number(section.ert),
        "asked": f"{section.ert:,.0f}" if np.isfinite(section.ert) else "ever",
        "state": section.state,
        "null": round_number(min(np.log10(section.ert), top)),
        "threshold": round_number(min(np.log10(section.threshold), top)),
        "top": round_number(top),
        "segments": len(edges),
        "drawn": min(MOST_SEGMENTS, len(edges)),
        "unknown": int((~is_known & (states == "watching")).sum()),
        "channels": channels,
        "unwatched": intervals,
        "alarms": [_describe_alarm(alarm, top) for alarm in section.alarms],
        "calibration": _describe_calibration(section),
        "components": _describe_components(section),
        "notes": [" ".join(note.split()) for note in section.notes],
    }


def _select_highest(rows: Array, bins: Array, heights: Floats) -> Array:
    """The row with the highest value of each group of segments, in order."""
    order = rows[np.lexsort((heights[rows], bins[rows]))]
    is_last = np.append(np.diff(bins[order]) != 0, True)
    highest: Array = order[is_last]
    return highest


def _find_unwatched_intervals(positions: Array, states: Array) -> list[dict[str, Any]]:
    """Intervals in which the monitor did not watch, each from the end of the segment before."""
    intervals: list[dict[str, Any]] = []
    edges, first = np.unique(positions, return_index=True)
    previous = 0
    for position, state in zip(edges.tolist(), states[first].tolist(), strict=True):
        if state != "watching":
            if intervals and intervals[-1]["state"] == state and intervals[-1]["end"] == previous:
                intervals[-1]["end"] = position
            else:
                intervals.append({"start": previous, "end": position, "state": state})
        previous = position
    return intervals


def _describe_alarm(alarm: Alarm, top: float) -> dict[str, Any]:
    height = np.log10(alarm.run_length) if alarm.run_length > 0 else 0.0
    return {
        "position": int(alarm.position),
        "onset": int(alarm.onset),
        "channel": shorten_text(alarm.channel),
        "memory": int(alarm.memory),
        "run_length": round_number(alarm.run_length),
        "height": round_number(np.clip(height, 0.0, top)),
        "sentence": " ".join(str(alarm.sentence).split()),
        "components": [
            [shorten_text(name), round_number(share)] for name, share in alarm.components
        ],
        "features": [
            [shorten_text(name), round_number(size), round_number(p)]
            for name, size, p in alarm.features
        ],
        "events": [
            [shorten_text(key), int(position), round_number(size)]
            for key, position, size in alarm.events[:MOST_EVENTS]
        ],
    }


def _describe_calibration(section: MonitorSection) -> dict[str, Any]:
    facts = {
        shorten_text(k): round_number(v)
        for k, v in section.calibration.items()
        if k != "run_lengths"
    }
    lengths = np.asarray(section.calibration.get("run_lengths", ()), dtype=np.float64)
    return {"facts": facts, "run_lengths": round_numbers(np.sort(lengths))}


def _describe_components(section: MonitorSection) -> list[dict[str, Any]]:
    """Rows of the table of components and features, the largest share first."""
    if section.components is None:
        return []
    rows = section.components.to_pylist()
    rows.sort(key=lambda row: -(row.get("share") or 0.0))
    return [
        {k: shorten_text(v) if isinstance(v, str) else round_number(v) for k, v in row.items()}
        for row in rows
    ]
