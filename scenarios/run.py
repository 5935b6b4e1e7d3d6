"""Run scenarios: ``python -m scenarios.run [--full] [ID ...]``; exit code 1 where one fails."""

from __future__ import annotations

import argparse
import sys
import time

from scenarios import (
    crossing_modes,
    distance_rows,
    drifting_rings,
    landmark_stream,
    replay_cuts,
    two_circles,
    word_distances,
)
from scenarios.scenario import Outcome, Scenario

__all__ = ["SCENARIOS", "failures", "main"]

SCENARIOS: dict[str, Scenario] = {
    module.SCENARIO.id: module.SCENARIO
    for module in (
        two_circles,
        drifting_rings,
        replay_cuts,
        crossing_modes,
        landmark_stream,
        distance_rows,
        word_distances,
    )
}


def failures(scenario: Scenario, outcome: Outcome) -> list[str]:
    """What does not hold, a line each."""
    lines: list[str] = []
    if outcome.skipped is not None:
        return lines
    for name, expected in scenario.expected.items():
        value = outcome.figures[name]
        if not expected.holds(value):
            lines.append(
                f"{scenario.id}: {name} = {value:.3g} is outside [{expected.low:g}, "
                f"{expected.high:g}] ({expected.why})"
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run, print, and say what does not hold."""
    parser = argparse.ArgumentParser(prog="scenarios.run", description=__doc__)
    parser.add_argument("ids", nargs="*", choices=[[], *SCENARIOS], help="default: all")
    parser.add_argument("--full", action="store_true", help="full sizes instead of quick ones")
    chosen = parser.parse_args(arguments)
    failed: list[str] = []
    for name in chosen.ids or SCENARIOS:
        scenario = SCENARIOS[name]
        start = time.perf_counter()
        outcome = scenario.run(chosen.full)
        print(f"{name}: {scenario.says} ({time.perf_counter() - start:.0f} s)")
        if outcome.skipped is not None:
            print(f"  skipped: {outcome.skipped}")
        for figure, value in outcome.figures.items():
            expected = scenario.expected.get(figure)
            bounds = f"   in [{expected.low:g}, {expected.high:g}]" if expected else ""
            print(f"  {figure:28s} {value:10.4g}{bounds}")
        for ratio, value in outcome.timings.items():
            print(f"  {ratio:28s} {value:9.1f}x")
        for note in outcome.notes:
            print(f"  - {note}")
        failed += failures(scenario, outcome)
    for line in failed:
        print("FAILED", line)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
