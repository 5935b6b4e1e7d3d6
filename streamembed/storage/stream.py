"""One record batch as a sealed Arrow IPC stream: what travels between processes and machines.

The seal (`streamembed.storage.sealing`) stands in the schema at the front. A stream has no footer:
it is read from a socket as it comes, and is smaller by half a header.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streamembed.errors import DamagedFileError
from streamembed.storage import sealing
from streamembed.storage.sealing import must, raise_damaged

VERSION = 1
# An IPC stream begins so: continuation, then the length of the schema's message.
_STREAM_START = b"\xff\xff\xff\xff"


def seal(columns: Mapping[str, Any], kind: str, header: Mapping[str, Any]) -> bytes:
    """The bytes of Arrow arrays of one length, and a header that JSON has: a function of these."""
    meta = sealing.build_metadata(kind, VERSION, header)
    batch = pa.record_batch(dict(columns)).replace_schema_metadata(meta)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = bytearray(sink.getvalue())
    return sealing.write_checksum(data, _find_checksums(data))


def unseal(data: bytes, kind: str, path: str | os.PathLike[str]) -> tuple[Any, dict[str, Any]]:
    """The record batch and the header of what `seal` made; ``path`` names it in errors.

    Raises
    ------
    DamagedFileError
        These are other bytes, of another kind, or of a newer version.
    """
    try:
        places = _find_checksums(data)
    except ValueError as error:
        raise DamagedFileError(
            f"{path} is not a {kind} that streamembed saved, or it is damaged ({error}): restore "
            "it from a copy, or save it again"
        ) from error
    sealing.check_checksum(data, places, path)
    with raise_damaged(path, kind):
        batch, metadata = _read_batch(data)
        header = sealing.read_header(metadata, kind, VERSION, path)
    return batch, header


def _read_batch(data: bytes) -> tuple[Any, dict[bytes, bytes]]:
    """The one batch of a stream, and the metadata of its schema."""
    with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
        batches = list(reader)
        metadata = dict(reader.schema.metadata)
    must(len(batches) == 1, f"it has {len(batches)} record batches")
    batches[0].validate(full=True)
    return batches[0], metadata


def _find_checksums(data: bytes | bytearray) -> tuple[int, ...]:
    """Where the digits of the seal stand in the schema; ValueError where there is no one place."""
    end = 8 + int.from_bytes(data[4:8], "little")
    if data[:4] != _STREAM_START or not 8 < end <= len(data):
        raise ValueError("it does not begin like an Arrow stream")
    return sealing.find_checksums(data, [(8, end)])
