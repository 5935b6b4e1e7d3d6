"""``config show``: the settings that a replay would use, and their sources."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.option_sources import ENVIRONMENT_PREFIX, get_config_key
from streamembed.cli.replay_command import command as replay
from streamembed.cli.terminal_text import echo
from streamembed.cli.worker_options import choose_memory
from streamembed.methods.options import Config
from streamembed.runs.reject_limit import RejectLimit
from streamembed.runs.replay_log import compute_snapshot_interval
from streamembed.runs.run_store import CheckpointPolicy

SOURCE_NAMES = {
    ParameterSource.COMMANDLINE: "flag",
    ParameterSource.ENVIRONMENT: "environment",
    ParameterSource.DEFAULT_MAP: "file",
    ParameterSource.DEFAULT: "default",
}


@click.group("config")
def command() -> None:
    """Show the settings that a replay would use, and their sources."""


@command.command(
    "show", context_settings={"ignore_unknown_options": True, "allow_extra_args": True}
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def show(flags: tuple[str, ...], as_json: bool) -> None:
    """Print every value of a replay with these FLAGS, and its source.

    Later sources win: default, file (--config), environment, flag.
    """
    arguments = ["-", *flags] if "--run" in flags else ["-", "--run", "-", *flags]
    context = replay.make_context("replay", arguments)
    values = context.params
    values["memory"] = choose_memory(context, values["workers"], values["memory"])
    config = Config(**{field.name: values[field.name] for field in fields(Config)})
    CheckpointPolicy.parse(values["checkpoint_every"])
    RejectLimit.parse(values["max_rejected"])
    values["snapshot_every"] = compute_snapshot_interval(
        config.chunks.size, values["snapshot_every"]
    )
    values["checkpoint_every"] = values["checkpoint_every"] or "30s"
    rows: dict[str, dict[str, Any]] = {}
    for parameter in replay.params:
        if (key := get_config_key(parameter)) is None or key == "run":
            continue
        source = context.get_parameter_source(str(parameter.name))
        source_name = SOURCE_NAMES.get(source, "default") if source is not None else "default"
        name = f" ({ENVIRONMENT_PREFIX}{key.upper()})" if source_name == "environment" else ""
        rows[key] = {"value": context.params[str(parameter.name)], "source": source_name + name}
    if as_json:
        click.echo(json.dumps(rows))
        return
    width = max(map(len, rows))
    for key, row in rows.items():
        echo(f"{key:<{width}}  {_format_setting(row['value']):<14}  {row['source']}")


def _format_setting(value: Any) -> str:
    if value is None or value == ():
        return "none"
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
