"""``verify``: whether the data of a run is intact."""

from __future__ import annotations

import json
import sys

import click

from streamembed.cli.exit_codes import DAMAGED
from streamembed.cli.terminal_text import echo
from streamembed.runs.verification import verify


@click.command("verify")
@click.argument("run", metavar="RUN")
@click.option("--deep", is_flag=True, help="Learn an online run again, and compare bytes.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(run: str, deep: bool, as_json: bool) -> None:
    """Check every checksum of a run.

    Exit code 0 if the run is intact, 3 if it is damaged: one line per damage describes it and what
    to do.
    """
    verification = verify(run, deep)
    if as_json:
        troubles = [
            {"what": trouble.what, "remedy": trouble.remedy} for trouble in verification.troubles
        ]
        click.echo(json.dumps({"checked": verification.checked, "troubles": troubles}))
    else:
        for trouble in verification.troubles:
            echo(f"DAMAGED {trouble.what}; {trouble.remedy}")
        counts = ", ".join(f"{name} {count:,}" for name, count in verification.checked.items())
        echo(f"{'checked' if verification.troubles else 'intact'}: {counts}")
    if verification.troubles:
        sys.exit(DAMAGED)
