"""``merge``: several runs into one."""

from __future__ import annotations

import json
import warnings

import click

from streamembed.cli.show import print_summary
from streamembed.errors import ResolutionWarning, format_count
from streamembed.runs.run_merge import merge_runs
from streamembed.runs.summary import describe_snapshot


@click.command("merge")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("-o", "--output", required=True, metavar="RUN", help="Run to create.")
@click.option(
    "--size", type=int, help="Maximum number of landmarks.  [default: that of the largest run]"
)
@click.option(
    "--scaling",
    type=click.Choice(["agreed", "standard", "global", "none"]),
    default="agreed",
    show_default=True,
    help="agreed: that of the runs, which must be equal; others: computed from all landmarks.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    runs: tuple[str, ...], output: str, size: int | None, scaling: str, as_json: bool
) -> None:
    """Merge runs of landmarks into one.

    Each RUN has learned another part of a stream with --memory landmarks. The result is a run with
    their certified map, which can learn more events; export writes its snapshot.arrow.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)  # the summary reports it
        engine = merge_runs(runs, output, size, None if scaling == "none" else scaling)
        snapshot = describe_snapshot(engine.snapshot())
    counts = f"{snapshot['position']:,} events of {format_count(len(runs), 'run')}"
    facts = {
        "run": output,
        "runs": len(runs),
        "events": snapshot["position"],
        "verdict": f"{format_count(snapshot['points'], 'landmark')} of {counts}",
        "hints": snapshot.pop("hints"),
        "snapshot": snapshot,
    }
    if as_json:
        click.echo(json.dumps(facts))
    else:
        print_summary(facts, output)
