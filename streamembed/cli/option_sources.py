"""Sources of the settings of a replay: a TOML file, the environment, flags; later sources win."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

import click

from streamembed.errors import FileError, MissingFileError, ParameterError, quote

ENVIRONMENT_PREFIX = "STREAMEMBED_"
EXCLUDED_KEYS = ("config", "json", "help")
OTHER_VARIABLES = ("STREAMEMBED_DATA",)  # the data folder of the scenarios


def get_config_key(parameter: click.Parameter) -> str | None:
    """The key of an option in a file: its flag, with underscores; None if it cannot have one."""
    if not isinstance(parameter, click.Option):
        return None
    key = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
    return None if key in EXCLUDED_KEYS else key


def add_environment_variables(command: click.Command) -> None:
    """Read every option from a variable, too, such as STREAMEMBED_CHUNK_SIZE."""
    for parameter in command.params:
        if (key := get_config_key(parameter)) is not None:
            parameter.envvar = ENVIRONMENT_PREFIX + key.upper()


def add_config_option(command: Any) -> Any:
    """Add ``--config FILE``."""
    return click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_load_config,
        help="TOML file with values of these options: chunk_size = 20.",
    )(command)


def _load_config(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """Load the file as defaults; the environment and the flags override it."""
    keys = {key: p.name for p in context.command.params if (key := get_config_key(p)) is not None}
    for name in os.environ:
        if name in OTHER_VARIABLES:
            continue
        if (
            name.startswith(ENVIRONMENT_PREFIX)
            and name.removeprefix(ENVIRONMENT_PREFIX).lower() not in keys
        ):
            raise ParameterError(
                f"the environment sets {name}, {_describe_unknown_key(name, keys)}"
            )
    if value is None:
        return
    entries = _read_toml(Path(value))
    flags = {
        get_config_key(p)
        for p in context.command.params
        if isinstance(p, click.Option) and p.is_flag
    }
    for key, entry in entries.items():
        if isinstance(entry, dict):
            raise ParameterError(f"{value} has the table [{key}]: move its keys to the top level")
        if key not in keys:
            raise ParameterError(
                f"{value} has the key {quote(key)}, {_describe_unknown_key(key, keys)}"
            )
        if isinstance(entry, bool) and key not in flags:
            raise ParameterError(
                f"{value} has {key} = {str(entry).lower()}: the option takes a value, not a boolean"
            )
    context.default_map = {str(keys[key]): entry for key, entry in entries.items()}


def _describe_unknown_key(name: str, keys: Any) -> str:
    bare = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("-", "_")
    near = difflib.get_close_matches(bare, keys, 1, 0.5)
    return "which is not an option" + (f": did you mean {near[0]!r}?" if near else "")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is not a TOML file: {error}") from error
