"""The history of the geometry, one row per committed snapshot, and the newest metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.engine.snapshot import Snapshot
from streamembed.report.json_values import round_number, round_numbers, select_evenly, shorten_text

# Rows and eigenvalues of the figures, and features of a heat map.
MOST_ROWS, MOST_LINES, MOST_FEATURES = 1_000, 12, 40
FLOAT_COLUMNS = (
    "residual",
    "angle_bound",
    "outside_bound",
    "fidelity",
    "price",
    "picture_kept",
)
INTEGER_COLUMNS = ("met", "epoch", "refreshes")


def describe_history(timeline: Any, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Describe the timeline of a run, JSON-ready.

    Parameters
    ----------
    timeline
        See `streamembed.runs.run_reader.RunReader.timeline`.
    engine
        Parameters of the engine.
    """
    rows = select_evenly(timeline.num_rows, MOST_ROWS)
    table: pa.Table = timeline.take(pa.array(rows))
    names = table.column_names
    lines = [name for name in names if name.startswith("eigenvalue_")][:MOST_LINES]
    description: dict[str, Any] = {
        "rows": timeline.num_rows,
        "position": table["position"].to_pylist(),
        "eigenvalues": [round_numbers(_read_floats(table, name)) for name in lines],
        "tolerance": round_number(engine.get("tolerance")),
    }
    description |= {
        name: round_numbers(_read_floats(table, name)) for name in FLOAT_COLUMNS if name in names
    }
    description |= {
        name: [round_number(value) for value in table[name].to_pylist()]
        for name in INTEGER_COLUMNS
        if name in names
    }
    return description


def _read_floats(table: Any, name: str) -> Any:
    return np.array(table[name].to_pylist(), dtype=np.float64)


def describe_metrics(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Describe each learned metric, per standard deviations of the features: entries compare."""
    descriptions = []
    for name, metric in snapshot.metrics.items():
        scaled = metric.matrix * np.outer(snapshot.scale, snapshot.scale)
        # those with the largest weight, in the order of the stream's features
        heaviest = np.sort(np.argsort(-np.diag(scaled), kind="stable")[:MOST_FEATURES])
        descriptions.append(
            {
                "name": name,
                "features": [shorten_text(snapshot.feature_names[i]) for i in heaviest.tolist()],
                "of": len(scaled),
                "rank": len(metric.factor),
                "source": metric.certificate["source"],
                "fitted": metric.certificate.get("taught", True) is not False,
                "matrix": [round_numbers(row) for row in scaled[np.ix_(heaviest, heaviest)]],
            }
        )
    return descriptions
