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
from streamembed.numeric import compilation
from streamembed.numeric.arrays import Array, Floats, Ints

# Attraction of a picture, beside that of t-SNE.
SPREADS = 0.5, 20.0
# Pairs per pass: four arrays of them, 768 KB, stay in the second cache.
CELLS = 3 << 14


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
    """Rows of A = (P + P^T) / 2: the list of each, and then the rows that list it, ascending."""

    starts: Ints  # (m + 1,): where each row begins
    # (starts[-1],): the slots that are linked, and their P / 2; of empty entries 0.
    slots: Ints
    weights: Floats

    @classmethod
    def of(cls, near: Slots, p: Floats) -> Self:
        """The links of the K nearest of every slot and their affinities, (n, K). O(n K)."""
        n, k = near.shape
        # an empty entry has weight 0: its slot does not matter
        ends = np.arange(0, n * k + 1, k, dtype=np.int32)
        listed, own = np.maximum(near, 0).reshape(-1), 0.5 * p.reshape(-1)
        back = csr_array((own, listed, ends), shape=(n, n)).tocsc()
        starts = (ends + back.indptr).astype(np.int64)
        is_own = np.zeros(2 * n * k, dtype=bool)
        is_own[(starts[:-1, None] + np.arange(k)).reshape(-1)] = True
        slots, weights = np.empty(2 * n * k, dtype=near.dtype), np.empty(2 * n * k)
        slots[is_own], weights[is_own] = listed, own
        slots[~is_own], weights[~is_own] = back.indices, back.data
        return cls(starts, slots, weights)

    def __len__(self) -> int:
        return len(self.starts) - 1

    def take(self, rows: Ints) -> Links:
        """The same links of some rows alone, which are ascending."""
        if len(rows) == len(self):
            return self
        counts = self.starts[rows + 1] - self.starts[rows]
        starts = np.concatenate([[0], np.cumsum(counts)])
        entries = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], counts)
        return Links(starts, self.slots[entries], self.weights[entries])


def attract(links: Links, places: Floats, at: Floats) -> tuple[Floats, Floats]:
    """sum_j A_ij w_ij (y_j - y_i), shape (m, 2), and sum_j A_ij w_ij, shape (m,).

    ``at`` are the places y_i, shape (m, 2), of the rows that ``links`` has.
    """
    if compilation.is_available():
        return forces_numba.attract(links.starts, links.slots, links.weights, places, at)
    counts, m = np.diff(links.starts), len(at)
    rows = np.repeat(np.arange(m), counts)
    # columns by themselves: numpy gathers numbers faster than rows of two
    (x, y), (own_x, own_y) = np.ascontiguousarray(places.T), np.ascontiguousarray(at.T)
    dx, dy = x[links.slots] - own_x[rows], y[links.slots] - own_y[rows]
    pull = links.weights / (1.0 + (dx * dx + dy * dy))
    parts = pull * dx, pull * dy, pull
    sums: list[Floats] = [np.bincount(rows, part, m).astype(np.float64) for part in parts]
    return np.column_stack(sums[:2]), sums[2]


def repel(places: Floats, at: Floats, dtype: npt.DTypeLike = np.float32) -> Floats:
    """sum_j w_j^2 (y - y_j) at any points of the plane, (m, 2), computed in ``dtype``. O(m n).

    A place does not repel a point that is exactly there.
    """
    columns, at_columns = _centre(places, at, dtype)
    if compilation.is_available():
        pushed = np.empty_like(at_columns)
        forces_numba.repel(*columns, *at_columns, *pushed)
        return pushed.T.astype(np.float64)
    sums = np.zeros((2, max(len(at), 2)), dtype=dtype)
    for offsets, w in _iterate_offsets_and_weights(columns, at_columns):
        w[1:] *= w[1:]
        offsets[:, 1:] *= w[1:]
        offsets[:, 0] = sums
        offsets.sum(axis=1, out=sums)
    return sums[:, : len(at)].T.astype(np.float64)


def sum_weights(places: Floats, at: Floats, dtype: npt.DTypeLike = np.float32) -> Floats:
    """sum_j w_j at any points of the plane, shape (m,); a place counts 1 for itself. O(m n)."""
    columns, at_columns = _centre(places, at, dtype)
    if compilation.is_available():
        sums = np.empty(len(at), dtype=dtype)
        (x, y), (own_x, own_y) = columns, at_columns
        forces_numba.sum_weights(x, y, own_x, own_y, sums)
        return sums.astype(np.float64)
    sums = np.zeros(max(len(at), 2), dtype=dtype)
    for _, w in _iterate_offsets_and_weights(columns, at_columns):
        w[0] = sums
        w.sum(axis=0, out=sums)
    return sums[: len(at)].astype(np.float64)


def _iterate_offsets_and_weights(
    columns: Array, at_columns: Array
) -> Iterator[tuple[Array, Array]]:
    """Blocks of t places: offsets y - y_j, (2, 1 + t, m), and w, (1 + t, m), to be written over.

    Their first rows are for the sums of the blocks before: so all terms of a point are added one
    after the other. There are at least two columns: of a single one numpy would add in another
    order.
    """
    (_, n), m = columns.shape, max(at_columns.shape[1], 2)
    # (1, -y_j) times (y, 1) is the difference, rounded once; twice as fast as to subtract them
    minus, plus = np.ones((2, n, 2), columns.dtype), np.ones((2, 2, m), columns.dtype)
    minus[:, :, 1] = -columns
    plus[:, 0, : at_columns.shape[1]] = at_columns
    work = np.empty((4, 1 + min(n, max(1, CELLS // m)), m), dtype=columns.dtype)
    for start in range(0, n, work.shape[1] - 1):
        work = work[:, : 1 + n - start]
        (dx, dy), (w, squares) = work[:2, 1:], work[2:, 1:]
        np.matmul(minus[:, start : start + len(w)], plus, out=work[:2, 1:])
        np.multiply(dx, dx, out=w)
        np.multiply(dy, dy, out=squares)
        w += squares
        w += 1
        np.divide(1, w, out=w)
        yield work[:2], work[2]


def _centre(places: Floats, at: Floats, dtype: npt.DTypeLike) -> tuple[Array, Array]:
    """Both about the middle of the places, (2, n) and (2, m): a layout may have drifted far."""
    columns = np.ascontiguousarray(places.T)
    middle = columns.sum(axis=1, keepdims=True) / max(len(places), 1)
    return (columns - middle).astype(dtype), (at.T - middle).astype(dtype, order="C")
