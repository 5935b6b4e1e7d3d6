"""`PairGenerator`: pairs of snapshots, with their evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import streamembed as se
from streamembed.errors import InputError, ParameterError

X = load_iris().data[np.random.default_rng(0).permutation(150)]


def engine(**changes: Any) -> se.Engine:
    return se.Engine(**{"size": 120, "warm_up": 60, **changes})


def test_pairs_are_beyond_the_thresholds_and_hold_their_points() -> None:
    """Similar ones below, dissimilar ones above; ids and points belong together."""
    source = engine()
    source.learn(X)
    snapshot = source.snapshot()
    found = se.PairGenerator().draw(snapshot)
    assert len(found) > 20
    assert (found.d2[found.similar] <= found.similar_below).all()
    assert (found.d2[~found.similar] >= found.dissimilar_above).all()
    assert found.position == snapshot.position
    place = {key: i for i, key in enumerate(snapshot.ids.tolist())}
    for ids, points in ((found.left_ids, found.left), (found.right_ids, found.right)):
        expected = snapshot.points[[place[key] for key in ids.tolist()]]
        np.testing.assert_array_equal(points, expected)


def test_the_tracked_pairs_are_those_of_the_map() -> None:
    """psi of unit norm under the stationary measure, with the published eigenvalues first."""
    for time in (0.0, 1.0, 3.0):
        source = engine(diffusion_time=time, n_components=3)
        source.learn(X)
        snapshot = source.snapshot()
        psi, values = snapshot.tracked_pairs()
        np.testing.assert_allclose(snapshot.stationary @ psi[:, :3] ** 2, 1.0, rtol=1e-6)
        np.testing.assert_allclose(values[:3], snapshot.eigenvalues, atol=1e-3)  # the residual


def test_a_snapshot_always_gives_the_same_pairs() -> None:
    """What is drawn is a function of seed and position, and no pair comes twice."""
    source = engine()
    source.learn(X)
    found, same = (se.PairGenerator(seed=3).draw(source.snapshot()) for _ in range(2))
    np.testing.assert_array_equal(found.d2, same.d2)
    ends = zip(found.left_ids.tolist(), found.right_ids.tolist(), strict=True)
    assert len({frozenset(pair) for pair in ends}) == len(found)
    other = se.PairGenerator(seed=4).draw(source.snapshot())
    assert not np.array_equal(other.d2, found.d2)


def test_thresholds_may_be_given() -> None:
    """As the source has them; the other side stays with the percentile."""
    source = engine()
    source.learn(X)
    found = se.PairGenerator(similar_below=1e-3, dissimilar_above=0.5).draw(source.snapshot())
    assert (found.similar_below, found.dissimilar_above) == (1e-3, 0.5)
    assert (found.d2[found.similar] <= 1e-3).all()


def test_generated_pairs_teach_an_engine() -> None:
    """They are what `learn_pairs` takes."""
    source = engine()
    source.learn(X)
    found = se.PairGenerator().draw(source.snapshot())
    pupil = engine(metrics=("itml",))
    pupil.learn(X)
    again = [np.concatenate([end, end]) for end in (found.left, found.right, found.similar)]
    pupil.learn_pairs(*again)  # whole chunks of 50
    assert len(found) >= 25
    chunks = 2 * len(found) // 50
    assert pupil.snapshot().metrics["itml"].certificate["pairs"] == 50 * chunks


def test_what_cannot_be_is_refused() -> None:
    """Parameters when it is built; things without points when they come."""
    for parameters, says in (
        ({"n_components": 0}, "n_components=0 must be a whole number of at least 1"),
        ({"diffusion_time": -1.0}, "diffusion_time=-1.0 must be a number between 0"),
        ({"percentiles": (95.0, 5.0)}, "percentiles=.* must be two ascending numbers"),
        ({"similar_below": 2.0, "dissimilar_above": 1.0}, "must be below"),
    ):
        with pytest.raises(ParameterError, match=says):
            se.PairGenerator(**parameters)
    source = engine()
    source.learn_distances([[1.0] * t for t in range(70)])
    with pytest.raises(InputError, match="it has no points to pair"):
        se.PairGenerator().draw(source.snapshot())
