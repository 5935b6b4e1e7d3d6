"""``watch``: a page that follows a run."""

from __future__ import annotations

import click

from streamembed.addresses import LOOPBACK, is_loopback
from streamembed.cli.exit_codes import catch_signals
from streamembed.report.watch_server import create_server

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
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="Address to listen on; the default is reachable from this machine only.",
)
def command(run: str, port: int, host: str) -> None:
    """Serve a page that follows a run while it is written.

    It reads only: a slow browser does not delay the run. Ctrl-C stops it, with exit code 130.
    """
    server = create_server(run, host, port)
    address = f"[{host}]" if ":" in host else host
    click.echo(f"http://{address}:{server.server_address[1]}/")
    if not is_loopback(host):
        click.echo(
            f"warning: {host} is reachable from other machines: everyone who can reach it can "
            "read this run; leave --host out to serve this machine only",
            err=True,
        )
    click.echo("Press Ctrl-C to stop", err=True)
    with server, catch_signals(deferred=False):
        server.serve_forever()
