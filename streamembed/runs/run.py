"""`replay`: an Arrow log through an engine into a run folder.

A run folder holds ``snapshot.arrow`` (the final snapshot), ``embedding.parquet`` (every accepted
event by the final snapshot, or as of when it was learned, with its label and time),
``timeline.parquet`` (a row a snapshot; its metadata say how the run came about:
`streamembed.runs.origin`), ``picture.parquet`` (where a picture is kept) and ``rejected.parquet``
(every row that could not be learned, with its offset in the log and why). All but the column
``seconds`` of the timeline are a function of the log's rows and the engine's parameters: files,
record batches and row groups leave no trace.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from streamembed.data.roles import Choice, Columns
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    ColumnWarning,
    FeatureError,
    LogError,
    ParameterError,
    path_text,
    shown,
)
from streamembed.logs.pairs import PairLog, in_order, open_pairs
from streamembed.logs.paths import Location, Paths
from streamembed.logs.reader import EventLog, choice_of, doubts, open_chosen
from streamembed.parameters import one_of, whole
from streamembed.runs import folder as runfolder
from streamembed.runs import origin
from streamembed.runs.driver import Driver
from streamembed.runs.recorder import Recorder, check_carried

__all__ = ["Replayed", "cadence", "replay"]

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
        What the columns of the log were used for; also in the metadata of ``timeline.parquet``.
    pairs, rejected_pairs : int
        Rows of the pair log that were learned, and that were rejected; 0 without one.
    snapshot_every : int
        Events between snapshots, a multiple of ``chunk_size``: what was asked for, rounded up.
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
    pairs: int = 0
    rejected_pairs: int = 0
    snapshot_every: int = SNAPSHOT_EVERY


def replay(
    log: EventLog | Paths,
    engine: Engine,
    run: Location,
    *,
    snapshot_every: int | None = None,
    features: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    id: str | None = None,
    label: str | None = None,
    time: str | None = None,
    pairs: Paths | None = None,
    on_bad_row: str = "skip",
    embed: str = "final",
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Replayed:
    """Learn a whole log and write a run folder.

    Parameters
    ----------
    log
        Files or folders of Arrow IPC (stream or file) or Parquet, "-" for standard input, or an
        open `EventLog`, of points or of distances.
    engine
        Learns the log, and can continue learning afterwards.
    run
        The folder to create. It must be empty or not exist, unless ``overwrite``, and be outside
        the folders that are read. Only one replay at a time can use it.
    snapshot_every
        Events between snapshots; default: 100. Rounded up to whole chunks, with which snapshots
        change: ``Replayed.snapshot_every`` is the number that was used.
    features
        Columns to use as features, or patterns of them, as in `open_log`; default: the features of
        the engine, or those of the log.
    exclude, id, label, time
        Columns to leave out, and those with ids, labels and times, as in `open_log`.
    pairs
        A pair log (`streamembed.logs.pairs`) for the engine's metrics, learned completely at the
        end of the warm-up, before the first snapshot.
    on_bad_row
        "skip" rejects rows that cannot be learned, "raise" stops at the first. The parameter of the
        same name of the engine applies only to calls of the engine.
    embed
        "final": all events of ``embedding.parquet`` are embedded by the last snapshot, so that they
        are one embedding; "causal": each by the first snapshot that has learned it, which the
        columns ``snapshot`` and ``epoch`` name.
    progress
        Called with the rows of the log taken so far, learned or rejected: after every chunk, and
        after every batch of the log.

    Returns
    -------
    Replayed

    Raises
    ------
    FileError
        The run folder cannot be created or written to.
    ParameterError
        The run folder is not empty, another replay is using it, or the log or the pairs are read
        from it; ``snapshot_every`` is not a multiple of the chunk size, ``features`` or other
        columns were given with an open log, or ``pairs`` for an engine without metrics.
    FeatureError
        The log lacks the features that the engine has learned, or has a label or time that Parquet
        cannot store.
    LogError
        Nothing of the log can be read. A log that is damaged further on is learned up to there, the
        run is complete up to that point, and ``Replayed.damage`` says why it ended.
    BadRowError, DuplicateIdError
        With "raise"; the message has the row's offset in the log. Every row before it is learned
        and the run is written, as after a KeyboardInterrupt.

    Warns
    -----
    ColumnWarning
        Before anything is learned: columns are left out because they look like ids, times or
        targets.

    Notes
    -----
    Memory does not grow with the log: only the events since the last snapshot are held, and with
    ``embed="final"`` their points wait in a file of the run folder, which is removed at the end.

    Row t of a log of distances refers to the rows before it, whether learned or rejected. If the
    engine has learned before, its events precede the first row. The driver selects the distances
    that the engine needs, so a row may be longer than the window; it must reach back to every
    landmark. Let it reach back beyond the window by as many rows as may be rejected: a row that
    does not cover everything in the window is rejected itself, and so are the rows after it.
    An event has the coordinates of its own slot. If the snapshot no longer has the event (it was
    merged into a landmark, or it left the window), they are null; with ``embed="causal"`` they are
    computed from the distances of its row to what the snapshot has, if there are any.
    """
    on_bad_row = one_of("on_bad_row", on_bad_row, ("raise", "skip"))
    causal = one_of("embed", embed, ("final", "causal")) == "causal"
    if not isinstance(engine, Engine):
        raise ParameterError(f"engine={shown(engine)} must be an Engine")
    if progress is not None and not callable(progress):
        raise ParameterError(
            f"progress={shown(progress)} must be a function of one number, or None"
        )
    every = cadence(engine.config.chunk_size, snapshot_every)
    opened = _open(log, choice_of(features, exclude, id, label, time), engine)
    if not isinstance(log, EventLog) and (told := doubts(opened)) is not None:
        warnings.warn(told, ColumnWarning, stacklevel=2)
    check_carried(opened)
    known = None if pairs is None else _find_pairs(pairs, engine, opened)
    folder = Path(path_text(run, "run"))
    logs = (opened,) if known is None else (opened, known.log)
    runfolder.apart("run", folder, logs, folder=True)
    damage = None
    with runfolder.taken(run, overwrite) as folder:
        engine.log_offset = 0
        made = origin.describe(opened, engine.config, every, on_bad_row)
        recorder = Recorder(folder, opened, engine.config, made, causal)
        driver = Driver(engine, opened, recorder, every, on_bad_row, known, causal=causal)
        try:
            driver.run(progress)
        except LogError as error:
            damage = str(error)
        except KeyboardInterrupt as error:
            if (held := recorder.events) is not None:
                error.add_note(
                    f"interrupted at {held:,} events; {folder} holds them and "
                    f"{driver.snapshots:,} snapshots"
                )
            raise
    return Replayed(
        folder,
        driver.accepted,
        max(0, driver.accepted - engine.pending),  # some may have waited before the replay
        driver.rejected,
        driver.snapshots,
        engine.position,
        engine.snapshot() if engine.ready else None,
        damage,
        opened.columns,
        driver.pairs,
        driver.rejected_pairs,
        every,
    )


def _find_pairs(pairs: Paths, engine: Engine, log: EventLog) -> PairLog:
    """The pair log, if this engine and this log go with it."""
    if not engine.config.metrics:
        raise ParameterError(
            "pairs were given, but the engine learns no metrics: create it with metrics=('itml',)"
        )
    opened = open_pairs(pairs)
    in_order(opened, log.feature_names)
    return opened


def _open(log: EventLog | Paths, choice: Choice, engine: Engine) -> EventLog:
    """The log, with the features that the engine has learned, if it has learned any."""
    if not isinstance(log, EventLog):
        if choice.features is None and engine.feature_names:
            choice = replace(choice, features=engine.feature_names)
        return _fitting(open_chosen(log, choice), engine)
    if choice != Choice():
        raise ParameterError(
            "features or other columns were given with an EventLog, which already has its own: "
            "pass them to open_log"
        )
    return _fitting(log, engine)


def _fitting(log: EventLog, engine: Engine) -> EventLog:
    learned = {None: log.kind, True: "distances", False: "points"}[engine.learns_distances]
    if log.kind != learned:
        raise FeatureError(
            f"the log contains {log.kind}, but this engine has learned {learned}: choose another "
            "log (features= reads it as points), or create a new engine"
        )
    if engine.feature_names and set(engine.feature_names) != set(log.feature_names):
        raise FeatureError(
            f"the log has the features {list(log.feature_names)}, but this engine has learned "
            f"{list(engine.feature_names)}: select these with features=, or create a new engine"
        )
    return log


def cadence(chunk_size: int, every: int | None) -> int:
    """Events between snapshots, rounded up to whole chunks; `SNAPSHOT_EVERY` where nobody asks.

    Examples
    --------
    >>> cadence(10, 15), cadence(32, None)
    (20, 128)
    """
    asked = SNAPSHOT_EVERY if every is None else whole("snapshot_every", every, 1, " or None")
    return -(-asked // chunk_size) * chunk_size
