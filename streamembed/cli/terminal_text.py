"""What commands print for people: text whose characters cannot steer the terminal."""

from __future__ import annotations

import unicodedata

import click

__all__ = ["echo", "visible"]

# Control and format characters, and separators of lines: escape codes, and changes of direction
# that let a name look like another one.
STEERING = ("Cc", "Cf", "Zl", "Zp")


def visible(text: str) -> str:
    r"""Text with escapes for control characters, and for those that change its direction.

    Examples
    --------
    >>> print(visible("a\u202eb\x1b[31m"))
    a\u202eb\x1b[31m
    """
    if text.isprintable():
        return text
    return "".join(
        one.encode("unicode_escape").decode() if unicodedata.category(one) in STEERING else one
        for one in text
    )


def echo(line: object, err: bool = False) -> None:
    """Print a line for people; names in it may have any characters."""
    click.echo(visible(str(line)), err=err)
