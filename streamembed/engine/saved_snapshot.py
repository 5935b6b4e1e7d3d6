"""The file of a snapshot, one row a point, and what it must hold before it is one.

The codec checks that everything is there, of its declared type and shape
(`streamembed.methods.snapshot_contents`). This module checks that the parts fit together. Values
are not judged. All of it runs within `streamembed.storage.archive.raise_damaged`.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from streamembed.methods.engine_parameters import METHODS, Method
from streamembed.methods.snapshot_contents import SnapshotContents
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array
from streamembed.spectral.neighbor_walk import WEIGHTS
from streamembed.storage import archive
from streamembed.storage.archive import must

# The columns of a file, by path: arrays with a row for each point. All else is in the header.
COLUMNS = {
    "tracked": "tracked",
    "ids": "id",
    "masses": "mass",
    "coordinates": "coordinates",
    "psi": "psi",
    "spare_psi": "spare_psi",
    "stationary": "stationary",
    "density_weights": "density_weight",
    "degrees": "degree",
    "widths": "width",
    "reaches": "reach",
    "points": "point",
    "lengths": "length",
    "picture_contents.coordinates": "picture",
    "picture_contents.moved": "picture_moved",
    "picture_contents.kept": "picture_kept",
    "picture_contents.balance": "picture_balance",
    "picture_contents.duplicates": "picture_duplicates",
}
# Those that are left out where they have no columns of their own.
OPTIONAL = ("spare_psi", "points", "lengths")

Contents = TypeVar("Contents", bound=SnapshotContents)


def pack(snapshot: SnapshotContents) -> tuple[Any, dict[str, Any]]:
    """The table of a snapshot, and its header."""
    arrays, numbers = codec.pack(snapshot)
    columns = {
        column: archive.to_list_column(arrays[path]) if arrays[path].ndim == 2 else arrays[path]
        for path, column in COLUMNS.items()
        if path in arrays and not (path in OPTIONAL and arrays[path].shape[1] == 0)
    }
    header = {name: value for name, value in numbers.items() if name not in COLUMNS}
    header["picture"] = header.pop("picture_contents")
    return pa.table(columns), header


def unpack(kind: type[Contents], table: Any, header: dict[str, Any]) -> Contents:
    """The snapshot that `pack` took apart."""
    arrays = {
        path: _to_array(table.column(column))
        for path, column in COLUMNS.items()
        if column in table.column_names
    }
    empty = np.zeros((table.num_rows, 0))
    arrays = {**dict.fromkeys(OPTIONAL, empty), **arrays}
    numbers = {**header, "picture_contents": header["picture"]}
    del numbers["picture"]
    numbers.update({path: codec.ARRAY for path in COLUMNS if "." not in path})
    snapshot: Contents = codec.unpack(kind, arrays, numbers)
    _check(snapshot)
    return snapshot


def _to_array(column: Any) -> Array:
    """The array that `pack` turned into a column, a copy."""
    must(not column.null_count, "a column with nulls")
    lists = pa.types.is_fixed_size_list(column.type)
    return archive.to_matrix(column) if lists else column.to_numpy().copy()


def _check(snapshot: SnapshotContents) -> None:
    """Refuse parts that do not fit together."""
    n, k = snapshot.coordinates.shape
    must(n >= 1 and k >= 1, "it has no points")
    must(len(snapshot.rotation) == k + len(snapshot.spare_eigenvalues), "rotation")
    must(len(snapshot.spare_eigenvalues) == snapshot.spare_psi.shape[1], "spare_psi")
    must(len(snapshot.feature_names) == len(snapshot.center), "names of the features")
    must(snapshot.method in METHODS, f"method is {snapshot.method!r}")
    method = METHODS[snapshot.method]
    loaded = len(snapshot.center) if method.is_linear else 0
    must(len(snapshot.feature_loadings) == loaded, "feature_loadings")
    kernels = WEIGHTS if method.family in ("graph", "linear") else method.kernels or ("distance",)
    must(snapshot.kernel in kernels, f"kernel is {snapshot.kernel!r}")
    width = snapshot.lengths.shape[1]
    ends = np.count_nonzero(snapshot.stationary) if width < n else n
    must(width in (0, ends), "lengths to other points than landmarks")
    must(bool(width) == (method.family == "geodesic"), "lengths")
    _check_certificate(snapshot, method)
    frame, position = snapshot.frame, snapshot.position
    must(len(frame.kept_since) == k and len(frame.correlations) in (0, k), "axes of the frame")
    must(all(since <= position for since in (frame.since, *frame.kept_since)), "since")
    must(all(j < k for j in frame.lost), "lost axes")
    for name, metric in snapshot.metrics.items():
        names = metric.feature_names
        must(names in (None, snapshot.feature_names), f"the metric {name} has other features")
    if (picture := snapshot.picture_contents) is not None:
        must(picture.neighbours is None, "a picture with neighbours")
        must(picture.kept is not None and picture.balance is not None, "a picture without quality")
        must(len(picture.coordinates) == n, "a picture of other points")


def _check_certificate(snapshot: SnapshotContents, method: Method) -> None:
    certificate, (n, k) = snapshot.certificate, snapshot.coordinates.shape
    must(certificate.isolated <= n, "certificate.isolated")
    must(certificate.bound_age <= snapshot.position, "certificate.bound_age")
    has_rate = certificate.residual_rate is not None
    must(has_rate == (method.family in ("graph", "linear")), "certificate.residual_rate")
    must(len(certificate.effective_points) == k, "certificate.effective_points")
    must(all(j < k for j in certificate.lone), "certificate.lone")
