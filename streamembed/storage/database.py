"""The database of a run: numbered records in chains, and facts. Large records are files beside it.

SQLite is the well-kept answer to torn writes, locks, concurrent readers and full disks; it checks
structure, not content. So every record carries a CRC32 of its bytes, its place and its number,
chained over the record before it, and every fact one of its own: a record that was changed, moved
or lost is seen when it is read. Whatever belongs together is written in one transaction.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from streamembed.errors import (
    DamagedFileError,
    MissingFileError,
    NotAFileError,
    StoppedError,
)
from streamembed.storage import sqlite

# Of a run folder: the database, the folder of files beside it, and the file that its writer locks.
DATABASE_NAME, PARTS, LOCK = "run.db", "parts", ".lock"
# What a writer writes is lost, or another writer may be at work, once these are other files.
WRITER_FILES = (DATABASE_NAME, f"{DATABASE_NAME}-wal", LOCK)
# "SEdb", so that other tools can tell what the file is; and the version of the tables.
APPLICATION, VERSION = 0x53456462, 1
# Records of more bytes than that are files: SQLite's own limit is a billion.
LARGEST_BLOB = 1 << 22
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE manifest (key INTEGER PRIMARY KEY, told TEXT NOT NULL);
CREATE TABLE chains (
    chain TEXT PRIMARY KEY, length INTEGER NOT NULL, crc INTEGER NOT NULL, seal INTEGER NOT NULL
);
CREATE TABLE records (
    key INTEGER PRIMARY KEY, chain TEXT NOT NULL, number INTEGER NOT NULL,
    position INTEGER NOT NULL, rows INTEGER NOT NULL, file TEXT, data BLOB NOT NULL,
    before INTEGER NOT NULL, crc INTEGER NOT NULL, UNIQUE (chain, number)
);
"""


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """One record of a chain."""

    chain: str  # what it is one of
    number: int  # its place there, from 0
    position: int  # of the stream, once it was written
    rows: int  # how many it holds
    data: bytes


