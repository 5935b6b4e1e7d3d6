"""Connected components of a dense kernel: as many eigenvalues 1 as there are of them.

Source: Chung (1997), "Spectral Graph Theory", lemma 1.7: the multiplicity of the eigenvalue 1 of a
Markov operator is the number of components, and their indicators span its eigenspace.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from streamembed.numeric.arrays import Array, Floats, Ints

# A kernel value below this is nothing beside the 1 on the diagonal: with float64 arithmetic the
# eigenvalue of two parts that share only such weights is 1 twice.
WEIGHTLESS = float(np.finfo(np.float64).eps)
# Rows looked at in one step: enough to reach most of a connected graph at once.
STEP = 32


def label_components(read_rows: Callable[[Ints], Array], n: int) -> Ints:
    """The component of every row, shape (n,), numbered from 0 by their first rows.

    Parameters
    ----------
    read_rows
        slots -> their rows of W, shape (b, n): symmetric, 1 on the diagonal.

    Returns
    -------
    A connected graph needs as many rows as it takes to reach all others, a disconnected one O(n^2).

    Examples
    --------
    >>> import numpy as np
    >>> weights = np.array([[1.0, 0.0, 0.5], [0.0, 1.0, 0.0], [0.5, 0.0, 1.0]])
    >>> label_components(lambda slots: weights[slots], 3).tolist()
    [0, 1, 0]
    """
    labels = np.full(n, -1, dtype=np.int64)
    n_components = 0
    first = 0
    while first < n:
        labels[first] = n_components
        queue = np.array([first])
        while len(queue):
            batch, queue = queue[:STEP], queue[STEP:]
            unlabelled = np.flatnonzero(labels < 0)
            if len(unlabelled) == 0:
                return labels
            reached = unlabelled[(read_rows(batch)[:, unlabelled] > WEIGHTLESS).any(axis=0)]
            labels[reached] = n_components
            queue = np.concatenate([queue, reached])
        n_components += 1
        unlabelled_rows = np.flatnonzero(labels < 0)
        first = int(unlabelled_rows[0]) if len(unlabelled_rows) else n
    return labels


def build_component_basis(labels: Ints, constant: Floats, limit: int) -> Floats:
    """An orthonormal basis of the eigenspace of 1, without the constant, shape (n, c - 1).

    Parameters
    ----------
    labels
        From `label_components`.
    constant
        v_0, shape (n,): the unit eigenvector of 1 that every operator has.
    limit
        Columns at most.
    """
    count = int(labels.max()) + 1
    members = (labels[:, None] == np.arange(min(count, limit + 1))).astype(np.float64)
    block = members * constant[:, None]
    block /= np.linalg.norm(block, axis=0)
    block -= np.outer(constant, constant @ block)
    left_vectors, sizes, _ = np.linalg.svd(block, full_matrices=False)
    return left_vectors[:, sizes > 1e-8][:, :limit]
