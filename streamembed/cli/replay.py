"""``replay``: Arrow logs through an engine into a run folder."""

from __future__ import annotations

import json
import warnings
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli import option_sources
from streamembed.cli.command_options import (
    add_columns_options,
    add_engine_options,
    check_logs_exist,
)
from streamembed.cli.exit_codes import ALARMED, DAMAGED, USAGE, catch_signals, exit_with
from streamembed.cli.monitor_options import (
    add_monitor_options,
    create_monitor,
    describe_monitor,
    format_collection_progress,
    format_monitor_status,
)
from streamembed.cli.progress_bar import show_progress
from streamembed.cli.summary import (
    describe_metrics,
    describe_snapshot,
    format_all_rejected,
    format_summary,
    read_summary,
)
from streamembed.cli.terminal_text import echo
from streamembed.cli.worker_options import add_workers_options, replay_with_workers
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.errors import LogError, ParameterError, ResolutionWarning
from streamembed.logs.event_log import open_with_choice, parse_choice
from streamembed.methods.options import Config
from streamembed.runs.replay_log import Replayed, compute_snapshot_interval, replay
from streamembed.runs.run_reader import read_run

# Options that `streamembed.replay` has under the same names.
PASSED_ON = ("snapshot_every", "embed", "overwrite", "checkpoint_every", "max_rejected")


@click.command("replay")
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--run", "run", required=True, metavar="DIR", help="Run folder to create.")
@add_engine_options
@add_columns_options
@click.option(
    "--pairs", metavar="LOG", help="Log of given pairs: columns x_1, x_2, ... and similar."
)
@click.option(
    "--snapshot-every",
    type=int,
    help="Events between snapshots, rounded up to whole chunks.  [default: 100]",
)
@click.option(
    "--embed",
    type=click.Choice(["final", "causal"]),
    default="final",
    show_default=True,
    help="Embed all events by the last snapshot, or each by the first that includes it.",
)
@click.option(
    "--checkpoint-every",
    metavar="EVENTS|<n>s",
    help="How often to commit the run, so that it can be resumed: 5000 or 10s.  [default: 30s]",
)
@click.option(
    "--max-rejected",
    metavar="ROWS|SHARE%",
    help="Stop when more rows are rejected: 100 or 1%.  [default: no limit]",
)
@click.option(
    "--fork",
    metavar="RUN|FILE",
    help="Start from the last committed engine of another run, or from a saved engine.",
)
@add_monitor_options
@add_workers_options
@click.option("--overwrite", is_flag=True, help="Replace an existing run in DIR.")
@option_sources.add_config_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(logs: tuple[str, ...], run: str, **options: Any) -> None:
    """Replay Arrow logs into a run folder.

    A LOG is an Arrow IPC stream or file, Parquet, or a folder of them; - is standard input. A log
    with a list column distances is a log of distances to earlier rows. Writes
    snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet, and run.db. Run
    the same command again to resume an interrupted replay, or to add the new rows of a log.
    """
    as_json = options["as_json"]
    parameters = {field.name: options[field.name] for field in fields(Config)}
    uses = ("features", "exclude", "id_column", "label_column", "time_column")
    choice = parse_choice(*(options[name] for name in uses))
    if options["workers"] is not None:
        replay_with_workers(check_logs_exist(logs), run, choice, options, parameters)
        return
    if options["round_every"] is not None:
        raise ParameterError("--round-every needs --workers: add it, or leave --round-every out")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)  # the summary reports it
        fork, pairs = options["fork"], options["pairs"]
        engine = Engine(**parameters) if fork is None else _load_forked_engine(fork)
        drift_monitor = create_monitor(options)
        alarms: list[Alarm] = []
        log = open_with_choice(check_logs_exist(logs), choice)
        if not as_json:
            echo(str(log.columns), err=True)
            _report_snapshot_interval(options["snapshot_every"], engine)
        with (
            show_progress(log.n_rows, as_json) as advance,
            catch_signals(deferred="-" not in logs) as is_stopped,
        ):

            def handle_alarm(alarm: Alarm) -> None:
                alarms.append(alarm)
                if not as_json:
                    echo(f"alarm: {alarm.sentence}", err=True)

            def handle_progress(rows: int) -> None:
                if advance is not None:
                    advance(rows)
                if is_stopped() and not engine.ready:  # before, there is nothing to commit
                    raise KeyboardInterrupt

            result = replay(
                log,
                engine,
                run,
                pairs=None if pairs is None else check_logs_exist((pairs,)),
                on_bad_row=parameters["on_bad_row"],
                progress=handle_progress,
                stop=is_stopped,
                monitor=drift_monitor,
                on_alarm=handle_alarm,
                **{name: options[name] for name in PASSED_ON},
            )
    _print_summary(result, engine.config.tolerance, as_json, drift_monitor)
    if result.damage is not None:
        exit_with(LogError(result.damage), DAMAGED)
    if result.rejected and not result.accepted:
        exit_with(format_all_rejected(result.path, read_summary(result.path)), USAGE)
    if options["fail_on_alarm"] and drift_monitor is not None:
        _exit_on_alarm(result, drift_monitor, len(alarms))


