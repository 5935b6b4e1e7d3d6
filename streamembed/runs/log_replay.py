"""`replay`: an Arrow log through an engine into a run folder.

A run folder holds ``snapshot.arrow`` (the final snapshot), ``embedding.parquet`` (every accepted
event by the final snapshot, or as of when it was learned, with its label and time),
``timeline.parquet`` (a row a snapshot), ``picture.parquet`` (where a picture is kept),
``clusters.parquet`` (where they were asked for) and
``rejected.parquet`` (every row that could not be learned, with its offset in the log and why);
beside them ``run.db`` and ``parts``, from which a replay resumes. All but these two are a function
of the log's rows and the engine's parameters: files, record batches, row groups and interrupts
leave no trace.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from streamembed.data.column_roles import ColumnChoice, Columns
from streamembed.data.times import is_time_type
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, ParameterError, check_path, quote
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice, warn_of_columns
from streamembed.logs.followed_log import FollowedLog
from streamembed.logs.paths import Location, Paths
from streamembed.methods.options import POSITION, Config
from streamembed.runs import chains, origin
from streamembed.runs import run_folder as runfolder
from streamembed.runs.driver import ReplayDriver, check_rejected, parse_max_rejected
from streamembed.runs.feed import check_log_unchanged
from streamembed.runs.recorder import Recorder, check_passthrough
from streamembed.runs.run_store import Commit, RowCounts, RunStore
from streamembed.validation import check_choice, check_flag, check_whole

SNAPSHOT_EVERY = 100


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay.

    Attributes
    ----------
    path : Path
        The run folder.
    accepted, learned, rejected : int
        Rows that became events; events of complete chunks; rejected rows.
    snapshots : int
        Rows of the timeline.
    position : int
        The engine's, pending events included.
    snapshot : Snapshot or None
        The final one; None if the log ended before the warm-up.
    damage : str or None
        Why the log could not be read to the end; None if it was.
    columns : Columns
        What the columns of the log were used for.
    snapshot_every : int
        Events between snapshots, in partitions those of each; a multiple of ``chunk_size``: what
        was asked for, rounded up.
    resumed_at : int
        Rows of the log that an earlier call had taken and committed; 0 for a new run.
    partitions : int
        Partitions of the log, of `replay_partitions`; 0 where it is learned as one stream.
    """

    path: Path
    accepted: int
    learned: int
    rejected: int
    snapshots: int
    position: int
    snapshot: Snapshot | None
    damage: str | None
    columns: Columns
    snapshot_every: int = SNAPSHOT_EVERY
    resumed_at: int = 0
    partitions: int = 0


