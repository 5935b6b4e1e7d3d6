"""How a log is divided into partitions: by its files, whichever worker reads them.

Partitions are fixed by the log alone, so that neither the number of workers nor their assignment
changes the result.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from streamembed.errors import FeatureError, LogError
from streamembed.logs.event_log import EventLog, LogBatch

# Of a log of more files, neighbours go together.
MAX_PARTITIONS = 64
# Of one file whose number of rows is known.
RANGES_OF_A_FILE = 8
FINGERPRINT_ROWS = 1000


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

    def describe(self) -> dict[str, object]:
        """What a run stores of it, JSON-ready: no path, for files may be moved.

        Its first rows stand for it: a log of other data, or of the same files in another order, is
        another log.
        """
        return {
            "files": len(self.log.paths),
            "rows": self.log.n_rows,
            "start": self.start,
            "stop": self.stop,
            "first_rows": self._fingerprint(),
        }

    def _fingerprint(self) -> int:
        """CRC32 of the first 1,000 rows; 0 where there are none, or they cannot be read."""
        with suppress(LogError):  # the learner raises it
            first = next(self.batches(0), None)
            if first is not None:
                return zlib.crc32(first.points[:FINGERPRINT_ROWS].tobytes())
        return 0


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


def divide_log(log: EventLog, first: int = 0) -> tuple[Partition, ...]:
    """The partitions of a log, numbered from ``first``.

    Its files, in order; of more than 64 files, 64 groups of neighbours. A log of one file whose
    number of rows is known is cut into 8 ranges of rows.
    """
    count = len(log.paths)
    if count == 1 and log.n_rows is not None:
        pieces = max(1, min(RANGES_OF_A_FILE, log.n_rows))
        cuts = [log.n_rows * piece // pieces for piece in range(pieces + 1)]
        return tuple(
            Partition(first + number, log, start, stop)
            for number, (start, stop) in enumerate(pairwise(cuts))
        )
    parts = min(MAX_PARTITIONS, count)
    cuts = [count * part // parts for part in range(parts + 1)]
    return tuple(
        Partition(first + number, log.select_files(start, stop), 0, None)
        for number, (start, stop) in enumerate(pairwise(cuts))
    )


def extend_plan(
    log: EventLog, planned: Sequence[Sequence[Mapping[str, Any]]]
) -> list[tuple[Partition, ...]]:
    """The partitions of a log that may have grown, plan by plan: the last is of its new files.

    Files behind those that a run has planned are divided like a log of their own, so that the
    partitions before stay what they are.

    Parameters
    ----------
    planned
        What `Partition.describe` gave of each partition, plan by plan.
    """
    plans: list[tuple[Partition, ...]] = []
    start, number = 0, 0
    for plan in planned:
        is_one_file = plan[0]["stop"] is not None
        count = 1 if is_one_file else sum(described["files"] for described in plan)
        if start >= len(log.paths):  # files are gone: what is left differs from what was planned
            break
        plans.append(divide_log(log.select_files(start, start + count), number))
        start, number = start + count, number + len(plans[-1])
    if start < len(log.paths):
        plans.append(divide_log(log.select_files(start, len(log.paths)), number))
    return plans
