"""distance-rows: only distances arrive; of points, they give the embedding of the points."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

import streamembed as se
from scenarios.scenario import Expected, Outcome, Scenario
from scenarios.streams import drifting_rings
from streamembed.numeric.arrays import Floats

K = 4
MEMORIES = ("window", "landmarks", "all")


def run(full: bool) -> Outcome:
    """Three engines that see points, and three that see only their distances."""
    events, size = (4000, 1000) if full else (500, 120)
    points = drifting_rings(events + 100, 0, window=size)
    new, points = points[events:], points[:events]
    figures: dict[str, float] = {}
    for memory in MEMORIES:
        count = events // 2 if memory == "all" else events
        from_points, from_rows, from_parts = (_engine(memory, size) for _ in range(3))
        from_points.learn(points[:count])
        for t in range(count):
            from_rows.learn_distances([_row(from_rows, points, t)])
        for start in range(0, count, 37):
            rows = _build_past_rows(from_parts, points, start, min(count, start + 37))
            from_parts.learn_distances(rows)
        ours, theirs, parts = (e.snapshot() for e in (from_rows, from_points, from_parts))
        apart = np.abs(ours.coordinates - theirs.coordinates).max()
        extended = ours.transform_distances(cdist(new, theirs.points))
        figures[f"{memory}_coordinates"] = float(apart)
        figures[f"{memory}_transform"] = float(np.abs(extended - theirs.transform(new)).max())
        figures[f"{memory}_same_bits"] = float(np.array_equal(ours.psi, parts.psi))
        figures[f"{memory}_met"] = float(bool(ours.certificate.met))
    return Outcome(figures)


def _engine(memory: str, size: int) -> se.Engine:
    return se.Engine(n_components=K, memory=memory, size=size, scaling=None)


def _row(engine: se.Engine, points: Floats, t: int) -> Floats:
    """What the engine asks of event t, by the ids that it names."""
    row: Floats = cdist(points[t : t + 1], points[engine.distance_row_ids])[0]
    return row


def _build_past_rows(engine: se.Engine, points: Floats, start: int, stop: int) -> list[Floats]:
    """The same events as rows to all before, or to the window before."""
    reach = engine.config.size if engine.config.memory == "window" else stop
    return [
        cdist(points[t : t + 1], points[max(0, t - reach) : t]).reshape(-1)
        for t in range(start, stop)
    ]


_EQUAL = Expected(0.0, 1e-8, "the same kernel except for the rounding of the distances")
_YES = Expected(1.0, 1.0, "in rows by id, in rows of the whole past, in calls of any length")
_MET = Expected(1.0, 1.0, "every final snapshot is certified")

SCENARIO = Scenario(
    id="distance-rows",
    says="only distances arrive; if they come from points, the embedding is that of the points",
    run=run,
    expected={
        **{f"{memory}_coordinates": _EQUAL for memory in MEMORIES},
        **{f"{memory}_transform": _EQUAL for memory in MEMORIES},
        **{f"{memory}_same_bits": _YES for memory in MEMORIES},
        **{f"{memory}_met": _MET for memory in MEMORIES},
    },
)
