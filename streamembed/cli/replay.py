"""``replay --help``: the options of a replay, which are quick to import."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from streamembed.cli import settings_file
from streamembed.cli.command_options import (
    CommaSeparatedNames,
    OptionTable,
    add_columns_options,
    add_engine_options,
    add_options,
)

RUN_OPTIONS: OptionTable = {
    "snapshot_every": (
        int,
        None,
        "Events between snapshots, with --workers those of each partition; rounded up to whole "
        "chunks.  [default: 100; with --workers 262144]",
    ),
    "embed": (
        click.Choice(["final", "causal"]),
        "final",
        "Embed all events by the last snapshot, or each by the first that includes it.",
    ),
    "checkpoint_every": (
        str,
        None,
        "How often to commit the run, so that it can be resumed: 5000 or 10s.  [default: 30s]",
    ),
    "max_rejected": (
        str,
        None,
        "Stop when more rows are rejected: 100 or 1%.  [default: none]",
    ),
    "fork": (str, None, "Start from the engine of another run, or from a saved engine."),
    "clusters": (bool, False, "With --picture: write the clusters of pictures, with lasting ids."),
    "keep": (
        CommaSeparatedNames(),
        None,
        "Columns of the log to write beside the events and onto the page of a report: title,url.",
    ),
    "follow": (bool, False, "Wait for files that come to LOG, a folder, until a signal ends it."),
    "idle_exit": (float, None, "With --follow: end when no new file came for so many seconds."),
}
MONITOR_OPTIONS: OptionTable = {
    "monitor": (bool, False, "Monitor drift: write alarms.jsonl and drift.parquet."),
    "ert": (float, None, "Mean number of events between false alarms.  [default: 10000]"),
    "reference": (str, None, "Compare with a saved snapshot.  [default: with the first events]"),
    "n_reference": (int, None, "Number of first events to compare with.  [default: 1000]"),
    "policy": (
        click.Choice(["renew", "hold", "stop"]),
        None,
        "After an alarm: renew the reference, hold it as home, or stop.  [default: renew]",
    ),
    "watch_labels": (bool, False, "Also monitor the association of features and labels."),
    "period": (int, None, "Events of a season, which is subtracted."),
    "on_alarm": (str, None, "Run a command for each record of the monitor; it gets its JSON."),
    "fail_on_alarm": (bool, False, "Exit with 5 if this call raises an alarm."),
}


@click.command("replay", context_settings={"auto_envvar_prefix": settings_file.PREFIX})
@click.argument("logs", nargs=-1, required=True, metavar="LOG...")
@click.option("--run", "run", required=True, metavar="DIR", help="Run folder to create.")
@add_engine_options
@add_columns_options
@add_options(RUN_OPTIONS)
@add_options(MONITOR_OPTIONS)
@click.option(
    "--workers",
    type=int,
    help="Learn the log in partitions with this many processes, and merge their landmarks; "
    "--memory then defaults to landmarks.  [default: one process, one map]",
)
@click.option("--overwrite", is_flag=True, help="Replace an existing run in DIR.")
@settings_file.add_config_option
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    allow_from_autoenv=False,
    help="One JSON object on standard output.",
)
def command(**options: Any) -> None:
    """Replay Arrow logs into a run folder.

    A LOG is an Arrow IPC stream or file, Parquet, or a folder of them. A log
    with a list column distances is a log of distances to earlier rows. Writes
    snapshot.arrow, embedding.parquet, timeline.parquet and rejected.parquet, and run.db. Run
    the same command again to resume an interrupted replay, or to add the new rows of a log.
    With --follow it waits for more files, and Ctrl-C or SIGTERM while it waits ends the log there.
    """
    import_module("streamembed.cli.replay_run").run(**options)
