"""`export`: what a run holds as files that any reader of Arrow and Parquet opens."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.data.batch import Batch
from streamembed.data.output_format import name_columns
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    DamagedFileError,
    FileError,
    NotReadyError,
    ParameterError,
    check_path,
    quote,
)
from streamembed.runs import run_folder as runfolder
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.runs.run_store import STATE, find_file_error


def export(run: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write ``snapshot.arrow``, ``embedding.parquet``, ``timeline.parquet``, ``rejected.parquet``.

    Of a finished replay these are its files. Of any other run they are what was committed: the
    newest snapshot, and every event by it.

    Parameters
    ----------
    run
        A run; another process may be writing to it.
    output
        A folder that is empty or not there.

    Returns
    -------
    The files.

    Raises
    ------
    ParameterError
        ``output`` is not empty.
    DamagedFileError, FileError
        The run cannot be read, or the files cannot be written.
    """
    target = Path(check_path(output, "output"))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ParameterError(f"output={quote(str(target))} must be a new folder, or an empty one")
    with read_run(run) as reader:
        try:
            target.mkdir(parents=True, exist_ok=True)
            return _copy_files(reader, target) if reader.finished else _write_files(reader, target)
        except OSError as error:
            if isinstance(error, (DamagedFileError, FileError)):
                raise
            raise FileError(f"{target} cannot be written: {error.strerror or error}") from error


def _copy_files(reader: RunReader, target: Path) -> list[Path]:
    files = reader._database.read_fact(STATE)["files"]
    for name, crc in files.items():
        if (fault := find_file_error(reader.path, name, crc)) is not None:
            raise DamagedFileError(f"{reader.path}: {fault}; repeat the replay to write it again")
    names = [name for name in runfolder.FILES if name in files]
    return [Path(shutil.copyfile(reader.path / name, target / name)) for name in names]


def _write_files(reader: RunReader, target: Path) -> list[Path]:
    written = []
    for name, table in (("timeline", reader.timeline()), ("rejected", reader.rejected())):
        pq.write_table(table, target / f"{name}.parquet")
        written.append(target / f"{name}.parquet")
    try:
        snapshot = reader.snapshot()
    except NotReadyError:
        return written
    snapshot.save(target / "snapshot.arrow")
    written.append(target / "snapshot.arrow")
    if reader.origin.get("embed") == "causal":
        embedding = reader._table("embedding")
        parts = [] if embedding is None else [embedding]
    else:
        parts = [part for part in _embed_events(reader, snapshot) if part.num_rows]
    if parts:
        pq.write_table(pa.concat_tables(parts), target / "embedding.parquet")
        written.append(target / "embedding.parquet")
    return written


def _embed_events(reader: RunReader, snapshot: Snapshot) -> Iterator[Any]:
    """Events that were committed, by the snapshot; of distances only those that it holds."""
    if not snapshot.feature_names:
        coverage = np.ones(len(snapshot.ids))
        yield _build_table(
            snapshot.method, np.arange(0), snapshot.ids, snapshot.coordinates, coverage
        )
        return
    for position, rows in reader.events():
        events = Batch.of_points(rows.points, snapshot.features)
        coordinates, coverage = snapshot.transform_with_coverage(events)
        positions = np.arange(position, position + len(rows))
        ids = positions if rows.ids is None else rows.ids
        yield _build_table(snapshot.method, positions, ids, coordinates, coverage)


def _build_table(method: str, positions: Any, ids: Any, coordinates: Any, coverage: Any) -> Any:
    columns = {"position": positions} if len(positions) == len(ids) else {}
    columns |= {"id": pa.array(ids.tolist())}
    columns |= zip(name_columns(method, coordinates.shape[1]), coordinates.T, strict=True)
    return pa.table({**columns, "coverage": coverage})
