"""``replay``: Arrow logs through an engine into a run folder."""

from __future__ import annotations

import json
import time
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.command_options import check_logs_exist
from streamembed.cli.exit_codes import ALARMED, DAMAGED, USAGE, catch_signals, exit_with
from streamembed.cli.monitor_options import create_monitor, open_deliveries
from streamembed.cli.progress import show_progress
from streamembed.cli.replay import MONITOR_OPTIONS, RUN_OPTIONS
from streamembed.cli.show import print_summary
from streamembed.cli.terminal_text import echo
from streamembed.data.column_roles import ColumnChoice
from streamembed.drift.alarm import Alarm
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
from streamembed.methods.options import DEFAULTS, Config
from streamembed.runs.log_replay import Replayed, compute_snapshot_interval, replay
from streamembed.runs.partitioned import drop_unused_columns, replay_partitions
from streamembed.runs.run_reader import read_run
from streamembed.runs.summary import describe_run

# Options that `streamembed.replay` has under the same names.
PASSED_ON = ("snapshot_every", "embed", "clusters", "overwrite", "checkpoint_every", "max_rejected")
# Options that need a single process.
SINGLE_PROCESS_OPTIONS = {"id", *RUN_OPTIONS, *MONITOR_OPTIONS} - {"snapshot_every"}


def run(logs: tuple[str, ...], run: str, **options: Any) -> None:
    """Replay the logs: what `streamembed.cli.replay.command` calls."""
    as_json = options["as_json"]
    parameters = {name: options[name] for name in DEFAULTS if name != "on_bad_row"}
    names = ("features", "exclude", "id", "label", "time", "keep")
    columns_asked = {name: options[name] for name in names}
    choice = parse_choice(**columns_asked)
    if options["idle_exit"] is not None and not options["follow"]:
        raise ParameterError("--idle-exit needs --follow: add it, or leave --idle-exit out")
    if options["workers"] is not None:
        result = _replay_in_partitions(check_logs_exist(logs), run, choice, options, parameters)
        _finish(result, as_json)
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
                if len(logs) > 1 or not Path(logs[0]).is_dir():
                    raise ParameterError(
                        "--follow needs one LOG, a folder: files that come there are learned"
                    )
                idle_exit = options["idle_exit"]
                log = follow_log(logs[0], **columns_asked, idle_exit=idle_exit, stop=is_stopped)
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
                progress=handle_progress,
                stop=is_stopped,
                monitor=drift_monitor,
                on_alarm=handle_alarm,
                **{name: options[name] for name in PASSED_ON},
            )
    new_rows = result.accepted + result.rejected - result.resumed_at
    if new_rows and not as_json:
        seconds = time.monotonic() - start
        speed = f"{new_rows / seconds:,.0f} rows/s"
        echo(f"{new_rows:,} rows in {seconds:,.1f} s, {speed}", err=True)
    monitor = _finish(result, as_json).get("monitor")
    if options["fail_on_alarm"] and alarms:
        exit_with(f"{format_count(len(alarms), 'alarm')}; see {run}/alarms.jsonl", ALARMED)
    if options["fail_on_alarm"] and monitor is not None and monitor["state"] == "collecting":
        exit_with(f"drift was not monitored: {monitor['verdict']}", USAGE)


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
    log = open_with_choice(logs, choice)
    if not options["as_json"]:
        echo(str(drop_unused_columns(log, Config(**parameters)).columns), err=True)
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
            progress=advance,
            **{name: options[name] for name in ("workers", "snapshot_every", "overwrite")},
            **parameters,
        )


def _finish(result: Replayed, as_json: bool) -> dict[str, Any]:
    """Print the facts of the run; end with a code where its log is damaged or all is rejected."""
    with read_run(result.path) as reader:
        facts = describe_run(reader)
    is_rejected = result.rejected > 0 == result.accepted
    if as_json:
        facts_of_call = {
            "run": str(result.path),
            "columns": result.columns.as_dict(),
            "resumed_at": result.resumed_at,
            "damage": result.damage,
        }
        click.echo(json.dumps({**facts_of_call, **facts}))
    else:
        if result.resumed_at:
            message = "is finished already"
            if result.accepted + result.rejected > result.resumed_at:
                message = f"resumed at row {result.resumed_at:,} of the log"
            echo(f"{result.path} {message}")
        if result.partitions:
            counts = ((result.partitions, "partition"), (result.snapshots, "round"))
            echo("learned in " + ", ".join(format_count(*count) for count in counts))
        print_summary({**facts, "hints": facts["hints"][is_rejected:]}, result.path)
    if result.damage is not None:
        exit_with(LogError(result.damage), DAMAGED)
    if is_rejected:
        exit_with(facts["hints"][0], USAGE)
    return facts


def _load_forked_engine(path: str) -> Engine:
    """Load the engine of a run or a file; ParameterError if options describe another, too."""
    context = click.get_current_context()
    for name in DEFAULTS:
        if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT):
            raise ParameterError(
                f"--{name.replace('_', '-')} conflicts with --fork, whose engine has its "
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
            f"whole chunks of chunk_size={size}",
            err=True,
        )
