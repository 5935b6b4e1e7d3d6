"""Walks of lists and of edges, as tests make them."""

from __future__ import annotations

import numpy as np

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
