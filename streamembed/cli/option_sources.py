"""Where the values of a replay come from: a TOML file, the environment, flags; later ones win."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

import click

from streamembed.errors import FileError, MissingFileError, ParameterError, shown

__all__ = ["PREFIX", "config_option", "from_environment", "key_of"]

PREFIX = "STREAMEMBED_"
NO_KEYS = ("config", "json", "help")
NO_OPTIONS = ("STREAMEMBED_DATA",)  # where the scenarios look for data


def key_of(parameter: click.Parameter) -> str | None:
    """What a file calls an option: its flag, with underscores; None where it cannot be given."""
    if not isinstance(parameter, click.Option):
        return None
    key = max(parameter.opts, key=len).lstrip("-").replace("-", "_")
    return None if key in NO_KEYS else key


def from_environment(command: click.Command) -> None:
    """Every option may come from a variable, such as STREAMEMBED_CHUNK_SIZE."""
    for parameter in command.params:
        if (key := key_of(parameter)) is not None:
            parameter.envvar = PREFIX + key.upper()


def config_option(command: Any) -> Any:
    """``--config FILE``."""
    return click.option(
        "--config",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=_configure,
        help="TOML file with values for these options: chunk_size = 20.",
    )(command)


def _configure(context: click.Context, _: click.Parameter, value: str | None) -> None:
    """The values of the file stand behind the environment and the flags."""
    keys = {key: p.name for p in context.command.params if (key := key_of(p)) is not None}
    for name in os.environ:
        if name in NO_OPTIONS:
            continue
        if name.startswith(PREFIX) and name.removeprefix(PREFIX).lower() not in keys:
            raise ParameterError(f"the environment has {name}, {_unknown(name, keys)}")
    if value is None:
        return
    given = _read(Path(value))
    flags = {key_of(p) for p in context.command.params if isinstance(p, click.Option) and p.is_flag}
    for key, one in given.items():
        if isinstance(one, dict):
            raise ParameterError(f"{value} has the table [{key}]; put its keys at the top")
        if key not in keys:
            raise ParameterError(f"{value} has the key {shown(key)}, {_unknown(key, keys)}")
        if isinstance(one, bool) and key not in flags:
            raise ParameterError(f"{value} has {key} = {str(one).lower()}, which is no such value")
    context.default_map = {str(keys[key]): one for key, one in given.items()}


def _unknown(name: str, keys: Any) -> str:
    """That there is no such key, and which is nearest."""
    bare = name.removeprefix(PREFIX).lower().replace("-", "_")
    near = difflib.get_close_matches(bare, keys, 1, 0.5)
    return "which is no option" + (f": did you mean {near[0]!r}?" if near else "")


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except FileNotFoundError as error:
        raise MissingFileError(f"{path} does not exist") from error
    except OSError as error:
        raise FileError(f"{path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path} is no TOML file: {error}") from error
