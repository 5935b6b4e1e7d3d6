"""Small dense linear algebra where LAPACK does not do what it mostly does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

from streamembed.numeric import linalg
from streamembed.numeric.arrays import Floats


def test_eigenpairs_come_where_divide_and_conquer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS's dsyevd failed on a finite matrix of eigenvalues 1 and -1 in the fuzz of graphs."""

    def fails(matrix: Floats) -> tuple[Floats, Floats]:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    matrix = np.random.default_rng(0).standard_normal((6, 6))
    matrix = linalg.symmetrise(matrix)
    values, vectors = linalg.descending_eigh(matrix)
    monkeypatch.setattr(np.linalg, "eigh", fails)
    again, others = linalg.descending_eigh(matrix)
    np.testing.assert_allclose(again, values, atol=1e-13)
    np.testing.assert_allclose(np.abs(others.T @ vectors), np.eye(6), atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.descending_eigh(np.full((2, 2), np.nan))


def test_the_largest_pairs_come_where_a_subset_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """LAPACK gave up on the kernel of pictures whose every pixel is rare: all eigenvalues 1."""
    matrix = linalg.symmetrise(np.random.default_rng(1).standard_normal((9, 9)))
    values, vectors = linalg.largest_pairs(matrix, 3)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrix)[-3:], atol=1e-12)
    whole = scipy.linalg.eigh

    def fails(matrix: Floats, **options: Any) -> tuple[Floats, Floats]:
        if "subset_by_index" in options:
            raise np.linalg.LinAlgError("Internal Error.")
        return whole(matrix, **options)  # type: ignore[no-any-return]

    monkeypatch.setattr(scipy.linalg, "eigh", fails)
    again, others = linalg.largest_pairs(matrix, 3)
    np.testing.assert_allclose(again, values, atol=1e-12)
    np.testing.assert_allclose(np.abs(others.T @ vectors), np.eye(3), atol=1e-12)
