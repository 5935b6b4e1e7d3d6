"""SVD updating against the dense SVD."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.numeric import svd

# Full rank: a chain of tens of updates rounds to about 1e-14 of the norm each way.
EXACT = 1e-12


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape)


def low_rank(m: int, n: int, rank: int, seed: int = 0) -> np.ndarray:
    return normal(m, rank, seed=seed) @ normal(rank, n, seed=seed + 1)


def product(factor: svd.TruncatedSVD) -> np.ndarray:
    return (factor.left * factor.values) @ factor.right.T


def check(factor: svd.TruncatedSVD, matrix: np.ndarray, tolerance: float = EXACT) -> None:
    """The factor is an SVD of ``matrix``: product, values, order, orthonormality."""
    scale = np.linalg.norm(matrix, 2)
    k = factor.rank
    dense = np.linalg.svd(matrix, compute_uv=False)
    assert factor.left.shape == (matrix.shape[0], k)
    assert factor.right.shape == (matrix.shape[1], k)
    assert np.abs(product(factor) - matrix).max() <= tolerance * scale
    assert np.abs(factor.values - dense[:k]).max() <= tolerance * scale
    assert np.all(np.diff(factor.values) <= 0)
    orthonormal(factor)


def orthonormal(factor: svd.TruncatedSVD) -> None:
    for side in (factor.left, factor.right):
        assert np.abs(side.T @ side - np.eye(factor.rank)).max(initial=0.0) <= EXACT


@pytest.mark.parametrize("shape", [(30, 20), (20, 30), (25, 25), (1, 7), (7, 1)])
def test_decompose(shape):
    """From scratch and at full rank the product is the matrix."""
    matrix = normal(*shape)
    check(svd.decompose(matrix, rank=50), matrix)


@pytest.mark.parametrize("b", [1, 3, 25, 60])
def test_full_rank_rows(b):
    """Rows appended in chunks give the SVD of the whole."""
    matrix = normal(30 + 3 * b, 40)
    factor = svd.decompose(matrix[:30], rank=200)
    for start in range(30, matrix.shape[0], b):
        factor = svd.append_rows(factor, matrix[start : start + b], rank=200)
        check(factor, matrix[: start + b])


def test_low_rank_is_not_truncated():
    """Input of rank 5 is kept exactly by a factor of rank 5, however it arrives."""
    matrix = low_rank(60, 90, 5)
    factor = svd.decompose(matrix[:10, :10], rank=5)
    for n in range(10, 60, 10):
        factor = svd.append_columns(factor, matrix[:n, n : n + 10], rank=5)
        factor = svd.append_rows(factor, matrix[n : n + 10, : n + 10], rank=5)
    factor = svd.append_columns(factor, matrix[:, 60:], rank=5)
    assert factor.rank == 5
    check(factor, matrix)


@pytest.mark.parametrize("append", ["columns", "rows"])
def test_one_cut_is_optimal(append):
    """After one update the factor is the best of its rank for [A, B], A being what was kept."""
    kept = svd.decompose(normal(40, 40), rank=8)
    added = normal(40, 10, seed=1)
    if append == "columns":
        factor = svd.append_columns(kept, added, rank=8)
        whole = np.concatenate([product(kept), added], axis=1)
    else:
        factor = svd.append_rows(kept, added.T, rank=8)
        whole = np.concatenate([product(kept), added.T])
    values = np.linalg.svd(whole, compute_uv=False)
    assert factor.rank == 8
    np.testing.assert_allclose(factor.values, values[:8], rtol=EXACT)
    # Eckart-Young: the error of the best rank-8 matrix is the ninth singular value
    assert np.linalg.norm(whole - product(factor), 2) == pytest.approx(values[8], rel=1e-10)


@pytest.mark.parametrize("gap", [1e-6, 1e-9, 1e-11, 1e-12, 1e-14])
def test_nearly_dependent_columns(gap):
    """Columns a hair apart from each other and from the old span leave the basis orthonormal."""
    matrix, new = normal(40, 6), normal(40, 3, seed=3)
    factor = svd.decompose(matrix, rank=20)
    inside = matrix @ normal(6, 1, seed=4)
    added = inside + new[:, :1] + gap * new
    added = np.concatenate([added, inside + gap * new[:, 1:2]], axis=1)
    check(
        svd.append_columns(factor, added, rank=20),
        np.concatenate([matrix, added], axis=1),
    )


def test_scale_does_not_matter():
    """The cuts are relative: data in units of 1e-150 or 1e+150 keep their rank."""
    matrix = normal(20, 12)
    for unit in (1e-150, 1e150):
        factor = svd.decompose(unit * matrix[:, :8], rank=12)
        factor = svd.append_columns(factor, unit * matrix[:, 8:], rank=12)
        check(factor, unit * matrix)


def test_inputs_untouched():
    """No argument is written to, and the result shares no memory with the state before."""
    matrix, added, rows = normal(20, 12), normal(20, 3), normal(2, 12)
    copies = [part.copy() for part in (matrix, added, rows)]
    factor = svd.decompose(matrix, rank=6)
    before = [side.copy() for side in (factor.left, factor.values, factor.right)]
    for part in (factor.left, factor.values, factor.right, matrix, added, rows):
        part.flags.writeable = False
    svd.append_columns(factor, added, rank=6)
    svd.append_rows(factor, rows, rank=6)
    for part, copy in zip((matrix, added, rows), copies, strict=True):
        assert np.array_equal(part, copy)
    for part, copy in zip((factor.left, factor.values, factor.right), before, strict=True):
        assert np.array_equal(part, copy)


# --------------------------------------------------------------------------------------- removal


# Condition 1e12; its parts have up to 1e8 and more. Index 0 is a row, or column, of zeros.
POOL = np.pad(
    np.linalg.qr(normal(40, 40, seed=8))[0]
    * np.logspace(0, -12, 40)
    @ np.linalg.qr(normal(40, 40, seed=9))[0].T,
    ((1, 0), (1, 0)),
)


def changes(count: int, seed: int):
    """Rows and columns of `POOL`, in a random walk: what comes, what leaves, what is there then.

    Indices repeat, so that there are duplicates; every 100 changes all rows or all columns leave.
    """
    rng = np.random.default_rng(seed)
    sides: list[list[int]] = [[1], [1, 2, 3]]
    for number in range(count):
        side = int(rng.integers(2))
        here, few = sides[side], int(rng.integers(1, 4))
        leaving = rng.choice(len(here), min(few, len(here)), replace=False)
        if number % 100 == 99:
            leaving = np.arange(len(here))
        if number % 100 == 99 or (here and rng.random() < len(here) / 40):
            sides[side] = [index for i, index in enumerate(here) if i not in leaving]
            yield side, leaving, None, sides
        else:
            new = rng.integers(0, 41, few).tolist()
            sides[side] = here + new
            yield side, None, np.array(new), sides


def changed(factor, side, leaving, new, sides, rank):
    """The factor after one of the `changes`."""
    if leaving is not None:
        return (svd.remove_rows, svd.remove_columns)[side](factor, leaving)
    if side == 0:
        return svd.append_rows(factor, POOL[np.ix_(new, sides[1])], rank)
    return svd.append_columns(factor, POOL[np.ix_(sides[0], new)], rank)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_thousand_changes(seed):
    """Rows and columns come and leave: after each the SVD is the dense one of what is there.

    Duplicates, zeros, nothing at all and one row are among it. A change rounds to a few eps of the
    norm, and rounding stays as long as its row and column do: 1e-12 of the largest norm so far.
    """
    factor = svd.decompose(POOL[np.ix_([1], [1, 2, 3])], rank=100)
    largest, worst_condition, sizes = 0.0, 0.0, set()
    for side, leaving, new, sides in changes(1000, seed):
        factor = changed(factor, side, leaving, new, sides, rank=100)
        matrix = POOL[np.ix_(*sides)].reshape(len(sides[0]), len(sides[1]))
        left, dense, right = np.linalg.svd(matrix, full_matrices=False)
        largest = max(largest, dense.max(initial=0.0))
        k = factor.rank
        assert np.abs(product(factor) - matrix).max(initial=0.0) <= EXACT * largest
        assert np.abs(factor.values - dense[:k]).max(initial=0.0) <= EXACT * largest
        assert dense[k:].max(initial=0.0) <= EXACT * largest
        assert factor.dropped.max(initial=0.0) <= EXACT * largest
        orthonormal(factor)
        gaps = dense[:k] - np.append(dense[1:], 0.0)[:k]
        for j in np.flatnonzero(gaps > 1e-9 * largest) + 1:
            # Wedin: the subspace turns by the error over the gap
            for ours, theirs in ((factor.left, left), (factor.right, right.T)):
                outside = theirs[:, :j] - ours[:, :j] @ (ours[:, :j].T @ theirs[:, :j])
                assert np.linalg.norm(outside, 2) <= 2 * EXACT * largest / gaps[j - 1]
        sizes.add(matrix.shape)
        if k:
            worst_condition = max(worst_condition, factor.values[0] / factor.values[-1])
    assert worst_condition > 1e8
    assert {m for m, _ in sizes} >= {0, 1, 2, 20}
    assert any(0 in shape for shape in sizes)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_dropped_is_bounded_row_by_row(seed):
    """At rank 6, decayed on the way: no row, no singular value is farther off than its bound."""
    rng = np.random.default_rng(seed)
    A = normal(30, 20, seed=seed) * np.arange(1.0, 21.0) ** -1.0
    factor, shares = svd.decompose(A, rank=6), []
    for _ in range(200):
        kind = rng.integers(5)
        if kind == 0 or A.shape[0] < 10:
            new = rng.standard_normal((3, A.shape[1]))
            factor, A = svd.append_rows(factor, new, 6), np.concatenate([A, new])
        elif kind == 1 or A.shape[1] < 10:
            new = rng.standard_normal((A.shape[0], 2))
            factor, A = svd.append_columns(factor, new, 6), np.concatenate([A, new], axis=1)
        elif kind == 4:
            factor, A = svd.decay(factor, 0.9), 0.9 * A
        else:
            leaving = rng.choice(A.shape[kind - 2], 2, replace=False)
            factor = (svd.remove_rows, svd.remove_columns)[kind - 2](factor, leaving)
            A = np.delete(A, leaving, axis=kind - 2)
        off = np.linalg.norm(A - product(factor), axis=1)
        bound = factor.dropped
        assert bound.shape == off.shape
        assert np.all(off <= bound + EXACT)
        dense = np.linalg.svd(A, compute_uv=False)[:6]
        assert np.abs(dense[: factor.rank] - factor.values).max() <= np.linalg.norm(bound)
        shares.append(np.linalg.norm(off) / np.linalg.norm(bound))
    assert 0.02 < min(shares) <= max(shares) <= 1.0 + EXACT


def test_a_window_does_not_lose_its_digits():
    """3,000 steps of rows that come and leave: orthonormal, and the dense SVD at the end.

    On the way a burst 1e6 times as large: its rounding has left when the rows beside it have.
    """
    rng = np.random.default_rng(5)
    rows = rng.standard_normal((3040, 12)) * np.logspace(0, -8, 12)
    rows[1500:1505] *= 1e6
    factor = svd.decompose(rows[:40], rank=12)
    for n in range(40, 3040, 3):
        factor = svd.remove_rows(svd.append_rows(factor, rows[n : n + 3], 12), np.arange(3))
        orthonormal(factor)
    check(factor, rows[3000:])


@pytest.mark.parametrize("order", [[5, 1, 3], [], [0], [29], list(range(30))])
def test_any_rows_and_columns_leave(order):
    """In any order, none or all; the rest keep theirs, and the input stays as it was."""
    A = normal(30, 30, seed=2)
    factor = svd.decompose(A, rank=30)
    before = [factor.left.copy(), factor.values.copy(), factor.right.copy()]
    indices = np.array(order, dtype=np.int64)
    check_left = svd.remove_rows(factor, indices), np.delete(A, indices, axis=0)
    check_right = svd.remove_columns(factor, indices), np.delete(A, indices, axis=1)
    for ours, matrix in (check_left, check_right):
        if matrix.size:
            check(ours, matrix)
        else:
            assert (ours.left.shape[0], ours.right.shape[0], ours.rank) == (*matrix.shape, 0)
    for array, old in zip((factor.left, factor.values, factor.right), before, strict=True):
        np.testing.assert_array_equal(array, old)
    with pytest.raises(IndexError):
        svd.remove_rows(factor, np.array([30]))


def test_a_decayed_factor_is_that_of_the_decayed_matrix():
    """And what comes next weighs more."""
    A, new = normal(20, 8), normal(5, 8, seed=1)
    factor = svd.append_rows(svd.decay(svd.decompose(A, 8), 0.25), new, 8)
    check(factor, np.concatenate([0.25 * A, new]))
    cut = svd.decompose(A, 3)
    np.testing.assert_array_equal(svd.decay(cut, 4.0).dropped, 4.0 * cut.dropped)
    assert cut.dropped.min() > 0
