"""Scatter plots of stored snapshots, with the reference in the background."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamembed.data.batch import Batch
from streamembed.data.output_format import name_columns
from streamembed.engine.axis_messages import describe_frame
from streamembed.engine.drawing import find_untrusted
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import StreamembedError
from streamembed.numeric.arrays import Floats
from streamembed.report.json_values import round_number, round_numbers, select_evenly, shorten_text
from streamembed.runs.run_reader import EventMetadata

# Points drawn per plot, and points of the reference behind them.
MOST_POINTS, MOST_REFERENCE_POINTS = 5_000, 500
# Labels with their own colour and shape.
MOST_LABELS = 40
# Coverage below which the support contains nothing similar.
OFF_SUPPORT = 0.05
# The second axis where there is one coordinate alone.
MASS_RANK = "rank by stationary mass"


@dataclass(frozen=True, slots=True, eq=False)
class ScatterReference:
    """The reference of scatter plots."""

    points: Floats  # (n, d): in the caller's units; (n, 0) where only distances are known
    ids: Sequence[Any]
    # The stored snapshot nearest to it; its support decides which points are off the reference.
    snapshot: Snapshot


def select_labels(events: Mapping[Any, EventMetadata]) -> tuple[list[str], int]:
    """The labels shown by name, the most frequent ones, whole numbers by size; and how many
    there are.
    """
    counts = Counter(event.label for event in events.values() if event.label is not None)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    shown = sorted(ranked[:MOST_LABELS], key=lambda name: (len(name) * name.isdecimal(), name))
    return shown, len(counts)


def describe_scatter_plot(
    snapshot: Snapshot,
    reference: ScatterReference | None,  # points drawn in grey, placed by this snapshot
    events: Mapping[Any, EventMetadata],  # by id
    names: Sequence[str],  # labels that are shown by name
) -> dict[str, Any]:
    """Describe one scatter plot, JSON-ready."""
    n = len(snapshot.ids)
    indices = select_evenly(n, MOST_POINTS)
    ids = [snapshot.ids[i] for i in indices.tolist()]
    keys = [key.item() if isinstance(key, np.generic) else key for key in ids]
    shown_events = [events.get(key, EventMetadata()) for key in keys]
    main, other = _select_planes(snapshot)
    label_index = {name: index for index, name in enumerate(names)}
    labels = [
        None if event.label is None else label_index.get(event.label, len(names))
        for event in shown_events
    ]
    coverage, picture = _compute_coverage(reference, snapshot)[indices], snapshot.picture
    is_untrusted = np.zeros(n, np.bool_) if picture is None else find_untrusted(picture.kept)
    return {
        "position": snapshot.position,
        "frame": describe_frame(snapshot.frame, len(snapshot.eigenvalues)),
        "points": n,
        "pictured": picture is not None,
        "axes": [main[1], None if other is None else other[1]],
        "equal": [MASS_RANK not in plane[1] for plane in (main, other) if plane is not None],
        "kept": None if picture is None else round_number(picture.kept.mean()),
        "id": [shorten_text(key) for key in keys],
        "at": [event.position for event in shown_events],
        "time": [
            None if event.time is None else shorten_text(event.time) for event in shown_events
        ],
        "label": labels,
        "coverage": round_numbers(coverage),
        "off": (coverage < OFF_SUPPORT).astype(int).tolist(),
        "untrusted": is_untrusted[indices].astype(int).tolist(),
        **_list_columns(main[0][indices], None if other is None else other[0][indices]),
        "reference": _describe_reference_points(snapshot, reference),
    }


Plane = tuple[Floats, list[str]]


def _select_planes(snapshot: Snapshot) -> tuple[Plane, Plane | None]:
    first, second = _split_coordinates(snapshot, snapshot.coordinates, snapshot.stationary)
    if snapshot.picture is not None:
        return (snapshot.picture.coordinates, ["live map", ""]), first
    return first, second


def _split_coordinates(
    snapshot: Snapshot, coordinates: Floats, stationary: Floats | None
) -> tuple[Plane, Plane | None]:
    """Coordinates 0 and 1, then 0 and 2; a single one against the rank of masses."""
    n, k = coordinates.shape
    names = name_columns(snapshot.method, k)
    if k == 1:
        rank = np.zeros(n)
        if stationary is not None and np.ptp(stationary) > 0:
            rank = np.argsort(np.argsort(stationary, kind="stable"), kind="stable") / max(n - 1, 1)
        return (np.column_stack([coordinates[:, 0], rank]), [*names, MASS_RANK]), None
    first = (coordinates[:, :2], list(names[:2]))
    if k == 2:
        return first, None
    return first, (coordinates[:, [0, 2]], [names[0], names[2]])


def _list_columns(main: Floats, other: Floats | None) -> dict[str, Any]:
    columns = {"x": round_numbers(main[:, 0]), "y": round_numbers(main[:, 1])}
    if other is not None:
        columns |= {"x2": round_numbers(other[:, 0]), "y2": round_numbers(other[:, 1])}
    return columns


def _compute_coverage(reference: ScatterReference | None, snapshot: Snapshot) -> Floats:
    """Coverage of its points by the support of the reference; NaN if unknown."""
    unknown: Floats = np.full(len(snapshot.ids), np.nan)
    if reference is None or not snapshot.feature_names:
        return unknown
    try:
        coverage: Floats = reference.snapshot.coverage(
            Batch.of_points(snapshot.points, reference.snapshot.features)
        )
    except StreamembedError:
        return unknown
    return coverage


def _describe_reference_points(
    snapshot: Snapshot, reference: ScatterReference | None
) -> dict[str, Any]:
    """The reference as the snapshot places it; ``off`` marks points with nothing similar left."""
    nothing: dict[str, Any] = {"id": [], "x": [], "y": [], "x2": [], "y2": [], "off": []}
    if reference is None or not snapshot.feature_names or not len(reference.ids):
        return nothing
    indices = select_evenly(len(reference.ids), MOST_REFERENCE_POINTS)
    points = Batch.of_points(np.ascontiguousarray(reference.points[indices]), snapshot.features)
    try:
        coordinates, coverage = snapshot.transform_with_coverage(points)
        first, second = _split_coordinates(snapshot, coordinates, None)
        planes = (first[0], None if second is None else second[0])
        if snapshot.picture is not None:
            planes = snapshot.picture.transform(points), first[0]
    except StreamembedError:
        return nothing
    off = (coverage < OFF_SUPPORT).astype(int).tolist()
    ids = [shorten_text(reference.ids[i]) for i in indices.tolist()]
    return {**nothing, "id": ids, "off": off, **_list_columns(*planes)}
