"""``watch``: the page of a run that follows it."""

from __future__ import annotations

import click

from streamembed.addresses import LOOPBACK, is_loopback
from streamembed.cli.exit_codes import stops_gently
from streamembed.report.watch_server import serve

__all__ = ["command"]

PORT = 8765


@click.command("watch")
@click.argument("run", metavar="RUN")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Where it listens; 0: any port that is free.",
)
@click.option(
    "--host",
    default=LOOPBACK,
    show_default=True,
    help="Address to listen at; by default only this machine reaches it.",
)
def command(run: str, port: int, host: str) -> None:
    """Serve a page that follows a run while it is written.

    It only reads: a slow browser, or none, slows no run. Ctrl-C ends it, with exit code 130.
    """
    server = serve(run, host, port)
    name = f"[{host}]" if ":" in host else host
    click.echo(f"http://{name}:{server.server_address[1]}/")
    if not is_loopback(host):
        click.echo(
            f"warning: {host} is no address of this machine alone: whoever reaches it can read "
            "this run; without --host nobody else can",
            err=True,
        )
    click.echo("Ctrl-C ends it", err=True)
    with server, stops_gently(gently=False):
        server.serve_forever()
