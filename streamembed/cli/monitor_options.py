"""The drift monitor of a replay, and what its alarms are handed to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from streamembed.cli.replay import MONITOR_OPTIONS
from streamembed.cli.terminal_text import echo
from streamembed.drift.delivery import CommandDelivery
from streamembed.drift.monitor import Monitor
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError


def create_monitor(options: dict[str, Any]) -> Monitor | None:
    """Create the monitor that the options of `replay` describe; None without ``--monitor``.

    Raises
    ------
    ParameterError
        A monitor option without ``--monitor``, or an invalid value.
    """
    if not options["monitor"]:
        for name in MONITOR_OPTIONS:
            if options[name] not in (None, False):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(f"{flag} needs --monitor: add it, or leave {flag} out")
        return None
    names = ("ert", "n_reference", "policy", "period")
    parameters = {name: options[name] for name in names if options[name] is not None}
    parameters |= {"labels": options["watch_labels"]}
    parameters |= {name: options[name] for name in ("metric", "scaling", "seed")}
    if options["reference"] is None:
        return Monitor(**parameters)
    return Monitor.of(Snapshot.load(options["reference"]), **parameters)


@contextmanager
def open_deliveries(options: dict[str, Any]) -> Iterator[list[CommandDelivery]]:
    """What alarms are handed to; at the end, also of an interrupt, waits for them.

    Raises
    ------
    ParameterError
        An invalid command.
    """
    command = options["on_alarm"]
    deliveries = [] if command is None else [CommandDelivery(command)]
    try:
        yield deliveries
    finally:
        for missing in filter(None, (delivery.close() for delivery in deliveries)):
            echo(f"warning: {missing}", err=True)
