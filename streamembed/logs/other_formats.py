"""Files that are no log: what they are, and the line that converts them."""

from __future__ import annotations

import re
from pathlib import PurePath

# Format: ends of names, a pattern of the first bytes, modules to import, and what reads FILE as a
# table; without modules, a command. The first that fits by name or, where the name says nothing,
# by its first bytes.
_FORMATS: dict[str, tuple[tuple[str, ...], bytes | None, str, str]] = {
    "an array of numpy": (
        (".npy",),
        b"\x93NUMPY",
        "numpy, pyarrow",
        "pyarrow.table({f'x{j}': x for j, x in enumerate(numpy.load(FILE).T)})",
    ),
    "JSON lines": ((".jsonl", ".ndjson"), b"{", "pyarrow.json", "pyarrow.json.read_json(FILE)"),
    "JSON": (
        (".json",),
        rb"\[",
        "pandas, pyarrow",
        "pyarrow.Table.from_pandas(pandas.read_json(FILE))",
    ),
    "a spreadsheet": (
        (".xlsx", ".xls"),
        None,
        "pandas, pyarrow",
        "pyarrow.Table.from_pandas(pandas.read_excel(FILE))",
    ),
    "text with tabs": (
        (".tsv", ".tab"),
        None,
        "pyarrow.csv",
        "pyarrow.csv.read_csv(FILE, parse_options=pyarrow.csv.ParseOptions(delimiter=chr(9)))",
    ),
    "CSV": ((".csv",), None, "pyarrow.csv", "pyarrow.csv.read_csv(FILE)"),
    "ORC": ((".orc",), b"ORC", "pyarrow.orc", "pyarrow.orc.read_table(FILE)"),
    "Avro": (
        (".avro",),
        b"Obj\x01",
        "fastavro, pyarrow",
        "pyarrow.Table.from_pylist([*fastavro.reader(open(FILE, 'rb'))])",
    ),
    "a file of Lance": (
        (".lance",),
        None,
        "lance.file",
        "lance.file.LanceFileReader(FILE).read_all().to_table()",
    ),
    "HDF5": (
        (".h5", ".hdf5"),
        b"\x89HDF",
        "pandas, pyarrow",
        "pyarrow.Table.from_pandas(pandas.read_hdf(FILE))",
    ),
    "Feather 1": ((), b"FEA1", "pyarrow.feather", "pyarrow.feather.read_table(FILE)"),
    "encrypted Parquet": (
        (),
        b"PARE",
        "pyarrow",
        "pyarrow.parquet.read_table(FILE, decryption_properties=KEYS)",
    ),
    # a length instead of the marker, then the place of the root in the schema
    "an Arrow stream of a version before 0.15": (
        (),
        rb"..[\0-\x7f]\0[\4-\x40]\0\0\0",
        "pyarrow.ipc",
        "pyarrow.ipc.open_stream(FILE).read_all()",
    ),
    "compressed by gzip": ((), b"\x1f\x8b", "", "gzip -d FILE"),
    "compressed by zstd": ((), rb"\x28\xb5\x2f\xfd", "", "zstd -d FILE"),
    "compressed by bzip2": ((), b"BZh", "", "bzip2 -d FILE"),
    "compressed by lz4": ((), b"\x04\x22\x4d\x18", "", "lz4 -d FILE"),
    "a zip archive": ((".zip", ".npz"), b"PK\3\4", "", "unzip FILE"),
    "text, such as CSV": (
        (),
        rb"[\t\r\n -~]{8}",
        "pyarrow.csv",
        "pyarrow.csv.read_csv(FILE)",
    ),
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")
# Tables that are folders, by a folder inside: their name, how its files end, and how Python reads
# the rows of the newest version of a FOLDER, or by its NEWEST file there.
TABLES: dict[str, tuple[str, str, str, str]] = {
    "_delta_log": (
        "a Delta table",
        "",
        "deltalake",
        "deltalake.DeltaTable(FOLDER).to_pyarrow_table()",
    ),
    "metadata": (
        "an Iceberg table",
        ".metadata.json",
        "pyiceberg.table",
        "pyiceberg.table.StaticTable.from_metadata(NEWEST).scan().to_arrow()",
    ),
    ".hoodie": (
        "a Hudi table",
        "",
        "hudi, pyarrow",
        "pyarrow.Table.from_batches(hudi.HudiTableBuilder.from_base_uri(FOLDER).build().read())",
    ),
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
    kinds = [kind for kind, (ends, *_) in _FORMATS.items() if stem.suffix.lower() in ends]
    kinds += [
        kind for kind, (_, start, *_) in _FORMATS.items() if start and re.match(start, head, re.S)
    ]
    if not kinds:
        return None
    _, _, modules, table = _FORMATS[kinds[0]]
    if not modules:
        return kinds[0], table.replace("FILE", repr(name))
    output = stem.with_suffix(".parquet")
    if output == path:
        output = path.with_name(f"{path.stem}-converted.parquet")
    return kinds[0], build_command(modules, table.replace("FILE", repr(name)), str(output))


def build_command(modules: str, table: str, output: str) -> str:
    """A command that writes a table as Parquet."""
    line = f"import {modules}, pyarrow.parquet; pyarrow.parquet.write_table({table}, {output!r})"
    return f'python -c "{line}"'
