"""Walks of lists and of edges, as tests make them."""

from __future__ import annotations

import numpy as np
from scipy.spatial.distance import cdist

from streamembed.spectral import adjacency
from streamembed.spectral.neighbor_walk import Walk, build_walk


def walk_on_lists(
    near: np.ndarray,
    d2: np.ndarray,
    weights: str = "binary",
    scale: float = 1.0,
    masses: np.ndarray | None = None,
) -> Walk:
    """Points are joined where either lists the other."""
    return build_walk(adjacency.join_lists((near, d2), weights, scale), masses)


def walk_on_edges(
    heads: np.ndarray,
    ends: np.ndarray,
    d2: np.ndarray,
    n: int,
    weights: str = "binary",
    scale: float = 1.0,
) -> Walk:
    """Every edge once, in either direction or once in each."""
    return build_walk(adjacency.join_edges((heads, ends, d2), n, weights, scale), None)


def find_nearest(points: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and indices of the nearest others, ascending, (n, k); ties by index."""
    d2 = cdist(points, points, "sqeuclidean")
    np.fill_diagonal(d2, np.inf)
    near = np.argsort(d2, axis=1, kind="stable")[:, : min(k, len(points) - 1)]
    return np.take_along_axis(d2, near, axis=1), near
