"""A monitor's findings as the contract has them, made up, for a run of ``n`` events."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor

STATES = ("collecting", "watching", "relearning")


def fake_monitored(
    n: int = 3000,
    *,
    points: Any = None,
    ids: list[Any] | None = None,
    features: tuple[str, ...] = ("height", "wbf"),
    worst: str = "",
) -> Monitor:
    """An alarm after two thirds; ``worst`` is put into every text."""
    rng = np.random.default_rng(3)
    chunks = np.arange(10, n + 1, 10)
    onset, alarm = 2 * n // 3, 2 * n // 3 + 60
    state = np.where(
        chunks <= n // 6, "collecting", np.where(chunks <= alarm, "watching", "relearning")
    )
    rows: dict[str, list[Any]] = {
        name: [] for name in ("position", "channel", "memory", "run_length", "state")
    }
    for channel in ("coverage", "coordinates", "features", "spread"):
        for memory in (40, 160, 640):
            quiet = np.abs(rng.standard_normal(len(chunks)).cumsum() * 0.05) + 1.5
            loud = np.where(chunks > onset, (chunks - onset) / 12, 0) * (channel == "features")
            rho = 10.0 ** np.minimum(quiet + loud, 300)
            watched = state == "watching"
            for name, values in (("position", chunks), ("run_length", rho), ("state", state)):
                rows[name] += values[watched].tolist()
            rows["channel"] += [channel] * int(watched.sum())
            rows["memory"] += [memory] * int(watched.sum())
    for at, told in zip(chunks.tolist(), state.tolist(), strict=True):
        if told != "watching":
            for name, value in (("position", at), ("channel", "coverage"), ("memory", 40)):
                rows[name].append(value)
            rows["run_length"].append(float("nan"))
            rows["state"].append(told)
    order = np.argsort(np.array(rows["position"]), kind="stable")
    timeline = pa.table(rows).take(pa.array(order))
    timeline = timeline.append_column("kind", pa.nulls(len(order), pa.string()))
    loudest = [(f"e{onset + i}", onset + i, 9.0 - i / 2) for i in range(10)]
    if ids is not None:
        loudest = [(key, onset + i, 9.0 - i / 2) for i, key in enumerate(ids[:10])]
    sentence = (
        f"Mean of '{features[0]}' shifted by +3.1 sd around event {onset:,} (detected at "
        f"{alarm:,}; estimated from {alarm - onset:,} events).{worst}"
    )
    found = Alarm(
        kind="alarm",
        number=0,
        position=alarm,
        onset=onset,
        reference=0,
        sentence=sentence,
        channel="features",
        memory=40,
        run_length=1e14,
        features=tuple((name + worst, 3.1 - 3 * i, 1e-9) for i, name in enumerate(features)),
        events=tuple(loudest),
    )
    reset = Alarm("reset", -1, onset - 10, onset - 10, 0, "Home watches again.")
    cut = Alarm("cut", 0, alarm + 200, alarm + 90, -1, f"Another change.{worst}")
    if points is None:
        points, ids = np.zeros((0, 0)), []
    calibration = {
        "n_reference": 500,
        "largest_autocorrelation": 0.04,
        "threshold": 14_000.0,
        "run_lengths": (10.0 ** rng.normal(4, 0.3, 200)).tolist(),
    }
    told: Any = SimpleNamespace(
        ert=10_000.0,
        parameters={"policy": "renew"},
        is_alarmed=True,
        state="relearning",
        timeline=lambda: timeline,
        threshold=14_000.0,
        alarms=(found,),
        records=(reset, found, cut),
        reference=(points, np.array(ids)),
        calibration=calibration,
        position=0,
        notes=(f"events are autocorrelated{worst}: " + "so that alarms come too often " * 9,),
    )
    return told
