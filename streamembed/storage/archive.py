"""Saved objects: one Arrow IPC stream each and a checksum, versioned, no pickle.

The metadata of the schema holds what the bytes are (``streamembed-kind``), the version of their
layout (``streamembed-version``) and a JSON header (``streamembed-header``). Behind the end of the
stream, where readers of Arrow do not look, stands ``crc32:`` and the CRC32 of all bytes before it
in eight hexadecimal digits. Arrow validates structure, not content; the checksum finds a flipped
bit, wherever it is.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute  # (pyarrow would import it lazily, while a file is being loaded)

from streamembed.errors import (
    DamagedFileError,
    NotAFileError,
    NotReadyError,
    StreamembedError,
    build_file_error,
    check_path,
    quote,
)
from streamembed.numeric.arrays import Array

Saved = TypeVar("Saved")

VERSION = 12  # of the layout of saved objects and of the database of a run
_TRAILER = 14  # bytes
_ARRAYS = pa.schema(
    {
        "name": pa.string(),
        "dtype": pa.string(),
        "shape": pa.list_(pa.int64()),
        "data": pa.large_binary(),
    }
)
_TEXT = "text"  # what stands for the dtype of an array of strings


def seal(table: Any, kind: str, header: Mapping[str, Any]) -> bytes:
    """The bytes of such a file: a function of the table, the kind and the header alone."""
    meta = {
        "streamembed-kind": kind,
        "streamembed-version": str(VERSION),
        "streamembed-header": json.dumps(header, sort_keys=True, default=np.generic.item),
    }
    sink = io.BytesIO()  # its value is no copy, unlike that of Arrow's
    with pa.ipc.new_stream(sink, table.schema.with_metadata(meta)) as writer:
        writer.write_table(table.replace_schema_metadata(meta))
    sink.write(_build_trailer(sink.getbuffer()))
    return sink.getvalue()


def _build_trailer(data: bytes | memoryview) -> bytes:
    return b"crc32:%08x" % zlib.crc32(data)


def check_writable(path: str | os.PathLike[str]) -> Path:
    """The path of a file to write, where that would replace nothing but a regular file.

    Raises
    ------
    FileError, ParameterError
        See `replace_file`.
    """
    target = Path(check_path(path))
    if os.path.exists(target) and not os.path.isfile(target):
        what = "folder" if target.is_dir() else "pipe, device or socket"
        raise NotAFileError(f"{target} is a {what}; it must be a file, or not exist yet")
    if not os.path.exists(target.parent):
        why = f"the folder {target.parent} does not exist: create it first"
        raise build_file_error(FileNotFoundError(), target, "written", why)
    return target


@contextmanager
def replace_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path beside ``path`` to write to; the file there takes its name if all goes well.

    Whatever happens, nothing else is left behind, and no other process writes to the same path.

    Raises
    ------
    FileError
        The file cannot be written, or what is there already is no regular file.
    ParameterError
        ``path`` is no path.
    """
    target = check_writable(path)
    temporary = target.with_name(f".{os.getpid()}-{secrets.token_hex(6)}.part")
    try:
        with translate_file_errors(target, "written"):
            yield temporary
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def translate_file_errors(path: Path, action: str) -> Iterator[None]:
    """Errors of the system as those of this package: that the file cannot be "read", "written"."""
    try:
        yield
    except StreamembedError:
        raise
    except OSError as error:
        raise build_file_error(error, path, action) from error


def unseal(
    data: bytes,
    kind: str,
    path: str | os.PathLike[str],
    build: Callable[[Any, dict[str, Any]], Saved],
) -> Saved:
    """What ``build`` makes of the table and the header that `seal` got.

    Bytes with the right checksum may have been made by another program, or by an attacker: any
    error of reading them means that they are not what this package writes. Only a lack of memory
    says nothing about the bytes.

    Parameters
    ----------
    path
        Where the bytes come from, for errors.

    Raises
    ------
    DamagedFileError
        The bytes are not what was written, or of another kind or version.
    """
    view = memoryview(data)
    if view[-_TRAILER:] != _build_trailer(view[:-_TRAILER]):
        raise DamagedFileError(
            f"{path} is damaged, or is not a {kind} that this release saved (layout version "
            f"{VERSION}): its last bytes are not the checksum of the others; restore it from a "
            "copy, or save it again"
        )
    try:
        table = pa.ipc.open_stream(pa.py_buffer(view[:-_TRAILER])).read_all()
        table.validate(full=True)
        return build(table, _read_header(table.schema.metadata, kind, path))
    except (DamagedFileError, NotReadyError, MemoryError):
        raise
    except Exception as error:
        raise DamagedFileError(
            f"{path} matches its checksum, but is not a valid saved {kind} "
            f"({type(error).__name__}: {quote(str(error))[1:-1]}): save it again"
        ) from error


