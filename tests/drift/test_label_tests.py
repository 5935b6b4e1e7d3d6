"""Which labels changed: named right over seeds, and hardly ever named without a change."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import streamembed as se
from streamembed.drift.alarm import Explanation
from streamembed.drift.label_tests import explain_labels
from streamembed.numeric.arrays import Floats, Ints

FEATURES = ("a", "b", "c", "d")
CENTERS = 2.0 * np.eye(4)


def draw(rng: np.random.Generator, n: int) -> tuple[Floats, Ints]:
    """Four labels, each at a place of its own."""
    labels = rng.integers(4, size=n)
    return CENTERS[labels] + rng.standard_normal((n, 4)), labels


def change(kind: str, rng: np.random.Generator, n: int) -> tuple[Floats, Ints]:
    """Labels 1 and 2 change places; half of label 0 has label 3; 'c' of label 1 moves by 1.5 sd."""
    points, labels = draw(rng, n)
    if kind == "swap":
        labels = np.array([0, 2, 1, 3])[labels]
    elif kind == "share":
        labels = np.where((labels == 0) & (rng.random(n) < 0.5), 3, labels)
    else:
        points[labels == 1, 2] += 1.5
    return points, labels


@pytest.mark.parametrize(
    ("kind", "changed"), [("swap", {"1", "2"}), ("share", {"0", "3"}), ("move", {"1"})]
)
def test_an_alarm_of_labels_says_which(kind: str, changed: set[str]) -> None:
    """Five seeds."""
    right = alarms = 0
    for seed in range(5):
        rng = np.random.default_rng([seed, 1])
        monitor = se.Monitor(ert=20_000, n_reference=600, labels=True, seed=seed)
        for points, labels in (draw(rng, 700), change(kind, rng, 600)):
            monitor.learn(points, y=labels.tolist())
        alarm = next((a for a in monitor.alarms if a.position > 700), None)
        if alarm is None or alarm.channel != "labels":
            continue
        alarms += 1
        assert alarm.explanation is not None
        named = alarm.explanation.labels
        right += bool(named) and named[0] in changed
        assert not named or f"label '{named[0]}'" in alarm.sentence
    assert alarms >= 3
    assert right >= alarms - 1


def test_without_a_change_no_label_is_named() -> None:
    """In 1 of 100 samples at most: 8 or more of 300 have a probability below .01."""
    named = 0
    for seed in range(300):
        rng = np.random.default_rng([seed, 2])
        named += explain_labels(FEATURES, range(4), draw(rng, 500), draw(rng, 60), 1.0) is not None
    assert named <= 7


def test_the_tests_are_those_of_the_textbook() -> None:
    """Fisher's exact test of the share, and the rank-sum test of a feature of one label."""
    rng = np.random.default_rng(3)
    before, since = draw(rng, 400), change("share", rng, 200)
    found = explain_labels(FEATURES, range(4), before, since, 1.0)
    assert isinstance(found, Explanation)
    assert (found.kind, found.labels[0], found.events) == ("label share", "3", 200)
    counts = [[(since[1] == 3).sum(), (since[1] != 3).sum()]]
    counts += [[(before[1] == 3).sum(), (before[1] != 3).sum()]]
    one_sided = stats.fisher_exact(counts, alternative="greater").pvalue
    assert found.p == pytest.approx(2 * one_sided * 2 * 4)
    since = change("move", rng, 200)
    found = explain_labels(FEATURES, range(4), before, since, 1.0)
    assert found is not None
    assert (found.kind, found.names, found.labels) == ("label mean", ("c",), ("1",))
    own = [sample[0][sample[1] == 1, 2] for sample in (before, since)]
    assert found.after == pytest.approx(own[1].mean() - own[0].mean())
    p = stats.mannwhitneyu(*own, method="asymptotic").pvalue
    assert found.p == pytest.approx(p * 2 * 4 * 4)


def test_labels_without_events_are_no_error() -> None:
    """No labels since; a constant feature; a label that is new; dependence makes p larger."""
    rng = np.random.default_rng(4)
    before, (points, labels) = draw(rng, 300), draw(rng, 60)
    assert explain_labels(FEATURES, range(4), before, (points, np.full(60, -1)), 1.0) is None
    constant = np.zeros((300, 4)), before[1]
    assert explain_labels(FEATURES, range(4), constant, (points * 0.0, labels), 1.0) is None
    since = points, np.full(60, 4)
    new = explain_labels(FEATURES, range(5), before, since, 1.0)
    slow = explain_labels(FEATURES, range(5), before, since, 5.0)
    assert new is not None
    assert slow is not None
    assert (new.kind, new.labels[0], new.before, new.after) == ("label share", "4", 0.0, 1.0)
    assert new.p < slow.p


@pytest.mark.parametrize(("rare", "n", "m"), [(0.025, 500, 60), (0.025, 300, 20), (0.04, 300, 20)])
def test_rare_values_are_no_change(rare: float, n: int, m: int) -> None:
    """As above, with features that are 0 but for a few events; by rank sums it is 10 to 30."""
    named = 0
    for seed in range(300):
        rng = np.random.default_rng([seed, n, m])
        labels = rng.integers(0, 3, n + m)
        X = rng.choice([-1.0, 0.0, 1.0], size=(n + m, 4), p=[rare / 2, 1 - rare, rare / 2])
        before, since = (X[:n], labels[:n]), (X[n:], labels[n:])
        named += explain_labels(FEATURES, range(3), before, since, 1.0) is not None
    assert named <= 7


def test_rare_values_that_come_more_often_are_named() -> None:
    """By the smaller of the exact p of the shares above and below the usual value, twice."""
    rng = np.random.default_rng(5)
    labels, X = rng.integers(0, 3, 600), (rng.random((600, 4)) < 0.03).astype(float)
    since = X[400:].copy()
    since[(labels[400:] == 1) & (rng.random(200) < 0.4), 2] = 1.0
    found = explain_labels(FEATURES, range(3), (X[:400], labels[:400]), (since, labels[400:]), 1.0)
    assert found is not None
    assert (found.kind, found.names, found.labels) == ("label mean", ("c",), ("1",))
    own = [rows[of == 1, 2] for rows, of in ((since, labels[400:]), (X[:400], labels[:400]))]
    table = [[column.sum(), len(column) - column.sum()] for column in own]
    p = 2 * stats.fisher_exact(table, alternative="greater").pvalue
    assert found.p == pytest.approx(2 * p * 2 * 3 * 4)


@pytest.mark.parametrize(
    "shares", [[0.99, 0.01], [1 / 30] * 30, [0.5, 0.497, 0.003]], ids=["1:99", "30", "absent"]
)
def test_unbalanced_labels_are_no_change(shares: list[float]) -> None:
    """As above: a rare label, thirty, and one that is mostly not in the reference."""
    named, centers = 0, np.random.default_rng(6).standard_normal((30, 4))
    for seed in range(300):
        rng = np.random.default_rng([seed, 7])
        labels = rng.choice(len(shares), 200 + 40, p=shares)
        X = centers[labels] + rng.standard_normal((240, 4))
        before, since = (X[:200], labels[:200]), (X[200:], labels[200:])
        named += explain_labels(FEATURES, range(len(shares)), before, since, 1.0) is not None
    assert named <= 7
