"""Data frames of Spark: through a snapshot on all machines, and batch by batch into a run.

Spark reads, repeats what failed, and carries bytes. A snapshot goes to every machine once; a run
learns in the program that calls, and knows the batches that it has learned by their ids.

Needs Spark 4 and Java 17: ``pip install "streamembed[spark]"``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa

from streamembed.data import batch
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import FeatureError, ParameterError, check_path, quote
from streamembed.logs.paths import Location
from streamembed.runs.log_transform import embed_rows, list_columns
from streamembed.runs.online_run import open_run

types: Any = None
with suppress(ImportError):  # an optional extra
    from pyspark.sql import types  # type: ignore[no-redef,import-not-found,unused-ignore]

__all__ = ["learn_batches", "transform"]


def transform(dataframe: Any, snapshot: Snapshot, features: Sequence[str] | None = None) -> Any:
    """A data frame of Spark with the coordinates of its rows, in a snapshot that stays.

    Rows are the same as of `Snapshot.transform`, whichever machine they are on. Lazy, as Spark is;
    of a stream, too.

    Parameters
    ----------
    dataframe
        ``pyspark.sql.DataFrame`` with numeric columns for all features, of a classic session.
    snapshot
        Of points. It is sent to each machine once, as its bytes.
    features
        The columns that are the features of the snapshot, in its order; default: those that are
        called as it calls them.

    Returns
    -------
    The data frame with more columns: coordinates, called after the method (``diffusion_map_0``),
    ``coverage``, places in the picture where there is one, and ``reason``: why a row could not be
    placed, which then has null for the others.

    Raises
    ------
    ParameterError
        Spark is not installed; a column to be added is there already.
    FeatureError
        The data frame has not these columns, or the snapshot was learned from distances.

    An error of one machine comes as Spark's own, once rows are asked for.
    """
    _require_spark()
    names = _check_features(snapshot, dataframe.columns, features)
    added = [*list_columns(snapshot), "reason"]
    if taken := sorted({*added} & {*dataframe.columns}):
        raise ParameterError(
            f"dataframe has the columns {quote(taken)} already: rename or drop them"
        )
    kinds = [types.DoubleType()] * (len(added) - 1) + [types.StringType()]
    more = [types.StructField(name, kind) for name, kind in zip(added, kinds, strict=True)]
    schema = types.StructType([*dataframe.schema.fields, *more])
    sent = dataframe.sparkSession.sparkContext.broadcast(snapshot.to_bytes())

    def place(parts: Iterable[Any]) -> Iterator[Any]:
        local_snapshot = Snapshot.from_bytes(sent.value)
        for rows in parts:
            yield place_batch(local_snapshot, rows, names)

    return dataframe.mapInArrow(place, schema)


def place_batch(snapshot: Snapshot, rows: Any, names: Sequence[str]) -> Any:
    """A record batch with the columns that `transform` adds; ``names`` are those of the features.

    What one machine does with each batch of its rows.
    """
    points = pa.table([rows.column(name) for name in names], list(snapshot.feature_names))
    read = batch.read(points, None, snapshot.features, on_bad_row="skip")
    for name, column in embed_rows(snapshot, read, rows.num_rows).items():
        rows = rows.append_column(name, column)
    return rows


def _check_features(
    snapshot: Snapshot, columns: Sequence[str], features: Sequence[str] | None
) -> tuple[str, ...]:
    """The columns that are features."""
    wanted = snapshot.feature_names
    if not wanted:
        raise FeatureError(
            "this snapshot was learned from distances and has no features: a data frame of points "
            "cannot be placed in it"
        )
    names = wanted if features is None else tuple(features)
    if len(names) != len(wanted):
        raise FeatureError(
            f"features={quote(list(names))} are {len(names)} columns, and this snapshot has "
            f"{len(wanted)}: {quote(list(wanted))}"
        )
    if missing := [name for name in names if name not in columns]:
        raise FeatureError(
            f"dataframe has no column {quote(missing[0])}, but {quote(list(columns))}: name the "
            "columns of the snapshot's features, in its order, with features=[...]"
        )
    return names


def learn_batches(
    run: Location,
    engine: Mapping[str, Any] | None = None,
    *,
    name: str = "spark",
    features: Sequence[str] | None = None,
    order_by: Sequence[str] = (),
    checkpoint_every: int | str | None = None,
) -> Callable[[Any, int], None]:
    """A function for ``foreachBatch`` that learns every batch of a stream once.

    A batch is committed to the run under ``name`` and Spark's number of it, so that one which
    Spark repeats changes nothing. The rows come to the program that calls, and are learned there:
    the run is that of the same calls of `Run.learn`.

    Parameters
    ----------
    run
        The folder, as for `streamembed.open_run`. It is open only while a batch is learned.
    engine
        The parameters of one; default: those of the run that is there, or the defaults.
    checkpoint_every
        As for `streamembed.open_run`. The engine is also committed after every batch, once its
        warm-up is over.
    name
        Of the stream, where several are learned into one run.
    features
        The columns to learn; default: all but ``id``, ``label`` and ``event_time``, which are used
        as such.
    order_by
        Columns to sort the rows of a batch by. Spark promises that a batch which it repeats has the
        same rows, not that these are in the same order: after a shuffle name some that tell rows
        apart, such as ``["event_time", "id"]``.

    Returns
    -------
    A function of a data frame and its batch id. Beside the errors of `Run.learn` and `open_run` it
    raises InputError where a batch was learned before with other rows, or with the same in another
    order: a stream that starts from scratch, with a new checkpoint location, needs another
    ``name``. The rows were not learned then, and the query ends.

    Raises
    ------
    ParameterError
        Spark is not installed; a name that is no printable text.

    Examples
    --------
    ::

        rows.writeStream.foreachBatch(learn_batches("run", {"memory": "landmarks"})).option(
            "checkpointLocation", "checkpoint").start()
    """
    _require_spark()
    check_path(run, "run")
    if not isinstance(name, str) or not name or not name.isprintable():
        raise ParameterError(f"name={quote(name)} must be printable text of some length")
    chosen = None if features is None else list(features)
    order = [(column, "ascending") for column in order_by]

    def learn(dataframe: Any, batch_id: int) -> None:
        rows = dataframe.toArrow()
        if order:
            rows = rows.sort_by(order)
        with open_run(run, engine, checkpoint_every=checkpoint_every) as opened:
            opened.learn(rows, features=chosen, batch_id=f"{name} {batch_id}")

    return learn


def _require_spark() -> None:
    if types is None:
        raise ParameterError(
            'streamembed.spark needs Spark: pip install "streamembed[spark]", and Java 17'
        )
