"""Files that are neither Arrow nor Parquet: what they are, and the line that converts them."""

from __future__ import annotations

from pathlib import PurePath

# Format: ends of names, first bytes, modules to import, and what reads FILE as a table. The first
# that fits by name or, where the name says nothing, by its first bytes.
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
        b"[",
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
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".lz4")


def describe_conversion(name: str, head: bytes) -> tuple[str, str] | None:
    """The format of a file that begins with ``head``, and a command that writes it as Parquet.

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
    kinds += [kind for kind, (_, start, *_) in _FORMATS.items() if start and head.startswith(start)]
    if not kinds:
        return None
    _, _, modules, table = _FORMATS[kinds[0]]
    table, output = table.replace("FILE", repr(name)), str(stem.with_suffix(".parquet"))
    line = f"import {modules}, pyarrow.parquet; pyarrow.parquet.write_table({table}, {output!r})"
    return kinds[0], f'python -c "{line}"'
