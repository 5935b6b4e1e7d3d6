"""The leading pairs of a sparse walk, kept through changes by one round of a filter.

Symbols: S = the walk's operator (n, n), theta = Ritz values, psi = V / sqrt(pi) = the block.

A chunk changes about c (1 + 2 K) rows of S. The error that this makes in V sits on those rows, so
it is spread over the whole spectrum, and a short polynomial that damps all of it evenly is enough
(`streamembed.spectral.fixed_gain`); what that leaves between the damped and the wanted values is
in the block as guards. Parts of the graph are no matter of the filter: their eigenvalue 1 is
deflated exactly.

Source: Zhou & Saad (2007), "A Chebyshev-Davidson algorithm for large symmetric eigenproblems".
Differs: psi is kept, not V: where a degree changes, the eigenfunction is what stays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.sparse.linalg import ArpackError, eigsh

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.linalg import descending_eigh
from streamembed.spectral.fixed_gain import amplify, ritz
from streamembed.spectral.neighbor_walk import Parts, Walk, contrasts

__all__ = ["Block", "Measured", "Report", "lowest", "measure", "refine", "start", "update"]

# Columns beyond the wanted ones: guards, the last of which is drawn anew with every chunk.
GUARDS = 7
# Up to so many points, or so many columns' worth of them, all pairs at once cost no more.
DENSE, DENSE_COLUMNS = 128, 2
# Degree and gain of a round, above and up to a tolerance of 1e-3. More gain at one degree lowers
# the residual, but leaves slow modes behind; degree 6 leaves twice the angle of degree 7, and needs
# a second round for every third chunk of 500 points without structure, 7 for every eighth.
COARSE, FINE, FINE_TOLERANCE = (7, 20.0), (8, 40.0), 1e-3
# A second round has slower modes to raise than the first, and no chunk's error to spread.
LATER = (12, 300.0)
# Rounds at most: of one chunk, and of a block that starts from random columns.
ROUNDS, COLD_ROUNDS = 8, 60
# Of the tolerance, for a block from random columns: what came from chunk to chunk has slow modes
# that are far nearer than its residual says.
COLD_SHARE = 0.1
# Below the least eigenvalue that a coarse Lanczos finds; its own precision.
LOW_MARGIN, LOW_PRECISION = 0.02, 1e-2


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """What persists between two chunks.

    Attributes
    ----------
    psi : (n, m)
        Near eigenfunctions, orthonormal under pi, by slot; float32, or float64 for tolerances that
        float32 cannot show. 0 at isolated points.
    values : (m,)
        theta, descending, without the eigenvalues 1 of the parts.
    labels : (n,)
        The parts that were deflated; see `sparse.Parts`.
    low : float
        At most the least eigenvalue of S, or nearly; -1 always is.
    """

    psi: Array
    values: Floats
    labels: Ints
    low: float


@dataclass(frozen=True, slots=True)
class Report:
    """What an update did.

    Attributes
    ----------
    rounds : int
        Of the filter; 0 where all pairs were computed at once.
    residual : float
        max ||S v_i - theta_i v_i|| over the wanted columns, before they were stored.
    """

    rounds: int
    residual: float


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Leading pairs of S without v_0, measured as they would be published.

    Attributes
    ----------
    values : (c,)
        Rayleigh quotients, descending; the first ``exact`` are 1 because of parts.
    vectors, errors : (n, c)
        V, orthonormal and orthogonal to v_0, and E = S V - V diag(values), in float64.
    exact : int
        How many columns are combinations of parts, without any error but rounding.
    """

    values: Floats
    vectors: Floats
    errors: Floats
    exact: int


