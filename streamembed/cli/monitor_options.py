"""The flags of a monitor beside a replay, the monitor they describe, and its state in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from streamembed.drift.monitor import LEAST_REFERENCE, Monitor
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, shown

__all__ = ["collected", "monitor_line", "monitor_of", "monitor_options"]

FIRST = "first:"


def monitor_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """What a monitor can be told."""
    options: tuple[tuple[str, dict[str, Any]], ...] = (
        ("--monitor", {"is_flag": True, "help": "Watch for drift: alarms.jsonl, drift.parquet."}),
        (
            "--ert",
            {"type": float, "help": "Events between false alarms, on average.  [default: 10000]"},
        ),
        (
            "--reference",
            {
                "metavar": "SNAPSHOT|first:N",
                "help": "Watch against a saved snapshot, or the first N events.  "
                "[default: first:1000]",
            },
        ),
        (
            "--policy",
            {
                "type": click.Choice(["renew", "hold", "stop"]),
                "help": "After an alarm: a new reference, the same, or no more.  [default: renew]",
            },
        ),
        ("--watch-labels", {"is_flag": True, "help": "Watch what goes with which label, too."}),
        (
            "--fail-on-alarm",
            {"is_flag": True, "help": "Exit with 5 if this call has raised an alarm."},
        ),
    )
    for flag, settings in reversed(options):
        command = click.option(flag, **settings)(command)
    return command


def monitor_of(
    monitor: bool,
    ert: float | None,
    reference: str | None,
    policy: str | None,
    watch_labels: bool,
    fail_on_alarm: bool,
    scaling: str | None,
    seed: int,
) -> Monitor | None:
    """The monitor, if one is wanted.

    Raises
    ------
    ParameterError
        A flag of a monitor without ``--monitor``, or one that it cannot have.
    """
    given = {
        "--ert": ert is not None,
        "--reference": reference is not None,
        "--policy": policy is not None,
        "--watch-labels": watch_labels,
        "--fail-on-alarm": fail_on_alarm,
    }
    if not monitor:
        if names := [name for name, is_given in given.items() if is_given]:
            raise ParameterError(f"{names[0]} is for a replay that is watched: add --monitor")
        return None
    chosen: dict[str, Any] = {
        "ert": 10_000.0 if ert is None else ert,
        "policy": policy or "renew",
        "labels": watch_labels,
        "scaling": scaling,
        "seed": seed,
    }
    if reference is None:
        return Monitor(**chosen)
    if reference.isdecimal():
        raise ParameterError(f"--reference {reference} must be a snapshot, or first:{reference}")
    if not reference.startswith(FIRST):
        return Monitor.of(Snapshot.load(reference), **chosen)
    count = reference.removeprefix(FIRST)
    if not count.isdecimal() or int(count) < LEAST_REFERENCE:
        raise ParameterError(
            f"--reference {shown(reference)} must be first: and a number of events, at least "
            f"{LEAST_REFERENCE}, or a snapshot"
        )
    return Monitor(n_reference=int(count), **chosen)


def collected(monitor: Monitor) -> str:
    """How far the reference is."""
    wanted = monitor.parameters["n_reference"]
    return f"{monitor.position:,} of {wanted:,} events of the reference have come"


def monitor_line(monitor: Monitor) -> str:
    """Where the monitor stands."""
    if monitor.state == "collecting":
        return f"nothing was watched yet: {collected(monitor)}"
    alarms = len(monitor.alarms)
    told = f"{alarms} alarm{'' if alarms == 1 else 's'}" if alarms else "no alarm"
    return f"{told}, one in {monitor.ert:,.0f} events expected without drift; {monitor.state}"
