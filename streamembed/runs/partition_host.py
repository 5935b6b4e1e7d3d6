"""The host of the partitions of one worker, with checkpoints of its own; Ray runs it as an actor.

The newest rounds of each partition are in a folder, a file a round: a host that is created again
in that folder resumes where the previous one was. It retains the rounds that may not have reached
the root.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np

from streamembed.errors import DamagedFileError
from streamembed.merging.agreement import Agreement
from streamembed.runs import worker_process
from streamembed.runs.executor import MAX_ROUNDS_AHEAD
from streamembed.runs.partition_plan import Partition
from streamembed.runs.partition_summary import PartitionSummary
from streamembed.runs.worker_process import (
    PartitionRounds,
    RoundResult,
    WorkerFailure,
    WorkerTask,
    to_portable_error,
)
from streamembed.storage import archive

ROUND_KIND = "round of a partition"


class PartitionHost:
    """Learns the partitions of one worker, a round a call.

    Parameters
    ----------
    saved
        Of each partition, the last round that the root has, 0 before the first, and the checkpoint.
    folder
        Where the folder of its own checkpoints is; None for that of temporary files of the machine.
    name
        Of that folder; it resumes from checkpoints there that are newer than ``saved``.
    """

    def __init__(
        self,
        task: WorkerTask,
        agreement: Agreement,
        saved: Mapping[int, tuple[int, bytes | None]],
        folder: str | None,
        name: str,
    ) -> None:
        self._start, self._agreement = task, agreement
        self._folder = Path(folder or tempfile.gettempdir()) / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._saved = dict(saved)
        self._rounds: dict[int, dict[int, RoundResult]] = {}
        self._tasks: dict[int, PartitionRounds] = {}
        for part in task.parts:
            rounds = self._read(part.number)
            self._resume(part, rounds if max(rounds, default=0) > saved[part.number][0] else {})

    def learn(self, partition: int, round: int) -> RoundResult | WorkerFailure | None:
        """Take a partition to the end of a round; None where it ended before.

        Asked again, as after a death, it gives the same again. It is never asked for a round
        before the root has all but the last `MAX_ROUNDS_AHEAD`.
        """
        try:
            if round not in self._rounds[partition] and round < max(
                self._rounds[partition], default=0
            ):
                self._resume(self._part(partition), {})  # its disk has lost the older ones
            tasks = self._tasks[partition]
            while round not in self._rounds[partition] and tasks.next_round() is not None:
                self._save(tasks.step())
        except Exception as error:
            return WorkerFailure(to_portable_error(error))
        return self._rounds[partition].get(round)

    def resume_from(self, saved: Mapping[int, tuple[int, bytes | None]]) -> None:
        """Resume these partitions after their last round that the root has.

        Own checkpoints may be missing, on another machine: those of the root are as good.
        """
        self._saved.update(saved)
        for number, (count, _) in saved.items():
            rounds = self._rounds[number]
            if count != max(rounds, default=0) and count + 1 not in rounds:
                self._resume(self._part(number), {})

    def remove_checkpoints(self) -> None:
        """Remove its checkpoints."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _part(self, number: int) -> Partition:
        return next(part for part in self._start.parts if part.number == number)

    def _resume(self, part: Partition, rounds: dict[int, RoundResult]) -> None:
        """Resume at the newest of these rounds, or at what the root has saved."""
        saved = (max(rounds), rounds[max(rounds)].data) if rounds else self._saved[part.number]
        own = WorkerTask((part,), self._start.settings)
        self._rounds[part.number] = rounds
        self._tasks[part.number] = PartitionRounds(own, self._agreement, {part.number: saved})

    def _save(self, result: RoundResult) -> None:
        """Write a round to disk before it is returned; remove rounds that the root has."""
        rounds = self._rounds[result.partition]
        data = np.frombuffer(result.data, dtype=np.uint8)
        header = {"position": result.position, "done": result.done, "rejected": result.rejected}
        path = self._path(result.partition, result.round)
        archive.write_table(path, archive.to_table({"data": data}), ROUND_KIND, header)
        rounds[result.round] = result
        for old in [number for number in rounds if number <= result.round - MAX_ROUNDS_AHEAD]:
            del rounds[old]
            self._path(result.partition, old).unlink(missing_ok=True)

    def _read(self, partition: int) -> dict[int, RoundResult]:
        rounds = {}
        for path in sorted(self._folder.glob(f"{partition:05d}-*.arrow")):
            with suppress(DamagedFileError):
                table, header = archive.read_table(path, ROUND_KIND)
                data = archive.unpack(table)["data"].tobytes()
                rejected = tuple((row, why) for row, why in header["rejected"])
                count = int(path.stem.rpartition("-")[2])
                rounds[count] = RoundResult(
                    partition, count, data, header["position"], header["done"], rejected
                )
        return rounds

    def _path(self, partition: int, round: int) -> Path:
        return self._folder / f"{partition:05d}-{round:09d}.arrow"


def summarise_or_fail(task: WorkerTask) -> dict[int, PartitionSummary] | WorkerFailure:
    """Of the first events of each partition of a worker."""
    try:
        return worker_process.summarise_task(task)
    except Exception as error:
        return WorkerFailure(to_portable_error(error))
