"""Where a replay begins: at the first row, or at the last commit of one that ended early."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.logs.event_log import EventLog
from streamembed.logs.fingerprint import LogFingerprint
from streamembed.runs import chains
from streamembed.runs.feed import check_log
from streamembed.runs.origin import describe_place
from streamembed.runs.run_store import RowCounts, RunStore


def describe_engine(engine: Engine) -> dict[str, int]:
    """What identifies the engine that a run began with."""
    crc = zlib.crc32(engine.to_bytes()) if engine.position else 0
    return {"position": engine.position, "crc": crc}


def describe_monitor(monitor: Monitor | None) -> dict[str, Any] | None:
    """What identifies the monitor that a run began with."""
    if monitor is None:
        return None
    return {**monitor.parameters, "crc": zlib.crc32(monitor.to_bytes())}


def begin(store: RunStore, log: EventLog, origin: Mapping[str, Any]) -> None:
    """Begin a replay, or check that the run in the store began in the same way.

    Raises
    ------
    ParameterError
        It came about in another way.
    """
    first = {} if store.monitor is None else {chains.FIRST_MONITOR: store.monitor}
    store.begin(origin, first, _select_compared)
    store.write_fact(chains.LOG, describe_place(log))


def _select_compared(origin: dict[str, Any]) -> dict[str, Any]:
    """Without the columns that are not used: files that come later may have others."""
    used = {k: v for k, v in origin["columns"].items() if k not in ("left_out", "suspicious")}
    return {**origin, "columns": used}


def restore(
    store: RunStore, log: EventLog, engine: Engine, grows: bool = False
) -> tuple[RowCounts, LogFingerprint, bool]:
    """Bring the engine to where the run was committed last; check that the log still leads there.

    ``grows`` is whether there may be more rows to come.

    Returns
    -------
    counts, fingerprint
        Of the rows that were taken before.
    finished
        Whether the log has no others, and the run is whole.

    Raises
    ------
    ParameterError
        The rows that were taken are not those of the log any more.
    """
    last, state = store.load_last(), store.database.read_fact(chains.STATE, {})
    taken = None if last is None else last.fingerprint
    if state.get("finished"):  # behind the last commit
        taken = state["fingerprint"]
    more = taken is None or check_log(log.batches(0), taken, store.folder)
    if not more and not grows and (final := store.load_final()) is not None:
        engine.become(final.engine)
        return final.counts, LogFingerprint(), True
    store.write_fact(chains.STATE, {"finished": False})
    if last is None:
        return RowCounts(), LogFingerprint(), False
    engine.become(last.engine)
    return last.counts, LogFingerprint.from_dict(last.fingerprint), False
