"""Clusters of pictures, with ids that persist from one picture to the next.

Labels of a clustering are arbitrary: each picture is clustered by itself, and its clusters are
matched with those of an earlier picture by the points that are in both. Nothing but points is
compared, not their places.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import scipy

from streamembed.errors import InputError
from streamembed.numeric.arrays import Array, Ints, Unchanging, freeze

# Pictures in a row in which a cluster is seen, or missing, before its id begins or ends. Of the
# points that stay in clusters .79, .91, .94 and .96 keep their id on letter with 1, 2, 3 and 4.
PATIENCE = 3

Kind = Literal["birth", "split", "merge", "death"]


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """A cluster whose id began or ended.

    Attributes
    ----------
    kind : "birth", "split", "merge" or "death"
        It began by itself, or as a part of another; it ended in another, or by itself.
    cluster : int
        Its id.
    other : int or None
        Of a split, the cluster that it was a part of; of a merge, the one that it is in now.
    size : int
        Its points: at its beginning, or in the picture before its end.
    other_size : int
        Likewise of ``other``, in the picture of the event; 0 without one.
    position : int
        Stream position of the picture with the event.
    """

    kind: Kind
    cluster: int
    other: int | None
    size: int
    other_size: int
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class PendingChanges:
    """What is to hold for some pictures more before it counts.

    Attributes
    ----------
    unnamed : (N,)
        Of each point, the cluster without an id that it is in, from 0; -1 for none.
    ages : tuple of int
        In how many pictures each of these was seen.
    missing : tuple of (int, int)
        Ids that no cluster of the picture has, and in how many pictures none had.
    """

    unnamed: Ints
    ages: tuple[int, ...]
    missing: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Unchanging):
    """The clusters of a picture: see `Picture.clusters`. Immutable; ``==`` compares all of it.

    Attributes
    ----------
    ids : (N,)
        The points, as in the picture.
    labels : (N,)
        Id of the cluster of each; -1 is noise.
    position : int
        Stream position of the picture.
    events : tuple of ClusterEvent
        Ids that have begun and ended since the earlier clusters.
    n_ids : int
        Ids given out so far: 0 to ``n_ids`` - 1. None is used again.
    pending : PendingChanges
        What the next picture needs to know beside the labels.
    """

    ids: Array
    labels: Ints
    position: int
    events: tuple[ClusterEvent, ...]
    n_ids: int
    pending: PendingChanges

    def __post_init__(self) -> None:
        """Freeze the arrays."""
        for array in (self.ids, self.labels, self.pending.unnamed):
            freeze(array)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its parts; read-only again afterwards."""
        return Clusters, tuple(getattr(self, each.name) for each in fields(self))

    def __eq__(self, other: object) -> bool:
        """Whether ids, labels, events and what is pending are equal."""
        if not isinstance(other, Clusters):
            return NotImplemented
        mine, others = self._parts(), other._parts()
        return mine[1] == others[1] and all(map(np.array_equal, mine[0], others[0]))

    __hash__ = None  # type: ignore[assignment]

    def _parts(self) -> tuple[tuple[Array, ...], tuple[Any, ...]]:
        pending = self.pending
        numbers = self.position, self.events, self.n_ids, pending.ages, pending.missing
        return (self.ids, self.labels, pending.unnamed), numbers

    def __repr__(self) -> str:
        return (
            f"<Clusters at {self.position}: {len(self.sizes)} clusters, "
            f"{np.count_nonzero(self.labels < 0)} of {len(self.ids)} points noise, "
            f"{len(self.events)} events>"
        )

    @property
    def sizes(self) -> dict[int, int]:
        """Points of each cluster, by id, the oldest id first."""
        of, counts = np.unique(self.labels[self.labels >= 0], return_counts=True)
        return dict(zip(of.tolist(), counts.tolist(), strict=True))

    def to_arrow(self) -> Any:
        """One row a point, oldest first: a pyarrow.Table of ``id`` and ``cluster``."""
        return pa.table({"id": pa.array(self.ids), "cluster": pa.array(self.labels)})


