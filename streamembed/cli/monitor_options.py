"""The drift monitor of a replay: its options, the monitor they describe, its status as text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streamembed.drift.monitor import MIN_REFERENCE, Monitor
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, quote

FIRST_PREFIX = "first:"


def add_monitor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of the drift monitor."""
    options: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            "--monitor",
            {"is_flag": True, "help": "Monitor drift: write alarms.jsonl and drift.parquet."},
        ),
        (
            "--ert",
            {
                "type": float,
                "help": "Mean number of events between false alarms.  [default: 10000]",
            },
        ),
        (
            "--reference",
            {
                "metavar": "SNAPSHOT|first:N",
                "help": "Compare with a saved snapshot, or the first N events.  "
                "[default: first:1000]",
            },
        ),
        (
            "--policy",
            {
                "type": click.Choice(["renew", "hold", "stop"]),
                "help": "After an alarm: renew or hold the reference, or stop.  [default: renew]",
            },
        ),
        (
            "--watch-labels",
            {"is_flag": True, "help": "Also monitor the association of features and labels."},
        ),
        (
            "--fail-on-alarm",
            {"is_flag": True, "help": "Exit with 5 if this call raises an alarm."},
        ),
    )
    for flag, settings in reversed(options):
        command = click.option(flag, **settings)(command)
    return command


def create_monitor(
    monitor: bool,
    ert: float | None,
    reference: str | None,
    policy: str | None,
    watch_labels: bool,
    fail_on_alarm: bool,
    scaling: str | None,
    seed: int,
) -> Monitor | None:
    """Create the monitor that the options describe; None without ``--monitor``.

    Raises
    ------
    ParameterError
        A monitor option without ``--monitor``, or an invalid value.
    """
    is_set = {
        "--ert": ert is not None,
        "--reference": reference is not None,
        "--policy": policy is not None,
        "--watch-labels": watch_labels,
        "--fail-on-alarm": fail_on_alarm,
    }
    if not monitor:
        if names := [name for name, is_present in is_set.items() if is_present]:
            raise ParameterError(f"{names[0]} needs --monitor: add it, or leave {names[0]} out")
        return None
    parameters: dict[str, Any] = {
        "ert": 10_000.0 if ert is None else ert,
        "policy": policy or "renew",
        "labels": watch_labels,
        "scaling": scaling,
        "seed": seed,
    }
    if reference is None:
        return Monitor(**parameters)
    if reference.isdecimal():
        raise ParameterError(f"--reference {reference} must be a snapshot, or first:{reference}")
    if not reference.startswith(FIRST_PREFIX):
        return Monitor.of(Snapshot.load(reference), **parameters)
    count = reference.removeprefix(FIRST_PREFIX)
    if not count.isdecimal() or int(count) < MIN_REFERENCE:
        raise ParameterError(
            f"--reference {quote(reference)} must be a snapshot, or first:N with N at least "
            f"{MIN_REFERENCE}"
        )
    return Monitor(n_reference=int(count), **parameters)


def format_collection_progress(monitor: Monitor) -> str:
    """Format how many events of the reference are collected."""
    wanted = monitor.parameters["n_reference"]
    return f"{monitor.position:,} of {wanted:,} events of the reference have been collected"


def format_monitor_status(monitor: Monitor) -> str:
    """Format the alarms and the state of the monitor."""
    if monitor.state == "collecting":
        return f"not monitoring yet: {format_collection_progress(monitor)}"
    alarms = len(monitor.alarms)
    summary = f"{alarms} alarm{'' if alarms == 1 else 's'}" if alarms else "no alarm"
    return f"{summary}, one in {monitor.ert:,.0f} events expected without drift; {monitor.state}"
