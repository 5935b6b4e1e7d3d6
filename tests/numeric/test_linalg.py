"""Small dense linear algebra where LAPACK does not do what it mostly does."""

from __future__ import annotations

import numpy as np
import pytest

from streamembed.numeric import linalg
from streamembed.numeric.arrays import Floats


def test_eigenpairs_come_where_divide_and_conquer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenBLAS's dsyevd failed on a finite matrix of eigenvalues 1 and -1 in the fuzz of graphs."""

    def fails(matrix: Floats) -> tuple[Floats, Floats]:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    matrix = np.random.default_rng(0).standard_normal((6, 6))
    matrix = linalg.symmetric(matrix)
    values, vectors = linalg.descending_eigh(matrix)
    monkeypatch.setattr(np.linalg, "eigh", fails)
    again, others = linalg.descending_eigh(matrix)
    np.testing.assert_allclose(again, values, atol=1e-13)
    np.testing.assert_allclose(np.abs(others.T @ vectors), np.eye(6), atol=1e-12)
    with pytest.raises(np.linalg.LinAlgError):
        linalg.descending_eigh(np.full((2, 2), np.nan))
