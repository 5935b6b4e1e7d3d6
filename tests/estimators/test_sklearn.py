"""The adapter for scikit-learn: its own checks, pipelines, grids, frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamembed import estimators
from streamembed.errors import InputError, NotReadyError, ParameterError
from streamembed.estimators import (
    FENN,
    DiffusionMap,
    GeometricMeanMetric,
    Isomap,
    UnsupervisedMetric,
)
from streamembed.estimators.map_estimator import MapEstimator
from streamembed.sklearn import OnlineTransformer

X, Y = load_wine(return_X_y=True)
EMBEDDINGS = [
    name for name in estimators.__all__ if issubclass(getattr(estimators, name), MapEstimator)
]
TRANSFORMERS = [name for name in estimators.__all__ if name != "LabelSpreading"]
CHECKED = [OnlineTransformer(getattr(estimators, name)()) for name in TRANSFORMERS]


@parametrize_with_checks(CHECKED)
def test_scikit_learns_checks(estimator: Any, check: Any) -> None:
    """Every estimator with its defaults; none is expected to fail.

    Maps failed 21 of 47: a warm-up of 50 events refuses 20 to 30 rows.
    """
    check(estimator)


def test_pipelines_and_cross_validation() -> None:
    """Learning the metric of each fold's training part is worth what it is in batch."""
    plain = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
    model = make_pipeline(OnlineTransformer(GeometricMeanMetric()), KNeighborsClassifier(5))
    gain = cross_val_score(model, X, Y, cv=5).mean() - cross_val_score(plain, X, Y, cv=5).mean()
    assert gain > 0.0  # .978 for .955 measured


@pytest.mark.parametrize("name", sorted(set(TRANSFORMERS) - {"EmbeddingDrift"}))
def test_every_face_is_fitted_to_the_last_row(name: str) -> None:
    """All have one `flush`; `UnsupervisedMetric`, which had none, failed with an AttributeError."""
    small = {"warm_up": 60, "size": 100} if name in (*EMBEDDINGS, "UnsupervisedMetric") else {}
    chunks = {} if name in ("PCA", "UnsupervisedMetric") else {"chunk_size": 20}
    face = getattr(estimators, name)(**chunks, **small)
    if small:
        with pytest.raises(NotReadyError):
            face.flush()
    fitted = OnlineTransformer(face).fit(X[:133], Y[:133]).estimator_
    if name in EMBEDDINGS:
        assert fitted.snapshot().position == 133
    elif name == "UnsupervisedMetric":
        assert fitted.metric.certificate["measured"] == 120
    else:
        assert fitted.position - fitted.pending == 133


@pytest.mark.parametrize("name", [*EMBEDDINGS, "UnsupervisedMetric"])
def test_fewer_rows_than_the_warm_up_are_the_warm_up(name: str) -> None:
    """As of an estimator with so many; `partial_fit` goes on waiting for the warm-up it has."""
    kind = getattr(estimators, name)
    few = OnlineTransformer(kind(warm_up=60)).fit(X[:12])
    river = kind(warm_up=12)
    river.learn_many(X[:12])
    assert np.array_equal(few.transform(X), river.transform_many(X))
    assert few.estimator_.ready
    assert few.estimator.warm_up == 60
    assert not OnlineTransformer(kind(warm_up=60)).partial_fit(X[:12]).estimator_.ready


def test_frames_and_names() -> None:
    """`set_output`, names in and out, and columns that are checked."""
    names = [f"x{j}" for j in range(13)]
    frame = pd.DataFrame(X, columns=names)
    model = OnlineTransformer(FENN()).set_output(transform="pandas").fit(frame, Y)
    out = model.transform(frame)
    assert list(out.columns) == [f"fenn_{j}" for j in range(13)]
    assert model.feature_names_in_.tolist() == names
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame.rename(columns={"x0": "other"}))
    embedding = OnlineTransformer(DiffusionMap(warm_up=50, n_components=3)).fit(X)
    assert embedding.get_feature_names_out().tolist() == [f"diffusion_map_{j}" for j in range(3)]
    assert embedding.estimator_.snapshot().certificate.met


def test_what_cannot_be_learned_is_told() -> None:
    """Too few rows for any warm-up, no labels for a metric, no river estimator."""
    with pytest.raises(InputError, match=r"n_samples = 7, but Isomap .* at least 12"):
        OnlineTransformer(Isomap(n_components=10)).fit(X[:7])
    with pytest.raises(InputError, match="n_samples = 5, but UnsupervisedMetric needs more"):
        OnlineTransformer(UnsupervisedMetric()).fit(X[:5])
    with pytest.raises(InputError, match="requires y"):
        OnlineTransformer(FENN()).fit(X)
    with pytest.raises(ParameterError, match=r"estimator=KNeighborsClassifier\(\) must be"):
        OnlineTransformer(KNeighborsClassifier()).fit(X, Y)
