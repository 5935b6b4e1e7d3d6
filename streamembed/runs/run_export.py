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
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import ParameterError, check_path, quote
from streamembed.runs.log_transform import embed_points
from streamembed.runs.run_reader import RunReader, read_run
from streamembed.storage.archive import translate_file_errors


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
        with translate_file_errors(target, "written"):
            target.mkdir(parents=True, exist_ok=True)
            return list(_write_files(reader, target))


def _write_files(reader: RunReader, target: Path) -> Iterator[Path]:
    snapshot = reader.snapshot() if reader.positions else None
    if snapshot is not None:
        snapshot.save(target / "snapshot.arrow")
        yield target / "snapshot.arrow"
    tables = {"timeline": reader.timeline(), "rejected": reader.rejected()}
    if reader.origin.get("embed") == "causal":
        tables["embedding"] = reader.table("embedding")
    elif snapshot is not None:
        parts = [part for part in _embed_events(reader, snapshot) if part.num_rows]
        tables["embedding"] = pa.concat_tables(parts, promote_options="default") if parts else None
    for name, table in tables.items():
        if table is not None:
            pq.write_table(table, target / f"{name}.parquet")
            yield target / f"{name}.parquet"


def _embed_events(reader: RunReader, snapshot: Snapshot) -> Iterator[Any]:
    """Events that were committed, by the snapshot; of distances only those that it holds."""
    if not snapshot.feature_names:
        yield snapshot.to_arrow()
        return
    for position, rows in reader.events():
        positions = np.arange(position, position + len(rows))
        ids = positions if rows.ids is None else rows.ids
        columns = embed_points(snapshot, Batch.of_points(rows.points, snapshot.features))
        named = {"position": positions, "id": pa.array(ids.tolist()), **rows.passthrough}
        yield pa.table({**named, **columns})
