"""Coordinates on their way out: columns that have names, in the kind of table that points came in.

A column is called after what made it, ``diffusion_map_0`` or ``eig_dml_3``, everywhere the same: in
dicts, data frames and Arrow tables. So two of them beside one another do not collide.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.data.table import are_dicts, is_frame
from streamembed.data.values import load_narwhals
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


def to_input_format(coordinates: Floats, X: Any, names: tuple[str, ...]) -> Any:
    """Coordinates (n, m) as the kind of data frame or Arrow table that X is; else as they are.

    ``names`` are those of the m columns. A pandas index is kept.
    """
    if isinstance(X, Batch) or not is_frame(X):
        return coordinates
    columns = {name: coordinates[:, j] for j, name in enumerate(names)}
    if isinstance(X, pa.RecordBatch):
        return pa.record_batch(columns)
    nw = load_narwhals()
    frame = nw.from_native(X, eager_only=True, allow_series=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return pa.table(columns)
    result = nw.from_dict(columns, backend=frame.implementation).to_native()
    index = nw.maybe_get_index(frame)
    if index is not None:
        result.index = index
    return result


def to_table(coordinates: Floats, X: Any, names: tuple[str, ...]) -> Any:
    """`to_input_format`, of dicts as dicts."""
    if are_dicts(X):
        return [dict(zip(names, row, strict=True)) for row in coordinates.tolist()]
    return to_input_format(coordinates, X, names)