def replay(
    log: EventLog | FollowedLog | Paths,
    engine: Engine,
    run: Location,
    *,
    snapshot_every: int | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    keep: Sequence[str] | None = None,
    embed: str = "final",
    clusters: bool = False,
    overwrite: bool = False,
    checkpoint_every: int | str | None = None,
    max_rejected: int | str | None = None,
    progress: Callable[[int], None] | None = None,
    stop: Callable[[], bool] | None = None,
    monitor: Monitor | None = None,
    on_alarm: Callable[[Alarm], None] | None = None,
) -> Replayed:
    """Learn a whole log and write a run folder; or resume one that ended early.

    Repeat the call to resume after the last commit, whatever ended the previous one (a kill, a full
    disk, an interrupt, a damaged log that is repaired); it ends with the same files, bit for bit,
    as one that was never interrupted. A complete run is only read; a log that has grown since is
    resumed. ``engine`` must be as it was at the first call.

    Parameters
    ----------
    log
        Files or folders of Arrow IPC (stream or file) or Parquet, or an open `EventLog`, of points
        or of distances; or a folder that grows, by `streamembed.logs.follow_log`, until it ends.
    engine
        Learns the log, and can continue learning afterwards.
    run
        The folder to create. It must be empty or not exist, unless ``overwrite``, or hold a run
        that began with the same parameters, engine and rows; and be outside the folders that are
        read. Only one replay at a time can use it.
    snapshot_every
        Events between snapshots; default: 100. Rounded up to whole chunks, with which snapshots
        change: ``Replayed.snapshot_every`` is the number that was used.
    features
        Columns to use as features, or patterns of them, as in `open_log`; default: the features of
        the engine, or those of the log.
    exclude, id, label, time, keep
        Columns to leave out, those with ids, labels and times, and those that are written beside
        the events, as in `open_log`.
    embed
        "final": all events of ``embedding.parquet`` are embedded by the last snapshot, so that they
        are one embedding; "causal": each by the first snapshot that has learned it, which the
        columns ``snapshot`` and ``epoch`` name.
    clusters
        Also write ``clusters.parquet``: the clusters of the pictures, with ids that persist, three
        typical events each, and their beginnings and ends. Needs an engine with ``picture=True``.
    checkpoint_every
        How often the run is committed, with everything that resuming needs: a number of events, or
        seconds such as "30s", the default; never so often that it takes more than 3 % of the time.
        At a snapshot, and for the first time at the first.
    max_rejected
        A number of rows, or a share such as "1%" of those that were taken (looked at from 1,000 on,
        and at the end): where more are rejected, the replay stops with an error. 0 stops it at the
        first.
    progress
        Called with the rows of the log taken so far, learned or rejected: at every snapshot, and
        after every batch of the log. With ``embed="final"`` the log is then read once more, from
        its first row on, and it is called with the rows embedded so far.
    stop
        Asked after every snapshot; once it says True, the run is committed and ends as by a
        KeyboardInterrupt.

    monitor
        Watches the events that are learned, and is committed with the engine; it must be as it was
        at the first call. Its timeline and alarms are ``drift.parquet`` and ``alarms.jsonl``.
    on_alarm
        Called with each of its alarms, and of the records that follow from them (`Alarm.kind`),
        once those of its events are learned. `streamembed.drift.delivery` has functions that do not
        hold up the replay.

    Returns
    -------
    Replayed

    Raises
    ------
    FileError
        The run folder cannot be created or written to.
    ParameterError
        The run folder holds something else, or a run that began in another way or with other rows
        (the message says what differs); another replay is using it, or the log is read
        from it; ``snapshot_every`` is not a multiple of the chunk size, or ``features`` or other
        columns were given with an open log.
    FeatureError
        The log lacks the features that the engine has learned, or has a label or time that Parquet
        cannot store.
    LogError
        Nothing of the log can be read, or its rows not once more at the end. A log that is damaged
        further on is learned up to there, the run is complete up to that point, and
        ``Replayed.damage`` says why it ended.
    BadRowError
        More rows are rejected than ``max_rejected``. What was learned is written, as after a
        KeyboardInterrupt.

    Warns
    -----
    ColumnWarning
        Before anything is learned: suspicious columns are left out.

    Notes
    -----
    Memory does not grow with the log: only what came since the last commit is held, some 32 MB of
    rows at most. The rest is in ``run.db`` and the folder ``parts``, which a finished run needs
    only to resume a log that has grown. With ``embed="final"`` all events are read from the log
    once more at the end, so it must stay as it is until then.

    Row t of a log of distances refers to the rows before it, whether learned or rejected. If the
    engine has learned before, its events precede the first row. The driver selects the distances
    that the engine needs, so a row may be longer than the window; it must reach back to every
    landmark. Let it reach back beyond the window by as many rows as may be rejected: a row that
    does not cover everything in the window is rejected itself, and so are the rows after it.
    An event has the coordinates of its own slot, and null if the snapshot no longer has the event:
    it was merged into a landmark, or it left the window.
    """
    causal = check_choice("embed", embed, ("final", "causal")) == "causal"
    if not isinstance(engine, Engine):
        raise ParameterError(f"engine={quote(engine)} must be an Engine")
    if not isinstance(monitor, Monitor | None):
        raise ParameterError(f"monitor={quote(monitor)} must be a Monitor, or None")
    if check_flag("clusters", clusters) and not engine.config.picture:
        raise ParameterError(
            "clusters=True needs an engine with picture=True: they are groups of pictures"
        )
    every = compute_snapshot_interval(engine.config.chunks.size, snapshot_every)
    followed = log if isinstance(log, FollowedLog) else None
    log = log.log if isinstance(log, FollowedLog) else log
    opened = _open_log(log, parse_choice(features, exclude, id, label, time, keep), engine)
    if not isinstance(log, EventLog):
        warn_of_columns(opened)
    check_passthrough(opened, engine.config, causal)
    if monitor is not None and opened.kind != "points":
        raise ParameterError(
            "monitor= was given with a log of distances, which have no coordinates to watch: leave "
            "it out"
        )
    folder = Path(check_path(run, "run"))
    runfolder.check_apart("run", folder, opened)
    run_origin = {
        "kind": chains.REPLAY,
        **origin.describe_replay(opened, engine.config, every, embed),
        "start": _describe_engine(engine),
        "clusters": clusters,
        "columns": opened.columns.as_dict(),
        "monitor": _describe_monitor(monitor),
    }
    limit = parse_max_rejected(max_rejected)
    overwrite = check_flag("overwrite", overwrite)
    with RunStore.claim(run, checkpoint_every, monitor, overwrite) as store:
        store.begin(run_origin, select=_select_compared)
        store.write_fact(chains.LOG, origin.describe_place(opened))
        engine.log_offset = 0
        start, finished = _restore(store, opened, engine, grows=followed is not None)
        counts, taken, damage = start.counts, engine.log_offset, None
        if finished:
            check_rejected(limit, counts.rejected, taken)
        else:
            recorder = Recorder(store, opened, engine.config, causal, clusters)
            source = followed or opened
            driver = ReplayDriver(
                source, recorder, start, every, limit, on_alarm, progress, stop=stop
            )
            damage = driver.run()
            store.finish(driver.build_commit(), damage)
    return Replayed(
        **asdict(counts),
        path=folder,
        learned=max(0, counts.accepted - engine.pending),  # some may have waited before the replay
        position=engine.position,
        snapshot=engine.snapshot() if engine.ready else None,
        damage=damage,
        columns=(opened if followed is None else followed.log).columns,
        snapshot_every=every,
        resumed_at=taken,
    )


