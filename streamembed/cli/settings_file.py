"""``--config FILE``: the options of a command from a TOML file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import click

from streamembed.errors import ParameterError, build_file_error
from streamembed.parameters import suggest_name

PREFIX = "STREAMEMBED"  # of the environment variables that click reads options from
OTHER_VARIABLES = ("STREAMEMBED_DATA",)  # the data folder of the scenarios


def add_config_option(command: Any) -> Any:
    """Add ``--config FILE``."""
    return click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_load_settings,
        allow_from_autoenv=False,
        help="TOML file with values of these options: chunk_size = 20.",
    )(command)


def _load_settings(context: click.Context, _: click.Parameter, path: str | None) -> None:
    """Load the file as defaults, which the environment and flags override."""
    options = {
        str(option.name): option
        for option in context.command.params
        if isinstance(option, click.Option) and option.allow_from_autoenv
    }
    variables = [name for name in os.environ if name.startswith(f"{PREFIX}_")]
    for variable in {*variables}.difference(OTHER_VARIABLES):
        name = variable.removeprefix(f"{PREFIX}_").lower()
        if name not in options:
            raise ParameterError(
                f"the environment variable {variable} is no option: {suggest_name(name, options)}"
            )
    entries = {} if path is None else _read_toml(Path(path))
    for name, value in entries.items():
        if isinstance(value, dict):
            raise ParameterError(f"{path} has the table [{name}]: move its keys to the top level")
        if name not in options:
            raise ParameterError(f"{path} has the key {name!r}: {suggest_name(name, options)}")
        if isinstance(value, bool) and not options[name].is_flag:
            raise ParameterError(f"{path} has {name} = {value}: the option needs another value")
    context.default_map = entries


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise build_file_error(error, path, "read") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is not a TOML file: {error}") from error