def follow_clusters(groups: Ints, ids: Array, position: int, earlier: Clusters | None) -> Clusters:
    """Name the clusters of a picture as those of an earlier one.

    Parameters
    ----------
    groups
        Cluster of each point, from 0 in any order; -1 is noise. Shape (N,).
    ids
        The points, shape (N,).
    position
        Stream position of the picture.
    earlier
        Of a picture before it, or at the same position; None to begin.

    Raises
    ------
    InputError
        ``earlier`` is of a later position, or has ids of another kind.
    """
    groups = number_by_points(groups)
    if earlier is None:
        sizes = np.bincount(groups[groups >= 0]).tolist()
        births = [ClusterEvent("birth", k, None, size, 0, position) for k, size in enumerate(sizes)]
        nothing = PendingChanges(np.full(len(ids), -1), (), ())
        return Clusters(ids, groups, position, tuple(births), len(sizes), nothing)
    return _Step(groups, ids, position, earlier).follow()


def number_by_points(groups: Ints) -> Ints:
    """The same groups, numbered from 0 by their first points; -1 stays."""
    _, first, of = np.unique(groups, return_index=True, return_inverse=True)
    first = np.where(groups[first] < 0, -1, first)
    return (np.argsort(np.argsort(first)) - (first < 0).any())[of]


def match(overlaps: Ints, sizes: Ints, others: Ints) -> Ints:
    """Pair rows and columns so that they share the most points; see `Picture.clusters`.

    Parameters
    ----------
    overlaps
        Points that a row and a column share, (r, c); older ones come first.
    sizes, others
        Points of the rows, (r,), and of the columns, (c,).

    Returns
    -------
    Shape (c,): the row of each column, -1 for none. Pairs share at least half of the smaller; of
    equal choices, that of older rows, then of older columns for these.

    Source: Jonker & Volgenant (1987), A shortest augmenting path algorithm for dense and sparse
    linear assignment problems.
    """
    allowed = (overlaps > 0) & (2 * overlaps >= np.minimum(sizes[:, None], others))
    ranks, other_ranks = np.arange(len(sizes), 0, -1)[:, None], np.arange(len(others), 0, -1)
    both = ranks * other_ranks
    # each comes before the sum of all that follow
    weights = overlaps * (ranks.sum() + 1) + ranks
    weights = np.where(allowed, weights * (len(both) * both.max(initial=0) + 1) + both, 0)
    matched = np.full(len(others), -1)
    # every row or every column has a pair; one of weight 0 does not count
    # scipy imports its part when it is first used, which few engines do
    rows, columns = scipy.optimize.linear_sum_assignment(weights, maximize=True)
    pairs = allowed[rows, columns]
    matched[columns[pairs]] = rows[pairs]
    return matched


def find_majority(labels: Ints) -> int:
    """The label, but for -1, that at least half have; the least where two do; -1 for none."""
    counts = np.bincount(labels[labels >= 0])
    return int(counts.argmax()) if counts.size and 2 * counts.max() >= len(labels) else -1


