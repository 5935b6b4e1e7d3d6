"""``config show``: what a replay would run with, and where each value comes from."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.option_sources import PREFIX, key_of
from streamembed.cli.replay import command as replay
from streamembed.cli.terminal_text import echo
from streamembed.cli.worker_options import memory_of
from streamembed.methods.options import Config
from streamembed.runs.checkpoint_writer import Cadence
from streamembed.runs.reject_limit import Limit
from streamembed.runs.replay_log import cadence

__all__ = ["command"]

TOLD = {
    ParameterSource.COMMANDLINE: "flag",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
    ParameterSource.DEFAULT: "default",
}


@click.group("config")
def command() -> None:
    """Show what a replay would run with, and where each value comes from."""


@command.command(
    "show", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def show(flags: tuple[str, ...], as_json: bool) -> None:
    """Print every value of a replay with these FLAGS, and its source.

    Later ones win: default, file (--config), environment, flag.
    """
    given = ["-", *flags] if "--run" in flags else ["-", "--run", "-", *flags]
    context = replay.make_context("replay", given)
    given_values = context.params
    given_values["memory"] = memory_of(context, given_values["workers"], given_values["memory"])
    config = Config(**{one.name: given_values[one.name] for one in fields(Config)})
    Cadence.of(given_values["checkpoint_every"])
    Limit.of(given_values["max_rejected"])
    given_values["snapshot_every"] = cadence(config.chunk_size, given_values["snapshot_every"])
    given_values["checkpoint_every"] = given_values["checkpoint_every"] or "30s"
    rows: dict[str, dict[str, Any]] = {}
    for parameter in replay.params:
        if (key := key_of(parameter)) is None or key == "run":
            continue
        source = context.get_parameter_source(str(parameter.name))
        told = TOLD.get(source, "default") if source is not None else "default"
        name = f" ({PREFIX}{key.upper()})" if told == "environment" else ""
        rows[key] = {"value": context.params[str(parameter.name)], "source": told + name}
    if as_json:
        click.echo(json.dumps(rows))
        return
    width = max(map(len, rows))
    for key, row in rows.items():
        echo(f"{key:<{width}}  {_plain(row['value']):<14}  {row['source']}")


def _plain(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
