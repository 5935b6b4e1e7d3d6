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
    """20 seeds: none right before, when no label was ever named."""
    right = alarms = 0
    for seed in range(20):
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
    assert alarms >= 14
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
