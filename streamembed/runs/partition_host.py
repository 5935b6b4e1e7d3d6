"""What an actor does: the partitions of one worker, and checkpoints of its own.

It knows nothing of whoever starts it again after its process has died. The newest rounds of each
partition lie in a folder, a file a round: an actor that is made anew in that folder stands where
the one before stood. As many are kept as may not have reached the root.
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
from streamembed.runs.executor import AHEAD
from streamembed.runs.partition_plan import Part
from streamembed.runs.partition_summary import Summary
from streamembed.runs.worker_process import Failed, Progressed, Start, Tasks, portable
from streamembed.storage import archive

__all__ = ["Partitions", "summaries"]

KIND = "round of a partition"


class Partitions:
    """Learns the partitions of one worker, a round a call.

    Parameters
    ----------
    start
        Its partitions.
    agreement
    saved
        Of each partition, the last round that the root has, 0 before the first, and the checkpoint.
    folder
        Where the folder of its own checkpoints is; None for that of temporary files of the machine.
    name
        Of that folder; where there are newer ones than ``saved``, it goes on from these.
    """

    def __init__(
        self,
        start: Start,
        agreement: Agreement,
        saved: Mapping[int, tuple[int, bytes | None]],
        folder: str | None,
        name: str,
    ) -> None:
        self._start, self._agreement = start, agreement
        self._folder = Path(folder or tempfile.gettempdir()) / name
        self._folder.mkdir(parents=True, exist_ok=True)
        self._saved = dict(saved)
        self._kept: dict[int, dict[int, Progressed]] = {}
        self._tasks: dict[int, Tasks] = {}
        for part in start.parts:
            kept = self._read(part.number)
            self._stand(part, kept if max(kept, default=0) > saved[part.number][0] else {})

    def learn(self, partition: int, round: int) -> Progressed | Failed | None:
        """Take a partition to the end of a round; None where it ended before.

        Asked again, as after a death, it gives the same again. It is never asked for a round
        before the root has all but the last `AHEAD`.
        """
        try:
            if round not in self._kept[partition] and round < max(self._kept[partition], default=0):
                self._stand(self._part(partition), {})  # its disk has lost the older ones
            tasks = self._tasks[partition]
            while round not in self._kept[partition] and tasks.next_round() is not None:
                self._keep(tasks.step())
        except Exception as error:
            return Failed(portable(error))
        return self._kept[partition].get(round)

    def recover(self, saved: Mapping[int, tuple[int, bytes | None]]) -> None:
        """Stand where the next round that the root has not can be given, of these partitions.

        Own checkpoints may be missing, on another machine: those of the root are as good.
        """
        self._saved.update(saved)
        for number, (count, _) in saved.items():
            kept = self._kept[number]
            if count != max(kept, default=0) and count + 1 not in kept:
                self._stand(self._part(number), {})

    def leave(self) -> None:
        """Nothing is left of its checkpoints."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _part(self, number: int) -> Part:
        return next(part for part in self._start.parts if part.number == number)

    def _stand(self, part: Part, kept: dict[int, Progressed]) -> None:
        """At the newest of these rounds, or at what the root has saved."""
        saved = (max(kept), kept[max(kept)].data) if kept else self._saved[part.number]
        own = Start((part,), self._start.settings)
        self._kept[part.number] = kept
        self._tasks[part.number] = Tasks(own, self._agreement, {part.number: saved})

    def _keep(self, told: Progressed) -> None:
        """On disk before anybody hears of it; rounds that the root has by now go."""
        kept = self._kept[told.partition]
        data = np.frombuffer(told.data, dtype=np.uint8)
        header = {"position": told.position, "done": told.done, "rejected": told.rejected}
        path = self._path(told.partition, told.round)
        archive.write_table(path, archive.table_of({"data": data}), KIND, header)
        kept[told.round] = told
        for old in [one for one in kept if one <= told.round - AHEAD]:
            del kept[old]
            self._path(told.partition, old).unlink(missing_ok=True)

    def _read(self, partition: int) -> dict[int, Progressed]:
        """Rounds of a partition that are on disk, but for damaged ones."""
        found = {}
        for path in sorted(self._folder.glob(f"{partition:05d}-*.arrow")):
            with suppress(DamagedFileError):
                table, header = archive.read_table(path, KIND)
                data = archive.unpack(table)["data"].tobytes()
                rejected = tuple((row, why) for row, why in header["rejected"])
                count = int(path.stem.rpartition("-")[2])
                found[count] = Progressed(
                    partition, count, data, header["position"], header["done"], rejected
                )
        return found

    def _path(self, partition: int, round: int) -> Path:
        return self._folder / f"{partition:05d}-{round:09d}.arrow"


def summaries(start: Start) -> dict[int, Summary] | Failed:
    """Of the first events of each partition of a worker."""
    try:
        return worker_process.summaries(start)
    except Exception as error:
        return Failed(portable(error))
