"""What a picture keeps of the data, how settled it is, and how far it has moved: all exact.

No layout in the plane can be certified: the problem is not convex. What can be counted is counted.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from streamembed.geometry.lists import Slots
from streamembed.layout.forces import Links
from streamembed.layout.relaxation import LEAST_MAJORISER, find_forces
from streamembed.numeric.arrays import Floats, Ints

__all__ = ["align", "balance", "kept", "radius", "twins_of"]


def kept(places: Floats, near: Slots, twins: Ints | None) -> Floats:
    """Of every point, the share of its K nearest in the picture that are its nearest in the data.

    Parameters
    ----------
    places
        Shape (n, 2).
    near
        Shape (n, K): slots, -1 behind the end of a list; then as many are looked at in the picture.
    twins
        Shape (n,), a label: points of one label are one another's nearest, whatever the lists say.

    Returns
    -------
    Shape (n,); 1 where a list is empty.
    """
    n, k = near.shape
    counts = np.count_nonzero(near >= 0, axis=1)
    seen = cKDTree(places).query(places, min(k + 1, n))[1].reshape(n, -1)
    own = seen == np.arange(n)[:, None]
    own[~own.any(axis=1), -1] = True  # among many in one place it need not be found
    seen = seen[~own].reshape(n, -1)
    true = (seen[:, :, None] == near[:, None, :]).any(axis=2)
    if twins is not None:
        true |= twins[seen] == twins[:, None]
    true &= np.arange(seen.shape[1]) < counts[:, None]
    shares: Floats = true.sum(axis=1) / np.maximum(counts, 1)
    return np.where(counts > 0, shares, 1.0)


def balance(links: Links, places: Floats, rho: float, gamma: float) -> Floats:
    """How far each point would still go if all others stayed where they are, shape (n,). O(n^2)."""
    force, h = find_forces(links, places, np.arange(len(places)), rho, gamma)
    far: Floats = np.sqrt((force**2).sum(axis=1)) / (h + LEAST_MAJORISER * rho)
    return far


def radius(places: Floats) -> float:
    """Root mean square distance from the mean."""
    return float(np.sqrt(((places - places.mean(axis=0)) ** 2).sum(axis=1).mean()))


def twins_of(points: Floats) -> Ints:
    """One number for equal points (n, d), shape (n,)."""
    labels: Ints = np.unique(points, axis=0, return_inverse=True)[1].reshape(-1)
    return labels


def align(places: Floats, onto: Floats, shared: Ints) -> Floats:
    """The same places, (n, k), turned, mirrored and shifted: onto others, by the slots shared."""
    centre, other = places[shared].mean(axis=0), onto[shared].mean(axis=0)
    u, _, v = np.linalg.svd((places[shared] - centre).T @ (onto[shared] - other))
    turned: Floats = (places - centre) @ (u @ v) + other
    return turned
