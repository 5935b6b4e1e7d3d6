"""The database of a run: numbered records in chains, and facts. Large records are files beside it.

SQLite is the well-kept answer to torn writes, locks, concurrent readers and full disks. It checks
structure, not content. So every record has a CRC32 of its place, its name and its bytes, and the
lengths of all chains have one: a record that was changed, moved or lost is found when it is read.
A fact is the newest record of a chain of its own. What belongs together is written in one
transaction.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import weakref
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from streamembed.errors import (
    DamagedFileError,
    FileError,
    MissingFileError,
    StoppedError,
)
from streamembed.storage.archive import VERSION, translate_file_errors

# Of a run folder: the database, the folder of files beside it, and the file that its writer locks.
DATABASE_NAME, PARTS, LOCK = "run.db", "parts", ".lock"
# The files that a writer writes to: the database and its write-ahead log.
WRITER_FILES = (DATABASE_NAME, f"{DATABASE_NAME}-wal")
APPLICATION = 0x53456462  # "SEdb", so that other tools can tell what the file is
# Records of more bytes are files: SQLite's own limit is a billion.
LARGEST_BLOB = 1 << 22
_SELECT = "SELECT chain, number, position, name, file, data, crc FROM records WHERE"
FACT = "fact "  # begins the name of the chain of a fact
_TABLES = """
CREATE TABLE lengths (value TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE records (
    chain TEXT NOT NULL, number INTEGER NOT NULL, position INTEGER NOT NULL, name TEXT, file TEXT,
    data BLOB NOT NULL, crc INTEGER NOT NULL, PRIMARY KEY (chain, number)
);
CREATE UNIQUE INDEX names ON records (name) WHERE name IS NOT NULL;
"""


@dataclass(frozen=True, slots=True)
class DatabaseRecord:
    """One record of a chain."""

    chain: str
    number: int  # its place in the chain, from 0
    position: int  # of the stream, once it was written
    name: str | None  # no two records of a database have the same
    data: bytes

    def compute_crc(self) -> int:
        """The checksum of all of it."""
        place = f"{self.chain}|{self.number!r}|{self.position!r}|{self.name!r}|"
        return zlib.crc32(self.data, zlib.crc32(place.encode()))


class Database:
    """The database of one run folder; used by any thread, written by one process.

    After an error of the disk it refuses to write, and still reads: open it again to find whether
    the last commit was written. It also refuses to write where the files at its path are not those
    that it opened, and where another process has written.
    """

    def __init__(self, folder: Path, connection: sqlite3.Connection, writes: bool) -> None:
        """Use `create` or `open`."""
        self.folder = folder
        self._connection, self._writes = connection, writes
        # from Python 3.13 on a connection that is never closed warns
        weakref.finalize(self, connection.close).atexit = False
        self._failure: str | None = None
        self._lengths: dict[str, int] | None = None  # of all chains, within a commit
        self._lock = threading.RLock()
        self._absolute_folder = folder.absolute()  # wherever the process goes meanwhile
        # files of records that the current commit drops, and those that the last such one dropped
        self._dropped, self._obsolete = list[Path](), list[Path]()
        self._version = self._read_version()
        self._read_lengths()
        if writes:
            if self.check():
                raise self._create_damage_error("its tables are not in order")
            self._remove_orphans()
        self._opened = stat_files(self._absolute_folder)

    # ------------------------------------------------------------------ opening

    @classmethod
    def create(cls, folder: Path) -> Self:
        """Create an empty database in the folder; it gets its name once it is whole."""
        path = folder / DATABASE_NAME
        temporary = path.with_name(f"{DATABASE_NAME}.{os.getpid()}.part")
        with translate_errors(path, "written"):
            temporary.unlink(missing_ok=True)
            with contextlib.closing(connect(temporary, "rwc")) as connection:
                connection.executescript(
                    f"PRAGMA application_id={APPLICATION}; PRAGMA user_version={VERSION}; BEGIN;"
                    f"{_TABLES} INSERT INTO lengths VALUES ('{{}}', {zlib.crc32(b'{}')}); COMMIT;"
                    "PRAGMA journal_mode=WAL"
                )
            os.replace(temporary, path)
            sync_folder(folder)
        return cls.open(folder, writes=True)

    @classmethod
    def open(cls, folder: Path, writes: bool = False) -> Self:
        """Open the database that is there.

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
        if not os.path.exists(path):
            what = f"holds no {DATABASE_NAME}: it is no run"
            raise MissingFileError(
                f"{folder} {what if os.path.isdir(folder) else 'does not exist'}"
            )
        mode = "rw" if writes else "ro"
        # SQLite makes two files beside a database that it reads. Where it cannot, as on a disk
        # that is mounted for reading, it reads the database alone.
        if not (writes or os.access(folder, os.W_OK) or (folder / WRITER_FILES[1]).exists()):
            mode = "ro&immutable=1"
        with translate_errors(path, "used" if writes else "read"), contextlib.ExitStack() as stack:
            connection = stack.enter_context(contextlib.closing(connect(path, mode)))
            for pragma in ("synchronous=FULL", "cell_size_check=ON", "trusted_schema=OFF"):
                connection.execute(f"PRAGMA {pragma}")
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
            stack.pop_all()
        return database

    def _remove_orphans(self) -> None:
        """Remove files that no record names: they were written before a commit that never came."""
        named = {file for (file,) in self._query("SELECT file FROM records WHERE file IS NOT NULL")}
        for path in (self._absolute_folder / PARTS).glob("*"):
            if path.name not in named:
                path.unlink()

    def close(self) -> None:
        """Close it; SQLite copies the write-ahead log into the database with its last user."""
        with self._lock, contextlib.suppress(sqlite3.Error):
            self._connection.close()
            # a reader leaves two files, until a connection that may write ends
            if not self._writes and not stat_files(self._absolute_folder)[1][2]:
                path = self._absolute_folder / DATABASE_NAME
                with contextlib.closing(connect(path, "rw")) as last:
                    last.execute("PRAGMA user_version").fetchone()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ writing

    def check_not_replaced(self) -> None:
        """Refuse where what is at the path is not what was opened.

        Raises
        ------
        StoppedError
            The folder, its database or its write-ahead log was removed or replaced, or another
            process has written.
        """
        now = stat_files(self._absolute_folder)
        for name, file, opened in zip(WRITER_FILES, now, self._opened, strict=True):
            if file[:2] != opened[:2]:
                raise StoppedError(
                    f"{self.folder / name} was removed or replaced while the run was open: "
                    "nothing since the last commit is written; put the file back, let no other "
                    "process write to the folder, then open the run again; `streamembed verify "
                    f"{self.folder}` says what is left"
                )
        if self._read_version() != self._version:
            raise StoppedError(
                f"another writer has written to {self.folder} after this one: nothing "
                "since the last commit is written; let one process write, and do not "
                f"remove {LOCK}; then open the run again"
            )

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
            self.check_writable()
            try:
                with translate_errors(self.folder / DATABASE_NAME, "written"):
                    self._connection.execute("BEGIN IMMEDIATE")
                    self.check_not_replaced()
                    self._lengths = self._read_lengths()
                    yield
                    text = json.dumps(self._lengths, sort_keys=True)
                    self._query("UPDATE lengths SET value = ?, crc = ?", text, _compute_crc(text))
                    self._connection.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                self.stop_writing(error)
                raise
            finally:
                self._lengths = None
            if self._dropped:  # what was dropped before may be read until now
                for path in self._obsolete:
                    path.unlink(missing_ok=True)
                self._obsolete, self._dropped = self._dropped, []

    def stop_writing(self, error: BaseException | str) -> None:
        """Write nothing from now on, for that reason."""
        self._failure = self._failure or str(error) or type(error).__name__

    @property
    def has_failed(self) -> bool:
        """Whether it writes nothing any more."""
        return self._failure is not None

    def check_writable(self) -> None:
        """StoppedError where `commit` would refuse."""
        if not self._writes:
            raise StoppedError(f"{self.folder} was opened for reading")
        self.check_not_replaced()
        if self.has_failed:
            raise StoppedError(
                f"{self.folder} refuses to write after an error ({self._failure}): what was "
                "committed is safe and can be read; fix the cause, then open the run again"
            )

    def append(self, chain: str, position: int, data: bytes, name: str | None = None) -> int:
        """A record behind all of its chain, within `commit`; its number."""
        lengths = self._read_lengths()
        record = DatabaseRecord(chain, lengths.get(chain, 0), position, name, data)
        file = None
        if len(data) > LARGEST_BLOB:
            file, data = f"{chain}-{record.number:08d}", b""
            self._write_part(file, record.data)
        self._query(
            "INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)",
            *(chain, record.number, position, name, file, data, record.compute_crc()),
        )
        lengths[chain] = record.number + 1
        return record.number

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
        """Drop the other records of a chain, within `commit`.

        Their files are removed by the next commit that drops some, so that readers of the commit
        before still find them.
        """
        for number, file in self._query("SELECT number, file FROM records WHERE chain = ?", chain):
            if number not in numbers:
                self._query("DELETE FROM records WHERE chain = ? AND number = ?", chain, number)
                if file is not None:
                    self._dropped.append(self._absolute_folder / PARTS / file)

    def write_fact(self, name: str, value: Any) -> None:
        """A fact, anything that JSON has, within `commit`."""
        chain = FACT + name
        number = self.append(chain, 0, json.dumps(value, sort_keys=True).encode())
        self.keep_only(chain, {number})

    # ------------------------------------------------------------------ reading

    def read_fact(self, name: str, default: Any = None) -> Any:
        """A fact; ``default`` where it was never written."""
        with self.read_consistently():
            length = self.count_records(FACT + name)
            return json.loads(self.read(FACT + name, length - 1).data) if length else default

    def list_chains(self) -> list[str]:
        """Of which chains there are records, or were."""
        left = {str(name) for (name,) in self._query("SELECT DISTINCT chain FROM records")}
        return sorted(left.union(self._read_lengths()))

    def count_records(self, chain: str) -> int:
        """Records that the chain ever had."""
        return self._read_lengths().get(chain, 0)

    def list_records(self, chain: str) -> list[tuple[int, int]]:
        """Number and stream position of each record that it has, ascending."""
        records = self._query(
            "SELECT number, position FROM records WHERE chain = ? ORDER BY number", chain
        )
        if not all(type(value) is int for row in records for value in row):
            raise self._create_damage_error(f"the numbers of {chain} are no numbers")
        return records

    def list_names(self, prefix: str = "") -> list[str]:
        """Names of records that begin with a prefix."""
        query = "SELECT name FROM records WHERE name IS NOT NULL AND substr(name, 1, ?) = ?"
        return [name for (name,) in self._query(query, len(prefix), prefix)]

    def read(self, chain: str, number: int) -> DatabaseRecord:
        """One record, checked.

        Raises
        ------
        DamagedFileError
            It is not there, or not what was written.
        """
        rows = self._query(f"{_SELECT} chain = ? AND number = ?", chain, number)
        if not rows:
            raise self._create_damage_error(f"record {number} of {chain} is lost")
        return self._check_record(*rows[0])

    def find(self, name: str) -> DatabaseRecord | None:
        """The record of a name, checked; None where there is none."""
        rows = self._query(f"{_SELECT} name = ?", name)
        return self._check_record(*rows[0]) if rows else None

    def read_chain(self, chain: str, start: int = 0) -> Iterator[DatabaseRecord]:
        """All records of a chain of which none is ever dropped, checked one by one.

        Raises
        ------
        DamagedFileError
            One is lost, before ``start`` too, or not what was written.
        """
        with self.read_consistently():
            length = self.count_records(chain)
            query = "SELECT count(*) FROM records WHERE chain = ?"
            if self._query(query, chain) != [(length,)]:
                raise self._create_damage_error(f"records of {chain} were lost")
        for number in range(start, length):
            yield self.read(chain, number)

    def _check_record(
        self, chain: str, number: int, position: int, name: Any, file: Any, data: Any, crc: int
    ) -> DatabaseRecord:
        if file is not None:
            path = self._absolute_folder / PARTS / os.path.basename(str(file))
            try:
                with translate_errors(path, "read"):
                    data = path.read_bytes()
            except MissingFileError as error:
                raise self._create_damage_error(f"{path.name} is lost") from error
        if isinstance(data, bytes):
            record = DatabaseRecord(chain, number, position, name, data)
            if record.compute_crc() == crc:
                return record
        raise self._create_damage_error(f"record {number} of {chain} does not match its checksum")

    def _read_lengths(self) -> dict[str, int]:
        """How many records each chain ever had; within a commit those that it adds, too."""
        with self._lock:
            if self._lengths is not None:
                return self._lengths
            rows = self._query("SELECT value, crc FROM lengths")
        if len(rows) != 1 or _compute_crc(str(rows[0][0])) != rows[0][1]:
            raise self._create_damage_error("the lengths of its chains do not match their checksum")
        lengths: dict[str, int] = json.loads(rows[0][0])
        return lengths

    def check(self) -> list[str]:
        """What is wrong with the file itself, by SQLite's own check; nothing where all is well."""
        return [text for (text,) in self._query("PRAGMA integrity_check") if text != "ok"]

    def _read_version(self) -> int:
        """A number that changes when another connection commits."""
        version: int = self._query("PRAGMA data_version")[0][0]
        return version

    @contextlib.contextmanager
    def read_consistently(self) -> Iterator[None]:
        """What is read in here is of one moment, whatever is written meanwhile; may be nested."""
        with self._lock, translate_errors(self.folder / DATABASE_NAME, "read"):
            if self._connection.in_transaction:
                yield
                return
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")

    def _query(self, query: str, *values: Any) -> list[Any]:
        reads = query.startswith(("SELECT", "PRAGMA"))
        # a connection that may write also writes when it reads first
        what = ("used" if self._writes else "read") if reads else "written"
        with self._lock, translate_errors(self.folder / DATABASE_NAME, what):
            return self._connection.execute(query, values).fetchall()

    def _create_damage_error(self, what: str) -> DamagedFileError:
        return DamagedFileError(
            f"{self.folder / DATABASE_NAME} is damaged: {what}; `streamembed verify "
            f"{self.folder}` lists what is left"
        )


def _compute_crc(text: str) -> int:
    return zlib.crc32(text.encode())


def connect(path: Path, mode: str) -> sqlite3.Connection:
    """A connection to SQLite; ``mode`` is "ro", "rw" or "rwc", to create the file."""
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    return sqlite3.connect(
        uri, uri=True, isolation_level=None, check_same_thread=False, timeout=30.0
    )


@contextlib.contextmanager
def translate_errors(path: Path, what: str) -> Iterator[None]:
    """Errors of SQLite and of the system as those of this package."""
    try:
        with translate_file_errors(path, what):
            yield
    except sqlite3.OperationalError as error:
        raise FileError(
            f"{path} cannot be {what}: {error}; free or repair the disk, then open the run again"
        ) from error
    except sqlite3.DatabaseError as error:
        raise DamagedFileError(f'{path} is damaged: SQLite reports "{error}"') from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error


def stat_files(folder: Path) -> list[tuple[int, int, int, int]]:
    """Device, inode, size in bytes and time in ns of the database and its write-ahead log.

    They change with every write; 0 where one is missing.
    """
    stats = [(0, 0, 0, 0)] * len(WRITER_FILES)
    for place, name in enumerate(WRITER_FILES):
        with contextlib.suppress(OSError):
            stat = os.stat(folder / name)
            stats[place] = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
    return stats


def sync_folder(folder: Path) -> None:
    """What was created, renamed or removed there is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
