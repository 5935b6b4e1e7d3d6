"""``verify``: whether a run holds what was written to it."""

from __future__ import annotations

import json
import sys

import click

from streamembed.cli.exit_codes import DAMAGED
from streamembed.cli.terminal_text import echo
from streamembed.runs.verification import verify

__all__ = ["command"]


@click.command("verify")
@click.argument("run", metavar="RUN")
@click.option("--deep", is_flag=True, help="Learn everything again, and compare bytes.")
@click.option("--log", "logs", multiple=True, metavar="LOG", help="Of a replay, for --deep.")
@click.option("--pairs", multiple=True, metavar="LOG", help="Its pair log, if it had one.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(
    run: str, deep: bool, logs: tuple[str, ...], pairs: tuple[str, ...], as_json: bool
) -> None:
    """Check every checksum of a run.

    Exit code 0 only where all is well, 3 where something is damaged: a line for each says what, and
    what to do.
    """
    found = verify(run, deep, list(logs) or None, list(pairs) or None)
    if as_json:
        troubles = [{"what": one.what, "remedy": one.remedy} for one in found.troubles]
        click.echo(json.dumps({"checked": found.checked, "troubles": troubles}))
    else:
        for trouble in found.troubles:
            echo(f"DAMAGED {trouble.what}; {trouble.remedy}")
        told = ", ".join(f"{name} {count:,}" for name, count in found.checked.items())
        echo(f"{'checked' if found.troubles else 'all is well'}: {told}")
    if found.troubles:
        sys.exit(DAMAGED)
