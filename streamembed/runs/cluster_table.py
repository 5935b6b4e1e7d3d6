"""Clusters of the pictures of a run, a row for each cluster of a picture, with ids that persist.

They are found from the table of pictures once a run is complete, so they do not depend on where it
was stopped and resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.engine.clusters import Clusters, follow_clusters
from streamembed.engine.picture import MIN_SAMPLES, PLACES, choose_smallest_cluster
from streamembed.layout.hdbscan import find_clusters
from streamembed.numeric.arrays import Floats, Ints

# Pictures to a turnover of the window that are clustered, at most: ids persist from three on.
PICTURES_A_WINDOW = 10
# Points that stand for a cluster: those nearest to the median of its places.
EXEMPLARS = 3


def build_schema(id_type: Any) -> pa.Schema:
    """Columns of the table."""
    return pa.schema(
        [
            ("position", pa.int64()),
            ("cluster", pa.int64()),
            ("size", pa.int64()),
            ("exemplars", pa.list_(id_type)),
            ("members", pa.list_(id_type)),  # of the last picture; null before
            ("event", pa.string()),  # birth, split, merge or death; null where there is none
            ("other", pa.int64()),  # the other cluster of a split or merge
        ]
    )


def list_clusters(rows: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """A table for each picture: its clusters, then those that have ended.

    Parameters
    ----------
    rows
        The table of pictures: stream position, id and place of each point, oldest first.
    """
    earlier: Clusters | None = None
    held: tuple[Clusters, Floats] | None = None  # the last picture waits: its members are listed
    for position, picture in _split_by_position(rows):
        ids = np.array(picture["id"].to_pylist())
        if earlier is not None and position < earlier.position + len(ids) / PICTURES_A_WINDOW:
            continue
        places = np.column_stack([picture[name] for name in PLACES])
        groups = find_clusters(
            places.astype(np.float64), choose_smallest_cluster(len(ids)), MIN_SAMPLES
        )
        if held is not None:
            yield _describe(*held, schema, last=False)
        earlier = follow_clusters(groups, ids, position, earlier)
        held = earlier, places
    if held is not None:
        yield _describe(*held, schema, last=True)


def _split_by_position(rows: Iterable[pa.Table]) -> Iterator[tuple[int, pa.Table]]:
    """Stream position and rows of each picture."""
    position, parts = -1, list[pa.Table]()
    for table in rows:
        positions = table["position"].to_numpy()
        cuts = [0, *(np.flatnonzero(np.diff(positions)) + 1).tolist(), len(table)]
        for start, stop in pairwise(cuts):
            if parts and positions[start] != position:
                yield position, pa.concat_tables(parts)
                parts = []
            position = int(positions[start])
            parts.append(table.slice(start, stop - start))
    if parts:
        yield position, pa.concat_tables(parts)


def _describe(clusters: Clusters, places: Floats, schema: pa.Schema, last: bool) -> pa.Table:
    events = {event.cluster: event for event in clusters.events}
    rows: list[dict[str, Any]] = []
    for label in dict.fromkeys([*clusters.sizes, *events]):
        members, event = np.flatnonzero(clusters.labels == label), events.get(label)
        rows.append(
            {
                "position": clusters.position,
                "cluster": label,
                "size": len(members),
                "exemplars": clusters.ids[_choose_exemplars(members, places)].tolist(),
                "members": clusters.ids[members].tolist() if last else None,
                "event": None if event is None else event.kind,
                "other": None if event is None else event.other,
            }
        )
    return pa.Table.from_pylist(rows, schema)


def _choose_exemplars(members: Ints, places: Floats) -> Ints:
    """The members nearest to the median of their places, the oldest first among equals."""
    if not len(members):  # of a cluster that has ended
        return members
    own = places[members]
    far = ((own - np.median(own, axis=0)) ** 2).sum(axis=1)
    return members[np.argsort(far, kind="stable")[:EXEMPLARS]]
