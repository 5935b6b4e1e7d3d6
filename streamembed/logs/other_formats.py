"""What files and folders are that are no logs, by their names and first bytes."""

from __future__ import annotations

import re
from pathlib import PurePath

CONVERSIONS = "docs/guides/formats.md"  # the page with the lines that convert them
# Instead of the marker a length, then the place of the root in the schema.
_OLD_STREAM = rb"..[\0-\x7f]\0[\4-\x40]\0\0\0"
# Name, ends of file names, a pattern of the first bytes. The first counts that fits by its ends or,
# where none does, by its first bytes.
_FORMATS: tuple[tuple[str, str, bytes | None], ...] = (
    ("an array of numpy", ".npy", b"\x93NUMPY"),
    ("JSON lines", ".jsonl .ndjson", b"{"),
    ("JSON", ".json", rb"\["),
    ("a spreadsheet", ".xlsx .xls", None),
    ("text with tabs", ".tsv .tab", None),
    ("CSV", ".csv", None),
    ("ORC", ".orc", b"ORC"),
    ("Avro", ".avro", b"Obj\x01"),
    ("a file of Lance", ".lance", None),
    ("Feather 1", "", b"FEA1"),
    ("encrypted Parquet", "", b"PARE"),
    ("an Arrow stream of a version before 0.15", "", _OLD_STREAM),
    ("compressed by gzip", "", b"\x1f\x8b"),
    ("compressed by zstd", "", rb"\x28\xb5\x2f\xfd"),
    ("a zip archive", ".zip .npz", b"PK\3\4"),
    ("text, such as CSV", "", rb"[\t\r\n -~]{8}"),
)
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
# Tables that are folders, by a folder inside: their name, and how its files end.
TABLES = {
    "_delta_log": ("a Delta table", ""),
    "metadata": ("an Iceberg table", ".metadata.json"),
    ".hoodie": ("a Hudi table", ""),
    "_versions": ("a Lance data set", ".manifest"),
}


def recognise_format(name: str, head: bytes) -> str | None:
    """What a file is that begins with ``head``; None where neither name nor first bytes say it.

    Examples
    --------
    >>> recognise_format("day.csv.gz", b""), recognise_format("log", b"PARE")
    ('CSV', 'encrypted Parquet')
    """
    path = PurePath(name)
    stem = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    kinds = [row[0] for row in _FORMATS if stem.suffix and stem.suffix.lower() in row[1].split()]
    kinds += [row[0] for row in _FORMATS if row[2] and re.match(row[2], head, re.DOTALL)]
    return kinds[0] if kinds else None
