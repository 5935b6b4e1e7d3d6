"""What hosts do to open runs, a little of what ``python -m scenarios.fuzz.hosts`` tries."""

from __future__ import annotations

import os

import pytest

from scenarios.fuzz import hosts

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="it kills forked processes")


@pytest.mark.parametrize("trial", hosts.TRIALS)
def test_hosts_take_nothing_that_was_acknowledged(trial: str) -> None:
    """One round of each trial."""
    assert hosts.fuzz(1, 5, (trial,)) == []


@pytest.mark.long
@pytest.mark.parametrize("trial", hosts.TRIALS)
def test_hosts_take_nothing_in_many_rounds(trial: str) -> None:
    """Eight rounds of each trial."""
    assert hosts.fuzz(8, 1000, (trial,)) == []
