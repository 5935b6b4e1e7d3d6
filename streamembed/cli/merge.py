"""``merge``: several runs into one."""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict

import click

from streamembed.cli.terminal_text import echo
from streamembed.errors import ResolutionWarning
from streamembed.runs.run_merge import merge_runs


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
        snapshot = engine.snapshot()
    facts = {
        "run": output,
        "runs": len(runs),
        "events": snapshot.position,
        "landmarks": len(snapshot.ids),
        "eigenvalues": snapshot.eigenvalues.tolist(),
        "resolution": snapshot.resolution,
        "certificate": asdict(snapshot.certificate),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    verdict = {True: "met", False: "NOT met", None: "an estimate"}[snapshot.certificate.met]
    echo(
        f"{len(snapshot.ids):,} landmarks of {snapshot.position:,} events of {len(runs):,} runs in "
        f"{output}; residual {snapshot.certificate.residual:.1e}, {verdict}"
    )
