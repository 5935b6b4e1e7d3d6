"""``python -m streamembed``."""

from streamembed.cli.commands import main

main(prog_name="streamembed")
