"""What the tests of metric faces share: the contract, every way of learning, one small stream."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.estimators import (
    FENN,
    ITML,
    ContrastMetric,
    DiscriminantAnalysis,
    EigDML,
    GeometricMeanMetric,
    MustLinkMetric,
)

CONTRACT = {
    FENN: {"mu": "heat_capacity"},
    ITML: {
        "gamma": 0.1,
        "upper": None,
        "lower": None,
        "buffer": 2000,
        "sweeps": 1,
        "forgetting": 0.0,
        "prior": "identity",
    },
    ContrastMetric: {"alpha": 0.01},
    DiscriminantAnalysis: {},
    EigDML: {
        "smoothing": 0.5,
        "buffer": 1000,
        "policy": "hard",
        "steps": 10,
        "step_cap": 300,
        "decay": None,
    },
    GeometricMeanMetric: {"t": 0.25},
    MustLinkMetric: {"rank": None, "diagonal": False},
}
# Every way to learn: name -> (class, parameters).
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ITML": (ITML, {}),
    "ITML-covariance": (ITML, {"prior": "covariance", "forgetting": 0.01, "buffer": 30}),
    "EigDML": (EigDML, {}),
    "EigDML-recent": (EigDML, {"policy": "recent", "decay": 0.98, "buffer": 25}),
    "FENN": (FENN, {}),
    "FENN-cv": (FENN, {"mu": "cv"}),
    "DiscriminantAnalysis": (DiscriminantAnalysis, {}),
    "ContrastMetric": (ContrastMetric, {}),
    "GeometricMeanMetric": (GeometricMeanMetric, {}),
    "MustLinkMetric": (MustLinkMetric, {}),
    "MustLinkMetric-rank": (MustLinkMetric, {"rank": 2}),
    "MustLinkMetric-diagonal": (MustLinkMetric, {"diagonal": True}),
}
# Those that are sums over events: what waits for its chunk is shown too.
BUFFERS = ("ITML", "EigDML", "MustLinkMetric-diagonal")
ADDITIVE = [way for way in WAYS if not way.startswith(BUFFERS)]
NAMES = ["w", "x", "y", "z"]
GENERATOR = np.random.default_rng(0)
LABELS = [str(c) for c in GENERATOR.integers(0, 3, 90)]
POINTS = GENERATOR.standard_normal((90, 4)) * [1.0, 3.0, 0.2, 10.0]
POINTS[:, 1] += 5.0 * np.array([int(label) for label in LABELS])
DICTS = [dict(zip(NAMES, row, strict=True)) for row in POINTS.tolist()]


def built(way: str, **changes: Any) -> Any:
    """A fresh estimator, with chunks that do not divide the stream."""
    cls, parameters = WAYS[way]
    return cls(**{"chunk_size": 7, **parameters, **changes})


def learned(way: str, **changes: Any) -> Any:
    model = built(way, **changes)
    model.learn_many(POINTS, LABELS)
    return model
