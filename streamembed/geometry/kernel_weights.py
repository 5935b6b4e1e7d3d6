"""Weights between the slots of a support, computed when they are needed: no N x N matrix is kept.

Symbols: x = points, d = distances, w = widths of the slots, c = one factor for all,
W_ij = exp(-d_ij^2 / (c w_i w_j)), W_ii = 1. With one bandwidth, w is that, and c is 1.

Of points all exponents are one matrix product: (2x, -1, -|x|^2)_i / (c w_i) with
(x, |x|^2, 1)_j / w_j, in single precision where that is exact enough, or in double precision. Where
neither is, and of learned distances, they follow from the squared distances themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
import numpy.typing as npt

from streamembed.geometry.pairwise import SquaredDistances
from streamembed.numeric.arrays import Array, Floats, Ints, pad
from streamembed.numeric.codec import NOT_SAVED

# An exponent may be off by so much, absolutely: a hundredth of the usual tolerance.
LARGEST_LOSS = 1e-5
# Below it a weight is nothing, and sums of denormal numbers are slow.
LEAST_EXPONENT = {np.dtype(np.float32): -87.0, np.dtype(np.float64): -700.0}
# Exponents of weights that matter are above minus this: it bounds how far apart their points are.
REACH = 17.0
# Terms that a product adds up one by one, at most: BLAS takes them in blocks of up to 384.
LONGEST_SUM = 384
# A weight of exp(-x) is off by about x / 2 times the precision: 17 in a row of S that counts.
EXPONENT_LOSS = 24
# Rows and columns of a tile: it stays in the cache.
TILE = 512


@dataclass(frozen=True, slots=True, eq=False)
class KernelWeights:
    """W between all slots."""

    widths: Annotated[Floats, "slots"]  # w
    factor: float  # c
    center: Annotated[Floats, "d"]
    single: bool  # whether weights are float32
    # (n, d + 2): (x, |x|^2, 1) / w, of centred points; None where exponents follow from squares.
    columns: Array | None = field(default=None, metadata=NOT_SAVED)
    # slots -> their squared distances to all, (b, n).
    read_squares: Callable[[Ints], Floats] | None = field(default=None, metadata=NOT_SAVED)
    loss: float = field(default=0.0, metadata=NOT_SAVED)  # by how much an exponent may be off

    def __len__(self) -> int:
        return len(self.widths)

    @property
    def dtype(self) -> np.dtype:
        """Of weights."""
        return np.dtype(np.float32 if self.single else np.float64)

    def between_points(self, points: Floats) -> KernelWeights:
        """Weights between ``points`` (n, d), one a slot."""
        columns = np.zeros((0, points.shape[1] + 2))
        every = np.arange(len(points), dtype=np.int64)
        return replace(self, columns=columns).replace(every, points, self.widths)

    def between_objects(self, read_squares: Callable[[Ints], Floats]) -> KernelWeights:
        """Weights between objects of which only squared distances are known."""
        return replace(self, columns=None, read_squares=read_squares, loss=0.0)

    def exact(self, distances: SquaredDistances) -> KernelWeights:
        """In double precision, by the squared distances themselves."""
        return replace(self, single=False).between_objects(distances.rows)

    def bind(self, distances: SquaredDistances) -> KernelWeights:
        """Between points, or objects of which only distances are known."""
        if distances.read_distances is None:
            return self.between_points(distances.points)
        return self.between_objects(distances.rows)

    def replace(self, slots: Ints, points: Floats, widths: Floats) -> KernelWeights:
        """After ``slots`` were filled, first or again; ``points`` and ``widths`` are of all."""
        following = replace(self, widths=widths)
        if self.columns is None:
            return following.between_points(points)
        columns = pad(self.columns, len(widths))
        with np.errstate(all="ignore"):
            x = points[slots] - self.center
            new = np.column_stack([x, np.einsum("ij,ij->i", x, x), np.ones(len(slots))])
            columns[slots] = new / widths[slots, None]
            # |x|^2 / w^2, where it is the same whatever the precision of the columns
            products = columns[:, -2].astype(np.float32) * columns[:, -1].astype(np.float32)
            ratio2 = float(products.max(initial=0.0))
            spread = float(widths.max() / widths.min())
            size = (ratio2 + np.sqrt(REACH * ratio2 * self.factor * spread)) / self.factor
            limit = LARGEST_LOSS * (1.0 if self.single else 1e-4)
            for dtype in (self.dtype, np.dtype(np.float64)):
                loss = 4.0 * size * float(np.finfo(dtype).eps)
                if not loss <= limit:
                    continue
                if dtype.itemsize > columns.dtype.itemsize:  # digits that were left out
                    return following.between_points(points)
                exact = columns.astype(dtype, copy=False)
                if np.isfinite(exact).all():
                    return replace(following, columns=exact, read_squares=None, loss=loss)
        return following.between_objects(SquaredDistances(points).rows)

    def rows(self, slots: Ints) -> Array:
        """W between ``slots`` and all, shape (b, n); ones on the diagonal, exactly."""
        if self.columns is None:
            rows = self._weigh_squares(slots)
        else:
            left = _swap_ends(self.columns[slots], self.factor)
            rows = _exponentiate(left @ self.columns.T, self.dtype)
        rows[:, slots] = 0.5 * (rows[:, slots] + rows[:, slots].T)
        rows[np.arange(len(slots)), slots] = 1.0
        return rows

    def product(self, block: Array) -> Array:
        """W @ block, shape (n, m), in the precision of the weights. O(n^2 (d + m))."""
        n, columns = len(self), self.columns
        block = np.ascontiguousarray(block, dtype=self.dtype)
        if columns is None:
            return multiply_rows(self.rows, n, block)
        image = np.zeros_like(block)
        for start in range(0, n, TILE):
            here = slice(start, start + TILE)
            left = _swap_ends(columns[here], self.factor)
            for other in range(start, n, TILE):
                there = slice(other, other + TILE)
                tile = _exponentiate(left @ columns[there].T, self.dtype)
                if other == start:
                    np.fill_diagonal(tile, 1.0)
                    image[here] += tile @ block[here]
                else:  # symmetric: a tile is used for its rows and for its columns
                    image[here] += tile @ block[there]
                    image[there] += tile.T @ block[here]
        return image

    def _weigh_squares(self, slots: Ints) -> Array:
        """Divided by one width after the other: that of an outlier, squared, would overflow."""
        assert self.read_squares is not None
        with np.errstate(over="ignore", under="ignore"):
            exponents = self.read_squares(slots) / (-self.factor * self.widths[slots])[:, None]
            exponents /= self.widths
        return _exponentiate(exponents, self.dtype)


def bound_rounding(dtype: npt.DTypeLike, n: int) -> float:
    """By how much the S of weights of n slots may differ in norm from that of exact weights.

    A sum of c terms may be off by c / 2 times the precision, relative to the sum of their absolute
    values: so much for the normalisation, and as much for a product with S. Exponents and
    exponentials of weights that matter lose `EXPONENT_LOSS` times it.
    """
    terms = min(n, LONGEST_SUM) + n / LONGEST_SUM
    return (terms + EXPONENT_LOSS) * float(np.finfo(dtype).eps)


def iterate_slot_tiles(n: int) -> Iterator[Ints]:
    """All slots, in parts whose rows stay in the cache."""
    step = max(1, TILE * TILE // n)
    return (np.arange(i, min(i + step, n)) for i in range(0, n, step))


def multiply_rows(read_rows: Callable[[Ints], Array], n: int, block: Array) -> Array:
    """W @ block, shape (n, m), part by part of the rows of W."""
    return np.concatenate([read_rows(part) @ block for part in iterate_slot_tiles(n)])


def _swap_ends(columns: Array, factor: float) -> Array:
    """(2x, -1, -|x|^2) / (c w) of (x, |x|^2, 1) / w."""
    left = np.empty_like(columns)
    left[:, :-2] = columns[:, :-2] * columns.dtype.type(2.0 / factor)
    left[:, -2:] = columns[:, :-3:-1] * columns.dtype.type(-1.0 / factor)
    return left


def _exponentiate(exponents: Array, dtype: np.dtype) -> Array:
    """exp, of what is at most 0."""
    np.clip(exponents, LEAST_EXPONENT[dtype], 0.0, out=exponents)
    exponents = exponents.astype(dtype, copy=False)
    return np.exp(exponents, out=exponents)
