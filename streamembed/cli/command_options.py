"""Options and arguments: one option per engine parameter, and those that commands share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import click

from streamembed.errors import SCHEME, MissingFileError, ParameterError
from streamembed.methods.engine_parameters import EngineParameters, describe_applicability
from streamembed.parameters import parse_parameter_texts, take_first_sentence

Command = Callable[..., Any]
PARAMETERS = parse_parameter_texts(EngineParameters.__doc__)


def _describe(name: str) -> str:
    """The first sentence on a parameter, and what it is for, without quotes."""
    text = PARAMETERS.get(name, "")  # there are none under ``python -OO``
    sentence = f"{take_first_sentence(text)} {describe_applicability(name)}".strip()
    return re.sub(r"[\"`]|(?<!\w)'|'(?!\w)", "", sentence).replace("None", "none")


HELP = {parameter.name: _describe(parameter.name) for parameter in fields(EngineParameters)}

# What an option may have beside a number, by the annotation of its parameter.
WORDS = {"str": "auto", "None": "none"}


class _NumberOrWord(click.ParamType[Any]):
    """A number, or one of a few words; "none" is None."""

    def __init__(self, kind: type, words: tuple[str, ...]) -> None:
        self.kind = kind
        self.words = words
        self.name = "|".join((*words, *([] if kind is str else [kind.__name__])))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number, the word, or None for "none"."""
        if value is None or not isinstance(value, str):
            return value
        if value in self.words:
            return None if value == "none" else value
        try:
            return self.kind(value)
        except ValueError:
            self.fail(f"{value!r} must be a number or {' or '.join(self.words)}", param, ctx)


class CommaSeparatedNames(click.ParamType[Any]):
    """Comma-separated names."""

    name = "names"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return a tuple of names."""
        if not isinstance(value, str):
            return tuple(value)
        return tuple(name.strip() for name in value.split(",") if name.strip())


def _choose_type(parameter: Field[Any]) -> Any:
    """What an option reads, by the annotation of its parameter, such as ``float | None``."""
    if parameter.name == "scaling":
        return _NumberOrWord(str, ("none", "standard", "global"))
    if parameter.name == "metrics":
        return CommaSeparatedNames()
    kind, _, other = str(parameter.type).partition(" | ")
    if not other:
        return type(parameter.default)
    return _NumberOrWord({"int": int, "float": float}[kind], (WORDS[other],))


# Options by name: type, default and help.
OptionTable = dict[str, tuple[Any, Any, str]]


def add_options(table: OptionTable) -> Callable[[Command], Command]:
    """Add the options of a table; those of type bool are flags."""

    def add(command: Command) -> Command:
        for name, (kind, default, text) in reversed(table.items()):
            settings = {"type": kind, "default": default, "help": text, "is_flag": kind is bool}
            flag = f"--{name.replace('_', '-')}"
            command = click.option(flag, name, show_default=True, **settings)(command)
        return command

    return add


def add_engine_options(command: Command) -> Command:
    """Add an option for every parameter of an engine."""
    for parameter in reversed(fields(EngineParameters)):
        default = parameter.default
        if parameter.name == "on_bad_row":  # a replay rejects such rows
            continue
        command = click.option(
            "--" + parameter.name.replace("_", "-"),
            parameter.name,
            type=_choose_type(parameter),
            is_flag=isinstance(default, bool),
            default=default,
            show_default="none" if default is None or default == () else True,
            help=HELP[parameter.name],
        )(command)
    return command


def _check_columns(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...] | None
) -> list[str] | None:
    if value == ():
        raise click.BadParameter("it must name columns, such as a,b", context, parameter)
    return None if value is None else list(value)


def add_features_option(command: Command) -> Command:
    return click.option(
        "--features",
        type=CommaSeparatedNames(),
        callback=_check_columns,
        metavar="NAMES",
        help="Feature columns: a,b or patterns 'x*,y?'.  [default: numeric columns that are "
        "not named like ids, times or targets]",
    )(command)


def add_role_options(command: Command) -> Command:
    """Add the columns of a log that are no features but have a use."""
    for role, default in (("time", "event_time"), ("label", "label"), ("id", "id")):
        text = f"{role.title()} column.  [default: {default}]"
        command = click.option(f"--{role}", metavar="NAME", help=text)(command)
    return command


def add_columns_options(command: Command) -> Command:
    """Add the options that say what each column of a log is for."""
    command = add_role_options(command)
    command = click.option(
        "--exclude",
        type=CommaSeparatedNames(),
        callback=_check_columns,
        metavar="NAMES",
        help="Columns to exclude: a,b or patterns 'x*,y?'.",
    )(command)
    return add_features_option(command)


def check_logs_exist(paths: tuple[str, ...]) -> list[str]:
    """Return the paths if each exists and none is a run folder.

    URIs are looked at where they are opened.
    """
    for path in paths:
        if SCHEME.match(path):
            continue
        is_pattern = any(sign in path for sign in "*?[")
        if path != "-" and not is_pattern and not Path(path).exists():
            raise MissingFileError(f"{path} does not exist")
        if (Path(path) / "timeline.parquet").exists():
            raise ParameterError(
                f"{path} is a run folder; it must be a log: pass the log, or one file of the run, "
                f"such as {Path(path) / 'embedding.parquet'}"
            )
    return list(paths)
