"""The loop of the scenario makes the predictions that river makes."""

from __future__ import annotations

import pytest
from river import evaluate, metrics

from scenarios import online_loops
from streamembed.estimators import DiffusionMap


@pytest.mark.parametrize("name", online_loops.create_classifiers())
def test_two_classifiers_behind_one_map_predict_as_in_a_pipeline_each(name: str) -> None:
    """Event by event, across the warm-up and the window that fills."""
    events = online_loops.read_events("ImageSegments", seed=3, count=300)

    def create_map() -> DiffusionMap:
        return DiffusionMap(n_components=5, size=100, warm_up=50)

    right = online_loops.evaluate(events, create_map(), online_loops.create_classifiers())
    steps = evaluate.iter_progressive_val_score(
        events,
        create_map() | online_loops.create_classifiers()[name],
        metrics.Accuracy(),
        step=1,
        yield_predictions=True,
    )
    predictions = [each["Prediction"] for each in steps]
    assert right[name] == [p == y for p, (_, y) in zip(predictions, events, strict=True)]
    assert any(p is not None for p in predictions)