class _Step:
    """The clusters of a picture beside those of an earlier one.

    ``before`` has the earlier label of each point, -1 for points that are new.
    """

    def __init__(self, groups: Ints, ids: Array, position: int, earlier: Clusters) -> None:
        if earlier.position > position:
            raise InputError(
                f"earlier is at position {earlier.position} and this picture at {position}: chain "
                "clusters in the order of the stream"
            )
        if earlier.ids.dtype.kind != ids.dtype.kind:
            raise InputError(
                "earlier has ids of another kind than this picture: it must be of the same engine"
            )
        self.groups, self.ids, self.position, self.earlier = groups, ids, position, earlier
        _, here, there = np.intersect1d(ids, earlier.ids, return_indices=True)
        self.is_shared = np.zeros(len(ids), dtype=bool)
        self.is_shared[here] = True
        self.before, self.unnamed = np.full((2, len(ids)), -1)
        self.before[here] = earlier.labels[there]
        self.unnamed[here] = earlier.pending.unnamed[there]
        # one position is one picture, however often it is clustered
        self.passed = int(position > earlier.position)

    def follow(self) -> Clusters:
        """Match, count how long changes have lasted, and label."""
        known = [*self.earlier.sizes]
        rows = self._match(known)
        old = (rows >= 0) & (rows < len(known))
        names = np.where(old, np.array([*known, -1])[np.where(old, rows, -1)], -1)
        ages = np.append(np.array(self.earlier.pending.ages, dtype=np.int64) + self.passed, 1)
        ages = ages[np.where(rows >= len(known), rows - len(known), -1)]
        missing = self._count_missing(known, names)
        labels = self._label(names, missing)
        origins: dict[int, int] = {}  # of new ids: the cluster that their points were in
        for group in np.flatnonzero((names < 0) & (ages >= PATIENCE)).tolist():
            members, label = self.groups == group, self.earlier.n_ids + len(origins)
            origins[label] = find_majority(self.before[members & self.is_shared])
            labels[members] = label
        n_ids = self.earlier.n_ids + len(origins)
        left = {*labels.tolist()}
        number = np.full(len(rows) + 1, -1)
        waiting = np.flatnonzero((names < 0) & (ages < PATIENCE))
        number[waiting] = np.arange(len(waiting))
        pending = PendingChanges(
            unnamed=number[self.groups],
            ages=tuple(ages[waiting].tolist()),
            missing=tuple(item for item in missing.items() if item[0] in left),
        )
        events = self._list_events(labels, origins)
        return Clusters(self.ids, labels, self.position, events, n_ids, pending)

    def _match(self, known: list[int]) -> Ints:
        """Of each group, its row: clusters with an id, then those without; -1 for none."""
        n_groups = int(self.groups.max(initial=-1)) + 1
        n = len(known) + len(self.earlier.pending.ages)
        overlaps, sizes = np.zeros((n, n_groups), dtype=np.int64), np.zeros(n, dtype=np.int64)
        for rows in (
            np.where(self.before < 0, -1, np.searchsorted(known, self.before)),
            np.where(self.unnamed < 0, -1, len(known) + self.unnamed),
        ):
            sizes += np.bincount(rows[rows >= 0], minlength=n)
            both = (self.groups >= 0) & (rows >= 0)
            np.add.at(overlaps, (rows[both], self.groups[both]), 1)
        shared = self.groups[(self.groups >= 0) & self.is_shared]
        return match(overlaps, sizes, np.bincount(shared, minlength=n_groups))

    def _count_missing(self, known: list[int], names: Ints) -> dict[int, int]:
        """In how many pictures each id was missing, of those that do not end for that."""
        counts = dict(self.earlier.pending.missing)
        missing = {k: counts.get(k, 0) + self.passed for k in known if k not in names}
        return {label: count for label, count in missing.items() if count < PATIENCE}

    def _label(self, names: Ints, missing: dict[int, int]) -> Ints:
        """Labels before any group has a new id: its points are still where they were."""
        labels: Ints = np.append(names, -1)[self.groups]
        before = np.where(np.isin(self.before, [*names.tolist(), *missing]), self.before, -1)
        for group in np.flatnonzero(names < 0).tolist():
            members = self.groups == group
            origin = find_majority(before[members & self.is_shared])
            labels[members] = np.where(before[members] < 0, origin, before[members])
        waits = np.isin(before, [*missing])
        labels[waits] = before[waits]
        return labels

    def _list_events(self, labels: Ints, origins: dict[int, int]) -> tuple[ClusterEvent, ...]:
        """Ends, then beginnings, each by id."""
        sizes = np.bincount(labels[labels >= 0], minlength=1).tolist()
        events = []
        for label, size in self.earlier.sizes.items():
            if label not in labels:
                into = find_majority(labels[self.before == label])
                kind: Kind = "death" if into < 0 else "merge"
                events.append((kind, label, into, size))
        for label, origin in origins.items():
            origin = origin if origin in labels else -1
            kind = "birth" if origin < 0 else "split"
            events.append((kind, label, origin, sizes[label]))
        return tuple(
            ClusterEvent(
                kind=kind,
                cluster=label,
                other=None if other < 0 else other,
                size=size,
                other_size=0 if other < 0 else sizes[other],
                position=self.position,
            )
            for kind, label, other, size in events
        )
