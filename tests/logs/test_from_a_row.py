"""A log read from a row on is the tail of the whole log, in every format."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamembed.errors import LogError
from streamembed.logs.event_log import EventLog, LogBatch, open_log, write_log

N = 60
RNG = np.random.default_rng(5)
POINTS = RNG.standard_normal((N, 3))
POINTS[[4, 40], 1] = np.nan
LABELS = RNG.choice(["a", "b", "c"], N).tolist()
IDS = [f"e{i}" for i in range(N)]
FORMATS = ("stream", "file", "parquet")


def write(path: Path, format: str, rows: slice, compression: str | None = None) -> None:
    """Points with ids, dictionary labels and times; record batches and row groups of 7."""
    chosen = range(N)[rows]
    table = pa.table(
        {
            "label": pa.array([LABELS[i] for i in chosen]).dictionary_encode(),
            "id": [IDS[i] for i in chosen],
            "event_time": pa.array(list(chosen), pa.timestamp("s")),
            **{name: POINTS[rows, j] for j, name in enumerate("xyz")},
        }
    )
    if format == "parquet":
        pq.write_table(table, path, row_group_size=7)
        return
    make = pa.ipc.new_stream if format == "stream" else pa.ipc.new_file
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.OSFile(str(path), "wb") as sink, make(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=7)


def joined(parts: Iterable[LogBatch]) -> dict[str, list[Any]]:
    """Every value with its row number; NaN as text, so that it equals itself."""
    found: dict[str, list[Any]] = {"row": [], "point": [], "id": [], "label": [], "time": []}
    for part in parts:
        found["row"] += range(part.offset, part.offset + len(part))
        if part.distances is None:
            found["point"] += [repr(row) for row in part.points.tolist()]
        else:
            found["point"] += [None if row is None else row.tolist() for row in part.distances]
        found["id"] += [] if part.ids is None else part.ids.tolist()
        found["label"] += [] if part.labels is None else part.labels.to_pylist()
        found["time"] += [] if part.event_times is None else part.event_times.to_pylist()
    return found


def assert_every_tail(log: EventLog, rows: int) -> None:
    """From every row on, the log is the tail of all of it."""
    whole = joined(log)
    assert whole["row"] == list(range(rows))
    for start in range(rows + 1):
        tail = {name: values[start:] for name, values in whole.items()}
        assert joined(log.batches(start)) == tail, start


@pytest.mark.parametrize("compression", [None, "zstd"])
@pytest.mark.parametrize("format", FORMATS)
def test_from_every_row_on(tmp_path: Path, format: str, compression: str | None) -> None:
    """One file, from each of its rows, its end included."""
    write(tmp_path / "log", format, slice(None), compression)
    assert_every_tail(open_log(tmp_path / "log"), N)


def test_folders_of_files_of_all_formats(tmp_path: Path) -> None:
    """Files that lie before the row are passed over; one is empty, and two are streams."""
    cuts = [0, 11, 11, 25, 26, 47, N]
    formats = ("file", "stream", "stream", "parquet", "file", "parquet")
    for i, (format, first, end) in enumerate(zip(formats, cuts, cuts[1:], strict=False)):
        write(tmp_path / f"{i}", format, slice(first, end))
    assert_every_tail(open_log(tmp_path), N)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_what_is_passed_over_is_not_decoded(
    tmp_path: Path, format: str, compression: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No value is looked at before the record batch or row group that has the row."""
    write(tmp_path / "log", format, slice(None), compression)
    log, decoded = open_log(tmp_path / "log"), 0
    original = EventLog._decode_batch

    def count(self: EventLog, part: Any, *rest: Any) -> LogBatch:
        nonlocal decoded
        decoded += part.num_rows
        return original(self, part, *rest)

    monkeypatch.setattr(EventLog, "_decode_batch", count)
    assert [part.offset for part in log.batches(57)] == [57]
    assert decoded == 3


def test_damage_before_the_row_is_passed_over_where_a_footer_counts(tmp_path: Path) -> None:
    """Parquet pages of earlier row groups are not read, so that their checksums do not matter."""
    path = tmp_path / "log"
    write_log(path, np.ones((40, 1)) * np.arange(40)[:, None], ["x"], format="parquet",
              rows_per_batch=10)  # fmt: skip
    data = bytearray(path.read_bytes())
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    start = column.dictionary_page_offset or column.data_page_offset
    data[start + column.total_compressed_size // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(LogError):
        list(open_log(path))
    (part,) = open_log(path).batches(10)
    assert part.points[:, 0].tolist() == list(range(10, 40))
