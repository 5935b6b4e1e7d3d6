"""Pair logs: rows of two points, and whether they are similar.

A pair log is made of Arrow files, like an event log. It has the columns ``x_1`` and ``x_2`` for
every feature ``x``, and a column ``similar`` of booleans (or 0 and 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from streamembed.data import batch
from streamembed.data.batch import Rejected
from streamembed.data.features import Features
from streamembed.data.table import find_columns, sort_names
from streamembed.errors import FeatureError
from streamembed.logs.event_log import EventLog, LogBatch, open_log
from streamembed.logs.paths import Paths
from streamembed.numeric.arrays import Bools, Floats, Ints

SIMILAR = "similar"


@dataclass(frozen=True, slots=True, eq=False)
class PairBatch:
    """Consecutive rows of a pair log.

    Attributes
    ----------
    left, right : (p, d)
        Finite, columns in the order of ``PairLog.feature_names``.
    similar : (p,)
    rejected : tuple of Rejected
        The rejected rows, by their number in the log.
    """

    left: Floats
    right: Floats
    similar: Bools
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class PairLog:
    """A readable pair log; iterating over it gives `PairBatch` objects.

    Attributes
    ----------
    log : EventLog
        The same files as an event log.
    feature_names : tuple of str
        Without their ``_1`` and ``_2``, in the order of an event log.
    """

    log: EventLog
    feature_names: tuple[str, ...]

    def __iter__(self) -> Iterator[PairBatch]:
        for part in self.log:
            yield self._check_pairs(part)

    def _check_pairs(self, part: LogBatch) -> PairBatch:
        names = self.log.feature_names
        read = batch.check_table(part.points, Features(names, False), part.nulls, {}, None, "skip")
        rejected = [Rejected(part.offset + row.index, None, row.reason) for row in read.rejected]
        kinds = read.points[:, names.index(SIMILAR)]
        is_valid = (kinds == 0.0) | (kinds == 1.0)
        for row, kind in zip(read.kept[~is_valid].tolist(), kinds[~is_valid].tolist(), strict=True):
            reason = f"'similar' is {kind:g}; it must be true or false"
            rejected.append(Rejected(part.offset + row, None, reason))
        sides = [[f"{name}_{side}" for name in self.feature_names] for side in (1, 2)]
        left, right = (read.points[is_valid][:, find_columns(names, side)] for side in sides)
        rejected.sort(key=lambda row: row.index)
        return PairBatch(left, right, kinds[is_valid] == 1.0, tuple(rejected))


def open_pairs(paths: Paths) -> PairLog:
    """Open files as a pair log; paths and errors are those of `open_log`.

    Raises
    ------
    FeatureError
        No column ``similar``, or a feature that only one of the two points has.

    Examples
    --------
    >>> import tempfile
    >>> from streamembed.logs.event_log import write_log
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_log(f"{folder}/p", [[1.0, 2.0, 1.0]], ["size_1", "size_2", "similar"])
    ...     [(part.left.tolist(), part.similar.tolist()) for part in open_pairs(f"{folder}/p")]
    [([[1.0]], [True])]
    """
    log = open_log(paths)
    names = set(log.feature_names)
    if SIMILAR not in names:
        raise FeatureError(
            f"{log.paths[0]} has no boolean column {SIMILAR!r}, only {sorted(names)}; a pair log "
            "needs it, and the columns x_1 and x_2 for every feature x"
        )
    ends = names - {SIMILAR}
    features = {name[:-2] for name in ends if name.endswith(("_1", "_2"))}
    expected = {f"{name}_{side}" for name in features for side in (1, 2)}
    if ends != expected or not features:
        raise FeatureError(
            f"{log.paths[0]} lacks the columns {sorted(expected - ends)} and has the unexpected "
            f"columns {sorted(ends - expected)}; a pair log has x_1 and x_2 for every feature x"
        )
    return PairLog(log, sort_names(features))


def match_features(log: PairLog, names: tuple[str, ...]) -> Ints:
    """Positions of the features ``names`` among those of the log.

    Raises
    ------
    FeatureError
        The two have different features.
    """
    if set(names) != set(log.feature_names):
        raise FeatureError(
            f"the pair log has the features {list(log.feature_names)}, but this engine has learned "
            f"{list(names)}: they must be the same"
        )
    return np.array([log.feature_names.index(name) for name in names], dtype=np.int64)
