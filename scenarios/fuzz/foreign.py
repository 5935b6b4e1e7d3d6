"""Files of other projects: ``python -m scenarios.fuzz.foreign FOLDER``.

Every file below the folder, except those named like ``_metadata``, is inspected and replayed: as it
is and, where features must be chosen, with each of its columns. It is read, with as many rows as
pyarrow counts, or refused in a message that names the file. Prints every outcome; exit code 1 where
there is another.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streamembed as se
from streamembed.cli.inspect import inspect_path
from streamembed.errors import FeatureError, LogError, StreamembedError
from streamembed.logs.event_log import open_log

SETTINGS: dict[str, Any] = {"size": 50, "n_components": 1, "warm_up": 10, "chunk_size": 10}


def count_rows(path: Path) -> int | None:
    """Rows as pyarrow counts them; None where it reads no such file to its end."""
    for read in (
        lambda: sum(len(batch) for batch in pq.ParquetFile(path).iter_batches()),
        lambda: pa.ipc.open_file(path).read_all().num_rows,
        lambda: pa.ipc.open_stream(path).read_all().num_rows,
    ):
        try:
            return int(read())
        except (pa.ArrowException, OSError, ValueError, LookupError):
            continue
    return None


def replay(path: Path, folder: str, features: list[str] | None = None) -> str:
    """Replay a file; returns the outcome, or a fault that begins with an exclamation mark."""
    try:
        inspect_path(str(path))
        log = open_log(path, features)
        done = se.replay(log, se.Engine(**SETTINGS), f"{folder}/run", overwrite=True)
    except StreamembedError as error:
        if isinstance(error, LogError) and count_rows(path) is not None:
            return f"! pyarrow reads it: {error}"
        named = "" if path.name in str(error) else "! without the file's name: "
        return f"{named}{type(error).__name__}: {error}"
    except Exception as error:
        return f"! {type(error).__name__}: {error}"
    if done.damage is not None:
        return f"damaged: {done.damage}" if count_rows(path) is None else f"! {done.damage}"
    rows, expected = done.accepted + done.rejected, count_rows(path)
    return "read" if rows == expected else f"! {rows} rows, and pyarrow has {expected}"


def main(arguments: list[str] | None = None) -> int:
    """Print every outcome, most frequent kinds last; 1 where one is a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    root = parser.parse_args(arguments).folder
    kinds: Counter[str] = Counter()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        for path in sorted(root.rglob("[!._]*")):
            if not path.is_file():
                continue
            outcome = replay(path, folder)
            if outcome.startswith(FeatureError.__name__):
                names = list(inspect_path(str(path))["columns"])
                for name in names[:20]:  # one after the other
                    chosen = replay(path, folder, [name])
                    outcome = chosen if chosen.startswith(("!", "read")) else outcome
            print(f"{path.relative_to(root)}: {outcome}")
            kinds["fault" if outcome.startswith("!") else outcome.partition(":")[0]] += 1
    print(*(f"{kind}: {number}" for kind, number in kinds.most_common()), sep="; ")
    return int(kinds["fault"] > 0)


if __name__ == "__main__":
    sys.exit(main())
