"""The results of the drift monitor for a page: run lengths on a log axis, alarms as text."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.drift.monitor_timeline import ALL_CHANNELS
from streamembed.numeric.arrays import Array, Floats
from streamembed.report.json_values import round_number, round_numbers, shorten_text

# Segments drawn per channel; of more, the highest of each group of neighbours.
MOST_SEGMENTS = 1_000
# Powers of ten above the requested run length; higher values are drawn at the top.
DECADES_ABOVE = 8.0
MOST_EVENTS = 10
LARGEST_P = 0.05  # of features in the table of an alarm
# What is named of vectors, whose features mean nothing one by one.
OF_EVENTS = ("region", "new region", "repeated event", "encoder")


def describe_drift(monitor: Monitor | None) -> dict[str, Any] | None:
    """Describe the timeline and the alarms, JSON-ready; None without a monitor."""
    if monitor is None:
        return None
    has_reference = monitor.state != "collecting"
    threshold = monitor.threshold if has_reference else monitor.ert
    table = monitor.timeline()
    table = table.filter(table["kind"].is_null())
    positions = table["position"].to_numpy().astype(np.int64)
    top = float(np.log10(monitor.ert)) + DECADES_ABOVE if np.isfinite(monitor.ert) else 12.0
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
    if monitor.state != "watching" and monitor.position > (edges[-1] if len(edges) else 0):
        start = int(edges[-1]) if len(edges) else 0
        intervals.append({"start": start, "end": monitor.position, "state": monitor.state})
    channels = {}
    for channel in [*ALL_CHANNELS, *sorted(set(channel_names.tolist()) - {*ALL_CHANNELS})]:
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
        "ert": round_number(monitor.ert),
        "asked": f"{monitor.ert:,.0f}" if np.isfinite(monitor.ert) else "ever",
        "state": monitor.state,
        "null": round_number(min(np.log10(monitor.ert), top)),
        "threshold": round_number(min(np.log10(threshold), top)),
        "top": round_number(top),
        "segments": len(edges),
        "drawn": min(MOST_SEGMENTS, len(edges)),
        "unknown": int((~is_known & (states == "watching")).sum()),
        "channels": channels,
        "unwatched": intervals,
        "alarms": [_describe_alarm(alarm, top) for alarm in monitor.alarms],
        "calibration": _describe_calibration(monitor.calibration if has_reference else {}),
        "records": [
            {
                "kind": record.kind,
                "position": int(record.position),
                "sentence": " ".join(record.sentence.split()),
            }
            for record in monitor.records
            if record.kind not in ("alarm", "explained")
        ],
        "notes": [" ".join(note.split()) for note in monitor.notes],
    }


def _select_highest(rows: Array, bins: Array, heights: Floats) -> Array:
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
    explanation = alarm.explanation
    is_of_events = explanation is not None and explanation.kind in OF_EVENTS
    return {
        "position": int(alarm.position),
        "onset": int(alarm.onset),
        "channel": shorten_text(alarm.channel),
        "memory": int(alarm.memory),
        "run_length": round_number(alarm.run_length),
        "height": round_number(np.clip(height, 0.0, top)),
        "sentence": " ".join(str(alarm.sentence).split()),
        "features": [
            [shorten_text(name), round_number(size), round_number(p)]
            for name, size, p in alarm.features
            if p < LARGEST_P and not is_of_events
        ],
        "members": [shorten_text(key) for key in explanation.members] if explanation else [],
        "exemplars": [shorten_text(key) for key in explanation.exemplars] if explanation else [],
        "events": [
            [shorten_text(key), int(position), round_number(size)]
            for key, position, size in alarm.events[:MOST_EVENTS]
        ],
    }


def _describe_calibration(calibration: dict[str, Any]) -> dict[str, Any]:
    facts = {k: round_number(v) for k, v in calibration.items() if k != "run_lengths"}
    lengths = np.asarray(calibration.get("run_lengths", ()), dtype=np.float64)
    return {"facts": facts, "run_lengths": round_numbers(np.sort(lengths))}
