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
from streamembed.data.table import InputFrame, are_dicts, is_frame, open_frame
from streamembed.numeric.arrays import Floats


@lru_cache
def name_columns(prefix: str, width: int) -> tuple[str, ...]:
    """The names of ``width`` coordinates.

    Examples
    --------
    >>> name_columns("pca", 2)
    ('pca_0', 'pca_1')
    """
    return tuple(f"{prefix}_{j}" for j in range(width))


@lru_cache
def derive_prefix(kind: str) -> str:
    """The prefix of a class's coordinates: its name in snake case.

    Examples
    --------
    >>> derive_prefix("KernelPCA"), derive_prefix("GeometricMeanMetric")
    ('kernel_pca', 'geometric_mean_metric')
    """
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()


def read_frame(X: Any) -> Any:
    """A data frame or Arrow table, read from its source, which may give it only once; or X."""
    return X if isinstance(X, (np.ndarray, Batch)) or not is_frame(X) else open_frame(X)


def to_input_format(coordinates: Floats, X: Any, read: Any, prefix: str) -> Any:
    """Coordinates (n, m) as the kind of data frame or Arrow table that X is; else as they are.

    ``read`` is what `read_frame` returns for X.
    """
    if not isinstance(read, InputFrame):
        return coordinates
    return to_table(coordinates, X, read.native, name_columns(prefix, coordinates.shape[1]))


def to_table(coordinates: Floats, X: Any, frame: Any, names: tuple[str, ...]) -> Any:
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
    result = nw.from_dict(columns, backend=frame.implementation).to_native()
    index = nw.maybe_get_index(frame)
    if index is not None:
        result.index = index
    return result
