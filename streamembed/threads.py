"""One BLAS thread wherever state or snapshots are computed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np  # noqa: F401  (its BLAS must be loaded before the controller looks for it)
import scipy.linalg  # noqa: F401  (and scipy's own)
from threadpoolctl import ThreadpoolController

__all__ = ["one_blas_thread"]

_BLAS = [
    library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"
]


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run the block with one BLAS thread: two are up to 40 times slower here, and differ in bits.

    The libraries are found once; entering costs a few microseconds, where a fresh
    ``threadpool_limits`` looks through the whole process.
    """
    before = [library.num_threads for library in _BLAS]
    for library in _BLAS:
        library.set_num_threads(1)
    try:
        yield
    finally:
        for library, threads in zip(_BLAS, before, strict=True):
            library.set_num_threads(threads)
