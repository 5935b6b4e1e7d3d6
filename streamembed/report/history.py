"""The history of the geometry, one row per committed snapshot, and the newest metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.engine.snapshot import Snapshot
from streamembed.report.json_values import round_number, round_numbers, select_evenly, shorten_text
from streamembed.report.line_figures import MOST_LINES, list_line_figures

# Rows of the figures, and features of a heat map.
MOST_ROWS, MOST_FEATURES = 1_000, 40


def describe_history(timeline: Any, engine: Mapping[str, Any]) -> dict[str, Any]:
    """Describe `RunReader.timeline` of a run, JSON-ready; ``engine`` has its parameters."""
    table: pa.Table = timeline.take(pa.array(select_evenly(timeline.num_rows, MOST_ROWS)))
    positions = table["position"].to_pylist()
    figures = list_line_figures(MOST_LINES, ())
    wanted = {"epoch", "met"}.union(*(figure.lines for figure in figures.values()))
    columns = {
        name: [round_number(value) for value in table[name].to_pylist()]
        for name in table.column_names
        if name in wanted
    }
    epochs = columns.get("epoch", [])
    changes = zip(positions[1:], epochs, epochs[1:], strict=False)
    return {
        "rows": timeline.num_rows,
        "position": positions,
        "columns": columns,
        "epochs": [at for at, before, after in changes if after != before],
        "tolerance": round_number(engine.get("tolerance")),
    }


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
                "fitted": metric.certificate.get("fitted", True) is not False,
                "matrix": [round_numbers(row) for row in scaled[np.ix_(heaviest, heaviest)]],
            }
        )
    return descriptions
