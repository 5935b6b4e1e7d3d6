"""The seal of what is saved or sent: what the bytes are, and a checksum that finds any other bytes.

The metadata of an Arrow schema holds what the bytes are (``streamembed-kind``), the version of
their layout (``streamembed-version``), a JSON header (``streamembed-header``) and the CRC32 of all
the bytes (``streamembed-crc32``), taken with its own eight digits read as zeros. Arrow validates
structure, not content; the checksum is what finds a flipped bit, wherever it is.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from streamembed.errors import DamagedFileError, NotReadyError, quote

_DIGITS = 8
_ZEROS = b"0" * _DIGITS
# The seal as a string of Arrow's metadata: its length before it, a zero behind. No other string of
# the metadata can hold these bytes: they are names of this package, or JSON, which has no controls.
_CHECKSUM = re.compile(rb"\x0e\x00\x00\x00crc32:([0-9a-f]{8})\x00")


def build_metadata(kind: str, version: int, header: Mapping[str, Any]) -> dict[str, str]:
    """The metadata of a schema, its seal open."""
    return {
        "streamembed-kind": kind,
        "streamembed-version": str(version),
        "streamembed-header": json.dumps(header, sort_keys=True, default=_to_python),
        "streamembed-crc32": f"crc32:{_ZEROS.decode()}",
    }


def _to_python(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} cannot be saved")


def find_checksums(data: bytes | bytearray, regions: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """Where the digits of the seal stand; ValueError where a region has none, or more than one."""
    places = []
    for start, stop in regions:
        matches = [match.start(1) for match in _CHECKSUM.finditer(data, start, stop)]
        if len(matches) != 1:
            raise ValueError("its seal is damaged")
        places += matches
    return tuple(places)


def write_checksum(data: bytearray, places: Sequence[int]) -> bytes:
    """The bytes with their checksum in the seal."""
    digits = _compute_checksum(data, places)
    for place in places:
        data[place : place + _DIGITS] = digits
    return bytes(data)


def check_checksum(data: bytes, places: Sequence[int], path: str | os.PathLike[str]) -> None:
    """Refuse bytes that their seal does not match."""
    digits = _compute_checksum(data, places)
    if any(data[place : place + _DIGITS] != digits for place in places):
        raise DamagedFileError(
            f"{path} is damaged: its bytes do not match the checksum it was saved with; restore it "
            "from a copy, or save it again"
        )


def _compute_checksum(data: bytes | bytearray, places: Sequence[int]) -> bytes:
    """CRC32 of all bytes, the digits of the seal taken for zeros, in hexadecimal digits."""
    view, total, start = memoryview(data), 0, 0
    for place in places:
        total = zlib.crc32(_ZEROS, zlib.crc32(view[start:place], total))
        start = place + _DIGITS
    return b"%08x" % zlib.crc32(view[start:], total)


def read_header(
    metadata: Mapping[bytes, bytes], kind: str, version: int, path: str | os.PathLike[str]
) -> dict[str, Any]:
    """The header among the metadata of a schema, of this kind and version; within `raise_damaged`.

    Raises
    ------
    DamagedFileError
        It is of another kind or version.
    """
    texts = {key.decode(): value.decode() for key, value in metadata.items()}
    saved_version = int(texts["streamembed-version"])
    if saved_version != version:
        remedy = "update streamembed" if saved_version > version else "learn and save it again"
        raise DamagedFileError(
            f"{path} has layout version {saved_version}; this release reads {version}: {remedy}"
        )
    what = texts["streamembed-kind"]
    if what != kind:
        raise DamagedFileError(f"{path} is a saved {what}; it must be a saved {kind}")
    header = json.loads(texts["streamembed-header"])
    must(isinstance(header, dict), "its header is not an object")
    return dict(header)


@contextmanager
def raise_damaged(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Whatever goes wrong while sealed bytes are taken apart is damage: `DamagedFileError`.

    Bytes with the right checksum may have been made by another program, or by an
    attacker: any error of reading them means that they are not what this package writes. Only a
    lack of memory says nothing about the bytes.
    """
    try:
        yield
    except (DamagedFileError, NotReadyError, MemoryError):
        raise
    except Exception as error:
        raise DamagedFileError(
            f"{path} matches its checksum, but is not a valid saved {kind} "
            f"({type(error).__name__}: {quote(str(error))[1:-1]}): save it again"
        ) from error


def must(condition: object, what: str) -> None:
    """Within `raise_damaged`: refuse the bytes where a condition does not hold."""
    if not condition:
        raise ValueError(what)
