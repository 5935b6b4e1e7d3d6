"""Coordinates on their way out: columns that have names, in the kind of table that points came in.

A column is called after what made it, ``diffusion_map_0`` or ``eig_dml_3``, everywhere the same: in
dicts, data frames and Arrow tables. So two of them beside one another do not collide.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.data.table import Frame, are_dicts, frame_of, is_frame
from streamembed.numeric.arrays import Floats

__all__ = ["as_given", "column_names", "give_back", "prefix_of", "whole_frame"]


@lru_cache
def column_names(prefix: str, width: int) -> tuple[str, ...]:
    """The names of so many coordinates.

    Examples
    --------
    >>> column_names("pca", 2)
    ('pca_0', 'pca_1')
    """
    return tuple(f"{prefix}_{j}" for j in range(width))


@lru_cache
def prefix_of(kind: str) -> str:
    """What a class's coordinates are called after: its name as a function's is written.

    Examples
    --------
    >>> prefix_of("KernelPCA"), prefix_of("GeometricMeanMetric")
    ('kernel_pca', 'geometric_mean_metric')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


def whole_frame(X: Any) -> Any:
    """A data frame or Arrow table, read from its source, which may give it only once; or X."""
    return X if isinstance(X, (np.ndarray, Batch)) or not is_frame(X) else frame_of(X)


def as_given(coordinates: Floats, X: Any, read: Any, prefix: str) -> Any:
    """Coordinates (n, m) as the kind of data frame or Arrow table that X is; else as they are.

    ``read`` is what `whole_frame` made of X.
    """
    if not isinstance(read, Frame):
        return coordinates
    return give_back(coordinates, X, read.native, column_names(prefix, coordinates.shape[1]))


def give_back(coordinates: Floats, X: Any, frame: Any, names: tuple[str, ...]) -> Any:
    """Coordinates (n, m) as the kind of table that X is.

    Parameters
    ----------
    frame
        The Arrow table or narwhals frame that X was read as, or None. A pandas index is kept.
    names
        Of the m columns.
    """
    if frame is None:
        if are_dicts(X):
            return [dict(zip(names, row, strict=True)) for row in coordinates.tolist()]
        return coordinates
    columns = {name: coordinates[:, j] for j, name in enumerate(names)}
    if isinstance(X, pa.RecordBatch):
        return pa.record_batch(columns)
    if isinstance(frame, pa.Table):
        return pa.table(columns)
    found = nw.from_dict(columns, backend=frame.implementation).to_native()
    index = nw.maybe_get_index(frame)
    if index is not None:
        found.index = index
    return found
