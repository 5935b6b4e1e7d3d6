"""`open_run`: an engine that loses nothing of what it acknowledged.

Every call that changes the engine is committed before it returns: checked, learned, written. A
process that is killed finds, when it opens the run again, exactly what was acknowledged, and
perhaps the one call that was being acknowledged. From time to time the engine itself is committed,
so that opening does not take as long as learning.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from streamembed.data.column_roles import check_names
from streamembed.data.split_table import split_kept_texts
from streamembed.engine.call import Call, Command, Labelled, Learned, Points
from streamembed.engine.engine import Engine
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    InputError,
    ParameterError,
    StoppedError,
    StreamembedError,
    quote,
)
from streamembed.methods.options import Config
from streamembed.runs import chains
from streamembed.runs.origin import check_parameters
from streamembed.runs.recorder import build_timeline_row, to_rejected_table
from streamembed.runs.run_reader import EVENT_COLUMNS
from streamembed.runs.run_store import Commit, RowCounts, RunStore, load_newest, to_ipc_bytes
from streamembed.storage.database import Database
from streamembed.version import __version__

Result = TypeVar("Result")


def open_run(
    run: str | os.PathLike[str],
    engine: Engine | Mapping[str, Any] | None = None,
    *,
    keep: Sequence[str] | None = None,
    checkpoint_every: int | str | None = None,
) -> Run:
    """A durable engine in a folder: a new one, or as it was acknowledged last.

    It is open at once, and until `Run.close` or the end of a ``with`` block.

    Parameters
    ----------
    run
        The folder; one writer at a time, any number of readers (`read_run`).
    engine
        An engine to begin with, or the parameters of one; default: those of the run that is there,
        or the defaults.
    keep
        Columns of the tables, or keys of the dicts, that `Run.learn` commits as text beside the
        events, such as titles: the page of the run shows them. Default: those of the run that is
        there.
    checkpoint_every
        How often the engine itself is committed, as in `replay`: opening again repeats what was
        learned since.

    Raises
    ------
    ParameterError
        The folder holds something else, or a run of other parameters (the message says which); or
        another process writes to it.
    DamagedFileError
        What is there is damaged: `streamembed verify` says what is left.
    FileError
        The folder cannot be used.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> folder, X = tempfile.mkdtemp(), np.random.default_rng(0).standard_normal((80, 2))
    >>> with open_run(folder, {"size": 50, "warm_up": 40}) as run:
    ...     run.learn(X, batch_id="day 1").accepted
    80
    >>> with open_run(folder) as run:
    ...     run.learn(X, batch_id="day 1").accepted, run.position
    (80, 80)
    """
    with ExitStack() as stack:
        store = stack.enter_context(RunStore.claim(run, checkpoint_every, overwrite=None))
        opened = Run(store, *_load_beginning(store, engine, keep))
        opened._recover()
        opened._resources = stack.pop_all()
    return opened


def _load_beginning(
    store: RunStore, given: Engine | Mapping[str, Any] | None, keep: Sequence[str] | None
) -> tuple[Engine, tuple[str, ...]]:
    """The engine as it was when the run began, and the columns that the run keeps."""
    before = store.read_origin(chains.ONLINE)
    if given is None:
        given = (before or {}).get("engine", {})
    engine = given if isinstance(given, Engine) else Engine(**check_parameters(given))
    columns = (before or {}).get("columns", {})
    if keep is not None:
        names = check_names("keep", keep)
        if taken := {*names}.intersection(EVENT_COLUMNS):
            raise ParameterError(
                f"keep={quote(min(taken))} is a column of events already: leave it out of keep=, "
                "or pass it under another name"
            )
        columns = {"keep": list(names)}
    origin = {
        "kind": chains.ONLINE,
        "version": __version__,
        "engine": engine.config.as_dict(),
        "columns": columns,
    }
    store.begin(origin, engine, _select_compared)
    start: Engine = load_newest(store.database, chains.BEGINNING)
    if engine.position not in (0, start.position):
        raise ParameterError(
            f"engine has learned {engine.position} events, and run={quote(str(store.folder))} "
            f"began with {start.position}: open it without an engine; it resumes by itself"
        )
    if before is not None:
        engine.become(start)
    return engine, tuple(columns.get("keep", ()))


def _select_compared(origin: dict[str, Any]) -> dict[str, Any]:
    """Without the version; an earlier release of this layout may have had fewer parameters."""
    return {**origin, "version": None, "engine": Config.complete(origin["engine"])}


class Run:
    """An engine in a folder, every change of it committed; see `open_run`.

    A context manager, which closes it: use it in a ``with`` block, or call `close`.
    Its methods are those of `Engine`, one call at a time from any thread. After an error that is
    not about the arguments it refuses to learn, and still reads: open it again.
    """

    def __init__(self, store: RunStore, engine: Engine, keep: tuple[str, ...]) -> None:
        """Use `open_run`."""
        self._store, self._database, self._keep = store, store.database, keep
        self._engine = engine
        self._lock = threading.RLock()
        self._closed = False
        self._resources = ExitStack()  # the folder and the database, until it is closed
        self._known_state = engine.state_token  # of what the run knows of
        self._committed = -1  # calls that the engine knew when it was committed last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Run in {self._database.folder}: {self._engine!r}>"

    # ------------------------------------------------------------------ reading

    @property
    def path(self) -> Path:
        """The folder."""
        return self._database.folder

    @property
    def kept_columns(self) -> tuple[str, ...]:
        """The columns that `learn` commits beside the events."""
        return self._keep

    @property
    def position(self) -> int:
        """Events that are acknowledged."""
        return self._engine.position

    @property
    def ready(self) -> bool:
        """True once the warm-up is over."""
        return self._engine.ready

    @property
    def engine(self) -> Engine:
        """The engine, to be read: once it learns past the run, the run refuses to go on."""
        return self._engine

    def snapshot(self, fresh: bool = False) -> Snapshot:
        """As `Engine.snapshot`."""
        return self._engine.snapshot(fresh)

    def batch_ids(self, prefix: str = "") -> list[str]:
        """Names of the acknowledged batches that begin with a prefix, in no order."""
        return self._database.list_names(prefix)

    def acknowledged(self, batch_id: str) -> Learned | None:
        """What `learn` gave for the batch of a name; None where it was never learned.

        Pairs are no events: none of a batch of them was accepted or rejected.
        """
        record = self._database.find(batch_id)
        return None if record is None else Call.from_bytes(record.data).result or Learned(0, ())

    # ------------------------------------------------------------------ learning

    def learn(
        self,
        X: Any,
        y: Any = None,
        ids: Any = None,
        features: Any = None,
        times: Any = None,
        *,
        batch_id: str | None = None,
    ) -> Learned:
        """Learn events as `Engine.learn` does; once it returns, they are there for good.

        Parameters
        ----------
        batch_id
            A name that the producer gives to these events: a second call of the same name learns
            nothing and returns what the first did, so that a producer without an answer can retry;
            with other rows it is an error.

        Raises
        ------
        ParameterError, InputError
            As `Engine.learn`; nothing was learned, and the run goes on.
        FileError
            The system refused to write: the run refuses to learn from now on. Whether these events
            are kept is found out by opening it again.
        StoppedError
            That happened before, or the run is closed; or its folder or database was removed,
            replaced or changed by another process: nothing of this call is kept.
        """
        return self._apply(lambda: self._check(X, y, ids, features, times), batch_id)

    def _check(self, X: Any, y: Any, ids: Any, features: Any, times: Any) -> Points:
        """As `Engine.check`, with the columns that are kept."""
        X, columns = split_kept_texts(X, self._keep)
        call = self._engine.check(X, y, ids, features, times)
        rows = call.kept.tolist()
        texts = tuple(tuple(column[row] for row in rows) for column in columns)
        return replace(call, texts=texts) if texts else call

    def learn_distances(
        self, rows: Any, ids: Any = None, *, batch_id: str | None = None
    ) -> Learned:
        """Learn objects by their distances, as `Engine.learn_distances`; see `learn`."""
        return self._apply(lambda: self._engine.check_distances(rows, ids), batch_id)

    def learn_pairs(self, X1: Any, X2: Any, similar: Any, *, batch_id: str | None = None) -> None:
        """Learn given pairs, as `Engine.learn_pairs`; see `learn`."""
        self._apply(lambda: self._engine.check_pairs(X1, X2, similar), batch_id)

    def label(self, ids: Any, y: Any) -> Labelled:
        """Give events a label that came late, as `Engine.label`."""
        return self._apply(lambda: self._engine.check_labels(ids, y))

    def flush(self) -> None:
        """Learn the pending events as a short chunk, as `Engine.flush`."""
        self._apply(lambda: Command("flush"))

    def rescale(self) -> None:
        """Compute the scaling again, as `Engine.rescale`."""
        self._apply(lambda: Command("rescale"))

    def relayout(self) -> None:
        """Compute the picture from scratch, as `Engine.relayout`."""
        self._apply(lambda: Command("relayout"))

    def checkpoint(self) -> None:
        """Commit the engine itself now, so that opening the run again takes no time."""
        with self._lock:
            self._check_open()
            self._commit_engine()

    def close(self) -> None:
        """Commit the engine, where nothing is wrong with it, and let another writer open the run.

        A run that is closed can be closed again, to no effect.

        Raises
        ------
        FileError, StoppedError
            As `learn`; the run is closed all the same, and what was acknowledged is committed.
        """
        with self._lock, self._resources:
            was_closed, self._closed = self._closed, True
            if was_closed or self._database.has_failed:
                return
            self._database.check_not_replaced()
            if self._engine.state_token is self._known_state:
                self._commit_engine()

    # ------------------------------------------------------------------ the order of things

    def _apply(self, check: Callable[[], Call[Result]], batch_id: str | None = None) -> Result:
        """Check, learn, write, acknowledge."""
        is_name = isinstance(batch_id, str) and batch_id and batch_id.isprintable()
        if batch_id is not None and not is_name:
            raise ParameterError(
                f"batch_id={quote(batch_id)} must be printable text of some length, or None"
            )
        with self._lock:
            self._check_open()
            call = check()
            record = None if batch_id is None else self._database.find(batch_id)
            if record is not None:
                known: Call[Any] = Call.from_bytes(record.data)
                if known.digest != call.digest:
                    raise InputError(
                        f"batch_id={quote(batch_id)} was learned before, and with other rows: "
                        "nothing of this call was learned; give every batch a name of its own"
                    )
                return cast(Result, known.result)
            try:
                result = self._engine.apply(call)
                with self._database.commit():
                    self._record(call, batch_id, result)
                self._known_state = self._engine.state_token
                if self._store.is_due(self._engine.position):
                    self._commit_engine()
            except BaseException as error:
                is_learned = self._engine.state_token is not self._known_state
                if is_learned or not isinstance(error, StreamembedError):
                    self._database.stop_writing(error)
                raise
            return result

    def _record(self, call: Call[Any], batch_id: str | None, result: Any) -> None:
        """Within a commit: the call, and what it gave."""
        position = self._engine.position
        data = call.with_result(result).to_bytes()
        self._database.append(chains.OPERATIONS, position, data, batch_id)
        if isinstance(result, Learned) and result.rejected:
            rejected = to_ipc_bytes(to_rejected_table(result.rejected))
            self._database.append("rejected", position, rejected)

    def _commit_engine(self) -> None:
        """Once the warm-up is over, unless it is committed as it is."""
        calls = self._database.count_records(chains.OPERATIONS)
        if not self._engine.ready or self._committed == calls:
            return
        snapshot = self._engine.publish(fresh=True)
        self._store.add("timeline", build_timeline_row(snapshot, self._engine.refreshes))
        self._committed = calls
        done = {"operations": self._committed}
        self._store.commit(Commit(self._engine, RowCounts(), done), snapshot)

    def _recover(self) -> None:
        """Apply again what was acknowledged since the engine was committed last."""
        start = 0
        if (last := self._store.load_last()) is not None:
            self._engine.become(last.engine)
            start = self._committed = last.fingerprint["operations"]
        for _ in apply_calls(self._database, self._engine, start):
            pass
        self._known_state = self._engine.state_token

    def _check_open(self) -> None:
        if self._closed:
            raise StoppedError(f"{self.path} is closed: open it again with open_run")
        if self._engine.state_token is not self._known_state:
            self._database.stop_writing("its engine was changed past the run")
        self._database.check_writable()


def apply_calls(database: Database, engine: Engine, start: int = 0) -> Iterator[int]:
    """Learn the calls of a run from one on, and say how many the engine then knows.

    Raises
    ------
    DamagedFileError
        One leads elsewhere than when it was written.
    """
    for record in database.read_chain(chains.OPERATIONS, start):
        engine.apply(Call.from_bytes(record.data))
        if engine.position != record.position:
            raise DamagedFileError(
                f"batch {record.number} of {database.folder} leads to event {engine.position}, "
                f"not {record.position}"
            )
        yield record.number + 1
