"""What a page says of runs of every kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamembed as se
from streamembed.report import drift_figures, history, scatter_plots
from streamembed.report.json_values import encode_json
from streamembed.report.report_contents import read_contents
from tests.report import runs
from tests.report.fake import fake_monitored


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=() if kind in runs.SHORT else pytest.mark.long)
        for kind in runs.KINDS
    ],
)
def test_every_run_has_contents(kind: str, tmp_path: Path) -> None:
    """They are JSON, fit together, and a second reading says the same."""
    run = runs.KINDS[kind](tmp_path)
    told = read_contents(run)
    assert encode_json(told) == encode_json(read_contents(run))
    assert json.loads(encode_json(told)) == json.loads(json.dumps(told))
    for cloud in told["scatter_plots"]:
        n = len(cloud["id"])
        for name in ("x", "y", "at", "time", "label", "coverage", "off", "untrusted"):
            assert len(cloud[name]) == n, name
        assert None not in cloud["x"] + cloud["y"]
        assert [len(v) for k, v in cloud["reference"].items() if k in ["x", "y", "off"]] == [
            len(cloud["reference"]["id"])
        ] * 3
    past = told["history"]
    assert all(len(values) == len(past["position"]) for values in past["columns"].values())
    assert told["run"]["kept"] == [cloud["position"] for cloud in told["scatter_plots"]]


def test_a_finished_run(finished_run: Path) -> None:
    """Labels, places, the picture with its halo, metrics, and how far it is."""
    told = read_contents(finished_run)
    assert told["run"]["state"] == "finished"
    assert (told["run"]["accepted"], told["run"]["position"]) == (240, 240)
    assert told["labels"] == ["class 0", "class 1", "class 2"]
    newest = told["scatter_plots"][-1]
    assert newest["pictured"]
    assert newest["axes"] == [["live map", ""], ["diffusion_map_0", "diffusion_map_1"]]
    assert newest["frame"].startswith("epoch ")
    assert " since event " in newest["frame"]
    assert newest["id"] == runs.IDS[180:]
    assert newest["at"] == list(range(180, 240))
    assert newest["label"] == runs.CLASSES[180:].tolist()
    with se.read_run(finished_run) as reader:
        snapshot = reader.snapshot()
        assert snapshot.picture is not None
        assert np.allclose(newest["x"], snapshot.picture.coordinates[:, 0], rtol=1e-4)
        assert np.allclose(newest["y2"], snapshot.coordinates[:, 1], rtol=1e-4)
    [metric] = told["metrics"]
    assert metric["features"] == sorted(runs.NAMES)
    scaled = snapshot.metrics["itml"].matrix * np.outer(snapshot.scale, snapshot.scale)
    assert np.allclose(metric["matrix"], scaled, rtol=1e-4)
    assert told["drift"] is None


def test_labels_of_a_run_that_is_learned_into(tmp_path: Path) -> None:
    """Those of the calls, and those that came later."""
    run = runs.learned(tmp_path)
    with se.read_run(run) as reader:
        told = reader.find_events(list(range(200)))
    assert {key: one.position for key, one in told.items()} == {i: i for i in range(200)}
    assert told[0].label is None
    assert told[5].label == str(runs.CLASSES[5])
    assert (told[149].label, told[150].label) == (None, "2")
    assert read_contents(run)["run"]["state"] == "open"


def test_what_is_left_out_is_said(finished_run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Points, snapshots, segments, features: fewer are drawn, and a note says how many."""
    run = finished_run
    monkeypatch.setattr(scatter_plots, "MOST_POINTS", 20)
    monkeypatch.setattr(history, "MOST_ROWS", 3)
    monkeypatch.setattr(history, "MOST_FEATURES", 2)
    monkeypatch.setattr(drift_figures, "MOST_SEGMENTS", 10)
    monkeypatch.setattr(se.RunReader, "monitor", lambda _: fake_monitored(240))
    told = read_contents(run)
    assert len(told["scatter_plots"][-1]["x"]) == 20
    assert told["scatter_plots"][-1]["id"][-1] == "e239"
    assert told["history"]["position"][-1] == 240
    assert (len(told["metrics"][0]["features"]), told["metrics"][0]["of"]) == (2, 3)
    notes = " ".join(told["notes"])
    assert "60 points at event 240, 20 are drawn" in notes
    assert "snapshots 3 are drawn" in notes
    assert "24 segments of the monitor are drawn as 10" in notes


def test_the_peaks_of_long_timelines_stay() -> None:
    """A million events are drawn as a thousand segments, alarms and highest values among them."""
    found = fake_monitored(100_000)
    told = drift_figures.describe_drift(found)
    assert told is not None
    series = told["channels"]["features"]
    assert len(series["x"]) <= 1000 + len(told["unwatched"])
    assert max(y for y in series["y"] if y is not None) == told["top"] == 12.0
    assert [one["state"] for one in told["unwatched"]] == ["collecting", "relearning"]
    assert told["unwatched"][0]["start"] == 0
    assert told["alarms"][0]["height"] == 12.0
    assert told["asked"] == "10,000"


def test_the_reference_of_the_monitor_is_behind_the_points(
    finished_run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Placed by the snapshot that is shown."""
    run = finished_run
    with se.read_run(run) as reader:
        first = reader.snapshot(reader.positions[1])
    found = fake_monitored(240, points=first.points, ids=first.ids.tolist())
    monkeypatch.setattr(se.RunReader, "monitor", lambda _: found)
    told: dict[str, Any] = read_contents(run)
    assert "monitor's reference" in told["reference"]
    assert told["scatter_plots"][-1]["reference"]["id"] == first.ids.tolist()
    assert told["drift"]["alarms"][0]["events"][0][0] == first.ids[0]
