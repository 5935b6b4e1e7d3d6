"""``serve``: a run by Arrow Flight."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from types import FrameType
from typing import Any

import click

from streamembed.addresses import ALL_INTERFACES, is_loopback
from streamembed.cli.exit_codes import catch_signals
from streamembed.errors import ParameterError
from streamembed.serving.http_endpoints import HttpEndpoints
from streamembed.serving.server_settings import ServerSettings, parse_bytes
from streamembed.serving.supervisor import Supervisor
from streamembed.serving.tls import read_certificate_names
from streamembed.serving.tokens import add_token


class _ByteCount(click.ParamType[int]):
    """A number of bytes, such as 16MiB."""

    name = "bytes"

    def convert(self, value: object, param: object, ctx: object) -> int:
        """The number."""
        return value if isinstance(value, int) else parse_bytes(str(value))


# Options by flag; those with a default in `ServerSettings` show it.
OPTIONS: dict[str, dict[str, Any]] = {
    "--host": {"help": "Address to listen on."},
    "--port": {
        "type": click.IntRange(0, 65535),
        "help": "Port of the first reader; further readers use the next ones. 0: any free ports.",
    },
    "--tokens": {"metavar": "FILE", "help": "File of tokens: who may read, and who may write."},
    "--tls": {"nargs": 2, "metavar": "CERT KEY", "help": "Certificate and key, PEM files."},
    "--insecure": {"is_flag": True, "help": "Allow other machines without tokens or TLS."},
    "--learn": {"is_flag": True, "help": "Also accept events, into a run of open_run."},
    "--checkpoint-every": {
        "metavar": "EVENTS|<n>s",
        "help": "With --learn: how often to commit new events for readers.  [default: 30s]",
    },
    "--readers": {"type": click.IntRange(1, 64), "help": "Number of reader processes."},
    "--max-rows": {
        "type": click.IntRange(1, 1 << 24),
        "help": "Largest number of rows per batch.",
    },
    "--max-bytes": {"type": _ByteCount(), "default": "16MiB", "help": "Largest size of a batch."},
    "--max-streams": {
        "type": click.IntRange(1, 4096),
        "help": "Largest number of open calls per reader.",
    },
    "--max-memory": {
        "type": _ByteCount(),
        "default": "2GiB",
        "help": "Memory that a reader may use beyond its size at start.",
    },
    "--idle": {
        "type": click.FloatRange(0.1, 86400),
        "help": "Close a stream after this many seconds without data.",
    },
    "--grace": {
        "type": click.FloatRange(0, 86400),
        "help": "Seconds that open streams may take to finish at shutdown.",
    },
    "--metrics-port": {
        "type": click.IntRange(0, 65535),
        "help": "Port of /metrics, /healthz and /readyz; 0: any free port.",
    },
    "--metrics-host": {"help": "Address of --metrics-port."},
}


def _add_options(command: Callable[..., Any]) -> Callable[..., Any]:
    defaults = {field.name: field.default for field in fields(ServerSettings)}
    for flag, settings in reversed(OPTIONS.items()):
        default = defaults[flag.removeprefix("--").replace("-", "_")]
        if default is not None and default is not False:
            settings = {"default": default, "show_default": True, **settings}
        command = click.option(flag, **settings)(command)
    return command


@click.command("serve")
@click.argument("run", metavar="RUN", required=False)
@_add_options
@click.option(
    "--new-token",
    nargs=2,
    metavar="NAME ROLE",
    help="Print a new token, add its line to the file of --tokens, and exit.",
)
def command(run: str | None, new_token: tuple[str, str] | None, **options: Any) -> None:
    """Serve a run by Arrow Flight: transform, learn, snapshots, timeline.

    RUN is a run folder of any kind; --learn needs one of open_run. By default only this machine can
    connect. SIGTERM or Ctrl-C lets open calls finish and commits received events (exit code 143 or
    130; 0 if a client requested it); a second one stops at once. SIGHUP reads --tokens again.
    """
    if new_token is not None:
        if options["tokens"] is None:
            raise ParameterError("--new-token needs --tokens FILE: add the file for its line")
        click.echo(add_token(options["tokens"], *new_token))
        return
    if run is None:
        raise ParameterError("RUN is missing: streamembed serve RUN")
    if options["checkpoint_every"] is not None and not options["learn"]:
        raise ParameterError(
            "--checkpoint-every needs --learn: add it, or leave --checkpoint-every out"
        )
    _run_server(ServerSettings(run=run, **options))


def _run_server(settings: ServerSettings) -> None:
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
            address = settings.metrics_host, settings.metrics_port
            endpoints = HttpEndpoints(*address, server.status, server.folder)
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
