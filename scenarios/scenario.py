"""What a scenario is: a permanent id, a seeded stream, figures, and what is expected of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from streamembed.numeric.arrays import Floats

__all__ = ["Expected", "Outcome", "Scenario", "standard_error"]


def standard_error(values: Floats | Sequence[float]) -> float:
    """Of the mean; 0 of a single value."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


@dataclass(frozen=True)
class Expected:
    """Bounds of one figure, and where they come from."""

    low: float
    high: float
    why: str

    def holds(self, value: float) -> bool:
        """True where the figure lies within its bounds."""
        return self.low <= value <= self.high


@dataclass
class Outcome:
    """What a run of a scenario gave.

    Attributes
    ----------
    figures : dict
        By name; those with an `Expected` are checked, the others are reported.
    timings : dict
        Ratios of seconds: reported, never checked.
    notes : list of str
        Lines for the reader: the source's own figure beside ours, for example.
    skipped : str or None
        Why it could not run: the real data are not on this machine.
    """

    figures: dict[str, float] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None


@dataclass(frozen=True)
class Scenario:
    """A scenario: ``run(full)`` in its quick or its full size.

    Attributes
    ----------
    id : str
        Permanent.
    says : str
        One sentence.
    run : callable
        From ``full`` to an `Outcome`.
    expected : dict of str to Expected
        By figure; the same bounds hold in both sizes.
    """

    id: str
    says: str
    run: Callable[[bool], Outcome]
    expected: dict[str, Expected]
