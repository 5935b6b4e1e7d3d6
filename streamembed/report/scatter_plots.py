"""The points of kept snapshots in the plane, with the reference behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamembed.data.batch import Batch
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import StreamembedError
from streamembed.numeric.arrays import Bools, Floats
from streamembed.report.json_values import evenly, numbers, text
from streamembed.runs.run_events import Told

__all__ = ["MOST_LABELS", "MOST_POINTS", "Ground", "cloud_of", "names_of"]

# Points of one cloud that are drawn, and of the reference behind each.
MOST_POINTS, MOST_BEHIND = 5_000, 500
# Labels that get a colour and a shape of their own.
MOST_LABELS = 40
# Coverage below which nothing similar is in the support.
OFF_SUPPORT = 0.05
# As in `streamembed.engine.drawing`: points of a picture that are not to be trusted.
TRUSTED, MOST_HALOS = 1 / 3, 0.2


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """The reference that clouds are drawn upon.

    Attributes
    ----------
    points : (n, d)
        In the caller's units; (n, 0) where only distances are known.
    ids : sequence
    snapshot : Snapshot
        The kept one nearest to it, whose support says what lies off it.
    """

    points: Floats
    ids: Sequence[Any]
    snapshot: Snapshot


def names_of(told: Mapping[Any, Told]) -> list[str]:
    """The labels that are shown by name: the most frequent, in order."""
    counts = Counter(one.label for one in told.values() if one.label is not None)
    ranked = sorted(counts, key=lambda name: (-counts[name], name))
    return sorted(ranked[:MOST_LABELS])


def cloud_of(
    snapshot: Snapshot, ground: Ground | None, told: Mapping[Any, Told], names: Sequence[str]
) -> dict[str, Any]:
    """One cloud, JSON-ready.

    Parameters
    ----------
    snapshot
        Whose points they are.
    ground
        What is drawn in grey, placed by this snapshot; None for nothing.
    told
        What is known of events.
    names
        Labels that are shown by name.
    """
    n = len(snapshot.ids)
    chosen = evenly(n, MOST_POINTS)
    ids = [snapshot.ids[i] for i in chosen.tolist()]
    keys = [key.item() if isinstance(key, np.generic) else key for key in ids]
    known = [told.get(key, Told()) for key in keys]
    main, other = _planes(snapshot)
    number = {name: index for index, name in enumerate(names)}
    labels = [None if one.label is None else number.get(one.label, len(names)) for one in known]
    order = snapshot.position - n + chosen  # of a window; other memories are told
    coverage = _coverage(ground, snapshot)[chosen]
    return {
        "position": snapshot.position,
        "epoch": snapshot.frame.epoch,
        "points": n,
        "pictured": snapshot.picture is not None,
        "axes": [main[1], None if other is None else other[1]],
        "kept": None if snapshot.picture is None else numbers(_kept(snapshot))[0],
        "id": [text(key) for key in keys],
        "at": [
            int(place) if one.position is None else one.position
            for one, place in zip(known, order.tolist(), strict=True)
        ],
        "time": [None if one.time is None else text(one.time) for one in known],
        "label": labels,
        "coverage": numbers(coverage),
        "off": (coverage < OFF_SUPPORT).astype(int).tolist(),
        "lost": _lost(snapshot)[chosen].astype(int).tolist(),
        **_columns(main[0][chosen], None if other is None else other[0][chosen]),
        "behind": _behind(snapshot, ground),
    }


Plane = tuple[Floats, list[str]]


def _planes(snapshot: Snapshot) -> tuple[Plane, Plane | None]:
    """The two pairs of axes that are drawn, (N, 2) each, and what they are called."""
    first, second = _coordinates(snapshot, snapshot.coordinates, snapshot.stationary)
    if snapshot.picture is not None:
        return (snapshot.picture.coordinates, ["live map", ""]), first
    return first, second


def _coordinates(
    snapshot: Snapshot, coordinates: Floats, stationary: Floats | None
) -> tuple[Plane, Plane | None]:
    """First two coordinates, then the first and the third; one alone against the rank of masses."""
    n, k = coordinates.shape
    if k == 1:
        rank = np.zeros(n)
        if stationary is not None and np.ptp(stationary) > 0:
            rank = np.argsort(np.argsort(stationary, kind="stable"), kind="stable") / max(n - 1, 1)
        called = ["coordinate 1", "rank by stationary mass"]
        return (np.column_stack([coordinates[:, 0], rank]), called), None
    first = (coordinates[:, :2], ["coordinate 1", "coordinate 2"])
    if k == 2:
        return first, None
    return first, (coordinates[:, [0, 2]], ["coordinate 1", "coordinate 3"])


def _columns(main: Floats, other: Floats | None) -> dict[str, Any]:
    told = {"x": numbers(main[:, 0]), "y": numbers(main[:, 1])}
    if other is not None:
        told |= {"x2": numbers(other[:, 0]), "y2": numbers(other[:, 1])}
    return told


def _batch(snapshot: Snapshot, points: Floats) -> Batch:
    index = np.arange(len(points), dtype=np.int64)
    return Batch(points, snapshot.feature_names, snapshot._ordered, None, index, ())


def _coverage(ground: Ground | None, snapshot: Snapshot) -> Floats:
    """Of its points, by the support of the reference; NaN where nobody knows."""
    unknown: Floats = np.full(len(snapshot.ids), np.nan)
    if ground is None or not snapshot.feature_names:
        return unknown
    try:
        made: Floats = ground.snapshot.coverage(_batch(ground.snapshot, snapshot.points))
    except StreamembedError:
        return unknown
    return made


def _behind(snapshot: Snapshot, ground: Ground | None) -> dict[str, Any]:
    """The reference as the snapshot places it; hollow where nothing similar is left in it."""
    nothing: dict[str, Any] = {"id": [], "x": [], "y": [], "x2": [], "y2": [], "off": []}
    if ground is None or not snapshot.feature_names or not len(ground.ids):
        return nothing
    chosen = evenly(len(ground.ids), MOST_BEHIND)
    points = _batch(snapshot, np.ascontiguousarray(ground.points[chosen]))
    try:
        coordinates, coverage = snapshot.transform_with_coverage(points)
        first, second = _coordinates(snapshot, coordinates, None)
        planes = (first[0], None if second is None else second[0])
        if snapshot.picture is not None:
            planes = snapshot.picture.transform(points), first[0]
    except StreamembedError:
        return nothing
    off = (coverage < OFF_SUPPORT).astype(int).tolist()
    ids = [text(ground.ids[i]) for i in chosen.tolist()]
    return {**nothing, "id": ids, "off": off, **_columns(*planes)}


def _kept(snapshot: Snapshot) -> Floats:
    assert snapshot.picture is not None
    return np.array([snapshot.picture.kept.mean()])


def _lost(snapshot: Snapshot) -> Bools:
    """Points of a picture that get the halo of those that are not to be trusted."""
    if snapshot.picture is None:
        return np.zeros(len(snapshot.ids), dtype=np.bool_)
    kept = snapshot.picture.kept
    least = np.sort(kept)[int(MOST_HALOS * len(kept))]
    lost: Bools = kept < min(TRUSTED, least + 1e-9)
    return lost
