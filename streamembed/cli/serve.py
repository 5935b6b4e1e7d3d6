"""``serve``: a run by Arrow Flight."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

import click

from streamembed.cli.exit_codes import INTERRUPTED, IO, catch_signals
from streamembed.errors import ParameterError, summarise_error
from streamembed.serving.server import Server, limit_memory, tune_process
from streamembed.serving.server_settings import (
    LOOPBACK,
    ServerSettings,
    is_loopback,
    parse_bytes,
)
from streamembed.serving.tokens import add_token

# All addresses of a machine: to listen at, and not to call.
ALL_INTERFACES = ("0.0.0.0", "::")
# Seconds between two looks at whether the server must end.
POLL_INTERVAL = 0.1


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
        "help": "Port to listen on; 0: any free port.",
    },
    "--tokens": {"metavar": "FILE", "help": "File of tokens: who may read, and who may write."},
    "--tls": {"nargs": 2, "metavar": "CERT KEY", "help": "Certificate and key, PEM files."},
    "--insecure": {"is_flag": True, "help": "Allow other machines without tokens or TLS."},
    "--learn": {"is_flag": True, "help": "Also accept events, into a run of open_run."},
    "--checkpoint-every": {
        "metavar": "EVENTS|<n>s",
        "help": "With --learn: how often to commit new events for readers.  [default: 30s]",
    },
    "--max-rows": {
        "type": click.IntRange(1, 1 << 24),
        "help": "Largest number of rows per batch.",
    },
    "--max-bytes": {"type": _ByteCount(), "default": "16MiB", "help": "Largest size of a batch."},
    "--max-streams": {
        "type": click.IntRange(1, 4096),
        "help": "Largest number of open calls.",
    },
    "--max-memory": {
        "type": _ByteCount(),
        "default": "2GiB",
        "help": "Memory beyond the size at start and the stacks of open calls.",
    },
    "--grace": {
        "type": click.FloatRange(0, 86400),
        "help": "Seconds that open streams may take to finish at shutdown.",
    },
    "--metrics-port": {
        "type": click.IntRange(0, 65535),
        "help": "Port of /metrics for Prometheus, on 127.0.0.1; 0: any free port.",
    },
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
    130); a second one does not wait for open calls. SIGHUP reads --tokens again.
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


def _run_server(settings: ServerSettings) -> NoReturn:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log of clients is not for a terminal
    tune_process()
    server, code = Server(settings), IO
    signal.signal(signal.SIGHUP, lambda *_: server.reload_tokens())
    try:
        with catch_signals(deferred=True) as is_stopped, server:
            limit_memory(settings)
            _announce(settings, server)
            while not is_stopped() and server.failure is None:
                time.sleep(POLL_INTERVAL)
            server.drain()
            if is_stopped():
                raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        code = getattr(interrupt, "exit_code", INTERRUPTED)
    message = "stopped; all acknowledged events are committed"
    if n_open := server.n_open:
        message += f"; {n_open} calls that were open after {settings.grace:g} seconds were cut off"
    if (failure := server.failure) is not None:
        code = IO
        message = (
            f"the run has stopped to learn ({summarise_error(failure)}): what was acknowledged is "
            "safe; fix the cause, then start the server again"
        )
    click.echo(f"streamembed: {message}", err=True)
    os._exit(code)  # Python would wait for the calls that clients keep open


def _announce(settings: ServerSettings, server: Server) -> None:
    scheme = "grpc" if settings.tls is None else "grpc+tls"
    host = socket.gethostname() if settings.host in ALL_INTERFACES else settings.host
    click.echo(f"{scheme}://{f'[{host}]' if ':' in host else host}:{server.port}")
    sys.stdout.flush()
    if server.metrics_port is not None:
        click.echo(f"http://{LOOPBACK}:{server.metrics_port}/metrics", err=True)
    if settings.host in ALL_INTERFACES:
        click.echo(f"listening on {settings.host}: all addresses of this machine", err=True)
    if not is_loopback(settings.host) and settings.insecure:
        click.echo(f"warning: {settings.host} serves everyone who can reach it", err=True)
    click.echo("Press Ctrl-C to stop", err=True)
