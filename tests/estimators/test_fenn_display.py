"""`FENN.display`: what is shown of points, by the public estimator."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_wine

from streamembed.errors import FeatureError, NotReadyError, ParameterError
from streamembed.estimators import FENN

X, Y = load_wine(return_X_y=True)
NAMES = [f"f{j:02}" for j in range(13)]


def test_a_single_label_is_shown_too() -> None:
    """All directions, of the covariance of the features, which a given temperature weighs.

    A temperature that is chosen by labels leaves the metric at standardised distance.
    """
    for labels, status in ((["wine"] * len(X), "one class"), (list(range(len(X))), "no class")):
        model, cold = FENN(), FENN(mu=0.3)
        for each in (model, cold):
            each.learn_many(X, labels)
            assert each.metric.certificate["status"] == status
        plain = np.diag(1 / X.var(axis=0)) / 13
        np.testing.assert_allclose(model.metric.matrix, plain, rtol=1e-9, atol=0)
        covariance = np.cov((X / X.std(axis=0)).T, bias=True)
        E, U = np.linalg.eigh(covariance)
        weights = np.exp(-E / 0.3) / np.exp(-E / 0.3).sum()
        truth = (U * weights) @ U.T
        ours = cold.metric.matrix * np.outer(X.std(axis=0), X.std(axis=0))
        np.testing.assert_allclose(ours, truth, atol=1e-9)
    shown = model.display(X)
    assert shown.coordinates.shape == (178, 13)
    assert shown.weights.sum() == pytest.approx(1.0)


def test_what_cannot_be_shown_says_why() -> None:
    """Nothing learned, temperatures that are none, other features."""
    model = FENN()
    with pytest.raises(NotReadyError, match="0 events have arrived"):
        model.display(X)
    model.learn_many(X, Y)
    for mu in (0.0, -1.0, float("nan"), "cv"):
        with pytest.raises(ParameterError, match="mu="):
            model.display(X, mu=mu)  # type: ignore[arg-type]
    with pytest.raises(FeatureError):
        model.display(X[:, :5])
