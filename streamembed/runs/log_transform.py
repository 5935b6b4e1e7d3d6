"""`transform_log`: an Arrow log through a snapshot into one file."""

from __future__ import annotations

import os
from typing import Any

import pyarrow as pa

from streamembed.data import batch, distance_rows
from streamembed.data.output_format import name_columns
from streamembed.data.table import find_columns
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import BadRowError, FeatureError, LogError, ParameterError, quote
from streamembed.logs.event_log import EventLog, LogBatch
from streamembed.logs.log_writer import open_writer
from streamembed.logs.other_formats import recognise_format
from streamembed.numeric.arrays import Floats
from streamembed.runs import run_folder
from streamembed.runs.recorder import PLACES
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
        Ending in .arrow for an Arrow IPC file, else Parquet; not in .csv and the like. Its
        columns: offset in the log; id, label and time in the types of the log; coordinates,
        coverage, places in the picture if there is one, and the reason where a row has none. It
        must lie outside of the folders that the log is read from, in a folder that exists.
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
    run_folder.check_apart("output", path, (log,), folder=False)
    if not check_flag("overwrite", overwrite) and os.path.lexists(path):
        raise ParameterError(
            f"output={quote(str(path))} already exists: choose another file, or replace it with "
            "overwrite=True"
        )
    if kind := recognise_format(path.name, b""):
        raise ParameterError(
            f"output={quote(str(path))} has the name of {kind}, and is written as Parquet "
            "or an Arrow IPC file: let it end in .parquet or .arrow"
        )
    names = [*name_columns(snapshot.method, len(snapshot.eigenvalues)), "coverage"]
    if snapshot.picture is not None:
        names += PLACES
    passthrough = {"label": log.label_type, "event_time": log.event_time_type}
    schema = pa.schema(
        [
            ("offset", pa.int64()),
            ("id", log.id_column_type or pa.int64()),
            *((name, kind) for name, kind in passthrough.items() if kind is not None),
            *((name, pa.float64()) for name in names),
            ("reason", pa.string()),
        ]
    )
    format = "file" if path.suffix == ".arrow" else "parquet"
    embedded = rejected = 0
    damage = None
    # the log's columns, by name, to those of the snapshot, by place where it was taught arrays
    order = find_columns(log.feature_names, snapshot.feature_names)
    with (
        replace_file(path) as temporary,
        open_writer(str(temporary), schema, format, "zstd") as writer,
    ):
        try:
            for part in log:
                table, n_rejected = _embed(snapshot, part, order, schema)
                writer.write_table(table)
                embedded, rejected = embedded + table.num_rows - n_rejected, rejected + n_rejected
        except LogError as error:
            damage = str(error)
    return {"output": str(output), "embedded": embedded, "rejected": rejected, "damage": damage}


def _check_fit(snapshot: Snapshot, log: EventLog) -> None:
    if set(snapshot.feature_names) != set(log.feature_names):
        raise FeatureError(
            f"the log has the features {list(log.feature_names)}, but the snapshot has "
            f"{list(snapshot.feature_names)} (none if it was learned from distances): choose "
            "another log, or select columns with features="
        )


def _embed(snapshot: Snapshot, part: LogBatch, order: list[int], schema: Any) -> tuple[Any, int]:
    """One batch of a log as a table of this schema, and how many of its rows have a reason."""
    if part.distances is None:
        features, nulls = snapshot.features, part.nulls[:, order]
        points, faults = part.points[:, order], part.faults
        read = batch.check_table(points, features, nulls, faults, None, "skip")
        usable = read.kept.tolist()
        reasons = {row.index: row.reason for row in read.rejected}
        coordinates, coverage = snapshot.transform_with_coverage(read)
        picture = None if snapshot.picture is None else snapshot.picture.transform(read)
    else:
        rows, usable, reasons = _check_rows(snapshot, part.distances)
        coordinates = snapshot.transform_distances(rows)
        coverage = snapshot.coverage_distances(rows)
        picture = None if snapshot.picture is None else snapshot.picture.transform_distances(rows)
    n = len(part)
    row_of: list[int | None] = [None] * n
    for row, index in enumerate(usable):
        row_of[index] = row
    indices = pa.array(row_of, pa.int64())
    values = [*coordinates.T, coverage, *(() if picture is None else picture.T)]
    columns = [
        pa.array(range(part.offset, part.offset + n)),
        [None] * n if part.id_column is None else part.id_column,
        *(column for column in (part.labels, part.event_times) if column is not None),
        *(pa.array(column).take(indices) for column in values),
        [reasons.get(i) for i in range(n)],
    ]
    return pa.table(columns, schema=schema), len(reasons)


def _check_rows(
    snapshot: Snapshot, rows: list[Floats | None]
) -> tuple[list[Floats], list[int], dict[int, str]]:
    """Rows that hold a distance to every item of a snapshot, their indices, and what is wrong."""
    usable: list[Floats] = []
    indices: list[int] = []
    reasons: dict[int, str] = {}
    for index, row in enumerate(rows):
        if row is None:
            reasons[index] = "null in 'distances'"
            continue
        try:
            distance_rows.read_support_distances([row], snapshot.ids)
        except BadRowError as error:
            reasons[index] = error.rows[0][1]
        else:
            usable.append(row)
            indices.append(index)
    return usable, indices, reasons
