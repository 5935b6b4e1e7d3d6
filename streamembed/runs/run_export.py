"""`export`: what a run holds as files that any reader of Arrow and Parquet opens."""

from __future__ import annotations

import os
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
from streamembed.runs.log_transform import embed_rows
from streamembed.runs.run_reader import RunReader, read_run


def export(run: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[Path]:
    """Write ``snapshot.arrow``, ``embedding.parquet``, ``timeline.parquet``, ``rejected.parquet``.

    They are what was committed: the newest snapshot, and every event by it.

    Parameters
    ----------
    run
        An online run, or an unfinished replay; another process may be writing to it.
    output
        A folder that is empty or not there.

    Returns
    -------
    The files.

    Raises
    ------
    ParameterError
        ``output`` is not empty; or the run is finished, and its folder has these files already.
    DamagedFileError, FileError
        The run cannot be read, or the files cannot be written.
    """
    target = Path(check_path(output, "output"))
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ParameterError(f"output={quote(str(target))} must be a new folder, or an empty one")
    with read_run(run) as reader:
        if reader.finished:
            raise ParameterError(
                f"run={quote(str(run))} is finished, and its folder has these files already: copy "
                "them"
            )
        try:
            target.mkdir(parents=True, exist_ok=True)
            return _write_files(reader, target)
        except OSError as error:
            if isinstance(error, (DamagedFileError, FileError)):
                raise
            raise FileError(f"{target} cannot be written: {error.strerror or error}") from error


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
        embedding = reader.table("embedding")
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
        names = name_columns(snapshot.method, len(snapshot.eigenvalues))
        coordinates = dict(zip(names, snapshot.coordinates.T, strict=True))
        coverage = np.ones(len(snapshot.ids))
        yield pa.table({"id": snapshot.ids.tolist(), **coordinates, "coverage": coverage})
        return
    for position, rows in reader.events():
        n = len(rows)
        columns = embed_rows(snapshot, Batch.of_points(rows.points, snapshot.features), n)
        del columns["reason"]
        positions = np.arange(position, position + n)
        ids = positions if rows.ids is None else rows.ids
        yield pa.table({"position": positions, "id": pa.array(ids.tolist()), **columns})
