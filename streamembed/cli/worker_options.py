"""``replay --workers``: replay a log with several processes, and print a summary."""

from __future__ import annotations

import json
import warnings
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.exit_codes import DAMAGED, USAGE, catch_signals, exit_with
from streamembed.cli.progress import show_progress
from streamembed.cli.summary import (
    describe_metrics,
    describe_snapshot,
    format_all_rejected,
    format_summary,
    read_summary,
)
from streamembed.cli.terminal_text import echo
from streamembed.data.column_roles import ColumnChoice
from streamembed.errors import (
    DegenerateMapWarning,
    LogError,
    ParameterError,
    ResolutionWarning,
    format_count,
)
from streamembed.logs.event_log import open_with_choice
from streamembed.methods.options import Config
from streamembed.runs.partitioned import Partitioned, replay_partitions, select_columns

# Options of `replay` that need a single process.
SINGLE_PROCESS_OPTIONS = (
    "id",
    "snapshot_every",
    "embed",
    "fork",
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


def choose_memory(context: click.Context, workers: int | None, memory: str) -> str:
    """The memory of a replay: landmarks with workers, unless the caller sets another."""
    is_set = context.get_parameter_source("memory") not in (None, ParameterSource.DEFAULT)
    return memory if is_set or workers is None else "landmarks"


def replay_with_workers(
    logs: list[str],
    run: str,
    choice: ColumnChoice,
    options: dict[str, Any],
    parameters: dict[str, Any],
) -> None:
    """Run the command with ``--workers``; ``parameters`` are those of an engine."""
    context, as_json = click.get_current_context(), options["as_json"]
    for name in SINGLE_PROCESS_OPTIONS:
        if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT):
            flag = next(
                parameter.opts[0] for parameter in context.command.params if parameter.name == name
            )
            raise ParameterError(
                f"{flag} conflicts with --workers, which supports landmarks only: leave one of "
                "them out"
            )
    parameters["memory"] = choose_memory(context, options["workers"], parameters["memory"])
    config, policy = Config(**parameters), parameters.pop("on_bad_row")
    log = open_with_choice(logs, choice)
    if not as_json:
        echo(str(select_columns(log, config)), err=True)
    with (
        warnings.catch_warnings(),
        show_progress(log.n_rows, as_json) as advance,
        catch_signals(deferred=False),
    ):
        warnings.simplefilter("ignore", ResolutionWarning)  # the summary reports it
        warnings.simplefilter("ignore", DegenerateMapWarning)
        result = replay_partitions(
            log,
            run,
            workers=options["workers"],
            round_every=options["round_every"],
            label=choice.label,
            on_bad_row=policy,
            overwrite=options["overwrite"],
            progress=advance,
            **parameters,
        )
    _print_summary(result, parameters["tolerance"], as_json)
    if result.damages:
        number, damage = next(iter(result.damages.items()))
        exit_with(LogError(f"partition {number}: {damage}"), DAMAGED)
    if result.rejected and not result.learned:
        exit_with(format_all_rejected(result.path, read_summary(result.path)), USAGE)


def _print_summary(result: Partitioned, tolerance: float | None, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "run": str(result.path),
        "partitions": result.partitions,
        "rounds": result.rounds,
        "learned": result.learned,
        "rejected": result.rejected,
        "resumed_at": result.resumed_at,
        "damages": {str(number): message for number, message in result.damages.items()},
        "columns": result.columns.as_dict(),
        **describe_snapshot(result.snapshot),
    }
    if result.snapshot is not None and result.snapshot.metrics:
        facts["metrics"] = describe_metrics(result.snapshot)
    if as_json:
        click.echo(json.dumps(facts))
        return
    counts = ((result.partitions, "partition"), (result.rounds, "round"))
    echo("learned in " + ", ".join(format_count(*count) for count in counts))
    for line in format_summary(result.path, result.snapshot, tolerance):
        echo(line)
