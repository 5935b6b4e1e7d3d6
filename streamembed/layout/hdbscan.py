"""Clusters of points in the plane by HDBSCAN: dense groups of any shape, and noise.

A point's core distance is that to its ``min_samples``-th nearest, itself counted; two points are
as far apart as the largest of their distance and their core distances. Components of the points
nearer than r, as r shrinks, make a tree, whose branches have at least ``min_cluster_size`` points.
The clusters are the disjoint branches of the largest total stability: the sum over points of 1 / r
where they leave a branch, less 1 / r where it began. The whole is none of them.

Source: Campello, Moulavi, Zimek & Sander (2015), Hierarchical density estimates for data
clustering, visualization, and outlier detection. Differs: edges of equal length, which core
distances make in every set, are ordered by the points' own distance; implementations leave such
ties to chance. The order of the points decides only where both are equal, as on a lattice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy

from streamembed.numeric.arrays import Floats, Ints

# Squared lengths below this share of the largest count as that: 1 / r of duplicates is finite.
LEAST_D2 = 1e-24


@dataclass(slots=True)
class Branch:
    """A branch of the tree, from its leaves to where it joins another.

    Attributes
    ----------
    first, size : int
        Its first point, in the order of `build_tree`, and how many it has.
    total : float
        Sum over its points of 1 / r where they leave it.
    parts : list of Branch
        The two that it splits into, or none.
    best : float
        The largest total stability of disjoint branches within it.
    """

    first: int
    size: int
    total: float
    parts: list[Branch] = field(default_factory=list)
    best: float = 0.0
    is_chosen: bool = False

    def close(self, inverse: float) -> None:
        """Choose it or its parts, once 1 / r is known where it begins."""
        stability = self.total - self.size * inverse
        below = sum(part.best for part in self.parts)
        self.is_chosen = stability >= below
        self.best = max(stability, below)


def find_clusters(places: Floats, min_cluster_size: int, min_samples: int) -> Ints:
    """Label dense groups of points from 0, in the order of their first points; -1 is noise.

    Parameters
    ----------
    places
        Shape (n, 2), finite.
    min_cluster_size
        Points of the smallest cluster, at least 2.
    min_samples
        Larger: smoother densities and more noise. Of fewer points, their number.

    Returns
    -------
    Shape (n,). O(n**2) time, O(n) memory.
    """
    n = len(places)
    labels = np.full(n, -1)
    if n < 2 * min_cluster_size:
        return labels  # too few for two branches
    ends, lengths = join_nearest(places, min(min_samples, n))
    root, order = build_tree(ends, 1.0 / lengths, min_cluster_size)
    begins, unchosen, members = np.argsort(order), root.parts, []
    while unchosen:
        branch = unchosen.pop()
        begin = begins[branch.first]
        if branch.is_chosen:
            members.append(np.sort(order[begin : begin + branch.size]))
        else:
            unchosen += branch.parts
    for label, points in enumerate(sorted(members, key=lambda points: int(points[0]))):
        labels[points] = label
    return labels


def join_nearest(places: Floats, min_samples: int) -> tuple[Ints, Floats]:
    """Minimum spanning tree of the mutual reachability distances, by Prim's algorithm.

    Returns
    -------
    ends : (n - 1, 2)
        Of the edges, shortest first.
    lengths : (n - 1,)
        Positive.
    """
    n = len(places)
    farthest = places[scipy.spatial.cKDTree(places).query(places, [min_samples])[1][:, 0]]
    # points outside the tree, in any order: one that joins is replaced by the last
    core, outside = ((places - farthest) ** 2).sum(axis=1), np.arange(n)
    near, own, end = np.full(n, np.inf), np.full(n, np.inf), np.zeros(n, dtype=np.int64)
    rest, lengths = places.T.copy(), np.empty((2, n - 1))
    ends = np.empty((n - 1, 2), dtype=np.int64)
    at = 0
    for left in range(n - 1, 0, -1):
        place, core_here, here = rest[:, at].copy(), core[at], outside[at]
        for array in (rest, core, outside, near, own, end):
            array[..., at] = array[..., left]
        rest, core, outside = rest[:, :left], core[:left], outside[:left]
        near, own, end = near[:left], own[:left], end[:left]
        d2 = ((rest - place[:, None]) ** 2).sum(axis=0)
        reach = np.maximum(np.maximum(d2, core), core_here)
        nearer = np.flatnonzero((reach < near) | ((reach == near) & (d2 < own)))
        near[nearer], own[nearer], end[nearer] = reach[nearer], d2[nearer], here
        least = np.flatnonzero(near == near.min())
        at = int(least[own[least].argmin()])
        ends[left - 1], lengths[:, left - 1] = (end[at], outside[at]), (near[at], own[at])
    order = np.lexsort(lengths[::-1])
    d2 = lengths[0, order]
    return ends[order], np.sqrt(np.maximum(d2, LEAST_D2 * d2[-1] or 1.0))


def build_tree(ends: Ints, inverse: Floats, min_cluster_size: int) -> tuple[Branch, Ints]:
    """Join at least ``min_cluster_size`` points along the edges of a tree, in their order.

    Returns
    -------
    root : Branch
        Of all points.
    order : (n,)
        The points in an order in which those of each branch follow its first.
    """
    n = len(ends) + 1
    roots, sizes, lasts, following = [*range(n)], [1] * n, [*range(n)], [-1] * n
    branches: list[Branch | None] = [None] * n

    def find_root(point: int) -> int:
        while roots[point] != point:
            roots[point] = point = roots[roots[point]]
        return point

    for (one, other), at in zip(ends.tolist(), inverse.tolist(), strict=True):
        small, large = sorted((find_root(one), find_root(other)), key=lambda root: sizes[root])
        branch, part = branches[large], branches[small]
        sizes[large] += sizes[small]
        if branch is None:
            if sizes[large] >= min_cluster_size:
                branches[large] = Branch(large, sizes[large], sizes[large] * at)
        elif part is None:
            branch.size = sizes[large]
            branch.total += sizes[small] * at
        else:
            branch.close(at)
            part.close(at)
            branches[large] = Branch(large, sizes[large], sizes[large] * at, [branch, part])
        roots[small], following[lasts[large]], lasts[large] = large, small, lasts[small]
    order, point = [], find_root(0)
    root = branches[point]
    assert root is not None
    while point >= 0:
        order.append(point)
        point = following[point]
    return root, np.array(order)
