"""Messages of the library in the words of the command line: flags for arguments of Python."""

from __future__ import annotations

import re

import click

from streamembed.cli.option_sources import get_config_key
from streamembed.cli.replay_command import command as replay

QUOTES = "'" + '"'
# An argument and its value, if it has one: text, a list of texts, a number or a word.
_ARGUMENT = re.compile(
    r"(?<![\w./'\"-])(?P<name>[a-z]\w*)"
    r"=(?P<value>\[[^]]*\]|\([^)]*\)|'[^']*'|\"[^\"]*\"|[+-]?[\w.]*\w)?(?![\w/=])"
)
_NAME = re.compile(r"(?<![\w./'\"=-])[a-z]+(?:_[a-z]+)+(?![\w/(='\"])")
# What messages of the library add for the command line.
_REPEATED = re.compile(r"(--[\w-]+)( \S+)? \(\1\)")


def name_flags(message: str, command: click.Command | None = None) -> str:
    """The message with the flags of a command, or of ``replay``, in place of arguments.

    Examples
    --------
    >>> name_flags("n_neighbors=0 must be at least 1; try kernel='gaussian', or picture=True")
    '--n-neighbors 0 must be at least 1; try --kernel gaussian, or --picture'
    >>> name_flags("choose with features=, for example ['v'], and at least n_components + 2")
    "choose with --features, for example ['v'], and at least --n-components + 2"
    >>> name_flags("day=3/a.parquet and alpha")
    'day=3/a.parquet and alpha'
    """
    words = {"paths": "LOG", "n_reference": "--reference first:"}
    for parameter in (*replay.params, *(() if command is None else command.params)):
        key = get_config_key(parameter) or str(parameter.name)
        words[key] = parameter.metavar or key.upper()
        if isinstance(parameter, click.Option):
            words[key] = max(parameter.opts, key=len)

    def replace_argument(match: re.Match[str]) -> str:
        word = words.get(match["name"])
        if word is None:
            return match[0]
        separator = "" if word.endswith(":") else " "
        return f"{word}{separator}{_format_value(match['value'])}".rstrip()

    def replace_name(match: re.Match[str]) -> str:
        word = words.get(match[0], "")
        return word if word.startswith("--") else match[0]

    named = _NAME.sub(replace_name, _ARGUMENT.sub(replace_argument, message))
    return _REPEATED.sub(r"\1\2", named)


def _format_value(value: str | None) -> str:
    """The value as the command line takes it; nothing of a flag that is set."""
    if value in (None, "", "True"):
        return ""
    if value.startswith(("[", "(")):
        value = ",".join(re.findall(r"'([^']*)'", value)) or value
    return "none" if value == "None" else value.strip(QUOTES) or value
