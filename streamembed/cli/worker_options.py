"""``replay --workers``: a log by several processes, and what is said of it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click
from click.core import ParameterSource

from streamembed.cli.exit_codes import DAMAGED, USAGE, stop, stops_gently
from streamembed.cli.progress_bar import watch
from streamembed.cli.rejected_rows import none_accepted
from streamembed.cli.terminal_text import echo
from streamembed.data.column_roles import Choice
from streamembed.engine import diagnostics
from streamembed.errors import DegenerateMapWarning, LogError, ParameterError, ResolutionWarning
from streamembed.logs.event_log import open_with_choice
from streamembed.methods.options import Config
from streamembed.runs.partitioned import ROUND_EVERY, Partitioned, columns_of, replay_partitions

__all__ = ["memory_of", "replay_by", "workers_options"]

# Flags of `replay` that say something of one process alone.
ALONE = (
    "id_column",
    "label_column",
    "pairs",
    "snapshot_every",
    "embed",
    "fork",
    "checkpoint_every",
    "max_rejected",
    "monitor",
    "ert",
    "reference",
    "policy",
    "watch_labels",
    "fail_on_alarm",
)


def workers_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """How many processes, and how often they are merged."""
    command = click.option(
        "--round-every",
        type=int,
        help="With --workers: events of each partition between two maps, rounded up to whole "
        f"chunks.  [default: {ROUND_EVERY}]",
    )(command)
    return click.option(
        "--workers",
        type=int,
        help="Learn the log in partitions, by so many processes, and merge their landmarks; the "
        "default of --memory is landmarks then.  [default: one process, one map]",
    )(command)


def memory_of(context: click.Context, workers: int | None, memory: str) -> str:
    """The memory of a replay: with workers landmarks, unless somebody gave another."""
    given = context.get_parameter_source("memory") not in (None, ParameterSource.DEFAULT)
    return memory if given or workers is None else "landmarks"


def replay_by(
    workers: int,
    round_every: int | None,
    logs: list[str],
    run: str,
    chosen: Choice,
    overwrite: bool,
    as_json: bool,
    parameters: dict[str, Any],
) -> None:
    """What the command does with ``--workers``."""
    context = click.get_current_context()
    for name in ALONE:
        if context.get_parameter_source(name) not in (None, ParameterSource.DEFAULT):
            flag = next(one.opts[0] for one in context.command.params if one.name == name)
            raise ParameterError(
                f"{flag} was given with --workers, which learns landmarks and nothing else: leave "
                "one of them out"
            )
    parameters["memory"] = memory_of(context, workers, parameters["memory"])
    config, policy = Config(**parameters), parameters.pop("on_bad_row")
    log = open_with_choice(logs, chosen)
    if not as_json:
        echo(str(columns_of(log, config)), err=True)
    with (
        warnings.catch_warnings(),
        watch(log.n_rows, as_json, tells_start=True) as advance,
        stops_gently(gently=False),
    ):
        warnings.simplefilter("ignore", ResolutionWarning)  # a line of the summary says it
        warnings.simplefilter("ignore", DegenerateMapWarning)
        done = replay_partitions(
            log,
            run,
            workers=workers,
            round_every=round_every,
            on_bad_row=policy,
            overwrite=overwrite,
            progress=advance,
            **parameters,
        )
    _tell(done, parameters["tolerance"], as_json)
    if done.damages:
        number, told = next(iter(done.damages.items()))
        stop(LogError(f"partition {number}: {told}"), DAMAGED)
    if done.rejected and not done.learned:
        stop(none_accepted(done.path, done.rejected), USAGE)


def _tell(done: Partitioned, tolerance: float | None, as_json: bool) -> None:
    facts: dict[str, Any] = {
        "run": str(done.path),
        "partitions": done.partitions,
        "rounds": done.rounds,
        "learned": done.learned,
        "rejected": done.rejected,
        "resumed_at": done.resumed_at,
        "damages": {str(number): told for number, told in done.damages.items()},
        "columns": done.columns.as_dict(),
    }
    if done.snapshot is not None:
        facts["eigenvalues"] = done.snapshot.eigenvalues.tolist()
        facts["resolution"] = done.snapshot.resolution
        facts["certificate"] = asdict(done.snapshot.certificate)
    if as_json:
        click.echo(json.dumps(facts))
        return
    echo(
        f"{done.learned} events learned in {done.partitions} partitions, {done.rejected} rejected, "
        f"{done.rounds} rounds in {done.path}"
    )
    if done.snapshot is None:
        echo("there were too few events for a map (see --warm-up)")
        return
    certificate = done.snapshot.certificate
    verdict = {True: "met", False: "NOT met", None: "an estimate"}[certificate.met]
    values = ", ".join(f"{value:.4f}" for value in done.snapshot.eigenvalues)
    echo(f"eigenvalues {values}; residual {certificate.residual:.1e}, {verdict}")
    for told in diagnostics.hints(done.snapshot, tolerance):
        echo(told)