def _read_header(
    metadata: Mapping[bytes, bytes], kind: str, path: str | os.PathLike[str]
) -> dict[str, Any]:
    texts = {key.decode(): value.decode() for key, value in metadata.items()}
    version, saved_kind = int(texts["streamembed-version"]), texts["streamembed-kind"]
    if version != VERSION:
        raise DamagedFileError(
            f"{path} has layout version {version}; this release reads {VERSION}: use the release "
            "that wrote it, or learn and save it again"
        )
    if saved_kind != kind:
        raise DamagedFileError(f"{path} is a saved {saved_kind}; it must be a saved {kind}")
    header = json.loads(texts["streamembed-header"])
    require(isinstance(header, dict), "its header is not an object")
    return dict(header)


def require(condition: object, what: str) -> None:
    """Within `unseal`: refuse the bytes where a condition does not hold."""
    if not condition:
        raise ValueError(what)


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The content of a regular file; FileError where it is missing or cannot be read."""
    source = Path(check_path(path))
    if os.path.exists(source) and not (os.path.isdir(source) or os.path.isfile(source)):
        raise NotAFileError(f"{source} is a pipe, device or socket; it must be a file")
    with translate_file_errors(source, "read"):
        return source.read_bytes()


def read_kind(path: str | os.PathLike[str]) -> str | None:
    """What a file says it holds, "snapshot" or "engine"; None where streamembed did not save it."""
    try:
        with pa.memory_map(str(path)) as file:
            metadata = pa.ipc.open_stream(file).schema.metadata or {}
    except MemoryError:  # Arrow's is an ArrowException
        raise
    except (pa.ArrowException, OSError, ValueError):
        return None
    kind = metadata.get(b"streamembed-kind")
    return None if kind is None else kind.decode(errors="replace")


def to_list_column(matrix: Array) -> Any:
    """A matrix (n, d) as an Arrow column of n fixed-size lists."""
    flat = pa.array(np.ascontiguousarray(matrix).reshape(-1))
    if matrix.shape[1]:
        return pa.FixedSizeListArray.from_arrays(flat, matrix.shape[1])
    # pyarrow cannot tell how many lists of nothing an empty array holds
    return pa.array([[]] * len(matrix), pa.list_(flat.type, 0))


def to_matrix(column: Any) -> Array:
    """The matrix that `to_list_column` turned into a column, a copy."""
    flat = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    matrix: Array = flat.reshape(len(column), column.type.list_size).copy()
    return matrix


def to_table(arrays: Mapping[str, Array]) -> Any:
    """Named arrays of any shape as a table of one row an array: name, dtype, shape, bytes.

    Arrays of strings are objects in memory, of any length each: their bytes are the UTF-8 of all
    and, in front, where each ends.
    """
    names = sorted(arrays)  # the bytes do not tell in which order they were put in
    packed = [_pack(arrays[name]) for name in names]
    ends = np.cumsum([0, *(len(part) for _, part in packed)], dtype=np.int64)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(part for _, part in packed))]
    data = pa.Array.from_buffers(pa.large_binary(), len(names), buffers)  # one copy, not three
    shapes, dtypes = [arrays[name].shape for name in names], [dtype for dtype, _ in packed]
    return pa.table([names, dtypes, shapes, data], schema=_ARRAYS)


def _pack(array: Array) -> tuple[str, memoryview | bytes]:
    """The name of a dtype, and the bytes: those of the array itself, where they lie together."""
    if array.dtype != object:
        return array.dtype.str, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    texts = [text.encode() for text in array.tolist()]
    ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
    return _TEXT, ends.tobytes() + b"".join(texts)


def unpack(table: Any) -> dict[str, Array]:
    """The named arrays of a table that `to_table` made, writable copies."""
    arrays: dict[str, Array] = {}
    require(table.schema.equals(_ARRAYS), "its columns have the wrong types")
    columns = (table.column(name).combine_chunks() for name in _ARRAYS.names)
    for name, dtype, shape, data in zip(*columns, strict=True):
        kind, size = dtype.as_py(), shape.as_py()
        if kind == _TEXT:
            arrays[name.as_py()] = _unpack_texts(data.as_py(), size)
            continue
        require(np.dtype(kind).kind in "biuf", f"{name} has dtype {kind}")
        require(all(length >= 0 for length in size), f"{name} has shape {size}")
        array = np.frombuffer(data.as_buffer(), dtype=np.dtype(kind)).reshape(size)
        arrays[name.as_py()] = array.copy()
    return arrays


def _unpack_texts(data: bytes, shape: list[int]) -> Array:
    (n,) = shape
    ends = np.frombuffer(data, dtype=np.int64, count=n).tolist()
    starts = [0, *ends][:n]
    require(starts == sorted(starts), "its strings are damaged")
    body = data[8 * n :]
    texts = np.empty(n, dtype=object)
    texts[:] = [body[start:end].decode() for start, end in zip(starts, ends, strict=True)]
    return texts
