"""How a log is divided into partitions: by its files, whichever worker reads them.

Partitions are fixed by the log alone, so that neither the number of workers nor their assignment
changes the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from streamembed.errors import FeatureError
from streamembed.logs.event_log import EventLog, LogBatch

# Of a log of more files, neighbours go together.
MAX_PARTITIONS = 64
# Of one file whose number of rows is known.
RANGES_OF_A_FILE = 8


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition of a log."""

    number: int
    log: EventLog  # its files
    start: int  # first row of these files
    stop: int | None  # the row behind the last; None for their end

    def batches(self, row: int) -> Iterator[LogBatch]:
        """Batches from a row of the partition on, the last of them perhaps too long."""
        for batch in self.log.batches(self.start + row):
            if self.stop is not None and batch.offset >= self.stop:
                return
            yield batch

    def count_end(self, batch: LogBatch) -> int:
        """The row behind the last of a batch that is in the partition."""
        end = batch.offset + len(batch)
        return end if self.stop is None else min(end, self.stop)

    def describe(self) -> dict[str, object]:
        """What a run stores of it, JSON-ready: no path, for files may be moved."""
        return {
            "files": len(self.log.paths),
            "rows": self.log.n_rows,
            "start": self.start,
            "stop": self.stop,
        }


def check_divisible(log: EventLog) -> None:
    """Refuse a log that has no partitions.

    Raises
    ------
    FeatureError
        A log of distances.
    """
    if log.kind != "points":
        raise FeatureError(
            "the log contains distances, and landmarks of different partitions have none to one "
            "another: only points can be learned by several workers"
        )


def divide_log(log: EventLog) -> tuple[Partition, ...]:
    """The partitions of a log.

    Its files, in order; of more than 64 files, 64 groups of neighbours. A log of one file whose
    number of rows is known is cut into 8 ranges of rows.
    """
    count = len(log.paths)
    if count == 1 and log.n_rows is not None:
        pieces = max(1, min(RANGES_OF_A_FILE, log.n_rows))
        cuts = [log.n_rows * piece // pieces for piece in range(pieces + 1)]
        return tuple(
            Partition(number, log, start, stop)
            for number, (start, stop) in enumerate(pairwise(cuts))
        )
    parts = min(MAX_PARTITIONS, count)
    cuts = [count * part // parts for part in range(parts + 1)]
    return tuple(
        Partition(number, log.select_files(start, stop), 0, None)
        for number, (start, stop) in enumerate(pairwise(cuts))
    )
