"""What a layout keeps of the data, how near it is to rest, and how far it moved: all exact.

No layout in the plane can be certified: the problem is not convex. What can be counted is counted.
"""

from __future__ import annotations

import numpy as np
import scipy

from streamembed.geometry.lists import Slots
from streamembed.layout.forces import Links
from streamembed.layout.relaxation import LEAST_MAJORISER, find_forces
from streamembed.numeric.arrays import Floats, Ints


def measure_kept(places: Floats, near: Slots, duplicates: Ints | None) -> Floats:
    """Of every point, the share of its K nearest in the layout that are its nearest in the data.

    Parameters
    ----------
    places
        Shape (n, 2).
    near
        Shape (n, K): slots, -1 past the end of a list, where fewer of the layout are compared.
    duplicates
        Labels, shape (n,): points with the same label count as each other's nearest, in the lists
        or not.

    Returns
    -------
    Shape (n,); 1 where a list is empty.
    """
    n, k = near.shape
    counts = np.count_nonzero(near >= 0, axis=1)
    nearest = scipy.spatial.cKDTree(places).query(places, min(k + 1, n))[1].reshape(n, -1)
    is_self = nearest == np.arange(n)[:, None]
    is_self[~is_self.any(axis=1), -1] = True  # among many in one place it may be missing
    nearest = nearest[~is_self].reshape(n, -1)
    is_kept = (nearest[:, :, None] == near[:, None, :]).any(axis=2)
    if duplicates is not None:
        is_kept |= duplicates[nearest] == duplicates[:, None]
    is_kept &= np.arange(nearest.shape[1]) < counts[:, None]
    shares: Floats = is_kept.sum(axis=1) / np.maximum(counts, 1)
    return np.where(counts > 0, shares, 1.0)


def measure_balance(links: Links, places: Floats, rho: float, gamma: float) -> Floats:
    """How far each point would still move if all others stayed, shape (n,). O(n^2)."""
    force, h = find_forces(links, places, places, rho, gamma)
    distance: Floats = np.sqrt((force**2).sum(axis=1)) / (h + LEAST_MAJORISER * rho)
    return distance


def compute_radius(places: Floats) -> float:
    """Root mean square distance from the mean."""
    return float(np.sqrt(((places - places.mean(axis=0)) ** 2).sum(axis=1).mean()))


def label_duplicates(points: Floats) -> Ints:
    """Labels of points (n, d), the same for equal points, shape (n,): the first slot of them."""
    labels, roots = np.arange(len(points)), np.sqrt(np.arange(1.0, points.shape[1] + 1.0))
    # equal points have equal sums: only where sums are equal, whole points are compared
    _, sum_of, counts = np.unique(
        (points * roots).sum(axis=1), return_inverse=True, return_counts=True
    )
    tied = np.flatnonzero(counts[sum_of] > 1)
    _, first, same = np.unique(points[tied], axis=0, return_index=True, return_inverse=True)
    labels[tied] = tied[first][same.reshape(-1)]
    return labels


def unite_duplicates(places: Floats, duplicates: Ints) -> Floats:
    """The places (n, 2), those of equal points at their mean."""
    _, first, of, counts = np.unique(
        duplicates, return_index=True, return_inverse=True, return_counts=True
    )
    sums = np.column_stack([np.bincount(of, places[:, axis]) for axis in range(places.shape[1])])
    return np.where(counts[:, None] > 1, sums / counts[:, None], places[first])[of]


def align(places: Floats, reference: Floats, shared: Ints) -> Floats:
    """The same places, (n, k), turned, mirrored and shifted onto a reference by shared slots."""
    centre, target = places[shared].mean(axis=0), reference[shared].mean(axis=0)
    u, _, v = np.linalg.svd((places[shared] - centre).T @ (reference[shared] - target))
    aligned: Floats = (places - centre) @ (u @ v) + target
    return aligned
