"""`LabelSpreading`: laws of the stream, labels of every kind, late ones, both libraries' checks."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from river import checks, compose, preprocessing
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamembed.errors import InputError, NotReadyError, ParameterError
from streamembed.estimators import LabelSpreading
from streamembed.estimators.label_spreading import CHUNK
from streamembed.manifold import label_spreading
from streamembed.sklearn import LabelSpreadingClassifier

RNG = np.random.default_rng(2)
CLASSES = RNG.integers(3, size=260)
POINTS = 4.0 * RNG.standard_normal((3, 3))[CLASSES] + RNG.standard_normal((260, 3))
LABELS = [f"c{code}" if i % 9 == 0 else None for i, code in enumerate(CLASSES)]
SMALL = {"size": 80, "warm_up": 30, "n_neighbors": 5}


def create(**parameters: Any) -> LabelSpreading:
    return LabelSpreading(**{**SMALL, **parameters})


def learn(n: int = 260) -> LabelSpreading:
    model = create()
    model.learn_many(POINTS[:n], LABELS[:n])
    return model


def state(model: LabelSpreading) -> bytes:
    return pickle.dumps(model)


def test_few_labels_are_enough_for_groups_apart() -> None:
    """Three groups four deviations apart, three labels: nearly all are right."""
    model = create(size=300)
    first = [int(np.flatnonzero(code == CLASSES)[0]) for code in range(3)]
    model.learn_many(POINTS, [CLASSES[i] if i in first else None for i in range(260)])
    assert np.mean(model.predict_many(POINTS) == CLASSES) > 0.9
    assert model.certificate["met"]
    assert model.certificate["labels"] == 3


def test_late_labels_count_as_if_they_had_come_with_their_events() -> None:
    """In the warm-up, waiting, in the window; of those that left, the ids come back."""
    for n in (20, 85, 250):
        late = create()
        late.learn_many(POINTS[:n], [None] * n)
        ids = [i for i in range(n) if LABELS[i] is not None and i >= n - 80]
        gone = (0,) if n > 96 else ()  # up to 15 events wait for their chunk
        assert late.label([*gone, *ids], ["x"] * len(gone) + [LABELS[i] for i in ids]) == gone
        kept = create()
        kept.learn_many(POINTS[:n], [LABELS[i] if i in ids else None for i in range(n)])
        order = [late.classes.index(label) for label in kept.classes]
        np.testing.assert_allclose(
            late.predict_proba_many(POINTS)[:, order],
            kept.predict_proba_many(POINTS),
            atol=0.05,  # two residuals of .001, and scores that are divided by their sum
        )
    assert late.label([249], [None]) == ()


@pytest.mark.parametrize("ids", [[260], [-1], ["a"], [1.0], [True], 3])
def test_ids_that_are_no_positions_are_refused(ids: Any) -> None:
    model = learn()
    before = state(model)
    with pytest.raises(InputError, match="ids"):
        model.label(ids, ["a"])
    assert state(model) == before


def test_a_classifier_without_labels_has_no_answer() -> None:
    """None and an empty dict; with the first event every class has equal shares or its label's."""
    model = create()
    assert model.predict_proba_one({"a": 1.0}) == {}
    assert model.predict_one({"a": 1.0}) is None
    assert model.ask(3) == []
    with pytest.raises(NotReadyError):
        _ = model.certificate
    model.learn_one({"a": 1.0})
    assert model.predict_one({"a": 1.0}) is None
    assert model.predict_many([{"a": 1.0}]).tolist() == [None]
    assert model.ask(3) == [0]
    model.learn_one({"a": 2.0}, "x")
    assert model.predict_proba_one({"a": 1.0}) == {"x": 1.0}


def test_contradictory_labels_of_equal_points_share() -> None:
    """The more frequent one is likelier, and neither is certain."""
    model = create()
    for label in ("a", "b", "a"):
        model.learn_one({"x": 0.0}, label)
    shares = model.predict_proba_one({"x": 0.0})
    assert shares["a"] > shares["b"] > 0.0


def test_every_kind_of_label_comes_back_as_it_was() -> None:
    """True and 1 are two classes, NaN is no label; a list is none and is refused."""
    model = create()
    model.learn_many(np.arange(6.0)[:, None], [True, 1, "1", 2.5, float("nan"), None])
    assert model.classes == (True, 1, "1", 2.5)
    with pytest.raises(InputError, match="hashable"):
        model.learn_one({"0": 1.0}, [1])
    assert model.position == 6


def test_missing_values_and_unknown_features() -> None:
    """As of all estimators of points: means, and counted."""
    model = learn()
    expected = model.predict_proba_one(dict(zip("012", POINTS[:200].mean(axis=0), strict=True)))
    assert set(model.predict_proba_one({})) == set(expected)
    assert model.imputed_in_transform == 3
    model.predict_one({"0": 1.0, "1": 1.0, "2": 1.0, "z": 1.0})
    assert model.ignored_in_transform == 1
    with pytest.raises(InputError, match="X"):
        model.predict_many(POINTS[:, :2])


