"""Saved things: one Arrow IPC file each, versioned, checksummed to the byte, no pickle.

The schema's metadata holds what the file is (``streamembed-kind``), the version of the layout
(``streamembed-version``), a JSON header (``streamembed-header``) and the CRC32 of the whole file
(``streamembed-crc32``), taken with its own eight digits read as zeros. Arrow validates structure,
not content; the checksum is what finds a flipped bit, wherever in the file it is.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute  # (pyarrow would import it lazily, while a file is being loaded)

from streamembed.core.arrays import Array
from streamembed.errors import DamagedFileError

__all__ = [
    "VERSION",
    "matrix_of",
    "read_table",
    "table_of",
    "unpacked",
    "vectors_of",
    "write_table",
]

VERSION = 1
_SEAL = b"crc32:"
_BLANK = _SEAL + b"00000000"
_SEALED = re.compile(_SEAL + b"[0-9a-f]{8}")


def write_table(
    path: str | os.PathLike[str], table: Any, kind: str, header: Mapping[str, Any]
) -> None:
    """Write a table and its header under ``path``, whole or not at all (temporary file, rename).

    The bytes are a function of the table, the kind and the header alone.
    """
    meta = {
        "streamembed-kind": kind,
        "streamembed-version": str(VERSION),
        "streamembed-header": json.dumps(header, sort_keys=True),
        "streamembed-crc32": _BLANK.decode(),
    }
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema.with_metadata(meta)) as writer:
        writer.write_table(table.replace_schema_metadata(meta))
    blank = sink.getvalue().to_pybytes()
    sealed = blank.replace(_BLANK, _SEAL + b"%08x" % zlib.crc32(blank))
    target = Path(path)
    temporary = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as file:
            file.write(sealed)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def read_table(path: str | os.PathLike[str], kind: str) -> tuple[Any, dict[str, Any]]:
    """The table and the header of a file that `write_table` wrote.

    Raises
    ------
    DamagedFileError
        Not such a file, another kind, a newer version, or bytes that differ from what was written.
    """
    data = Path(path).read_bytes()
    seals = set(_SEALED.findall(data))
    if not data.startswith(b"ARROW1") or len(seals) != 1:
        raise DamagedFileError(
            f"{path} is not a file that streamembed saved, or its seal is damaged: "
            "restore it from a copy, or save it again"
        )
    seal = seals.pop()
    blank = data.replace(seal, _BLANK)
    if seal != _SEAL + b"%08x" % zlib.crc32(blank):
        raise DamagedFileError(
            f"{path} is damaged: its bytes do not have the checksum they were saved with; "
            "restore it from a copy, or save it again"
        )
    table = pa.ipc.open_file(pa.py_buffer(data)).read_all()
    meta = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    if meta["streamembed-kind"] != kind:
        raise DamagedFileError(
            f"{path} holds a saved {meta['streamembed-kind']}; it must be a saved {kind}"
        )
    if int(meta["streamembed-version"]) > VERSION:
        raise DamagedFileError(
            f"{path} has layout version {meta['streamembed-version']}; this release reads up to "
            f"{VERSION}: update streamembed"
        )
    return table, json.loads(meta["streamembed-header"])


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a file says it holds, "snapshot" or "engine"; None where streamembed did not save it."""
    try:
        with pa.memory_map(str(path)) as file:
            metadata = pa.ipc.open_file(file).schema.metadata or {}
    except (pa.ArrowInvalid, OSError):
        return None
    kind = metadata.get(b"streamembed-kind")
    return None if kind is None else str(kind.decode())


def vectors_of(matrix: Array) -> Any:
    """A matrix (n, d) as an Arrow column of n fixed-size lists."""
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])


def matrix_of(column: Any) -> Array:
    """The matrix that `vectors_of` made a column of, a copy."""
    lists = column.combine_chunks()
    flat = lists.flatten().to_numpy(zero_copy_only=False)
    matrix: Array = flat.reshape(len(lists), lists.type.list_size).copy()
    return matrix


def table_of(arrays: Mapping[str, Array]) -> Any:
    """Named arrays of any shape as a table of one row an array: name, dtype, shape, bytes."""
    return pa.table(
        {
            "name": pa.array(list(arrays), pa.string()),
            "dtype": pa.array([array.dtype.str for array in arrays.values()], pa.string()),
            "shape": pa.array(
                [list(array.shape) for array in arrays.values()], pa.list_(pa.int64())
            ),
            "data": pa.array(
                [np.ascontiguousarray(array).tobytes() for array in arrays.values()],
                pa.large_binary(),
            ),
        }
    )


def unpacked(table: Any) -> dict[str, Array]:
    """The named arrays of a table that `table_of` made, writable copies."""
    arrays: dict[str, Array] = {}
    columns = (table.column(name).combine_chunks() for name in ("name", "dtype", "shape", "data"))
    for name, dtype, shape, data in zip(*columns, strict=True):
        flat = np.frombuffer(data.as_buffer(), dtype=np.dtype(dtype.as_py()))
        arrays[name.as_py()] = flat.reshape(shape.as_py()).copy()
    return arrays
