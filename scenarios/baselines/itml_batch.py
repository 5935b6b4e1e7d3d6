"""ITML of all pairs at once: sweeps until the conditions of the optimum hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamembed.metrics import bregman, itml
from streamembed.metrics.bregman import Constraints
from streamembed.numeric.arrays import Floats

__all__ = ["solve"]


def solve(
    pairs: Constraints,
    prior: Floats | None = None,
    tolerance: float = 1e-6,
    max_sweeps: int = 3000,
    seed: int | None = 0,
) -> tuple[Floats, Constraints, int]:
    """argmin D(A, A_0) + gamma D(xi, xi_0) with s (p - xi) <= 0 for all pairs.

    Parameters
    ----------
    prior
        A_0; None: the identity.
    tolerance
        Largest residual to stop at; see `bregman.compute_residuals`.
    max_sweeps
        Where to give up.
    seed
        Of the order within a sweep; None: that of the pairs, as in the source.

    Returns
    -------
    A, the pairs with their duals, and the sweeps. O(n d^2) a sweep.

    Source: Davis et al. (2007), algorithm 1. Differs: it stops by the optimality conditions, not
    when duals move little, which they do long before; random order, which takes tens of sweeps
    where the fixed one takes up to thousands.
    """
    memory = replace(
        itml.init(np.eye(pairs.differences.shape[1]) if prior is None else prior), pairs=pairs
    )
    draws = np.random.default_rng(seed)
    for n_sweeps in range(max_sweeps + 1):
        residuals = bregman.compute_residuals(memory.matrix, memory.pairs)
        if residuals.max(initial=0.0) <= tolerance or n_sweeps == max_sweeps:
            return memory.matrix, memory.pairs, n_sweeps
        order = np.arange(len(pairs)) if seed is None else draws.permutation(len(pairs))
        _, duals = bregman.sweep(memory.matrix, memory.pairs, order)
        memory = replace(memory, pairs=replace(memory.pairs, duals=duals))
        matrix = memory.rebuilt()
        assert matrix is not None
        memory = replace(memory, matrix=matrix)
    raise AssertionError