option_sources.add_environment_variables(command)


def _load_forked_engine(path: str) -> Engine:
    """Load the engine of a run or a file; ParameterError if options describe another, too."""
    context = click.get_current_context()
    for parameter in fields(Config):
        source = context.get_parameter_source(parameter.name)
        if parameter.name != "on_bad_row" and source is not ParameterSource.DEFAULT:
            raise ParameterError(
                f"--{parameter.name.replace('_', '-')} conflicts with --fork, whose engine has its "
                "own parameters: leave it out"
            )
    if not Path(path).is_dir():
        return Engine.load(path)
    with read_run(path) as run:
        return run.engine()


def _report_snapshot_interval(requested: int | None, engine: Engine) -> None:
    size = engine.config.chunks.size
    interval = compute_snapshot_interval(size, requested)
    if requested is not None and interval != requested:
        echo(
            f"snapshots every {interval} events instead of {requested}: they change only with "
            f"whole chunks of {size} (--chunk-size)",
            err=True,
        )


def _exit_on_alarm(result: Replayed, monitor: Monitor, alarms: int) -> None:
    if alarms:
        exit_with(
            f"{alarms} alarm{'' if alarms == 1 else 's'}; see {result.path}/alarms.jsonl", ALARMED
        )
    if monitor.state == "collecting":
        exit_with("drift was not monitored: " + format_collection_progress(monitor), USAGE)


def _print_summary(
    result: Replayed, tolerance: float | None, as_json: bool, monitor: Monitor | None = None
) -> None:
    facts: dict[str, Any] = {
        **{field.name: getattr(result, field.name) for field in fields(result)},
        "run": str(result.path),
        "columns": result.columns.as_dict(),
        **describe_snapshot(result.snapshot),
    }
    del facts["path"], facts["snapshot"]
    if result.snapshot is not None:
        if (picture := result.snapshot.picture) is not None:
            facts["picture"] = {"kept": float(picture.kept.mean()), "aged": picture.aged}
        facts["metrics"] = describe_metrics(result.snapshot)
    if monitor is not None:
        facts["monitor"] = describe_monitor(monitor)
    if as_json:
        click.echo(json.dumps(facts))
        return
    if result.resumed_at:
        message = "is finished already"
        if result.accepted + result.rejected > result.resumed_at:
            message = f"resumed at row {result.resumed_at:,} of the log"
        echo(f"{result.path} {message}")
    for line in format_summary(result.path, result.snapshot, tolerance):
        echo(line)
    if monitor is not None:
        echo(f"monitor: {format_monitor_status(monitor)}")
        for note in monitor.notes:
            echo(note)
