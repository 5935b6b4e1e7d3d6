"""The leading axes of the rows of a window, which leave as they came.

Symbols: n = rows; X = rows less their mean, (n, d), X ~ U diag(s) V^T; r = columns kept.

An SVD of which only the axes are kept cannot lose rows: subtracting a row from what a truncation
has left of it leaves negative squares. With the left side, a row's part is a row of U.

Source: docs/algorithms/pca.md, docs/algorithms/zha-simon.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from scipy.linalg import block_diag

from streamembed.numeric import svd
from streamembed.numeric.arrays import Floats
from streamembed.numeric.svd import TruncatedSVD


@dataclass(frozen=True, slots=True, eq=False)
class TwoSided:
    """Mean, total scatter and truncated SVD of rows, in their order."""

    mean: Annotated[Floats, "d"]
    centred: TruncatedSVD  # of X
    total: float  # the trace of the scatter, with what was cut off
    rank: int  # the most columns to keep

    @classmethod
    def init(cls, n_features: int, rank: int) -> Self:
        """No rows."""
        empty = svd.decompose(np.zeros((0, n_features)), rank)
        return cls(np.zeros(n_features), empty, 0.0, min(rank, n_features))

    @property
    def count(self) -> float:
        """How many rows there are."""
        return float(len(self.centred.left))

    @property
    def values(self) -> Floats:
        """The singular values, (k,)."""
        return self.centred.values

    @property
    def axes(self) -> Floats:
        """Orthonormal columns, (d, k)."""
        return self.centred.right

    @property
    def tail(self) -> float:
        """What the axes leave out, as a sum of squares."""
        return max(self.total - float(self.values @ self.values), 0.0)

    def slide(self, rows: Floats, leaving: Floats) -> Self:
        """With some rows (b, d) behind the others, and without the first (c, d), which are these.

        With U_0 the rest of U, D the new rows less the old mean and h the step of the mean::

            X'  =  [ U_0  0  1 ]  diag(s, I, -1)  [ V, D^T, h ]^T
                   [  0   I  1 ]

        so that rows leave, rows come and the mean moves in one decomposition.
        O((n + d) (r + b)^2).

        Differs from Zha & Simon (1999): rows are centred, and others leave.
        """
        n = len(self.centred.left) + len(rows) - len(leaving)
        if n == 0:
            return self.init(len(self.mean), self.rank)
        base = self.mean if self.count else rows[0]
        steps, gone = rows - base, leaving - base
        step = (steps.sum(axis=0) - gone.sum(axis=0)) / n
        total = self.total + np.sum(steps**2) - np.sum(gone**2) - n * float(step @ step)

        old = self.centred.left[len(leaving) :]
        ones, eye = np.ones((n, 1)), np.eye(len(rows))
        left = np.concatenate([block_diag(old, eye), ones], axis=1)
        core = block_diag(np.diag(self.values), eye, -np.eye(1))
        right = np.concatenate([self.axes, steps.T, step[:, None]], axis=1)
        centred = svd.decompose_product(left, core, right, self.rank)
        return replace(self, mean=base + step, centred=centred, total=max(float(total), 0.0))

    def refresh(self, rows: Floats) -> Self:
        """The same from all of its rows (n, d) again: mean and total exact, axes nearly.

        One step of subspace iteration, V to the span of X^T X V, and the SVD of X in that span.
        What the cuts have dropped of the rows counts again. O(n d r).
        """
        mean = rows[0] + (rows - rows[0]).mean(axis=0)
        steps = rows - mean
        basis = np.linalg.qr(steps.T @ (steps @ self.axes))[0]
        centred = svd.decompose_product(steps @ basis, np.eye(basis.shape[1]), basis, self.rank)
        return replace(self, mean=mean, centred=centred, total=float(np.sum(steps**2)))
