"""``replay``: Arrow logs through an engine into a run folder."""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.command_options import check_logs_exist
from streamembed.cli.exit_codes import ALARMED, DAMAGED, USAGE, catch_signals, exit_with
from streamembed.cli.monitor_options import (
    create_monitor,
    describe_monitor,
    format_collection_progress,
    format_monitor_status,
    open_deliveries,
)
from streamembed.cli.progress import format_speed, show_progress
from streamembed.cli.summary import (
    describe_metrics,
    describe_snapshot,
    format_all_rejected,
    format_summary,
    read_summary,
)
from streamembed.cli.terminal_text import echo
from streamembed.data.column_roles import ColumnChoice
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.errors import (
    DegenerateMapWarning,
    LogError,
    ParameterError,
    ResolutionWarning,
    format_count,
)
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice
from streamembed.logs.followed_log import FollowedLog, follow_log
from streamembed.methods.options import Config
from streamembed.runs.log_replay import Replayed, compute_snapshot_interval, replay
from streamembed.runs.partitioned import replay_partitions, select_used
from streamembed.runs.run_reader import read_run

# Options that `streamembed.replay` has under the same names.
PASSED_ON = ("snapshot_every", "embed", "overwrite", "checkpoint_every", "max_rejected")
# Options that need a single process.
SINGLE_PROCESS_OPTIONS = (
    "id",
    "embed",
    "fork",
    "follow",
    "checkpoint_every",
    "max_rejected",
    "monitor",
    "ert",
    "reference",
    "n_reference",
    "policy",
    "watch_labels",
    "period",
    "on_alarm",
    "webhook",
    "fail_on_alarm",
)


def run(logs: tuple[str, ...], run: str, **options: Any) -> None:
    """Replay the logs: what `streamembed.cli.replay_command.command` calls."""
    as_json = options["as_json"]
    parameters = {field.name: options[field.name] for field in fields(Config)}
    uses = ("features", "exclude", "id", "label", "time")
    choice = parse_choice(*(options[name] for name in uses))
    if options["idle_exit"] is not None and not options["follow"]:
        raise ParameterError("--idle-exit needs --follow: add it, or leave --idle-exit out")
    if options["workers"] is not None:
        result = _replay_in_partitions(check_logs_exist(logs), run, choice, options, parameters)
        _print_summary(result, parameters["tolerance"], as_json)
        _exit_on_trouble(result)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResolutionWarning)  # the summary reports it
        fork = options["fork"]
        engine = Engine(**parameters) if fork is None else _load_forked_engine(fork)
        drift_monitor = create_monitor(options)
        alarms: list[Alarm] = []
        if not as_json:
            _report_snapshot_interval(options["snapshot_every"], engine)
        with (
            open_deliveries(options) as deliveries,
            catch_signals(deferred=True) as is_stopped,
            ExitStack() as stack,
        ):
            log: EventLog | FollowedLog
            if options["follow"]:
                log = _follow(logs, choice, options["idle_exit"], is_stopped)
                columns, rows = log.log.columns, None
            else:
                log = open_with_choice(check_logs_exist(logs), choice)
                columns, rows = log.columns, log.n_rows
            if not as_json:
                echo(str(columns), err=True)
            advance = stack.enter_context(show_progress(rows, as_json))

            def handle_alarm(alarm: Alarm) -> None:
                if alarm.kind == "alarm":
                    alarms.append(alarm)
                if not as_json:
                    echo(f"{alarm.kind}: {alarm.sentence}", err=True)
                for delivery in deliveries:
                    delivery(alarm)

            def handle_progress(rows: int) -> None:
                advance(rows)
                if is_stopped() and not engine.ready:  # before, there is nothing to commit
                    raise KeyboardInterrupt

            start = time.monotonic()
            result = replay(
                log,
                engine,
                run,
                on_bad_row=parameters["on_bad_row"],
                progress=handle_progress,
                stop=is_stopped,
                monitor=drift_monitor,
                on_alarm=handle_alarm,
                **{name: options[name] for name in PASSED_ON},
            )
    new_rows = result.accepted + result.rejected - result.resumed_at
    if new_rows and not as_json:
        echo(format_speed(new_rows, time.monotonic() - start), err=True)
    _print_summary(result, engine.config.tolerance, as_json, drift_monitor)
    _exit_on_trouble(result)
    if options["fail_on_alarm"] and drift_monitor is not None:
        _exit_on_alarm(result, drift_monitor, len(alarms))


def _replay_in_partitions(
    logs: list[str],
    run: str,
    choice: ColumnChoice,
    options: dict[str, Any],
    parameters: dict[str, Any],
) -> Replayed:
    """The replay with ``--workers``; ``parameters`` are those of an engine."""
    context = click.get_current_context()
    default = (None, ParameterSource.DEFAULT)
    for option in context.command.params:
        is_set = context.get_parameter_source(str(option.name)) not in default
        if option.name in SINGLE_PROCESS_OPTIONS and is_set:
            raise ParameterError(
                f"{option.opts[0]} conflicts with --workers, which supports landmarks only: leave "
                "one of them out"
            )
    if context.get_parameter_source("memory") in default:
        parameters["memory"] = "landmarks"
    policy, log = parameters.pop("on_bad_row"), open_with_choice(logs, choice)
    if not options["as_json"]:
        echo(str(select_used(log, Config(**parameters)).columns), err=True)
    with (
        warnings.catch_warnings(),
        show_progress(log.n_rows, options["as_json"]) as advance,
        catch_signals(deferred=False),
    ):
        warnings.simplefilter("ignore", ResolutionWarning)  # the summary reports it
        warnings.simplefilter("ignore", DegenerateMapWarning)
        return replay_partitions(
            log,
            run,
            label=choice.label,
            on_bad_row=policy,
            progress=advance,
            **{name: options[name] for name in ("workers", "snapshot_every", "overwrite")},
            **parameters,
        )


def _exit_on_trouble(result: Replayed) -> None:
    """End with the code of a damaged log, or of one whose rows were all rejected."""
    if result.damage is not None:
        exit_with(LogError(result.damage), DAMAGED)
    if result.rejected and not result.accepted:
        exit_with(format_all_rejected(result.path, read_summary(result.path)), USAGE)


def _follow(
    logs: tuple[str, ...],
    choice: ColumnChoice,
    idle_exit: float | None,
    is_stopped: Callable[[], bool],
) -> FollowedLog:
    if len(logs) > 1 or not Path(logs[0]).is_dir():
        raise ParameterError("--follow needs one LOG, a folder: files that come there are learned")
    return follow_log(
        logs[0],
        choice.features,
        exclude=choice.exclude or None,
        id=choice.id,
        label=choice.label,
        time=choice.time,
        idle_exit=idle_exit,
        stop=is_stopped,
    )


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
    if result.partitions:
        counts = ((result.partitions, "partition"), (result.snapshots, "round"))
        echo("learned in " + ", ".join(format_count(*count) for count in counts))
    for line in format_summary(result.path, result.snapshot, tolerance):
        echo(line)
    if monitor is not None:
        echo(f"monitor: {format_monitor_status(monitor)}")
        for note in monitor.notes:
            echo(note)
