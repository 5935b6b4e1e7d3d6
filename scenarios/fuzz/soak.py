"""A million events from a log into a run: ``python -m scenarios.fuzz.soak [--events N]``.

Resident memory must stay flat: exit code 1 where it leaves 2 % of what it was after 100,000 events.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import streamembed as se
from scenarios.streams import FEATURES, still_rings

# the first tenth fills the slots, the allocator's pools and the writers' buffers
SETTLED = 100_000
LEEWAY = 0.02
BLOCK = 50_000


def read_resident_memory() -> float:
    """Resident megabytes of this process now, from Linux; 0 elsewhere."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0.0
    line = next(line for line in status.read_text().split("\n") if line.startswith("VmRSS"))
    return float(line.split()[1]) / 1024.0


def write(path: Path, events: int) -> None:
    """An Arrow stream of that many events, block by block."""
    names = [f"x{j:02d}" for j in range(FEATURES)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pa.ipc.new_stream(str(path), schema) as writer:
        for block in range(events // BLOCK):
            points = still_rings(BLOCK, block)
            # every block of a seed lies in a plane of its own: put all of them into the first
            flat = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)[2]
            turned = points @ flat.T
            for start in range(0, BLOCK, 5000):
                part = turned[start : start + 5000]
                writer.write_batch(pa.record_batch(list(part.T.copy()), schema=schema))


def main(arguments: list[str] | None = None) -> int:
    """Write the log, replay it, print memory and pace every 100,000 events."""
    parser = argparse.ArgumentParser(prog="scenarios.fuzz.soak", description=__doc__)
    parser.add_argument("--events", type=int, default=1_000_000)
    chosen = parser.parse_args(arguments)
    engine = se.Engine(
        memory="landmarks",
        size=1000,
        chunk_size=256,
        scaling=None,
        warm_up=1024,
    )
    samples: list[tuple[int, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        write(log, chosen.events)
        start = time.perf_counter()

        def watch(rows: int) -> None:
            if rows // SETTLED > (samples[-1][0] // SETTLED if samples else 0):
                samples.append((rows, read_resident_memory(), time.perf_counter() - start))
                print(
                    f"{rows:9d} events  {samples[-1][1]:7.1f} MB  {samples[-1][2]:6.1f} s",
                    flush=True,
                )

        done = se.replay(log, engine, Path(folder) / "run", snapshot_every=2560, progress=watch)
    memory = np.array([megabytes for _, megabytes, _ in samples])
    apart = np.abs(memory / memory[0] - 1.0).max()
    pace = chosen.events / samples[-1][2]
    print(f"{done.accepted} events, {pace:.0f} a second; memory within {100 * apart:.2f} %")
    return int(apart > LEEWAY or done.rejected > 0)


if __name__ == "__main__":
    sys.exit(main())
