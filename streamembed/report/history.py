"""What became of the geometry: a row a committed snapshot, and the metrics of the newest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.engine.snapshot import Snapshot
from streamembed.report.json_values import evenly, number, numbers, text

__all__ = ["MOST_LINES", "heat_maps", "history_of"]

# Rows and eigenvalues that are drawn, and features of a heat map.
MOST_ROWS, MOST_LINES, MOST_FEATURES = 1_000, 12, 40
DRAWN = ("residual", "angle_bound", "outside_bound", "displacement", "movement", "picture_kept")
WHOLE = ("met", "epoch", "refreshes")


def history_of(timeline: Any, engine: Mapping[str, Any]) -> dict[str, Any]:
    """The timeline of a run, JSON-ready.

    Parameters
    ----------
    timeline
        See `streamembed.runs.run_reader.RunReader.timeline`.
    engine
        Parameters of the engine.
    """
    chosen = evenly(timeline.num_rows, MOST_ROWS)
    table: pa.Table = timeline.take(pa.array(chosen))
    names = table.column_names
    lines = [name for name in names if name.startswith("eigenvalue_")][:MOST_LINES]
    told: dict[str, Any] = {
        "rows": timeline.num_rows,
        "position": table["position"].to_pylist(),
        "eigenvalues": [numbers(_floats(table, name)) for name in lines],
        "tolerance": number(engine.get("tolerance")),
    }
    told |= {name: numbers(_floats(table, name)) for name in DRAWN if name in names}
    told |= {
        name: [number(one) for one in table[name].to_pylist()] for name in WHOLE if name in names
    }
    return told


def _floats(table: Any, name: str) -> Any:
    return np.array(table[name].to_pylist(), dtype=np.float64)


def heat_maps(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Each learned metric, per standard deviations of the features, so that entries compare."""
    made = []
    for name, metric in snapshot.metrics.items():
        scaled = metric.matrix * np.outer(snapshot.scale, snapshot.scale)
        # the heaviest, in the order of the stream's features
        heaviest = np.sort(np.argsort(-np.diag(scaled), kind="stable")[:MOST_FEATURES])
        made.append(
            {
                "name": name,
                "features": [text(snapshot.feature_names[i]) for i in heaviest.tolist()],
                "of": len(scaled),
                "rank": len(metric.factor),
                "source": metric.certificate["source"],
                "taught": metric.certificate.get("taught", True) is not False,
                "matrix": [numbers(row) for row in scaled[np.ix_(heaviest, heaviest)]],
            }
        )
    return made
