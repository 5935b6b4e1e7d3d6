"""Output for people: text whose characters cannot control the terminal."""

from __future__ import annotations

import re
import sys
import unicodedata

import click

# Control and format characters and line separators: escape codes, and changes of direction that
# make a name look like another.
UNSAFE_CATEGORIES = ("Cc", "Cf", "Zl", "Zp")


def escape_controls(text: str) -> str:
    r"""Escape control characters, and those that change the direction of text.

    Examples
    --------
    >>> print(escape_controls("a\u202eb\x1b[31m"))
    a\u202eb\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(
        character.encode("unicode_escape").decode()
        if unicodedata.category(character) in UNSAFE_CATEGORIES
        else character
        for character in text
    )


def echo(line: object, err: bool = False) -> None:
    """Print a line for people; names in it may have any characters.

    On a terminal it replaces a progress bar.
    """
    clear = "\r\x1b[K" if err and sys.stderr.isatty() else ""
    click.echo(clear + escape_controls(str(line)), err=err)


def name_options(text: str) -> str:
    """A message of the library with the options of the command in place of its parameters."""
    context = click.get_current_context()
    command: click.Command | None = context.command
    if isinstance(command, click.Group):  # an error of a command that has ended
        command = command.get_command(context, context.invoked_subcommand or "")
    for option in () if command is None else command.params:
        if isinstance(option, click.Option):
            flag, value = max(option.opts, key=len), rf"(?<![\w/.'\"-]){option.name}="
            text = re.sub(rf"{value}(True\b|(?!\w|['\"(\[-]))", flag, text)
            text = re.sub(value, f"{flag} ", text)
    return text
