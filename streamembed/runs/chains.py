"""Names of the chains of records, and of the facts, in the database of a run."""

from __future__ import annotations

# Kinds of runs, the fact ORIGIN has them; and what a call that wants another one is told.
REPLAY, ONLINE, PARTITIONS = "replay", "online", "partitions"
KINDS = {
    REPLAY: "is a replay of a log, and cannot be learned into",
    ONLINE: "is an online run (open_run), no replay",
    PARTITIONS: "was learned in partitions",
}
# Facts: how the run came about, how far it is, counts and fingerprint of the rows at the last
# commit, and where the log is.
ORIGIN, STATE, COMMITTED, LOG = "origin", "state", "committed", "log"
# Chains: engines, with the monitor of each; a thinned history of snapshots; what a run began and
# ended with.
CHECKPOINTS, MONITORS, SNAPSHOTS = "checkpoints", "monitors", "snapshots"
BEGINNING = "beginning"
FINAL, FINAL_MONITOR = "final", "final_monitor"
OPERATIONS = "operations"  # of an online run: its calls
# Of a replay by several workers: the landmarks of the last round, and of each partition the newest
# few checkpoints.
MERGED, PARTITION = "merged", "partition-"
