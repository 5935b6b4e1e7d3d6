"""The leading pairs of a sparse walk, tracked through changes by one round of a filter.

Symbols: S = the walk's operator (n, n), theta = Ritz values, psi = V / sqrt(pi) = the block.

A chunk changes about c (1 + 2 K) rows of S. The error that this makes in V sits on those rows, so
it is spread over the whole spectrum, and a short polynomial that damps all of it evenly is enough
(`streamembed.spectral.fixed_gain`); what that leaves between the damped and the wanted values is
in the block as guards. Parts of the graph are no matter of the filter: their eigenvalue 1 is
deflated exactly.

Source: Zhou & Saad (2007), "A Chebyshev-Davidson algorithm for large symmetric eigenproblems".
Differs: psi is stored, not V: where a degree changes, the eigenfunction stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy

from streamembed.numeric.arrays import Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.fixed_gain import amplify, deflate_ritz_pairs
from streamembed.spectral.neighbor_walk import Parts, Walk, build_contrasts

# Columns beyond the wanted ones, at least: guards, the last of which is drawn again with every
# chunk. And what the width is a multiple of: 20 float32 columns are multiplied faster than 18.
GUARDS, LANES = 7, 4
# Up to this many points, or this many times the columns, all pairs at once cost no more.
DENSE, DENSE_COLUMNS = 128, 2
# Degree and gain of a round, above and up to a tolerance of 1e-3. More gain at one degree lowers
# the residual, but leaves slow modes behind; degree 6 leaves twice the angle of degree 7, and needs
# a second round for every third chunk of 500 points without structure, 7 for every eighth.
COARSE, FINE, FINE_TOLERANCE = (7, 20.0), (8, 40.0), 1e-3
# A second round has slower modes to raise than the first, and no chunk's error to spread.
LATER = (12, 300.0)
# The filter is in float64 for tolerances below this; what follows it always is.
SINGLE = 1e-4
# Rounds at most: of one chunk, and of a block that starts from random columns.
ROUNDS, COLD_ROUNDS = 8, 60
# Of the tolerance, for a block from random columns: one that came from chunk to chunk has slow
# modes that are far nearer than its residual shows.
COLD_SHARE = 0.1
# Below the least eigenvalue that a coarse Lanczos finds; its own precision.
LOW_MARGIN, LOW_PRECISION = 0.02, 1e-2


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The part that persists between two chunks."""

    # Near eigenfunctions, orthonormal under pi, by slot, and 0 at isolated points.
    psi: Annotated[Floats, "slots m"]
    # theta, descending, without the eigenvalues 1 of the parts.
    values: Annotated[Floats, "m"]
    products: Annotated[Floats, "m m"]  # E^T E of E = S V - V diag(theta)
    # The parts that were deflated; see `neighbor_walk.Parts`.
    labels: Annotated[Ints, "slots", "one of its rows or -1"]
    # At most the least eigenvalue of S, or nearly; -1 always is.
    low: float


@dataclass(frozen=True, slots=True)
class Info:
    """The rounds of an update, and the residual."""

    rounds: int  # of the filter; 0 where all pairs were computed at once
    residual: float  # max ||S v_i - theta_i v_i|| over the wanted columns


@dataclass(frozen=True, slots=True, eq=False)
class RitzPairs:
    """Leading pairs of S without v_0, as they are published."""

    # (c,): Rayleigh quotients, descending; the first ``exact`` are 1 because of parts.
    values: Floats
    vectors: Floats  # (n, c): V, orthonormal and orthogonal to v_0
    products: Floats  # (c, c): E^T E of E = S V - V diag(values)
    exact: int  # how many columns are combinations of parts, without any error but rounding


def start(
    walk: Walk,
    parts: Parts,
    count: int,
    tolerance: float,
    seed: int,
) -> tuple[Block, Info]:
    """The block of a walk, from scratch.

    Parameters
    ----------
    walk, parts
        From `streamembed.spectral.neighbor_walk`.
    count
        How many pairs beside v_0 are wanted, those of parts included.
    tolerance
        Largest residual norm of the wanted pairs.
    seed
        Of the random columns.
    """
    n = len(walk.degrees)
    none, low = np.zeros((0, 0)), bound_least_eigenvalue(walk, seed)
    empty = Block(np.zeros((n, 0)), np.zeros(0), none, parts.labels, low)
    return refine(empty, walk, parts, count, COLD_SHARE * tolerance, (seed, n), COLD_ROUNDS)


