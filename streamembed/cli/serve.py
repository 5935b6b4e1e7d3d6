"""``serve``: a run by Arrow Flight."""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import ExitStack
from types import FrameType

import click

from streamembed.addresses import ALL_INTERFACES, LOOPBACK, is_loopback
from streamembed.cli.exit_codes import catch_signals
from streamembed.errors import ParameterError
from streamembed.serving.http_endpoints import HttpEndpoints
from streamembed.serving.server_settings import PORT, ServerSettings, parse_bytes
from streamembed.serving.supervisor import Supervisor
from streamembed.serving.tls import read_certificate_names
from streamembed.serving.tokens import add_token


class _ByteCount(click.ParamType[int]):
    """A number of bytes, such as 16MiB."""

    name = "bytes"

    def convert(self, value: object, param: object, ctx: object) -> int:
        """The number."""
        return value if isinstance(value, int) else parse_bytes(str(value))


@click.command("serve")
@click.argument("run", metavar="RUN", required=False)
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Port of the first reader; further readers use the next ones. 0: any free ports.",
)
@click.option("--tokens", metavar="FILE", help="File of tokens: who may read, and who may write.")
@click.option("--tls", nargs=2, metavar="CERT KEY", help="Certificate and key, PEM files.")
@click.option("--insecure", is_flag=True, help="Allow other machines without tokens or TLS.")
@click.option("--learn", is_flag=True, help="Also accept events, into a run of open_run.")
@click.option(
    "--checkpoint-every",
    metavar="EVENTS|SECONDSs",
    help="With --learn: how often to commit new events for readers.  [default: 30s]",
)
@click.option(
    "--readers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Number of reader processes.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, 1 << 24),
    default=1 << 16,
    show_default=True,
    help="Largest number of rows per batch.",
)
@click.option(
    "--max-bytes",
    type=_ByteCount(),
    default="16MiB",
    show_default=True,
    help="Largest size of a batch.",
)
@click.option(
    "--max-streams",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Largest number of open calls per reader.",
)
@click.option(
    "--max-memory",
    type=_ByteCount(),
    default="2GiB",
    show_default=True,
    help="Memory that a reader may use beyond its size at start.",
)
@click.option(
    "--idle",
    type=click.FloatRange(0.1, 86400),
    default=60.0,
    show_default=True,
    help="Close a stream after this many seconds without data.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 86400),
    default=10.0,
    show_default=True,
    help="Seconds that open streams may take to finish at shutdown.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Port of /metrics, /healthz and /readyz; 0: any free port.",
)
@click.option(
    "--metrics-host", default=LOOPBACK, show_default=True, help="Address of --metrics-port."
)
@click.option(
    "--new-token",
    nargs=2,
    metavar="NAME ROLE",
    help="Print a new token, add its line to the file of --tokens, and exit.",
)
def command(
    run: str | None,
    host: str,
    port: int,
    tokens: str | None,
    tls: tuple[str, str] | None,
    insecure: bool,
    learn: bool,
    checkpoint_every: str | None,
    readers: int,
    max_rows: int,
    max_bytes: int,
    max_streams: int,
    max_memory: int,
    idle: float,
    grace: float,
    metrics_port: int | None,
    metrics_host: str,
    new_token: tuple[str, str] | None,
) -> None:
    """Serve a run by Arrow Flight: transform, learn, snapshots, timeline.

    RUN is a run folder of any kind; --learn needs one of open_run. By default only this machine can
    connect. SIGTERM or Ctrl-C lets open calls finish and commits received events (exit code 143 or
    130; 0 if a client requested it); a second one stops at once. SIGHUP reads --tokens again.
    """
    if new_token is not None:
        if tokens is None:
            raise ParameterError("--new-token needs --tokens FILE: add the file for its line")
        click.echo(add_token(tokens, *new_token))
        return
    if run is None:
        raise ParameterError("RUN is missing: streamembed serve RUN")
    if checkpoint_every is not None and not learn:
        raise ParameterError(
            "--checkpoint-every needs --learn: add it, or leave --checkpoint-every out"
        )
    settings = ServerSettings(
        run=run,
        host=host,
        port=port,
        learn=learn,
        readers=readers,
        tokens=tokens,
        tls=tls or None,
        insecure=insecure,
        max_rows=max_rows,
        max_bytes=max_bytes,
        max_streams=max_streams,
        max_memory=max_memory,
        idle=idle,
        grace=grace,
        checkpoint_every=checkpoint_every,
        metrics_host=metrics_host,
        metrics_port=metrics_port,
    )
    _run_server(settings)


def _run_server(settings: ServerSettings) -> None:
    """Run until a signal or a client stops the server."""
    renewals: list[int] = []

    def record(number: int, _: FrameType | None) -> None:
        renewals.append(number)

    def renew() -> bool:
        is_requested = bool(renewals)
        renewals.clear()
        return is_requested

    with ExitStack() as stack:
        is_stopped = stack.enter_context(catch_signals(deferred=True))
        previous = signal.signal(signal.SIGHUP, record)
        stack.callback(signal.signal, signal.SIGHUP, previous)
        server = stack.enter_context(Supervisor(settings))
        if settings.metrics_port is not None:
            endpoints = HttpEndpoints(settings.metrics_host, settings.metrics_port, server.status)
            stack.enter_context(endpoints)
            click.echo(
                f"http://{_format_host(settings.metrics_host)}:{endpoints.port}/metrics", err=True
            )
        scheme = "grpc" if settings.tls is None else "grpc+tls"
        for port in server.ports:
            click.echo(f"{scheme}://{_format_host(_get_public_host(settings))}:{port}")
        sys.stdout.flush()
        if settings.host in ALL_INTERFACES:
            click.echo(f"listening on {settings.host}: all addresses of this machine", err=True)
        if not is_loopback(settings.host) and settings.insecure:
            click.echo(f"warning: {settings.host} serves everyone who can reach it", err=True)
        click.echo("Press Ctrl-C to stop", err=True)
        cut_off = server.run(is_stopped, renew)
        message = "stopped; all acknowledged events are committed"
        if cut_off:
            message += (
                f"; {cut_off} calls that were open after {settings.grace:g} seconds were cut off"
            )
        if is_stopped():
            interrupt = KeyboardInterrupt()
            interrupt.add_note(message)
            raise interrupt
        click.echo(f"streamembed: {message}", err=True)


def _get_public_host(settings: ServerSettings) -> str:
    """The host name for clients: the address, or the first name of the certificate."""
    if settings.host not in ALL_INTERFACES:
        return settings.host
    names = [] if settings.tls is None else read_certificate_names(*settings.tls)
    plain = [name for name in names if not name.startswith("*")]
    return next(iter(plain), socket.gethostname())


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
