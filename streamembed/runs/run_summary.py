"""What there is to say of a run, of whatever kind: counts, certificates, and one verdict."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from streamembed.errors import format_count
from streamembed.runs.run_reader import RunReader
from streamembed.runs.run_store import ONLINE

NAMES = {
    "finished": "run",
    "stopped": "run",
    "unfinished": "unfinished replay",
    "open": "online run",
}


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Counts of a run as of its last commit."""

    # Of a log: finished; stopped before its end, and all of it is in the files; or unfinished. Of
    # calls: open.
    state: str
    events: int
    learned: int  # those of complete chunks
    rejected: int
    position: int  # of the stream
    positions: tuple[int, ...]  # of the committed snapshots, and what they say
    met: tuple[bool | None, ...]
    epochs: tuple[int, ...]
    reasons: tuple[tuple[str, int], ...]  # of rejected rows, the most frequent first

    @property
    def missed(self) -> list[int]:
        """Positions of the snapshots whose certificate does not meet the tolerance."""
        return [at for at, met in zip(self.positions, self.met, strict=True) if met is False]

    @property
    def verdict(self) -> str:
        """One line: what it is, its size, and whether all is well."""
        name, count, missed = NAMES[self.state], len(self.positions), len(self.missed)
        certificates = format_count(count, "snapshot") if count else "no snapshot"
        if missed:
            certificates += f", {format_count(missed, 'certificate')} NOT met"
        elif count:
            certificates += ", all certificates met" if True in self.met else " without a tolerance"
        end = "; the log was NOT read to the end" if self.state == "stopped" else ""
        return f"{name}: {self.events:,} events, {self.rejected:,} rejected; {certificates}{end}"


def summarise_run(reader: RunReader) -> RunSummary:
    """Summarise a run; DamagedFileError where one of its tables is not what was written."""
    progress, timeline, rejected = reader.progress(), reader.timeline(), reader.rejected()
    state = "finished" if reader.finished else "open" if reader.kind == ONLINE else "unfinished"
    events, position = progress.accepted, progress.position
    if state == "unfinished" and (stopped := _count_stopped(reader)) >= events:
        state, position = "stopped", position - events + stopped
        events = stopped
        timeline, rejected = (
            pq.read_table(reader.path / f"{name}.parquet") for name in ("timeline", "rejected")
        )
    names = [name for name in ("position", "met", "epoch") if name in timeline.column_names]
    columns = {name: tuple(timeline[name].to_pylist()) for name in names}
    return RunSummary(
        state=state,
        events=events,
        learned=max(columns["position"], default=reader.begun) - reader.begun,
        rejected=rejected.num_rows,
        position=position,
        positions=columns["position"],
        met=columns.get("met", ()),
        epochs=columns.get("epoch", ()),
        reasons=tuple(Counter(rejected["reason"].to_pylist()).most_common()),
    )


def _count_stopped(reader: RunReader) -> int:
    """Events in the files of a replay that ended before its log did; -1 where it wrote none."""
    try:
        pq.read_metadata(reader.path / "timeline.parquet")
        return int(pq.read_metadata(reader.path / "embedding.parquet").num_rows)
    except (OSError, pa.ArrowException):  # it is at work, or was killed
        return -1