def update(
    block: Block,
    walk: Walk,
    parts: Parts,
    refilled: Ints,
    count: int,
    tolerance: float,
    seed: int,
    position: int,
) -> tuple[Block, Info]:
    """The block after a chunk has changed the walk.

    Parameters
    ----------
    walk, parts
        Those after the chunk: it may have more points than the block.
    refilled
        The slots that hold other points than before.
    position
        Of the stream: with ``seed`` it decides the random columns.

    Returns
    -------
    block, info
        Usually after one round: d + 1 products of S with m columns, O(n m (K + m)).

    Notes
    -----
    The random column is large on new points, so that a new group is found.
    """
    n, old = len(walk.degrees), block.labels
    n_new = n - len(old)
    psi = np.concatenate([block.psi, np.zeros((n_new, block.psi.shape[1]))])
    previous_labels = np.concatenate([old, np.full(n_new, -1, dtype=old.dtype)])
    previous_labels[refilled] = -1
    is_new = previous_labels < 0
    place_arrivals(psi, walk, np.flatnonzero(is_new))
    arrivals = np.flatnonzero(is_new & (parts.labels >= 0))
    merged = _join_parts(previous_labels, parts.labels)
    if merged is not None:  # an eigenfunction of parts is now one of the block
        split = build_contrasts(merged, walk.degrees, count + GUARDS)
        psi = np.concatenate([_to_psi(split, walk), psi], axis=1)
    extended = Block(psi, block.values, block.products, parts.labels, block.low)
    return refine(extended, walk, parts, count, tolerance, (seed, position, n), arrivals=arrivals)


def place_arrivals(psi: Floats, walk: Walk, slots: Ints) -> None:
    """Write the mean of their neighbours that are not new into the rows of new points.

    That is one step of the walk. A point whose neighbours are all new starts at 0.
    """
    psi[slots] = 0.0
    if not len(slots):
        return
    rows = walk.graph[slots]
    known = np.ones(len(psi)) if walk.masses is None else walk.masses.copy()
    known[slots] = 0.0
    share = (rows @ known)[:, None]
    mean = rows @ (psi if walk.masses is None else known[:, None] * psi)
    psi[slots] = np.divide(mean, share, out=np.zeros_like(mean), where=share > 0)