def start(
    walk: Walk,
    parts: Parts,
    count: int,
    tolerance: float,
    seed: int,
    dtype: npt.DTypeLike = np.float32,
) -> tuple[Block, Report]:
    """The block of a walk that nothing is known of.

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
    dtype
        Of the block: float64 for tolerances that float32 cannot show.
    """
    n = len(walk.degrees)
    nothing = Block(np.zeros((n, 0), dtype), np.zeros(0), parts.labels, lowest(walk, seed))
    return refine(nothing, walk, parts, count, COLD_SHARE * tolerance, (seed, n), COLD_ROUNDS)


def update(
    block: Block,
    walk: Walk,
    parts: Parts,
    refilled: Ints,
    count: int,
    tolerance: float,
    seed: int,
    position: int,
) -> tuple[Block, Report]:
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
    block, report
        Usually after one round: d + 1 products of S with m columns, O(n m (K + m)).

    Notes
    -----
    A new point starts at the mean of its neighbours' psi: one step of the walk. One whose
    neighbours are all new starts at 0; the random column is large on new points, so that a group
    that came whole is seen.
    """
    n, old = len(walk.degrees), block.labels
    grown = n - len(old)
    psi = np.concatenate([block.psi, np.zeros((grown, block.psi.shape[1]), block.psi.dtype)])
    before = np.concatenate([old, np.full(grown, -1, dtype=old.dtype)])
    before[refilled] = -1
    new = before < 0
    psi[new] = 0.0
    fresh = np.flatnonzero(new & (parts.labels >= 0))
    root = walk.constant
    if len(fresh):
        rows = walk.operator[fresh]
        known = np.where(new, 0.0, root)
        share = (rows @ known)[:, None]
        mean = rows @ (known[:, None] * psi)
        psi[fresh] = np.divide(mean, share, out=np.zeros_like(mean), where=share > 0)
    joined = _joined(before, parts.labels)
    if joined is not None:  # what was an eigenfunction of parts is one of the block's now
        split = contrasts(joined, walk.degrees, count + GUARDS)
        inverse = np.divide(1.0, root, out=np.zeros(n), where=root > 0)
        psi = np.concatenate([(split * inverse[:, None]).astype(psi.dtype), psi], axis=1)
    settled = Block(psi, block.values, parts.labels, block.low)
    return refine(settled, walk, parts, count, tolerance, (seed, position, n), ROUNDS, fresh)


def refine(
    block: Block,
    walk: Walk,
    parts: Parts,
    count: int,
    tolerance: float,
    draw: tuple[int, ...],
    most: int = ROUNDS,
    fresh: Ints | None = None,
) -> tuple[Block, Report]:
    """The same block after further rounds, until its residual is within ``tolerance``.

    Parameters
    ----------
    draw
        What decides the random columns.
    most
        Rounds at most.
    fresh
        Slots on which random columns are large.
    """
    n, wanted = len(walk.degrees), max(count - max(parts.count - 1, 0), 1)
    width = count + GUARDS
    if n <= max(DENSE, DENSE_COLUMNS * width):
        return _decompose(block, walk, parts, width)
    dtype = block.psi.dtype
    operator = walk.operator.astype(dtype, copy=False)
    root = walk.constant
    kept = block.psi[:, : max(width - 1, block.psi.shape[1] - 1)]
    drawn = max(width - kept.shape[1], 1)
    noise = np.random.default_rng(draw).standard_normal((n, drawn), dtype=np.float32)
    if fresh is not None and len(fresh):
        noise[fresh] *= np.sqrt(n / len(fresh))
    vectors = root.astype(dtype)[:, None] * np.concatenate([kept, noise.astype(dtype)], axis=1)
    values, low, residual, rounds = block.values, block.low, np.inf, 0
    degree, gain = COARSE if tolerance > FINE_TOLERANCE else FINE
    if len(values) < wanted:  # nothing is known of the last wanted value
        values, vectors, residual = ritz(walk.operator, parts, vectors, wanted)
    while rounds < most and len(values):
        target = float(values[min(wanted, len(values)) - 1])
        filtered = amplify(operator, vectors.astype(dtype), target, low, degree, gain)
        values, vectors, residual = ritz(walk.operator, parts, filtered, wanted)
        rounds += 1
        degree, gain = LATER
        if (
            low > -1.0 and values.min(initial=0.0) < low
        ):  # S has one as small, so that ``low`` is none
            low = -1.0
        elif residual <= tolerance:
            break
    inverse = np.divide(1.0, root, out=np.zeros(n), where=root > 0)
    psi = (vectors[:, :width] * inverse[:, None]).astype(dtype)
    return Block(psi, values[:width], parts.labels, low), Report(rounds, residual)


def measure(block: Block, walk: Walk, parts: Parts, count: int) -> Measured:
    """The first ``count`` pairs of a block and of the parts, exactly as they are stored.

    One float64 product of ``count`` columns: O(n K count).
    """
    split = contrasts(parts.labels, walk.degrees, count)
    rest = max(count - split.shape[1], 0)
    own = parts.deflate(walk.constant[:, None] * block.psi[:, :rest].astype(np.float64))
    vectors = np.concatenate([split, own], axis=1)
    lengths = np.sqrt(np.einsum("ij,ij->j", vectors, vectors))
    vectors = vectors[:, lengths > 0] / lengths[lengths > 0]
    gram = vectors.T @ vectors  # float32 columns are orthonormal to 1e-6; one step squares that
    vectors = vectors @ (1.5 * np.eye(len(gram)) - 0.5 * gram)
    image = walk.operator @ vectors
    values = np.einsum("ij,ij->j", vectors, image)
    order = np.argsort(-values[split.shape[1] :], kind="stable") + split.shape[1]
    order = np.concatenate([np.arange(split.shape[1]), order])
    values, vectors, image = values[order], vectors[:, order], image[:, order]
    return Measured(values, vectors, image - vectors * values, split.shape[1])


def lowest(walk: Walk, seed: int) -> float:
    """A little below the least eigenvalue of S, by a coarse Lanczos; -1 where that fails."""
    n = len(walk.degrees)
    if n <= DENSE:
        return -1.0
    begin = np.random.default_rng((seed, n)).standard_normal(n)
    try:
        found = eigsh(
            walk.operator, 1, which="SA", v0=begin, tol=LOW_PRECISION, return_eigenvectors=False
        )
    except ArpackError:
        return -1.0
    return max(-1.0, min(float(found[0]), 0.0) - LOW_MARGIN)


def _joined(old: Ints, labels: Ints) -> Ints | None:
    """Old parts that share a new one, numbered from 0, -1 elsewhere; None where there are none."""
    if old.max(initial=-1) < 1:
        return None
    known = np.flatnonzero((old >= 0) & (labels >= 0))
    # a part that split, and whose pieces were joined to others, is a piece for each
    base = int(old.max()) + 1
    names, place = np.unique(labels[known] * base + old[known], return_inverse=True)
    several = np.bincount(names // base)[names // base] > 1
    if not several.any():
        return None
    joined = np.full(len(old), -1, dtype=np.int64)
    number = np.where(several, np.cumsum(several) - 1, -1)
    joined[known] = number[place]
    return joined


def _decompose(block: Block, walk: Walk, parts: Parts, width: int) -> tuple[Block, Report]:
    """All pairs at once, of a few points."""
    n, root = len(walk.degrees), walk.constant
    basis = parts.basis.toarray()
    # what is no part of the answer goes below every eigenvalue of S
    matrix = walk.operator.toarray() - 3.0 * (basis @ basis.T)
    matrix[parts.isolated, parts.isolated] = -2.0
    values, vectors = descending_eigh(matrix)
    kept = min(width, n - parts.count - len(parts.isolated))
    inverse = np.divide(1.0, root, out=np.zeros(n), where=root > 0)
    psi = (vectors[:, :kept] * inverse[:, None]).astype(block.psi.dtype)
    return Block(psi, values[:kept], parts.labels, block.low), Report(0, 0.0)
