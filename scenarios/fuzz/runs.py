"""Hostile conditions of runs: ``python -m scenarios.fuzz.runs``.

Bits flip in the database, in the files beside it and in the tables; files end early, at every page
and at every byte of the last record. Changed data must be found, or be without any effect.
Exit code 1 where it is not; the seed and the place are printed.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

import streamembed as se
from scenarios.fuzz.kills import SMALL, replay, write_run_log
from streamembed.errors import DamagedFileError, StreamembedError
from streamembed.runs import verify
from streamembed.storage import database

POINTS = np.random.default_rng(7).standard_normal((2000, 3))
PAGE = 4096


def write_runs(folder: Path) -> list[Path]:
    """A run of calls and a replay, with files beside their databases."""
    database.LARGEST_BLOB = 20_000
    with se.open_run(folder / "online", SMALL, checkpoint_every=100) as run:
        for start in range(0, 400, 50):
            run.learn(POINTS[start : start + 50], batch_id=str(start))
    replay(write_run_log(folder, "points", 1), folder / "replay", "points")
    return [folder / "online", folder / "replay"]


def digest(run: Path) -> list[bytes]:
    """What a reader gets of a run."""
    with se.read_run(run) as reader:
        contents = [reader.snapshot(at).to_bytes() for at in reader.positions]
        return [*contents, reader.engine().to_bytes(), str(reader.timeline().to_pydict()).encode()]


def is_silent(run: Path, expected: list[bytes]) -> bool:
    """Whether a damaged run is reported as undamaged."""
    try:
        if verify(run).troubles:
            return False
    except StreamembedError:
        return False
    try:
        return digest(run) != expected
    except StreamembedError:
        return False


def list_files(run: Path) -> list[Path]:
    return sorted(path for path in run.rglob("*") if path.is_file() and path.name != ".lock")


def flip(runs: list[Path], flips: int, seed: int) -> tuple[int, int]:
    """Single bits, uniformly over all files: how many were found, and how many were harmless."""
    rng = np.random.default_rng(seed)
    expected = {run: digest(run) for run in runs}
    detected = harmless = 0
    for number in range(flips):
        run = runs[int(rng.integers(len(runs)))]
        files = list_files(run)
        sizes = np.array([path.stat().st_size for path in files], dtype=float)
        path = files[int(rng.choice(len(files), p=sizes / sizes.sum()))]
        whole = path.read_bytes()
        at, bit = int(rng.integers(len(whole))), int(rng.integers(8))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
        if is_silent(run, expected[run]):
            raise AssertionError(f"flip {number} of seed {seed}: {path.name}, byte {at}, bit {bit}")
        with_trouble = _has_trouble(run)
        detected, harmless = detected + with_trouble, harmless + (not with_trouble)
        path.write_bytes(whole)
    return detected, harmless


def _has_trouble(run: Path) -> bool:
    try:
        return bool(verify(run).troubles)
    except StreamembedError:
        return True


def truncate(run: Path, every: int) -> int:
    """The database at every page, the newest file beside it at every byte: how many cuts.

    Everybody reads that file as the record that it is. That the store refuses the record is asked
    of every byte; of every ``every``-th one the whole run is looked at, as for a page.
    """
    expected = digest(run)
    cuts = [(run / database.DATABASE_NAME, at) for at in _pages(run / database.DATABASE_NAME)]
    parts = list_files(run / database.PARTS)
    count = len(cuts)
    if parts:
        last = max(parts, key=lambda path: path.stat().st_mtime_ns)
        count += count_refused_cuts(run, last)
        cuts += [(last, at) for at in range(0, last.stat().st_size, every)]
    for path, at in cuts:
        whole = path.read_bytes()
        path.write_bytes(whole[:at])
        if is_silent(run, expected):
            raise AssertionError(f"{path.name} cut at byte {at} of {len(whole)}")
        path.write_bytes(whole)
    return count


def count_refused_cuts(run: Path, file: Path) -> int:
    """A record in a file of its own is refused wherever that ends early: how many cuts."""
    whole = file.read_bytes()
    file.write_bytes(b"")
    with database.Database.open(run) as store:
        of = [(chain, n) for chain in store.list_chains() for n, _ in store.list_records(chain)]
        own = [record for record in of if not _is_read(store, *record)]
        if not own:  # of a record that was deleted: the next writer removes the file
            file.write_bytes(whole)
            return 0
        assert len(own) == 1, own
        for at in range(len(whole)):
            file.write_bytes(whole[:at])
            if _is_read(store, *own[0]):
                raise AssertionError(f"{file.name} cut at byte {at} of {len(whole)} is read")
        file.write_bytes(whole)
        assert _is_read(store, *own[0])
    return len(whole)


def _is_read(store: database.Database, chain: str, number: int) -> bool:
    try:
        store.read(chain, number)
    except DamagedFileError:
        return False
    return True


def _pages(path: Path) -> range:
    return range(0, path.stat().st_size, PAGE)


def main() -> None:
    """Exit code 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=3000)
    parser.add_argument(
        "--every", type=int, default=1000, help="look at the whole run at every so many-th byte"
    )
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        runs = write_runs(Path(folder))
        detected, harmless = flip(runs, asked.flips, asked.seed)
        print(f"{asked.flips} flipped bits: {detected} found, {harmless} without effect, 0 silent")
        cuts = sum(truncate(run, asked.every) for run in runs)
        print(f"{cuts} cuts, at every page and of the last file at every byte: 0 silent")


if __name__ == "__main__":
    try:
        main()
    except (AssertionError, DamagedFileError) as error:
        print(f"WRONG: {error}")
        sys.exit(1)
