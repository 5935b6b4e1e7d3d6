"""When a chunk or a snapshot costs much more than usual, and why."""

from __future__ import annotations

from streamembed.embedding.config import LARGEST_RANK, Config
from streamembed.embedding.ladder import LARGEST_EXACT
from streamembed.engine.snapshot import Snapshot

__all__ = ["of_chunk", "of_snapshot"]

# Times as dear as usual from which a warning is due.
CLIFF = 10.0
# A whole decomposition of 1,000 points beside a certified snapshot of as many, as measured (0.25 s
# and 4.5 ms); the ratio grows with the square of their number. Batches of 1,200 and 1,500 points
# took 75 ms and 0.8 s, 15 times a certified snapshot and more.
EXACT_AT_1000, BATCH = 55.0, 20.0


def of_chunk(config: Config) -> str | None:
    """The parameter that makes chunks ten times as expensive as usual, and by how much; or None.

    Learning a chunk of b events into n slots with r columns is some 4 n r^2 + 10 (r + 2 b)^3
    operations; usual are the 64 columns that ``rank="auto"`` takes for a few components.
    """
    if config.slots is None:
        return None
    n, b, r = config.slots, config.chunk_size, config.rank_cut.most
    ratio = _operations(n, b, r) / _operations(n, b, LARGEST_RANK)
    if ratio < CLIFF:
        return None
    name = "n_components" if isinstance(config.rank, str) else "rank"
    return (
        f"{name}={getattr(config, name)} needs a factor of {r} columns, which makes every chunk "
        f"and snapshot about {ratio:.0f} times as expensive as the usual {LARGEST_RANK}: use fewer"
    )


def _operations(n: int, b: int, r: int) -> float:
    return 4.0 * n * r**2 + 10.0 * (r + 2.0 * b) ** 3


def of_snapshot(config: Config, snapshot: Snapshot) -> str | None:
    """Why a snapshot was ten times as expensive as usual, and by how much; None if it was not.

    One that is not met has climbed `streamembed.embedding.ladder` to its end for nothing.
    """
    n, rung = len(snapshot.ids), snapshot.rung
    if snapshot.certificate.met is False:
        rung = "exact" if n <= LARGEST_EXACT else "batch"
    ratio = {"exact": EXACT_AT_1000 * (n / 1000.0) ** 2, "batch": BATCH}.get(rung, 1.0)
    if ratio < CLIFF:
        return None
    return (
        f"a snapshot of {n} points needed the last step of the solver ({rung!r}), at about "
        f"{ratio:.0f} times the usual cost, because earlier steps could not certify "
        f"tolerance={config.tolerance}: use a larger tolerance, a larger rank or fewer slots, or "
        "tolerance=None for uncertified snapshots"
    )