def _describe_engine(engine: Engine) -> dict[str, int]:
    """What identifies the engine that a run began with."""
    crc = zlib.crc32(engine.to_bytes()) if engine.position else 0
    return {"position": engine.position, "crc": crc}


def _describe_monitor(monitor: Monitor | None) -> dict[str, Any] | None:
    """What identifies the monitor that a run began with."""
    if monitor is None:
        return None
    return {**monitor.parameters, "crc": zlib.crc32(monitor.to_bytes())}


def _select_compared(origin: dict[str, Any]) -> dict[str, Any]:
    """The origin without the columns that are not used: what must agree when a run goes on."""
    used = {k: v for k, v in origin["columns"].items() if k not in ("left_out", "suspicious")}
    return {**origin, "columns": used}


def _restore(store: RunStore, log: EventLog, engine: Engine, grows: bool) -> tuple[Commit, bool]:
    """Bring the engine to the last commit: what was taken, and whether the run is whole.

    ParameterError where the rows that were taken are not those of the log any more. ``grows``:
    there may be more rows to come.
    """
    last = store.load_last() or Commit(engine, RowCounts(), {"rows": 0})
    state, taken = store.database.read_fact(chains.STATE, {}), last.fingerprint
    if state.get("finished"):  # behind the last commit
        taken = state["fingerprint"]
    # what could not be read may be mended
    goes_on = (
        check_log_unchanged(log.batches(0), taken, store.folder) or grows or state.get("damage")
    )
    if not goes_on and (final := store.load_final()) is not None:
        engine.become(final.engine)
        return replace(final, engine=engine), True
    store.write_fact(chains.STATE, {"finished": False})
    engine.become(last.engine)
    return replace(last, engine=engine), False


def _open_log(log: EventLog | Paths, choice: ColumnChoice, engine: Engine) -> EventLog:
    """The log, with the features that the engine has learned, if it has learned any."""
    if not isinstance(log, EventLog):
        if choice.features is None and engine.feature_names:
            choice = replace(choice, features=engine.feature_names)
        log = open_with_choice(log, choice)
    elif choice != ColumnChoice():
        raise ParameterError(
            "features or other columns were given with an EventLog, which already has its own: "
            "pass them to open_log"
        )
    return replace(_check_fit(log, engine), metric=engine.config.metric)


def check_clock(log: EventLog, config: Config) -> None:
    """FeatureError where masses fade by times that the log does not have."""
    kind = log.event_time_type
    if config.clock != POSITION and (kind is None or not is_time_type(kind)):
        times = "no column of times" if kind is None else f"times of type {kind}"
        raise FeatureError(
            f"the log has {times}, and clock='event_time' needs times: name a column of timestamps "
            "or numbers with time=..."
        )


def _check_fit(log: EventLog, engine: Engine) -> EventLog:
    check_clock(log, engine.config)
    learned = {None: log.kind, True: "distances", False: "points"}[engine.learns_distances]
    if log.kind != learned:
        raise FeatureError(
            f"the log contains {log.kind}, but this engine has learned {learned}: choose another "
            "log (features= reads it as points), or create a new engine"
        )
    if engine.feature_names not in ((), log.feature_names):
        raise FeatureError(
            f"the log has the features {list(log.feature_names)}, but this engine has learned "
            f"{list(engine.feature_names)}: select these with features=, or create a new engine"
        )
    return log


def compute_snapshot_interval(chunk_size: int, every: int | None) -> int:
    """Events between snapshots, rounded up to whole chunks; `SNAPSHOT_EVERY` by default.

    Examples
    --------
    >>> compute_snapshot_interval(10, 15), compute_snapshot_interval(32, None)
    (20, 128)
    """
    every = SNAPSHOT_EVERY if every is None else every
    return -(-check_whole("snapshot_every", every, 1, " or None") // chunk_size) * chunk_size
