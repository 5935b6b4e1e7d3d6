"""Certificates of spread labels hold against dense solves, and false ones are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scenarios.fuzz import labels
from streamembed.manifold import label_spreading


def test_certificates_are_true() -> None:
    """A small part of ``python -m scenarios.fuzz.labels``."""
    snapshots, wrong = labels.run(25, seed=1000)
    assert wrong == []
    assert snapshots > 50


def test_a_false_certificate_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A residual of half its size."""
    advance = label_spreading.advance

    def halve(*arguments, **named):
        graph = advance(*arguments, **named)
        return replace(graph, residual=0.5 * graph.residual)

    monkeypatch.setattr(label_spreading, "advance", halve)
    assert any("claimed" in fault for fault in labels.run(10, seed=1000)[1])