class Database:
    """The database of one run folder; used by any thread, written by one process.

    After an error of the disk it refuses to write, and still reads: what was asked for last may
    be written or not, and is found out by opening it again. It also refuses where the files at its
    path are not those that it opened, and where another process wrote after it.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, writes: bool) -> None:
        """Use `create` or `open`."""
        self.folder = folder
        self._connection = connection
        # from Python 3.13 on a connection that is never closed warns
        weakref.finalize(self, connection.close).atexit = False
        self._writes = writes
        self._failure: str | None = None
        # of the transaction: how many facts, and their mixed checksums; files that it drops
        self._facts, self._dropped = (0, 0), list[Path]()
        self._lock = threading.RLock()
        self._absolute_folder = folder.absolute()  # wherever the process goes meanwhile
        self._manifest: str | None = None  # as this process wrote or read it last
        self._identities: list[tuple[int, int] | None] = []
        self._file_states: list[tuple[int, int]] = []

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, folder: Path) -> Self:
        """A new one, empty; it gets its name once it is whole."""
        path = folder / DATABASE_NAME
        temporary = path.with_name(f"{DATABASE_NAME}.{os.getpid()}.part")
        with sqlite.translate_errors(path, "written"):
            temporary.unlink(missing_ok=True)
            connection = sqlite.connect(temporary, "rwc")
            try:
                connection.executescript(
                    f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION};{_TABLES}"
                    f"INSERT INTO manifest VALUES (1, '0|{zlib.crc32(b'[]')}|0|0');"
                )
            finally:
                connection.close()
            os.replace(temporary, path)
            sync_folder(folder)
            connection = sqlite.connect(path, "rw")
            connection.execute("PRAGMA journal_mode=WAL")
            database = cls(folder, connection, True)
            with database.read_consistently():
                database._check_manifest()
        return database

    @classmethod
    def open(cls, folder: Path, writes: bool = False) -> Self:
        """One that is there.

        Raises
        ------
        MissingFileError
            There is none.
        DamagedFileError
            It is no database of a run, of another version, or damaged.
        FileError
            It cannot be read.
        """
        path = folder / DATABASE_NAME
        if not path.exists():
            what = (
                f"holds no {DATABASE_NAME}: it is no run" if folder.exists() else "does not exist"
            )
            raise MissingFileError(f"{folder} {what}")
        with sqlite.translate_errors(path, "read"):
            connection = sqlite.connect(path, "rw" if writes else sqlite.choose_read_mode(path))
            try:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if application != APPLICATION:
                    raise DamagedFileError(f"{path} is not the database of a run, or it is damaged")
                if version != VERSION:
                    raise DamagedFileError(
                        f"{path} has layout version {version}; this release reads {VERSION}: "
                        "use the release that wrote it, or replay from scratch with --overwrite"
                    )
                database = cls(folder, connection, writes)
                with database.read_consistently(writes):
                    database._check_manifest()
                    if writes:
                        database._remove_orphans()
            except BaseException:
                connection.close()
                raise
        return database

    def _check_manifest(self) -> None:
        """Refuse a file in which a whole chain, or a fact, is lost or cannot be found.

        What is here now is what the next commit must find.
        """
        for table in ("facts", "chains"):
            rows = self._connection.execute(f"PRAGMA integrity_check({table})").fetchall()
            if rows != [("ok",)]:
                raise self._create_damage_error(f"the table of {table} is not in order")
        self._manifest = self._read_manifest()
        if self._manifest != self._compute_manifest():
            raise self._create_damage_error("facts or chains of records were lost")
        self._identities, self._file_states = self._stat_files()

    def _read_manifest(self) -> str | None:
        row = self._connection.execute("SELECT told FROM manifest WHERE key = 1").fetchone()
        return None if row is None else row[0]

    def _compute_manifest(self) -> str:
        """The same, from the facts and chains themselves."""
        count = mixed = 0
        for name, value, crc in self._connection.execute("SELECT * FROM facts NOT INDEXED"):
            if crc != sqlite.compute_fact_crc(str(name), str(value)):
                raise self._create_damage_error(f"the fact {name!r} does not match its checksum")
            count, mixed = count + 1, mixed ^ crc
        return self._format_manifest(count, mixed)

    def _format_manifest(self, count: int, mixed: int) -> str:
        chains = self._connection.execute("SELECT * FROM chains ORDER BY chain").fetchall()
        return f"{len(chains)}|{zlib.crc32(repr(chains).encode())}|{count}|{mixed}"

    def _check_sole_writer(self) -> tuple[int, int]:
        """How many facts there are, and their mixed checksums, within a transaction.

        The manifest has the length of every chain, the checksum of its last record, and the
        facts: where it is what this process wrote or read last, no other writer has written since.

        Raises
        ------
        StoppedError
            Another writer has.
        """
        manifest = self._read_manifest()
        if manifest is None or manifest != self._manifest:
            raise StoppedError(
                f"another writer has written to {self.folder} after this one: nothing since "
                f"the last commit is written; let one process write, and do not remove {LOCK}; "
                "then open the run again"
            )
        count, mixed = manifest.split("|")[2:]
        return int(count), int(mixed)

    def _stat_files(self) -> tuple[list[tuple[int, int] | None], list[tuple[int, int]]]:
        """What the system knows the files of a writer by, None where one is not there.

        Beside it, of those that are written: how long each is, and when it was changed.
        """
        identities: list[tuple[int, int] | None] = []
        written = []
        for name in WRITER_FILES:
            try:
                status = os.stat(f"{self._absolute_folder}/{name}")
            except OSError:
                identities.append(None)
                continue
            identities.append((status.st_dev, status.st_ino))
            if name != LOCK:
                written.append((status.st_size, status.st_mtime_ns))
        return identities, written

    def check_in_place(self) -> None:
        """Refuse where what is at the path is not what was opened, and written since.

        Raises
        ------
        StoppedError
            The folder, its database or its lock was removed or replaced, or another program has
            changed the database or its write-ahead log.
        """
        with self._lock:  # a commit changes them
            identities, written = self._stat_files()
        if identities != self._identities:
            name = _first_difference(identities, self._identities)
            remedy = "put the folder back"
            if name == LOCK:  # which the system releases when a process ends
                remedy = "make sure that no other process writes to the run, and leave this file"
            raise StoppedError(
                f"{self.folder / name} was removed or replaced while the run was open: nothing "
                f"since the last commit is written; {remedy}, then open the run again"
            )
        if written != self._file_states:
            name = _first_difference(written, self._file_states)
            raise StoppedError(
                f"{self.folder / name} was changed while the run was open: another writer has "
                "written to it, or a program has cut or overwritten it; nothing since the last "
                "commit is written; let no other process write to the folder, then open the run "
                f"again; `streamembed verify {self.folder}` says what is left"
            )

    def _remove_orphans(self) -> None:
        """Remove files that no record knows: they were written before a commit that never came."""
        with sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            recorded = {name for (name,) in self._connection.execute("SELECT file FROM records")}
        for path in (self._absolute_folder / PARTS).glob("*"):
            if path.name not in recorded:
                path.unlink()

    def close(self) -> None:
        """Nothing more is read or written.

        SQLite copies the write-ahead log into the database when its last connection is closed. If
        another program has changed the files, a second connection, which cannot write, prevents
        that: both stay as they are.
        """
        with self._lock, contextlib.ExitStack() as stack:
            if self._is_changed():
                with contextlib.suppress(sqlite3.Error):  # it is open also after an error
                    second = sqlite3.connect(
                        sqlite.build_uri(self._absolute_folder / DATABASE_NAME, "ro"), uri=True
                    )
                    stack.enter_context(contextlib.closing(second))
                    second.execute("PRAGMA schema_version")
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
        if not self._writes:
            remove_reader_files(self.folder)

    def _is_changed(self) -> bool:
        """Whether the files at the path are those of this writer, with what it did not write."""
        identities, written = self._stat_files()
        is_changed = identities[:2] == self._identities[:2] and written != self._file_states
        # SQLite deletes the log beside an empty database, once that is opened
        return self._writes and is_changed and written[0][0] > 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ writing

    @contextlib.contextmanager
    def commit(self) -> Iterator[None]:
        """What is written in here is there afterwards, all of it or nothing.

        Raises
        ------
        FileError
            The system refuses, as a full disk does; whether it is written is not known.
        StoppedError
            That happened before; or the files at the path are not those that were opened, or
            another process has written: nothing more is written.
        """
        with self._lock:
            self._check_writable()
            try:
                with sqlite.translate_errors(self.folder / DATABASE_NAME, "written"):
                    self._connection.execute("BEGIN IMMEDIATE")
                    self._facts, self._dropped = self._check_sole_writer(), []
                    yield
                    manifest = self._format_manifest(*self._facts)
                    query = "INSERT OR REPLACE INTO manifest VALUES (1, ?)"
                    self._connection.execute(query, (manifest,))
                    self._connection.execute("COMMIT")
                    self._manifest = manifest
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                self._failure = str(error) or type(error).__name__
                raise
            finally:  # a large transaction is written before its end, also one that is undone
                self._file_states = self._stat_files()[1]
            for path in self._dropped:
                path.unlink(missing_ok=True)

    def _check_writable(self) -> None:
        if not self._writes:
            raise StoppedError(f"{self.folder} was opened for reading")
        self.check_in_place()
        if self._failure is not None:
            raise StoppedError(
                f"{self.folder} refuses to write after an error ({self._failure}): what was "
                "committed is safe and can be read; fix the cause, then open the run again"
            )

    def append(self, chain: str, position: int, rows: int, data: bytes) -> int:
        """A record behind all of its chain, within `commit`; its number."""
        length, before = self._read_head(chain)
        crc = sqlite.compute_crc(chain, length, position, rows, data, before)
        file = None
        if len(data) > LARGEST_BLOB:
            file = f"{chain}-{length:08d}"
            self._write_part(file, data)
            data = b""
        self._connection.execute(
            "INSERT INTO records (chain, number, position, rows, file, data, before, crc)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (chain, length, position, rows, file, data, before, crc),
        )
        self._connection.execute(
            "INSERT OR REPLACE INTO chains VALUES (?, ?, ?, ?)",
            (chain, length + 1, crc, sqlite.compute_seal(chain, length + 1, crc)),
        )
        return length

    def _write_part(self, file: str, data: bytes) -> None:
        path = self._absolute_folder / PARTS / file
        if not path.parent.exists():
            path.parent.mkdir()
            sync_folder(self._absolute_folder)
        with path.open("wb") as sink:
            sink.write(data)
            sink.flush()
            os.fsync(sink.fileno())
        sync_folder(path.parent)

    def keep_only(self, chain: str, numbers: Collection[int]) -> None:
        """Drop the other records of a chain, within `commit`; their files are removed after it."""
        rows = self._connection.execute(
            "SELECT number, file FROM records WHERE chain = ?", (chain,)
        ).fetchall()
        for number, file in rows:
            if number in numbers:
                continue
            self._connection.execute(
                "DELETE FROM records WHERE chain = ? AND number = ?", (chain, number)
            )
            if file is not None:
                self._dropped.append(self._absolute_folder / PARTS / file)

    def write_fact(self, name: str, value: Any) -> None:
        """A fact, anything that JSON has, within `commit`."""
        text = json.dumps(value, sort_keys=True)
        crc = sqlite.compute_fact_crc(name, text)
        row = self._connection.execute("SELECT crc FROM facts WHERE name = ?", (name,)).fetchone()
        count, mixed = self._facts
        self._facts = (count + 1, mixed ^ crc) if row is None else (count, mixed ^ row[0] ^ crc)
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?, ?)", (name, text, crc))

    # ------------------------------------------------------------------ reading

    def read_fact(self, name: str, default: Any = None) -> Any:
        """A fact; ``default`` where it was never noted."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            row = self._connection.execute(
                "SELECT value, crc FROM facts WHERE name = ?", (name,)
            ).fetchone()
        if row is None:
            return default
        if not isinstance(row[0], str) or row[1] != sqlite.compute_fact_crc(name, row[0]):
            raise self._create_damage_error(f"the fact {name!r} does not match its checksum")
        return json.loads(row[0])

    def count_records(self, chain: str) -> int:
        """Records that the chain ever had."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            return self._read_head(chain)[0]

    def list_records(self, chain: str) -> list[tuple[int, int]]:
        """Number and stream position of each record that it has, ascending."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            query = "SELECT number, position FROM records WHERE chain = ? ORDER BY number"
            records = list(self._connection.execute(query, (chain,)))
        if not all(type(value) is int for row in records for value in row):
            raise self._create_damage_error(f"the numbers of {chain} are no numbers")
        return records

    def read(self, chain: str, number: int) -> DatabaseRecord:
        """One record, checked.

        Raises
        ------
        DamagedFileError
            It is not there, or not what was written.
        """
        return self._read(chain, number)[0]

    def read_chain(self, chain: str, start: int = 0) -> Iterator[DatabaseRecord]:
        """All records of a chain of which none is ever dropped, checked one by one.

        Raises
        ------
        DamagedFileError
            One is lost, or not what was written; those before it were yielded.
        """
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            length, last = self._read_head(chain)
        before = 0
        for number in range(start, length):
            record, previous, crc = self._read(chain, number)
            if number > start and previous != before:
                raise self._create_damage_error(
                    f"record {number} of {chain} does not follow the one before it"
                )
            before = crc
            yield record
        if start < length and before != last:
            raise self._create_damage_error(
                f"the last record of {chain} is not the one that was written last"
            )

    def _read_head(self, chain: str) -> tuple[int, int]:
        """How many records a chain ever had, and the checksum of the last."""
        row = self._connection.execute(
            "SELECT length, crc, seal FROM chains WHERE chain = ?", (chain,)
        ).fetchone()
        if row is None:
            (left,) = self._connection.execute(
                "SELECT count(*) FROM records WHERE chain = ?", (chain,)
            ).fetchone()
            if left:
                raise self._create_damage_error(f"the end of the chain {chain} is lost")
            return 0, 0
        if row[2] != sqlite.compute_seal(chain, row[0], row[1]):
            raise self._create_damage_error(
                f"the end of the chain {chain} does not match its checksum"
            )
        return row[0], row[1]

    def _read(self, chain: str, number: int) -> tuple[DatabaseRecord, int, int]:
        """A record, the checksum before it, and its own."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            row = self._connection.execute(
                "SELECT position, rows, file, data, before, crc FROM records"
                " WHERE chain = ? AND number = ?",
                (chain, number),
            ).fetchone()
        if row is None:
            raise self._create_damage_error(f"record {number} of {chain} is lost")
        position, rows, file, data, before, crc = row
        numbers = all(type(value) is int for value in (position, rows, before, crc))
        is_text = file is None or (isinstance(file, str) and file == os.path.basename(file))
        if not (numbers and is_text and isinstance(data, bytes)):
            raise self._create_damage_error(f"record {number} of {chain} is not what a record is")
        if file is not None:
            path = self._absolute_folder / PARTS / file
            try:
                with sqlite.translate_errors(path, "read"):
                    data = path.read_bytes()
            except (MissingFileError, NotAFileError) as error:
                raise self._create_damage_error(f"{path.name} is lost") from error
        if sqlite.compute_crc(chain, number, position, rows, data, before) != crc:
            raise self._create_damage_error(
                f"record {number} of {chain} does not match its checksum"
            )
        return DatabaseRecord(chain, number, position, rows, data), before, crc

    def check(self) -> list[str]:
        """What is wrong with the file itself, by SQLite's own check; nothing where all is well."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            rows = self._connection.execute("PRAGMA integrity_check").fetchall()
        return [text for (text,) in rows if text != "ok"]

    def list_chains(self) -> list[str]:
        """Of which chains there are records, or were."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            query = "SELECT chain FROM chains UNION SELECT chain FROM records ORDER BY 1"
            return [str(name) for (name,) in self._connection.execute(query)]

    def list_facts(self) -> list[str]:
        """Names of the facts."""
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            return [str(name) for (name,) in self._connection.execute("SELECT name FROM facts")]

    @contextlib.contextmanager
    def read_consistently(self, alone: bool = False) -> Iterator[None]:
        """What is read in here is of one moment, whatever is written meanwhile; may be nested.

        Parameters
        ----------
        alone
            Whether nothing can be written meanwhile.
        """
        with self._lock, sqlite.translate_errors(self.folder / DATABASE_NAME, "read"):
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN IMMEDIATE" if alone else "BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    def _create_damage_error(self, what: str) -> DamagedFileError:
        return DamagedFileError(
            f"{self.folder / DATABASE_NAME} is damaged: {what}; `streamembed verify "
            f"{self.folder}` lists what is left"
        )


def _first_difference(now: Sequence[object], before: Sequence[object]) -> str:
    """The name of the first of the files of a writer of which something differs."""
    return next(name for name, a, b in zip(WRITER_FILES, now, before, strict=False) if a != b)


def stat_files(folder: Path) -> list[os.stat_result | None]:
    """What the system says of the database and its write-ahead log; None where one is missing.

    Inode, size and time change with every write.
    """
    stats: list[os.stat_result | None] = []
    for name in WRITER_FILES[:2]:
        try:
            stats.append((folder / name).stat())
        except OSError:
            stats.append(None)
    return stats


def find_write_time(stats: Iterable[os.stat_result | None]) -> float:
    """When the last of these files was written, in seconds of the system clock."""
    # an empty file is what readers leave
    return max((stat.st_mtime for stat in stats if stat is not None and stat.st_size), default=0.0)


def remove_reader_files(folder: Path) -> None:
    """Remove the two files of SQLite that connections for reading leave, where nothing is in them.

    SQLite does it when the last connection that may write is closed; where another is open, or the
    folder cannot be written to, they stay.
    """
    try:
        if (folder / f"{DATABASE_NAME}-wal").stat().st_size:
            return
        connection = sqlite.connect(folder / DATABASE_NAME, "rw")
    except (OSError, sqlite3.Error):
        return
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connection):
        connection.execute("PRAGMA user_version").fetchone()


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed there is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
