"""Every scenario in its quick size, against its expected figures; the roster is written down."""

from __future__ import annotations

import pytest

from scenarios.run import SCENARIOS, failures, main
from scenarios.scenario import Expected, Outcome, Scenario

ROSTER = [
    "default-maps",
    "two-circles",
    "never-taught-again",
    "online-loops",
    "few-labels",
    "landmark-stream",
    "merged-landmarks",
    "embedding-gallery",
    "live-map",
    "cities",
    "fenn-table",
    "clustering-under-a-metric",
    "clusters-of-the-picture",
    "eig-dml-online",
    "itml-stream",
    "metrics-online",
    "features-beside-noise",
    "unsupervised-metric-table",
]


# Shortened further they would show nothing.
LONG = {
    "few-labels",
    "never-taught-again",
    "online-loops",
    "default-maps",
    "eig-dml-online",
    "landmark-stream",
    "live-map",
    "merged-landmarks",
    "features-beside-noise",
    "unsupervised-metric-table",
}


def test_the_roster_is_complete() -> None:
    """Ids are permanent: none is lost, none slips in unwritten."""
    assert list(SCENARIOS) == ROSTER


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in LONG else []) for name in ROSTER],
)
def test_the_quick_size_gives_the_expected_figures(name: str) -> None:
    """Every expected figure lies within its bounds."""
    scenario = SCENARIOS[name]
    outcome = scenario.run(False)
    if outcome.skipped is not None:
        pytest.skip(outcome.skipped)
    assert set(scenario.expected) <= set(outcome.figures)
    assert failures(scenario, outcome) == []


def test_a_figure_outside_its_bounds_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The runner says which figure, its bounds and why, and exits with 1."""
    bad = Scenario(
        "bad", "never holds", lambda full: Outcome({"x": 2.0}), {"x": Expected(0, 1, "so")}
    )
    monkeypatch.setitem(SCENARIOS, "bad", bad)
    assert main(["bad"]) == 1
    assert "x = 2 is outside [0, 1] (so)" in capsys.readouterr().out
