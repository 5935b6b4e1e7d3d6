"""Run scenarios: ``python -m scenarios.run [--full] [--write] [ID ...]``.

Exit code 1 where a figure leaves its bounds. ``--write`` (what ``make scenarios`` passes) writes
docs/results.md.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from scenarios import (
    crossing_modes,
    distance_rows,
    drifting_rings,
    eig_dml_online,
    fenn_table,
    itml_stream,
    landmark_stream,
    metric_drift,
    metric_rescue,
    replay_cuts,
    two_circles,
    unsupervised_table,
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
        fenn_table,
        eig_dml_online,
        itml_stream,
        metric_drift,
        metric_rescue,
        unsupervised_table,
    )
}
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"


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
    parser.add_argument("--write", action="store_true", help="write docs/results.md")
    chosen = parser.parse_args(arguments)
    failed: list[str] = []
    outcomes: dict[str, Outcome] = {}
    for name in chosen.ids or SCENARIOS:
        scenario = SCENARIOS[name]
        start = time.perf_counter()
        outcome = outcomes[name] = scenario.run(chosen.full)
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
    if chosen.write:
        PAGE.write_text(page(outcomes, chosen.full))
        print(f"wrote {PAGE.name}")
    return 1 if failed else 0


def page(outcomes: dict[str, Outcome], full: bool) -> str:
    """docs/results.md: every figure with its bounds, and what is to be said of it."""
    size = "full" if full else "quick"
    lines = [
        "# Results",
        "",
        f"Written by `make scenarios` from the {size} sizes; do not edit. Bounds say what is "
        "expected and why; a figure without them is told, not checked.",
    ]
    for name, outcome in outcomes.items():
        scenario = SCENARIOS[name]
        lines += ["", f"## {name}", "", scenario.says[0].upper() + scenario.says[1:] + ".", ""]
        if outcome.skipped is not None:
            lines.append("Skipped: the data are not on this machine.")
            continue
        lines += ["| figure | measured | expected | why |", "|---|---:|---|---|"]
        for figure, value in outcome.figures.items():
            expected = scenario.expected.get(figure)
            bounds = f"{expected.low:g} … {expected.high:g}" if expected else ""
            why = expected.why if expected else ""
            lines.append(f"| {figure.replace('_', ' ')} | {value:.4g} | {bounds} | {why} |")
        lines += [
            f"| {ratio} | {value:.1f} times | | |" for ratio, value in outcome.timings.items()
        ]
        if outcome.notes:
            lines += ["", *[f"- {note}" for note in outcome.notes]]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
