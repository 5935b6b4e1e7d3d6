"""``watch``: a page that follows a run."""

from __future__ import annotations

import click

from streamembed.cli.exit_codes import catch_signals
from streamembed.report.watch_server import HOST, create_server
from streamembed.serving.server_settings import check_port

DEFAULT_PORT = 8765


@click.command("watch")
@click.argument("run", metavar="RUN")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="Port to listen on; 0: any free port.",
)
def command(run: str, port: int) -> None:
    """Serve a page that follows a run while it is written.

    It listens on this machine only, and reads only: a slow browser does not delay the run. Ctrl-C
    stops it, with exit code 130.
    """
    check_port("--port", HOST, port)
    server = create_server(run, port)
    click.echo(f"http://{HOST}:{server.server_address[1]}/")
    click.echo("Press Ctrl-C to stop", err=True)
    with server, catch_signals(deferred=False):
        server.serve_forever()
