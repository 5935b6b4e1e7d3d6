"""docs/cli.md is what the commands say of themselves.

``python -m tests.cli.test_reference`` writes it again.
"""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from streamembed.cli import commands

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
WRITE = "write it: python -m tests.cli.test_reference"
WIDTH = 88  # as many columns as a page of the site shows


def format_help(name: str) -> str:
    """What ``streamembed NAME --help`` prints on a terminal of 88 columns."""
    command = commands.load_command(name)
    with click.Context(
        command,
        info_name=f"streamembed {name}",
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    ) as context:
        return command.get_help(context)


def format_section(name: str) -> str:
    """The section of a command."""
    return f"## {name}\n\n```\n{format_help(name)}\n```\n\n"


def write_page() -> None:
    """The introduction stays; every command follows, in alphabetical order."""
    introduction = PAGE.read_text().split("\n## demo")[0]
    PAGE.write_text(
        introduction.rstrip()
        + "\n\n"
        + "".join(map(format_section, commands.COMMANDS)).rstrip()
        + "\n"
    )


@pytest.mark.parametrize("name", commands.COMMANDS)
def test_the_page_has_the_help_of_every_command(name: str) -> None:
    """Word for word, as the command prints it."""
    assert format_section(name).strip() in PAGE.read_text(), WRITE


def test_the_page_has_no_other_command() -> None:
    """One that is gone leaves the page, too."""
    assert re.findall(r"^## ([a-z]\w+)$", PAGE.read_text(), re.MULTILINE) == [*commands.COMMANDS]


def test_every_exit_code_is_on_the_page() -> None:
    """Those that ``streamembed --help`` lists."""
    (words,) = re.findall(r"Exit codes: (.*)", " ".join((commands.main.help or "").split()))
    codes = re.findall(r"(?:^|[;,] )(\d+) ", words)
    assert codes == re.findall(r"^\| (\d+) \|", PAGE.read_text(), re.MULTILINE)


if __name__ == "__main__":
    write_page()
