"""What metrics learn from pairs of the embedding, before labels come."""

from __future__ import annotations

import numpy as np
import pytest

import streamembed as se
from streamembed.metrics import catalog, generated
from streamembed.metrics.catalog import PAIR_METRICS

LEARNERS = {name: catalog.create_learner(name, 0) for name in PAIR_METRICS}


def draw_rings(n: int, seed: int) -> np.ndarray:
    """Two groups in the first feature, noise in the others."""
    points = np.random.default_rng(seed).standard_normal((n, 4))
    points[: n // 2, 0] += 6.0
    return np.random.default_rng(seed).permutation(points)


def test_pairs_of_groups_stretch_what_parts_them() -> None:
    """Every metric, and both halves of the events say so."""
    points = draw_rings(400, 0)
    points /= points.std(axis=0)
    found = generated.learn(points, LEARNERS, (0, 400))
    assert found is not None
    assert found.pairs > 300
    assert found.agreement > 0.5
    for name, matrix in found.matrices.items():
        if name != "contrast":  # the guard of which levels all directions here
            assert matrix[0, 0] > 1.05 * np.delete(np.diag(matrix), 0).max(), name
        assert np.linalg.eigvalsh(matrix)[0] > 0.9 * (1 - generated.SHARE)


def test_noise_has_halves_that_do_not_agree() -> None:
    """Pairs are learned from, and the certificate says what they are worth."""
    agreements = []
    for seed in range(8):
        points = np.random.default_rng(seed).standard_normal((300, 5))
        found = generated.learn(points, LEARNERS, (seed, 300))
        assert found is not None
        agreements.append(found.agreement)
    assert abs(np.mean(agreements)) < 0.5


@pytest.mark.parametrize("points", [np.ones((50, 3)), np.eye(4), np.zeros((0, 2))])
def test_without_pairs_there_is_no_metric(points: np.ndarray) -> None:
    assert generated.learn(points, LEARNERS, (0, 1)) is None


def test_an_engine_says_what_its_metrics_rest_on() -> None:
    """The pairs, how well halves agree on them, and the weights, until labels come."""
    points = draw_rings(300, 1) * [1.0, 10.0, 0.1, 3.0]
    engine = se.Engine(size=300, metrics=("itml", "must_link", "fenn"))
    engine.learn(points[:200])
    for name in ("itml", "must_link"):
        proof = engine.snapshot().metrics[name].certificate
        assert (proof.source, proof.status, proof.fitted) == ("generated", "ok", True)
        assert proof.pairs > 100
        assert proof.agreement > 0.5
        assert len(proof.feature_weights) == len(proof.predictability) == 4
    engine.learn(points[200:], y=(points[200:, 0] > 3.0).tolist())
    assert {each.certificate.source for each in engine.snapshot().metrics.values()} == {"labels"}
