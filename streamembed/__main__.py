"""``python -m streamembed``."""

from streamembed.cli import main

main(prog_name="streamembed")
