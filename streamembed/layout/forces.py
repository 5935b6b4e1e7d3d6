"""The forces of a layout in the plane: neighbours attract one another, all points repel.

    F(Y) = sum_{i<j} rho A_ij log(1 + d_ij^2) + gamma sum_{i<j} 1 / (1 + d_ij^2)
    f_i = -1/2 dF/dy_i = rho sum_j A_ij w_ij (y_j - y_i) + gamma sum_j w_ij^2 (y_i - y_j)

This is t-SNE with an exaggeration rho, whose normalisation Z is no function of the places but the
constant gamma = n / Z. So a point's force is exact and its own, and a few points can move alone.

All sums are taken one term after the other, in the same order here and where they are compiled
(`forces_numba`): the bits are those of IEEE arithmetic in both.

Symbols: n = slots, m = rows asked for, K = neighbours, y = places, A = links, w = 1 / (1 + d^2).

Source: van der Maaten & Hinton (2008), "Visualizing data using t-SNE"; Boehm, Berens & Kobak
(2022), "Attraction-repulsion spectra in neighbor embeddings". Differs: 1. Z is frozen. 2.
Affinities fall off with the distance beyond the nearest neighbour, as in UMAP, but there is no
search for their width.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from streamembed.geometry.lists import Slots
from streamembed.layout import forces_numba
from streamembed.numeric.arrays import Array, Floats, Ints

# Rows per pass over the points: a few arrays of n by 64 stay in the second cache.
BLOCK = 64


def compute_affinities(d2: Floats) -> Floats:
    """P of some lists: exp(-(d - d_1) / mean(d - d_1)), normalised to sum 1.

    Parameters
    ----------
    d2
        Shape (m, K): squared distances to the nearest, ascending, inf where there are none.

    Returns
    -------
    Shape (m, K); 0 where there is no neighbour.
    """
    is_neighbor = np.isfinite(d2)
    d = np.sqrt(np.where(is_neighbor, d2, 0.0))
    excess = np.where(is_neighbor, d - d[:, :1], 0.0)
    mean = excess.sum(axis=1) / np.maximum(np.count_nonzero(is_neighbor, axis=1), 1)
    p = np.exp(-excess / np.where(mean > 0.0, mean, 1.0)[:, None]) * is_neighbor
    total = p.sum(axis=1, keepdims=True)
    return p / np.where(total > 0.0, total, 1.0)


@dataclass(frozen=True, slots=True, eq=False)
class Links:
    """A = (P + P^T) / 2: a row's own list, and then the rows that list it."""

    near: Slots  # (n, K): slots; -1 past the end of a list
    weights: Floats  # (n, K): P / 2
    starts: Ints  # (n + 1,)
    # (starts[-1],): for each row the rows that list it, ascending, and their P / 2.
    slots: Ints
    back: Floats

    @classmethod
    def of(cls, near: Slots, p: Floats) -> Self:
        """The links of the K nearest of every slot and their affinities, (n, K). O(n K)."""
        weights, (n, k) = 0.5 * p, near.shape
        # an empty entry has weight 0: its slot does not matter
        starts = np.arange(0, n * k + 1, k)
        entries = weights.reshape(-1), np.maximum(near, 0).reshape(-1), starts
        back = csr_array(entries, shape=(n, n)).tocsc()
        return cls(near, weights, back.indptr, back.indices, back.data)

    def __len__(self) -> int:
        return len(self.near)


def attract(links: Links, places: Floats, rows: Ints) -> tuple[Floats, Floats]:
    """sum_j A_ij w_ij (y_j - y_i), shape (m, 2), and sum_j A_ij w_ij, shape (m,)."""
    if forces_numba.available:
        return forces_numba.attract(
            links.near, links.weights, links.starts, links.slots, links.back, places, rows
        )
    m, k = len(rows), links.near.shape[1]
    counts = links.starts[rows + 1] - links.starts[rows]
    ends = np.cumsum(counts)
    lister_entries = np.arange(counts.sum()) + np.repeat(
        links.starts[rows] - (ends - counts), counts
    )
    targets = np.concatenate([np.repeat(np.arange(m), k), np.repeat(np.arange(m), counts)])
    others = np.concatenate([links.near[rows].reshape(-1), links.slots[lister_entries]])
    weights = np.concatenate([links.weights[rows].reshape(-1), links.back[lister_entries]])
    dx, dy = (places[others] - places[rows[targets]]).T
    pull = weights / (1.0 + (dx * dx + dy * dy))
    parts = pull * dx, pull * dy, pull
    sums: list[Floats] = [np.bincount(targets, part, m).astype(np.float64) for part in parts]
    return np.column_stack(sums[:2]), sums[2]


def repel(places: Floats, at: Floats, dtype: npt.DTypeLike = np.float32) -> Floats:
    """sum_j w_j^2 (y - y_j) at any points of the plane, (m, 2), computed in ``dtype``. O(m n).

    A place does not repel a point that is exactly there.
    """
    (x, y), (own_x, own_y) = _centre(places, at, dtype)
    pushed = np.empty((2, len(at)), dtype=dtype)
    if forces_numba.available:
        forces_numba.repel(x, y, own_x, own_y, *pushed)
        return pushed.T.astype(np.float64)
    dx, dy, w, squares = work = np.empty((4, len(x), BLOCK), dtype=dtype)
    for part in _split_blocks(len(at)):
        # every block has 64 columns: of a single one numpy would sum in another order
        np.subtract(np.resize(own_x[part], BLOCK), x[:, None], out=dx)
        np.subtract(np.resize(own_y[part], BLOCK), y[:, None], out=dy)
        np.multiply(dx, dx, out=w)
        np.multiply(dy, dy, out=squares)
        w += squares
        w += 1
        np.divide(1, w, out=w)
        w *= w
        work[:2] *= w
        pushed[:, part] = work[:2].sum(axis=1)[:, : len(own_x[part])]
    return pushed.T.astype(np.float64)


def weigh(places: Floats, at: Floats, dtype: npt.DTypeLike = np.float32) -> Floats:
    """sum_j w_j at any points of the plane, shape (m,); a place counts 1 for itself. O(m n)."""
    (x, y), (own_x, own_y) = _centre(places, at, dtype)
    sums = np.empty(len(at), dtype=dtype)
    if forces_numba.available:
        forces_numba.weigh(x, y, own_x, own_y, sums)
        return sums.astype(np.float64)
    w, squares = np.empty((2, len(x), BLOCK), dtype=dtype)
    for part in _split_blocks(len(at)):
        np.subtract(np.resize(own_x[part], BLOCK), x[:, None], out=w)
        np.subtract(np.resize(own_y[part], BLOCK), y[:, None], out=squares)
        w *= w
        squares *= squares
        w += squares
        w += 1
        np.divide(1, w, out=w)
        sums[part] = w.sum(axis=0)[: len(own_x[part])]
    return sums.astype(np.float64)


def _centre(places: Floats, at: Floats, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Both about the middle of the places, (2, n) and (2, m): a layout may have drifted far."""
    middle = places.mean(axis=0) if len(places) else np.zeros(2)
    both = (places - middle).T, (at - middle).T
    return np.ascontiguousarray(both[0], dtype=dtype), np.ascontiguousarray(both[1], dtype=dtype)


def _split_blocks(m: int) -> Iterator[slice]:
    return (slice(start, start + BLOCK) for start in range(0, m, BLOCK))


def sum_weights(places: Floats) -> float:
    """Z: the sum of w over ordered pairs of different points. O(n^2)."""
    return float((weigh(places, places) - 1.0).sum())
