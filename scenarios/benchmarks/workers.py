"""A log learned by one process and by two: ``python -m scenarios.benchmarks.workers``.

A curved sheet among 16 features, in 8 files, into 1,000 landmarks, once by one worker and once by
two, in turn. Counted is the time from the call to the finished run, starting the workers included.
Prints the ratios, and refuses to where the machine is busy; gates nothing.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import streamembed as se
from scenarios.benchmarks.serving import draw_points
from streamembed.logs import write_log

FILES = 8
SETTINGS: dict[str, Any] = {"size": 1000, "n_components": 8, "chunk_size": 256}


def main() -> None:
    """Print a row for each pair of runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    asked = parser.parse_args()
    cores, load = len(os.sched_getaffinity(0)), os.getloadavg()[0]
    if cores < 2 or load > cores:
        sys.exit(f"{cores} cores and a load of {load:.1f}: two processes have no core each")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.mkdir()
        X = draw_points(asked.events)
        names = [f"x{i}" for i in range(X.shape[1])]
        for i, part in enumerate(np.array_split(X, FILES)):
            write_log(log / f"{i}.parquet", part, names)
        del X, part
        print("| one worker, s | two, s | ratio | same bytes |\n| ---: | ---: | ---: | --- |")
        for pair in range(asked.pairs):
            spent, outputs = {}, {}
            for workers in (1, 2):
                run = Path(folder) / f"{pair}-{workers}"
                began = time.perf_counter()
                se.replay_partitions(log, run, workers=workers, **SETTINGS)
                spent[workers] = time.perf_counter() - began
                outputs[workers] = (run / "snapshot.arrow").read_bytes()
            print(
                f"| {spent[1]:.1f} | {spent[2]:.1f} | {spent[1] / spent[2]:.2f} "
                f"| {outputs[1] == outputs[2]} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
