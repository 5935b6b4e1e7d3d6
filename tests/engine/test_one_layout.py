"""An engine that was saved and loaded at any moment goes on to the same bytes.

A file has one memory layout, and products with another differ in their last bits: columns of a
frame were by columns until the first renewal, and of 400 engines 28 went on to other bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import streamembed as se

METHODS: dict[str, dict[str, Any]] = {
    "diffusion_map": {"metrics": ("itml",)},
    "laplacian_eigenmaps": {"n_neighbors": 5, "picture": True},
    "lle": {"n_neighbors": 5},
    "isomap": {"n_neighbors": 5},
    "pca": {},
    "linear_eigenmap": {"n_neighbors": 5},
    "classical_mds": {},
    "kernel_pca": {},
}
CALLS = (1, 2, 20, 7, 10, 30, 20)


def arrays(value: Any, path: str = "progress") -> Iterator[tuple[str, Any]]:
    """Every array below a value, with where it is."""
    if isinstance(value, np.ndarray):
        yield path, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for one in dataclasses.fields(value):
            yield from arrays(getattr(value, one.name), f"{path}.{one.name}")
    elif isinstance(value, (tuple, list)):
        for i, one in enumerate(value):
            yield from arrays(one, f"{path}.{i}")
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from arrays(one, f"{path}.{key}")


def engine_of(method: str) -> se.Engine:
    fixed = {"size": 40, "warm_up": 20, "chunk_size": 5}
    return se.Engine(**{**fixed, "method": method, **METHODS[method]})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "method",
    [pytest.param(name, marks=pytest.mark.long) if name == "isomap" else name for name in METHODS],
)
def test_all_that_is_kept_has_the_layout_of_files(method: str) -> None:
    """Matrices are kept row by row."""
    engine, rng = engine_of(method), np.random.default_rng(1)
    for count in CALLS:
        engine.learn(rng.standard_normal((count, 3)))
        for path, array in arrays(engine._progress):
            assert array.ndim < 2 or array.flags.c_contiguous, path
