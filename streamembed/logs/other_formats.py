"""Files and folders that are no log: what they are, and the line that makes one of them."""

from __future__ import annotations

import re
from pathlib import PurePath

_FRAME = "pyarrow.Table.from_pandas(pandas.{}(FILE))"
_READ_NPY = "pyarrow.table({f'x{j}': x for j, x in enumerate(numpy.load(FILE).T)})"
_READ_TSV = "pyarrow.csv.read_csv(FILE, parse_options=pyarrow.csv.ParseOptions(delimiter=chr(9)))"
_READ_AVRO = "pyarrow.Table.from_pylist([*fastavro.reader(open(FILE, 'rb'))])"
_READ_ENCRYPTED = "pyarrow.parquet.read_table(FILE, decryption_properties=KEYS)"
_READ_LANCE = "lance.file.LanceFileReader(FILE).read_all().to_table()"
# Instead of the marker a length, then the place of the root in the schema.
_OLD_STREAM = rb"..[\0-\x7f]\0[\4-\x40]\0\0\0"
# Name, ends of file names, a pattern of the first bytes, modules to import, and what reads FILE as
# a table; without modules, a command. The first counts that fits by its ends or, where none does,
# by its first bytes.
_FORMATS: tuple[tuple[str, str, bytes | None, str, str], ...] = (
    ("an array of numpy", ".npy", b"\x93NUMPY", "numpy, pyarrow", _READ_NPY),
    ("JSON lines", ".jsonl .ndjson", b"{", "pyarrow.json", "pyarrow.json.read_json(FILE)"),
    ("JSON", ".json", rb"\[", "pandas, pyarrow", _FRAME.format("read_json")),
    ("a spreadsheet", ".xlsx .xls", None, "pandas, pyarrow", _FRAME.format("read_excel")),
    ("text with tabs", ".tsv .tab", None, "pyarrow.csv", _READ_TSV),
    ("CSV", ".csv", None, "pyarrow.csv", "pyarrow.csv.read_csv(FILE)"),
    ("ORC", ".orc", b"ORC", "pyarrow.orc", "pyarrow.orc.read_table(FILE)"),
    ("Avro", ".avro", b"Obj\x01", "fastavro, pyarrow", _READ_AVRO),
    ("a file of Lance", ".lance", None, "lance.file", _READ_LANCE),
    ("Feather 1", "", b"FEA1", "pyarrow.feather", "pyarrow.feather.read_table(FILE)"),
    ("encrypted Parquet", "", b"PARE", "pyarrow", _READ_ENCRYPTED),
    (
        "an Arrow stream of a version before 0.15",
        "",
        _OLD_STREAM,
        "pyarrow.ipc",
        "pyarrow.ipc.open_stream(FILE).read_all()",
    ),
    ("compressed by gzip", "", b"\x1f\x8b", "", "gzip -d FILE"),
    ("compressed by zstd", "", rb"\x28\xb5\x2f\xfd", "", "zstd -d FILE"),
    ("a zip archive", ".zip .npz", b"PK\3\4", "", "unzip FILE"),
    ("text, such as CSV", "", rb"[\t\r\n -~]{8}", "pyarrow.csv", "pyarrow.csv.read_csv(FILE)"),
)
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
_READ_ICEBERG = "pyiceberg.table.StaticTable.from_metadata(NEWEST).scan().to_arrow()"
_READ_HUDI = (
    "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(FOLDER).build().read())"
)
# Tables that are folders, by a folder inside: their name, how its files end, modules to import, and
# what reads the rows of the newest version of a FOLDER, or by its NEWEST file there.
TABLES: dict[str, tuple[str, str, str, str]] = {
    "_delta_log": (
        "a Delta table",
        "",
        "deltalake",
        "deltalake.DeltaTable(FOLDER).to_pyarrow_table()",
    ),
    "metadata": ("an Iceberg table", ".metadata.json", "pyiceberg.table", _READ_ICEBERG),
    ".hoodie": ("a Hudi table", "", "hudi, pyarrow", _READ_HUDI),
    "_versions": ("a Lance data set", ".manifest", "lance", "lance.dataset(FOLDER).to_table()"),
}


def describe_conversion(name: str, head: bytes) -> tuple[str, str] | None:
    """The format of a file that begins with ``head``, and a command that makes a log of it.

    None where neither its name nor its first bytes tell the format.

    Examples
    --------
    >>> kind, command = describe_conversion("day.csv.gz", b"")
    >>> kind, command[:51]
    ('CSV', 'python -c "import pyarrow.csv, pyarrow.parquet; pya')
    """
    path = PurePath(name)
    stem = path.with_suffix("") if path.suffix.lower() in _COMPRESSED else path
    rows = [row for row in _FORMATS if stem.suffix and stem.suffix.lower() in row[1].split()]
    rows += [row for row in _FORMATS if row[2] and re.match(row[2], head, re.DOTALL)]
    if not rows:
        return None
    kind, _, _, modules, table = rows[0]
    table, output = table.replace("FILE", repr(name)), stem.with_suffix(".parquet")
    if output == path:
        output = path.with_name(f"{path.stem}-converted.parquet")
    return kind, build_command(modules, table, str(output)) if modules else table


def build_command(modules: str, table: str, output: str) -> str:
    """A command that writes a table as Parquet."""
    line = f"import {modules}, pyarrow.parquet; pyarrow.parquet.write_table({table}, {output!r})"
    return f'python -c "{line}"'
