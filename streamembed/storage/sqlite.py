"""SQLite for the database of a run: connections, checksums, errors as those of this package."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from streamembed.errors import (
    DamagedFileError,
    FileError,
    StoppedError,
    build_file_error,
)


def build_uri(path: Path, mode: str) -> str:
    return f"file:{quote(str(path.absolute()))}?mode={mode}"


def connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        build_uri(path, mode),
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=30.0,
    )
    try:
        for pragma in ("synchronous=FULL", "cell_size_check=ON", "trusted_schema=OFF"):
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def choose_read_mode(path: Path) -> str:
    """The mode of a connection for reading.

    SQLite makes two files beside a database that it reads; where it cannot, as on a disk that is
    mounted for reading, and no writer has left any, it reads the database alone.
    """
    alone = not os.access(path.parent, os.W_OK) and not path.with_name(f"{path.name}-wal").exists()
    return "ro&immutable=1" if alone else "ro"


@contextlib.contextmanager
def translate_errors(path: Path, what: str) -> Iterator[None]:
    """Errors of SQLite and of the system as those of this package."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise FileError(
            f"{path} cannot be {what}: {error}; free or repair the disk, then open the run again"
        ) from error
    except sqlite3.DatabaseError as error:
        raise DamagedFileError(f'{path} is damaged: SQLite reports "{error}"') from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DamagedFileError(f"{path} is damaged: {error}") from error
    except OSError as error:
        if isinstance(error, (FileError, DamagedFileError, StoppedError)):
            raise
        raise build_file_error(error, path, what) from error


def compute_crc(chain: str, number: int, position: int, rows: int, data: bytes, before: int) -> int:
    """The checksum of a record, and of its place."""
    head = f"{chain}|{number}|{position}|{rows}|{len(data)}|{before}|".encode()
    return zlib.crc32(data, zlib.crc32(head))


def compute_seal(chain: str, length: int, crc: int) -> int:
    """The checksum of the end of a chain."""
    return zlib.crc32(f"{chain}|{length}|{crc}".encode())


def compute_fact_crc(name: str, text: str) -> int:
    """The checksum of a fact."""
    return zlib.crc32(f"{name}|{text}".encode())
