"""One record batch as a sealed Arrow IPC stream: what travels between processes and machines.

The same seal as that of a saved file (`streamembed.storage.archive`), in the schema at the front;
a stream has no footer, so it is read from a socket as it comes, and is smaller by half a header.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamembed.errors import DamagedFileError
from streamembed.storage.archive import must, sound

__all__ = ["seal", "unseal"]

VERSION = 1
_BLANK = b"0" * 8
_SEAL = re.compile(rb"\x0e\x00\x00\x00crc32:([0-9a-f]{8})\x00")
# An IPC stream begins so: continuation, then the length of the schema's message.
_BEGINS = b"\xff\xff\xff\xff"


def seal(columns: Mapping[str, Any], kind: str, header: Mapping[str, Any]) -> bytes:
    """The bytes of Arrow arrays of one length, and a header that JSON has: a function of these."""
    meta = {
        "streamembed-kind": kind,
        "streamembed-version": str(VERSION),
        "streamembed-header": json.dumps(header, sort_keys=True),
        "streamembed-crc32": f"crc32:{_BLANK.decode()}",
    }
    batch = pa.record_batch(dict(columns)).replace_schema_metadata(meta)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = bytearray(sink.getvalue())
    place = _place(data)
    data[place : place + 8] = b"%08x" % _checksum(data, place)
    return bytes(data)


def unseal(data: bytes, kind: str, path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The record batch and the header of what `seal` made; ``path`` names it in errors.

    Raises
    ------
    DamagedFileError
        These are other bytes, of another kind, or of a newer version.
    """
    try:
        place = _place(data)
    except ValueError as error:
        raise DamagedFileError(
            f"{path} is not a {kind} that streamembed saved, or it is damaged ({error}): restore "
            "it from a copy, or save it again"
        ) from error
    if data[place : place + 8] != b"%08x" % _checksum(data, place):
        raise DamagedFileError(
            f"{path} is damaged: its bytes do not match the checksum it was saved with; restore it "
            "from a copy, or save it again"
        )
    with sound(path, kind):
        batch, meta = _read(data)
        version = int(meta["streamembed-version"])
        if version != VERSION:
            raise DamagedFileError(
                f"{path} has layout version {version}; this release reads {VERSION}: update "
                "streamembed, or save it again"
            )
        found = meta["streamembed-kind"]
        if found != kind:
            raise DamagedFileError(f"{path} is a saved {found}; it must be a saved {kind}")
        header = json.loads(meta["streamembed-header"])
        must(isinstance(header, dict), "its header is not an object")
    return batch, header


def _read(data: bytes) -> tuple[Any, dict[str, str]]:
    """The one batch of a stream, and the metadata of its schema."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        batches = list(reader)
        metadata = reader.schema.metadata
    must(len(batches) == 1, f"it has {len(batches)} record batches")
    batches[0].validate(full=True)
    return batches[0], {key.decode(): value.decode() for key, value in metadata.items()}


def _place(data: bytes | bytearray) -> int:
    """Where the digits of the seal stand in the schema; ValueError where there is no one place."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if data[:4] != _BEGINS or not 8 < end <= len(data):
        raise ValueError("it does not begin like an Arrow stream")
    found = [match.start(1) for match in _SEAL.finditer(data, 8, end)]
    if len(found) != 1:
        raise ValueError("its seal is damaged")
    return found[0]


def _checksum(data: bytes | bytearray, place: int) -> int:
    """CRC32 of all bytes, the digits of the seal taken for zeros."""
    view = memoryview(data)
    return zlib.crc32(view[place + 8 :], zlib.crc32(_BLANK, zlib.crc32(view[:place])))
