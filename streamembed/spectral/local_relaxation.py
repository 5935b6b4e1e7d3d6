"""A block of eigenfunctions that is followed only where its graph changed.

Symbols: W = weights, q = W 1, D = diag(q), P = D^-1 W = the walk; Psi (n, m) = a basis of near
eigenfunctions, in which a constant on every part is allowed; Y = W Psi; C, theta = Ritz pairs.

A chunk of ten changes some 500 rows of W, however many there are. Psi, Y and the Gram matrices
G = Psi^T D Psi, H = Psi^T Y, F = Y^T D^-1 Y are kept, and rows that change are taken out of these
and put in again. So the Ritz pairs of Psi and their residuals, C^T F C - theta^2, are known without
a product with W. Rows whose residual is large take a step of the walk, psi_i += (P psi)_i - psi_i M
with M = C theta C^-1, and then their neighbours are looked at.

Rounding adds up in the Gram matrices; a whole round now and then makes them again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.linalg import solve_triangular

from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.block import Block, Relaxation, place_arrivals
from streamembed.spectral.neighbor_walk import Parts, Walk

# Steps at most: what lies above a wanted value grows with each. After four a hundredth of the rows
# is left over.
STEPS = 4
# Share of a column's length that must be its own.
OWN = 1e-3
# By how much squared residuals may be off, as differences of squares of sums that were edited a
# hundred times: ten times what was seen. For tolerances below the second that is too much.
ROUNDING, LEAST_TOLERANCE = 1e-13, 1e-4


def begin(block: Block, walk: Walk, parts: Parts) -> Block:
    """The same block with what `follow` needs; as it is where its columns are dependent."""
    psi = block.rotate()
    image = walk.graph @ psi
    grams = _compute_grams(psi, image, walk.degrees)
    return _solve(block, psi, image, grams, walk, parts) or block


def follow(
    block: Block,
    before: Walk,
    walk: Walk,
    parts: Parts,
    touched: Ints,
    slots: Ints,
    n_wanted: int,
    tolerance: float,
) -> Block | None:
    """A block with a relaxation after rows of its walk have changed.

    Parameters
    ----------
    before, walk, parts
        Before and after the chunk, without masses; no point is isolated, and the parts are those
        that the block knows.
    touched
        Rows of W that changed.
    slots
        Those that hold other points.
    n_wanted
        How many leading pairs are relaxed.
    tolerance
        A row is relaxed if residuals would be above it were all rows as far off. They stay at a
        quarter of it (20,000 and 50,000 points in two dimensions); with a threshold of 0.3 of it at
        a tenth, for 34,000 rows a chunk in place of 9,500.

    Returns
    -------
    None where the columns have become dependent.
    """
    assert block.relaxed is not None
    relaxed, degrees, graph = block.relaxed, walk.degrees[:, None], walk.graph
    n, total = len(degrees), float(walk.degrees.sum())
    psi, image = block.psi.copy(), relaxed.image.copy()
    place_arrivals(psi, walk, slots)
    step = relaxed.mix @ (block.values[:, None] * np.linalg.inv(relaxed.mix))
    offsets = relaxed.means @ step - relaxed.means
    wanted = relaxed.mix[:, :n_wanted]
    largest = tolerance**2 * total / n
    is_changed = np.zeros(n, dtype=bool)
    rows = _join(n, touched, slots, graph[slots].indices)
    for attempt in range(STEPS + 1):
        is_changed[rows] = True
        image[rows] = graph[rows] @ psi
        if attempt == STEPS:
            break
        residuals = image[rows] / degrees[rows]
        residuals += offsets[block.labels[rows]]
        residuals -= psi[rows] @ step
        errors = residuals @ wanted
        is_large = degrees[rows, 0] * np.einsum("ij,ij->i", errors, errors) > largest
        if not is_large.any():
            break
        rows = rows[is_large]
        psi[rows] += residuals[is_large]
        rows = _join(n, rows, graph[rows].indices)
    rows = np.flatnonzero(is_changed)
    grams = relaxed.grams + _compute_grams(psi[rows], image[rows], walk.degrees[rows])
    grams -= _compute_grams(block.psi[rows], relaxed.image[rows], before.degrees[rows])
    return _solve(replace(block, labels=parts.labels), psi, image, grams, walk, parts)


def _join(n: int, *groups: Ints) -> Ints:
    """All of them, ascending, each once."""
    is_named = np.zeros(n, dtype=bool)
    for group in groups:
        is_named[group] = True
    return np.flatnonzero(is_named)


def _compute_grams(psi: Floats, image: Floats, degrees: Floats) -> Floats:
    """G, H and F of some rows, (3, m, m)."""
    weighted = image / degrees[:, None]
    return np.stack([psi.T @ (degrees[:, None] * psi), psi.T @ image, image.T @ weighted])


def _solve(
    block: Block, psi: Floats, image: Floats, grams: Floats, walk: Walk, parts: Parts
) -> Block | None:
    """The block with the Ritz pairs of ``psi``, without the eigenvalue 1 of the parts."""
    degrees, total = walk.degrees, float(walk.degrees.sum())
    if parts.count == 1:
        sums, volumes = (degrees @ psi)[None, :], np.array([total])
    else:
        volumes = np.bincount(parts.labels, weights=degrees, minlength=parts.count)
        sums = np.sqrt(volumes)[:, None] * (parts.basis.T @ (np.sqrt(degrees)[:, None] * psi))
    gram, inside, outside = grams - sums.T @ (sums / volumes[:, None])
    scales = np.sqrt(np.maximum(gram.diagonal(), np.finfo(np.float64).tiny))
    try:
        lower = np.linalg.cholesky(gram / np.outer(scales, scales))
    except np.linalg.LinAlgError:
        return None
    if not (np.diag(lower) > OWN).all():
        return None
    lower *= scales[:, None]
    half = solve_triangular(lower, inside, lower=True)
    values, mix = descending_eigh(solve_triangular(lower, half.T, lower=True))
    mix = solve_triangular(lower, mix, lower=True, trans="T")
    products = mix.T @ outside @ mix - np.diag(values**2 - ROUNDING)
    products = 0.5 * (products + products.T)
    relaxed = Relaxation(grams, sums / volumes[:, None], np.sqrt(total) * mix, image)
    return replace(block, psi=psi, values=values, products=products, relaxed=relaxed)
