"""`transform_log`: an Arrow log through a snapshot into one file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data import batch, distance_rows
from streamembed.data.batch import Batch
from streamembed.data.output_format import name_columns
from streamembed.engine.picture import PLACES
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, FeatureError, LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.log_writer import open_writer
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.runs import run_folder
from streamembed.runs.recorder import list_passthrough_types
from streamembed.storage.archive import check_writable, replace_file
from streamembed.validation import check_flag


def transform_log(
    snapshot: Snapshot,
    log: EventLog,
    output: str | os.PathLike[str],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Embed a log, batch by batch, into a file that gets its name only when it is complete.

    Parameters
    ----------
    log
        Of the snapshot's features; or of distances to its items, in the order of its ids, where it
        was learned from distances.
    output
        Ending in .arrow for an Arrow IPC file, in .parquet or without a dot for Parquet. Its
        columns: offset in the log; id, int64 or text; label and time in the types of the log;
        coordinates, coverage, places in the picture if there is one, and the reason where a row
        has none. It must lie outside of the folders that the log is read from, in a folder that
        exists.
    overwrite
        Whether to replace an older file.

    Returns
    -------
    What was done, JSON-ready: ``output``, ``embedded``, ``rejected``, and ``damage`` where the log
    could not be read to its end.

    Raises
    ------
    FeatureError
        The log does not have the snapshot's features.
    FileError
        The output cannot be written, or is something else than a file.
    ParameterError
        The output exists and is not to be replaced, or the log is read from there.
    """
    _check_fit(snapshot, log)
    path = check_writable(output)
    run_folder.check_apart("output", path, log)
    if not check_flag("overwrite", overwrite) and os.path.lexists(path):
        raise ParameterError(
            f"output={quote(str(path))} already exists: choose another file, or replace it with "
            "overwrite=True"
        )
    if path.suffix not in ("", ".parquet", ".arrow"):
        raise ParameterError(
            f"output={quote(str(path))} is written as Parquet or an Arrow IPC file: let it end in "
            ".parquet or .arrow"
        )
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("id", log.id_type or pa.int64()),
            *list_passthrough_types(log).items(),
            *((name, pa.float64()) for name in list_columns(snapshot)),
            ("reason", pa.string()),
        ]
    )
    format = "file" if path.suffix == ".arrow" else "parquet"
    embedded = rejected = 0
    damage = None
    with (
        replace_file(path) as temporary,
        open_writer(str(temporary), schema, format, "zstd") as writer,
    ):
        try:
            for part in log:
                table = _embed(snapshot, part, schema)
                writer.write_table(table)
                n_embedded = table["reason"].null_count
                embedded, rejected = embedded + n_embedded, rejected + table.num_rows - n_embedded
        except LogError as error:
            damage = str(error)
    return {"output": str(output), "embedded": embedded, "rejected": rejected, "damage": damage}


def _check_fit(snapshot: Snapshot, log: EventLog) -> None:
    if snapshot.feature_names != log.feature_names:
        raise FeatureError(
            f"the log has the features {list(log.feature_names)}, but the snapshot has "
            f"{list(snapshot.feature_names)} (none if it was learned from distances): choose "
            "another log, or select columns with features="
        )


def list_columns(snapshot: Snapshot) -> list[str]:
    """Names of the columns of numbers that `embed_rows` gives."""
    places = PLACES if snapshot.picture is not None else ()
    return [*name_columns(snapshot.method, len(snapshot.eigenvalues)), "coverage", *places]


def embed_points(snapshot: Snapshot, points: Batch) -> dict[str, Array]:
    """Coordinates, ``coverage`` and places in the picture of checked points, by column."""
    coordinates, coverage = snapshot.transform_with_coverage(points)
    places = () if snapshot.picture is None else snapshot.picture.transform(points).T
    return dict(zip(list_columns(snapshot), (*coordinates.T, coverage, *places), strict=True))


def embed_rows(snapshot: Snapshot, read: Batch, n: int) -> dict[str, Any]:
    """Columns for n rows in their order, as Arrow arrays: null where a row was rejected.

    Parameters
    ----------
    read
        The n rows, checked: those that are kept, and the others with a reason.

    Returns
    -------
    Those of `embed_points`, and ``reason``: why a row was rejected.
    """
    reasons = {row.index: row.reason for row in read.rejected}
    return _fill_rejected_rows(embed_points(snapshot, read), read.kept, reasons, n)


def _embed_distances(snapshot: Snapshot, rows: list[Floats | None]) -> dict[str, Any]:
    """The same for distances to all items of a snapshot."""
    usable: dict[int, Floats] = {}
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if row is None:
            reasons[index] = "null in 'distances'"
            continue
        try:
            usable[index] = distance_rows.read_support_distances([row], snapshot.ids)[0]
        except BadRowError as error:
            reasons[index] = error.rows[0][1]
    known, picture = list(usable.values()), snapshot.picture
    places = () if picture is None else picture.transform_distances(known).T
    parts = *snapshot.transform_distances(known).T, snapshot.coverage_distances(known), *places
    columns = dict(zip(list_columns(snapshot), parts, strict=True))
    return _fill_rejected_rows(columns, np.array([*usable], dtype=np.int64), reasons, len(rows))


def _fill_rejected_rows(
    columns: Mapping[str, Array], kept: Ints, reasons: Mapping[int, str], n: int
) -> dict[str, Any]:
    place = np.full(n, -1)
    place[kept] = np.arange(len(kept))
    index = pa.array(place, mask=place < 0)
    placed = {name: pa.array(column).take(index) for name, column in columns.items()}
    return {**placed, "reason": pa.array([reasons.get(i) for i in range(n)], pa.string())}


def _embed(snapshot: Snapshot, part: LogBatch, schema: Any) -> Any:
    """One batch of a log as a table of this schema."""
    n = len(part)
    if part.distances is None:
        features = snapshot.features
        read = batch.check_table(part.points, features, part.nulls, part.faults, None, "skip")
        embedded = embed_rows(snapshot, read, n)
    else:
        embedded = _embed_distances(snapshot, part.distances)
    kind = schema.field("id").type
    columns = {
        "offset": pa.array(range(part.offset, part.offset + n)),
        "id": pa.nulls(n, kind) if part.ids is None else pa.array(part.ids, kind),
        "label": part.labels,
        "event_time": part.event_times,
        **embedded,
    }
    return pa.table([columns[name] for name in schema.names], schema=schema)