def refine(
    block: Block,
    walk: Walk,
    parts: Parts,
    count: int,
    tolerance: float,
    seed: tuple[int, ...],
    max_rounds: int = ROUNDS,
    arrivals: Ints | None = None,
) -> tuple[Block, Info]:
    """The same block after further rounds, until its residual is within ``tolerance``.

    Parameters
    ----------
    seed
        Of the random columns.
    max_rounds
        Rounds at most.
    arrivals
        Slots on which random columns are large.
    """
    n, n_wanted = len(walk.degrees), max(count - max(parts.count - 1, 0), 1)
    width = -(-(count + GUARDS) // LANES) * LANES
    if n <= max(DENSE, DENSE_COLUMNS * width):
        return _decompose(block, walk, parts, width)
    dtype = np.float64 if tolerance < SINGLE else np.float32
    root = walk.constant[:, None]
    columns = block.psi[:, : max(width - 1, block.psi.shape[1] - 1)]
    n_random = max(width - columns.shape[1], 1)
    noise = np.random.default_rng(seed).standard_normal((n, n_random), dtype=np.float32)
    if arrivals is not None and len(arrivals):
        noise[arrivals] *= np.sqrt(n / len(arrivals))
    has_unit_masses = walk.has_unit_masses  # the filter takes psi then, and V elsewhere
    start = np.concatenate([columns, noise], axis=1, dtype=np.float64)
    values, low, residual, rounds = block.values, block.low, np.inf, 0
    degree, gain = COARSE if tolerance > FINE_TOLERANCE else FINE
    products = np.zeros((0, 0))
    if len(values) < n_wanted:  # the last wanted value is unknown
        values, vectors, products = deflate_ritz_pairs(walk, parts, root * start)
        start = _to_psi(vectors, walk)
    while rounds < max_rounds and len(values):
        target = float(values[min(n_wanted, len(values)) - 1])
        chosen = (start if has_unit_masses else root * start).astype(dtype)
        filtered = amplify(walk, chosen, target, low, degree, gain).astype(np.float64, copy=False)
        if has_unit_masses:
            filtered *= root
        values, vectors, products = deflate_ritz_pairs(walk, parts, filtered)
        residual = float(np.sqrt(products.diagonal()[:n_wanted].max(initial=0.0)))
        rounds += 1
        degree, gain = LATER
        # S has an eigenvalue as small, so that ``low`` is no bound
        if low > -1.0 and values.min(initial=0.0) < low:
            low = -1.0
        elif residual <= tolerance:
            break
        if rounds < max_rounds:
            start = _to_psi(vectors, walk)
    if not rounds:
        residual = 0.0  # there is no column
    psi, products = _to_psi(vectors[:, :width], walk), products[:width, :width]
    return Block(psi, values[:width], products, parts.labels, low), Info(rounds, residual)


def select_pairs(block: Block, walk: Walk, parts: Parts, count: int) -> RitzPairs:
    """The first ``count`` pairs of the parts and of a block. Without a product: O(n count)."""
    split = build_contrasts(parts.labels, walk.degrees, count)
    exact, total = split.shape[1], min(count, split.shape[1] + block.psi.shape[1])
    others = walk.constant[:, None] * block.psi[:, : total - exact]
    products = np.zeros((total, total))
    products[exact:, exact:] = block.products[: total - exact, : total - exact]
    values = np.concatenate([np.ones(exact), block.values[: total - exact]])
    return RitzPairs(values, np.concatenate([split, others], axis=1), products, exact)


def bound_least_eigenvalue(walk: Walk, seed: int) -> float:
    """A little below the least eigenvalue of S, by a coarse Lanczos; -1 where that fails."""
    n = len(walk.degrees)
    if n <= DENSE:
        return -1.0
    start_vector = np.random.default_rng((seed, n)).standard_normal(n)
    try:
        lowest = scipy.sparse.linalg.eigsh(
            walk.operator,
            1,
            which="SA",
            v0=start_vector,
            tol=LOW_PRECISION,
            return_eigenvectors=False,
        )
    except scipy.sparse.linalg.ArpackError:
        return -1.0
    return max(-1.0, min(float(lowest[0]), 0.0) - LOW_MARGIN)


def _to_psi(vectors: Floats, walk: Walk) -> Floats:
    """psi = v / sqrt(pi); 0 at isolated points."""
    root = walk.constant
    inverse = np.divide(1.0, root, out=np.zeros(len(root)), where=root > 0)
    return vectors * inverse[:, None]


def _join_parts(old: Ints, labels: Ints) -> Ints | None:
    """Old parts that share a new one, numbered from 0, -1 elsewhere; None where there are none."""
    if old.max(initial=-1) < 1:
        return None
    members = np.flatnonzero((old >= 0) & (labels >= 0))
    # a part that split, and whose pieces were joined to others, is a piece for each
    base = int(old.max()) + 1
    names, index = np.unique(labels[members] * base + old[members], return_inverse=True)
    is_merged = np.bincount(names // base)[names // base] > 1
    if not is_merged.any():
        return None
    merged = np.full(len(old), -1, dtype=np.int64)
    merged[members] = np.where(is_merged, np.cumsum(is_merged) - 1, -1)[index]
    return merged


def _decompose(block: Block, walk: Walk, parts: Parts, width: int) -> tuple[Block, Info]:
    """All pairs at once, of a few points."""
    n = len(walk.degrees)
    basis = parts.basis.toarray()
    # directions that are not wanted go below every eigenvalue of S
    matrix = walk.operator.toarray() - 3.0 * (basis @ basis.T)
    matrix[parts.isolated, parts.isolated] = -2.0
    values, vectors = descending_eigh(matrix)
    n_kept = min(width, n - parts.count - len(parts.isolated))
    values, vectors = values[:n_kept], vectors[:, :n_kept]
    errors = walk.apply(vectors) - vectors * values
    psi = _to_psi(vectors, walk)
    return Block(psi, values, errors.T @ errors, parts.labels, block.low), Info(0, 0.0)
