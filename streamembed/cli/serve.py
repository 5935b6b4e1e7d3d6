"""``serve``: a run by Arrow Flight."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from typing import Any, NoReturn

import click

from streamembed.cli.command_options import OptionTable, add_options
from streamembed.cli.exit_codes import INTERRUPTED, IO, catch_signals
from streamembed.errors import ParameterError, summarise_error
from streamembed.serving.server import limit_memory, start_server, tune_process
from streamembed.serving.server_settings import LOOPBACK, ServerSettings, check_port
from streamembed.serving.service import Service
from streamembed.serving.tokens import add_token

# All addresses of a machine: to listen at, and not to call.
ALL_INTERFACES = ("0.0.0.0", "::")
# Seconds between two looks at whether the server must end.
POLL_INTERVAL = 0.1
PEM = click.Path(exists=True, dir_okay=False)
PORT, COUNT = click.IntRange(0, 65535), click.IntRange(1, 1 << 24)
OPTIONS: OptionTable = {
    "host": (str, LOOPBACK[0], "Address to listen on."),
    "port": (PORT, 8815, "Port to listen on; 0: any free port."),
    "tokens": (str, None, "File of tokens: who may read, and who may write."),
    "tls": ((PEM, PEM), None, "Certificate and key, PEM files."),
    "insecure": (bool, False, "Allow other machines without tokens or TLS."),
    "learn": (bool, False, "Also accept events, into a run of open_run."),
    "checkpoint_every": (str, None, "With --learn: events or seconds (30s) between commits."),
    "max_rows": (COUNT, 1 << 16, "Largest number of rows per batch."),
    "max_batch_mib": (COUNT, 16, "Largest size of a batch, in MiB."),
    "max_streams": (click.IntRange(1, 4096), 512, "Largest number of open calls."),
    "max_memory_mib": (COUNT, 2048, "MiB beyond those at start and the stacks of open calls."),
    "grace": (click.FloatRange(0, 86400), 10.0, "Seconds that calls may take at shutdown."),
    "metrics_port": (PORT, None, "Port of /metrics on 127.0.0.1; 0: any free port."),
}


@click.command("serve")
@click.argument("run", metavar="RUN", required=False)
@add_options(OPTIONS)
@click.option(
    "--new-token",
    nargs=2,
    metavar="NAME ROLE",
    help="Print a new token, add its line to the file of --tokens, and exit.",
)
def command(
    run: str | None,
    new_token: tuple[str, str] | None,
    metrics_port: int | None,
    **options: Any,
) -> None:
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
    check_port("--port", options["host"], options["port"])
    if metrics_port is not None:
        check_port("--metrics-port", LOOPBACK[0], metrics_port)
    _run_server(ServerSettings(run=run, **options), metrics_port)


def _run_server(settings: ServerSettings, metrics_port: int | None) -> NoReturn:
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # its log of clients is not for a terminal
    tune_process()
    code, message = IO, "stopped; all acknowledged events are committed"
    try:
        with catch_signals(deferred=True) as is_stopped, start_server(settings) as service:
            signal.signal(signal.SIGHUP, lambda *_: service.reload_tokens())
            limit_memory(settings)
            _announce(settings, service, metrics_port)
            while not is_stopped() and service.failure is None:
                time.sleep(POLL_INTERVAL)
            service.drain()
            if is_stopped():
                raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        code = getattr(interrupt, "exit_code", INTERRUPTED)
    if n_open := service.authentication.n_open:
        message += f"; {n_open} calls that were open after {settings.grace:g} seconds were cut off"
    if (failure := service.failure) is not None:
        code = IO
        message = (
            f"the run has stopped to learn ({summarise_error(failure)}): what was acknowledged is "
            "safe; fix the cause, then start the server again"
        )
    click.echo(f"streamembed: {message}", err=True)
    os._exit(code)  # Python would wait for the calls that clients keep open


def _announce(settings: ServerSettings, service: Service, metrics_port: int | None) -> None:
    scheme = "grpc" if settings.tls is None else "grpc+tls"
    host = socket.gethostname() if settings.host in ALL_INTERFACES else settings.host
    click.echo(f"{scheme}://{f'[{host}]' if ':' in host else host}:{service.port}")
    sys.stdout.flush()
    if metrics_port is not None:
        metrics = service.metrics.listen(LOOPBACK[0], metrics_port)
        click.echo(f"http://{LOOPBACK[0]}:{metrics.server_port}/metrics", err=True)
    if settings.host in ALL_INTERFACES:
        click.echo(f"listening on {settings.host}: all addresses of this machine", err=True)
    if settings.insecure and settings.host not in LOOPBACK:
        click.echo(f"warning: {settings.host} serves everyone who can reach it", err=True)
    click.echo("Press Ctrl-C to stop", err=True)
