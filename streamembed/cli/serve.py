"""``serve``: a run by Arrow Flight."""

from __future__ import annotations

import signal
import socket
import sys
from contextlib import ExitStack
from types import FrameType

import click

from streamembed.addresses import EVERYWHERE, LOOPBACK, is_loopback
from streamembed.cli.exit_codes import stops_gently
from streamembed.errors import ParameterError
from streamembed.serving.http_endpoints import HttpEndpoints
from streamembed.serving.server_settings import PORT, ServerSettings, parse_bytes
from streamembed.serving.supervisor import Supervisor
from streamembed.serving.tls import read_certificate_names
from streamembed.serving.tokens import add_token

__all__ = ["command"]


class _Bytes(click.ParamType[int]):
    """A number of bytes, such as 16MiB."""

    name = "bytes"

    def convert(self, value: object, param: object, ctx: object) -> int:
        """The number."""
        return value if isinstance(value, int) else parse_bytes(str(value))


@click.command("serve")
@click.argument("run", metavar="RUN", required=False)
@click.option("--host", default=LOOPBACK, show_default=True, help="Address to listen at.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=PORT,
    show_default=True,
    help="Of the first reader; the next ones follow. 0: any that are free.",
)
@click.option("--tokens", metavar="FILE", help="Who may read, and who may write.")
@click.option("--tls", nargs=2, metavar="CERT KEY", help="Certificate and key, PEM files.")
@click.option(
    "--insecure", is_flag=True, help="Serve other machines without tokens or TLS all the same."
)
@click.option("--learn", is_flag=True, help="Take events, too, into a run of open_run.")
@click.option(
    "--checkpoint-every",
    metavar="EVENTS|SECONDSs",
    help="With --learn: how often readers see what was learned.  [default: 30s]",
)
@click.option(
    "--readers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Processes that answer.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(1, 1 << 24),
    default=1 << 16,
    show_default=True,
    help="Rows of a batch.",
)
@click.option(
    "--max-bytes", type=_Bytes(), default="16MiB", show_default=True, help="Bytes of a batch."
)
@click.option(
    "--max-streams",
    type=click.IntRange(1, 4096),
    default=64,
    show_default=True,
    help="Calls that are open at once, per reader.",
)
@click.option(
    "--max-memory",
    type=_Bytes(),
    default="2GiB",
    show_default=True,
    help="What a reader may take beyond what it starts with.",
)
@click.option(
    "--idle",
    type=click.FloatRange(0.1, 86400),
    default=60.0,
    show_default=True,
    help="Seconds of silence after which a stream is closed.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0, 86400),
    default=10.0,
    show_default=True,
    help="Seconds that open streams have to end when the server does.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="Serve /metrics, /healthz and /readyz there; 0: any port that is free.",
)
@click.option(
    "--metrics-host", default=LOOPBACK, show_default=True, help="Address of --metrics-port."
)
@click.option(
    "--new-token",
    nargs=2,
    metavar="NAME ROLE",
    help="Print a new token, put its line into the file of --tokens, and end.",
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

    RUN is a run folder of any kind; --learn takes one of open_run. By default only this machine is
    served. SIGTERM and Ctrl-C let open calls end and commit what was put (exit code 143 or 130; 0
    where a client asked for it); a second one ends at once. SIGHUP reads --tokens again.
    """
    if new_token is not None:
        if tokens is None:
            raise ParameterError("--new-token takes --tokens FILE: where to put its line")
        click.echo(add_token(tokens, *new_token))
        return
    if run is None:
        raise ParameterError("say which run is to be served: streamembed serve RUN")
    if checkpoint_every is not None and not learn:
        raise ParameterError("--checkpoint-every is for a run that learns: add --learn")
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
    _serve(settings)


def _serve(settings: ServerSettings) -> None:
    """Until a signal, or a client, ends it."""
    renewals: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        renewals.append(number)

    def renew() -> bool:
        found = bool(renewals)
        renewals.clear()
        return found

    with ExitStack() as stack:
        stopped = stack.enter_context(stops_gently(gently=True))
        before = signal.signal(signal.SIGHUP, note)
        stack.callback(signal.signal, signal.SIGHUP, before)
        server = stack.enter_context(Supervisor(settings))
        if settings.metrics_port is not None:
            health = HttpEndpoints(settings.metrics_host, settings.metrics_port, server.status)
            stack.enter_context(health)
            click.echo(f"http://{_named(settings.metrics_host)}:{health.port}/metrics", err=True)
        scheme = "grpc" if settings.tls is None else "grpc+tls"
        for port in server.ports:
            click.echo(f"{scheme}://{_named(_called(settings))}:{port}")
        sys.stdout.flush()
        if settings.host in EVERYWHERE:
            click.echo(f"at {settings.host}: all addresses of this machine", err=True)
        if not is_loopback(settings.host) and settings.insecure:
            click.echo(f"warning: {settings.host} serves whoever reaches it", err=True)
        click.echo("Ctrl-C ends it", err=True)
        left = server.run(stopped, renew)
        told = "ended; what was acknowledged is committed"
        if left:
            told += f"; {left} calls that were open after {settings.grace:g} seconds were cut off"
        if stopped():
            ending = KeyboardInterrupt()
            ending.add_note(told)
            raise ending
        click.echo(f"streamembed: {told}", err=True)


def _called(settings: ServerSettings) -> str:
    """What clients call this machine: where it listens, or the first name of its certificate."""
    if settings.host not in EVERYWHERE:
        return settings.host
    names = [] if settings.tls is None else read_certificate_names(*settings.tls)
    plain = [name for name in names if not name.startswith("*")]
    return next(iter(plain), socket.gethostname())


def _named(host: str) -> str:
    return f"[{host}]" if ":" in host else host
