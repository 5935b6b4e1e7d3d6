"""What engines, estimators, monitors and runs save is loaded again, whatever they have learned."""

from __future__ import annotations

from scenarios.fuzz import states


def test_saved_states_are_loaded() -> None:
    """A small part of ``python -m scenarios.fuzz.states``: the same bytes at every chunk."""
    counts = states.run(400, seed=7)
    assert counts.failures == []
    assert counts.states >= 400