def test_frames_come_back_with_their_index() -> None:
    model = create()
    frame = pd.DataFrame(POINTS, columns=list("abc"), index=np.arange(260)[::-1])
    model.learn_many(frame, pd.Series(LABELS))
    shares = model.predict_proba_many(frame)
    assert (shares.columns.tolist(), shares.index.tolist()) == (
        list(model.classes),
        frame.index.tolist(),
    )
    assert (model.predict_many(frame) == shares.idxmax(axis=1)).all()
    rows = frame.to_dict("records")
    assert model.predict_many(rows).tolist() == model.predict_many(frame).tolist()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_neighbors", 0), ("size", 1), ("damping", 1.0), ("damping", 0), ("scaling", "z"),
        ("warm_up", 1), ("warm_up", 81),
    ],
)  # fmt: skip
def test_wrong_parameters_are_named(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=f"{name}="):
        create(**{name: value})


def test_a_label_is_solved_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a loop of predictions: one solve a chunk, and one more for each label."""
    model, solves = learn(96), []
    advance = label_spreading.advance
    monkeypatch.setattr(
        label_spreading,
        "advance",
        lambda *args, **named: solves.append(0) or advance(*args, **named),
    )
    for i in range(96, 160):
        x = dict(zip("012", POINTS[i], strict=True))
        model.predict_one(x)
        model.learn_one(x, LABELS[i])
    assert len(solves) <= 64 // CHUNK + sum(label is not None for label in LABELS[96:160])


@pytest.mark.parametrize("check", list(checks.yield_checks(create())), ids=lambda c: c.__name__)
def test_rivers_checks_of_a_classifier(check: Any) -> None:
    check(create())


def test_it_ends_a_pipeline() -> None:
    model = compose.Pipeline(preprocessing.StandardScaler(), create())
    for point, label in zip(POINTS, LABELS, strict=True):
        model.learn_one(dict(zip("abc", point.tolist(), strict=True)), label)
    assert model.predict_one(dict(zip("abc", POINTS[0].tolist(), strict=True))) in {
        "c0",
        "c1",
        "c2",
    }


@parametrize_with_checks(
    [LabelSpreadingClassifier()],
    expected_failed_checks=lambda _: {"check_classifiers_classes": "it takes -1 for a class"},
)
def test_scikit_learns_checks_of_a_classifier(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_classifier_takes_minus_one_for_no_label() -> None:
    """As scikit-learn's own; in parts as at once."""
    y = np.where(np.arange(260) % 9 == 0, CLASSES, -1)
    whole = LabelSpreadingClassifier(**SMALL).fit(POINTS, y)
    parts = LabelSpreadingClassifier(**SMALL)
    for start in range(0, 260, 65):
        parts.partial_fit(POINTS[start : start + 65], y[start : start + 65])
    assert whole.classes_.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(whole.predict_proba(POINTS), parts.predict_proba(POINTS))
    assert whole.score(POINTS, CLASSES) > 0.9
    with pytest.raises(InputError, match="-1"):
        LabelSpreadingClassifier().fit(POINTS, np.full(260, -1))


@pytest.mark.parametrize("names", [("a", "b"), (3, 7)])
def test_none_is_no_label_beside_texts_and_numbers(names: Any) -> None:
    """It was a TypeError of numpy, or an unknown type of labels."""
    points = np.random.default_rng(0).standard_normal((90, 3))
    points[45:] += 5.0
    y = np.array([None] * 90, dtype=object)
    with pytest.raises(InputError, match="y has no label"):
        LabelSpreadingClassifier().fit(points, y)
    y[0], y[60] = names
    assert LabelSpreadingClassifier().fit(points, y).predict(points[[1, 80]]).tolist() == [*names]


def test_a_new_cluster_without_labels_is_uncertain() -> None:
    """Its first events were joined to the others: what was left of that became certainty."""
    rng = np.random.default_rng(0)
    cluster = np.where(
        (np.arange(900) >= 400) & (rng.random(900) < 0.4), 2, rng.integers(2, size=900)
    )
    points = rng.standard_normal((900, 4))
    points[:, 0] += 12 * (cluster == 1)
    points[:, 1] += 20 * (cluster == 2)
    is_known = (cluster < 2) & (rng.random(900) < 0.1)
    model = LabelSpreading()
    for point, code, known in zip(points.tolist(), cluster.tolist(), is_known, strict=True):
        model.learn_one(dict(enumerate(point)), "ab"[code] if known else None)
    is_new = cluster == 2
    for point in points[is_new][20:60].tolist():
        assert model.predict_proba_one(dict(enumerate(point))) == {"a": 0.5, "b": 0.5}
    assert is_new[model.ask(10)].all()
