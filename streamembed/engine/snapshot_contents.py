"""What a snapshot consists of, as files hold it, and what no snapshot can hold."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.batch import LARGEST_VALUE
from streamembed.engine.picture import PictureContents
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH
from streamembed.methods.options import (
    LARGEST_COEFFICIENT,
    LARGEST_DEGREE,
    LARGEST_NEIGHBORS,
    SPREADS,
    WIDTHS,
)
from streamembed.methods.registry import METHODS
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array
from streamembed.spectral.neighbor_walk import WEIGHTS
from streamembed.storage import archive

TINY = float(np.finfo(np.float64).tiny)
# Arrays: the column of a file that each is (None: in its header), and its shape: n points, k
# components, s spare and c carried ones, d features, l those of linear maps, w points that paths
# lead to.
ARRAYS: Mapping[str, tuple[str | None, str]] = {
    "ids": ("id", "n"),
    "masses": ("mass", "n"),
    "coordinates": ("coordinates", "nk"),
    "psi": ("psi", "nk"),
    "spare_psi": ("spare_psi", "ns"),
    "stationary": ("stationary", "n"),
    "density_weights": ("density_weight", "n"),
    "degrees": ("degree", "n"),
    "widths": ("width", "n"),
    "reaches": ("reach", "n"),
    "points": ("point", "nd"),
    "lengths": ("length", "nw"),
    "eigenvalues": (None, "k"),
    "spare_eigenvalues": (None, "s"),
    "rotation": (None, "ck"),
    "feature_loadings": (None, "lk"),
    "center": (None, "d"),
    "scale": (None, "d"),
}
COLUMNS = {name: column for name, (column, _) in ARRAYS.items() if column is not None}
IN_HEADER = tuple(name for name in ARRAYS if name not in COLUMNS)


def to_plain_numbers(facts: Any) -> Any:
    """A dataclass with Python's numbers instead of numpy's."""
    values = {field.name: getattr(facts, field.name) for field in fields(facts)}
    numbers = {name: v.item() for name, v in values.items() if isinstance(v, np.generic)}
    return replace(facts, **numbers) if numbers else facts


# All else: how it is made a plain value, and of numbers the least and the largest.
FACTS: Mapping[str, tuple[Any, ...]] = {
    "method": (str,),
    "feature_names": (tuple,),
    "position": (int, 1, np.inf),
    "kernel": (str,),
    "bandwidth": (float, SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH),
    "radius": (float, 0.0, LARGEST_VALUE),
    "n_neighbors": (int, 1, LARGEST_NEIGHBORS),
    "width": (float, *WIDTHS),
    "least_width": (float, TINY, LARGEST_VALUE),
    "typical_coverage": (float, 0.0, LARGEST_VALUE),
    "alpha": (float, 0.0, 2.0),
    "diffusion_time": (float, 0.0, 1e6),
    "degree": (int, 1, LARGEST_DEGREE),
    "coef0": (float, 0.0, LARGEST_COEFFICIENT),
    "gamma": (float, 0.0, LARGEST_VALUE),
    "reg": (float, 1e-12, 1e6),
    "certificate": (to_plain_numbers,),
    "frame": (to_plain_numbers,),
    "rung": (str,),
    "resolution": (float, 0.0, sys.float_info.max),
    "n_connected": (int, 1, np.inf),
}
# Of a picture, the column that each of its arrays is.
PICTURE = {
    "coordinates": "picture",
    "moved": "picture_moved",
    "kept": "picture_kept",
    "balance": "picture_balance",
}


def to_column(array: Array) -> Any:
    """An array (n,) or (n, m) as a column of n rows."""
    return archive.to_list_column(array) if array.ndim == 2 else pa.array(array)


def to_array(column: Any) -> Array:
    """The array that `to_column` turned into a column, a copy."""
    lists = pa.types.is_fixed_size_list(column.type)
    return archive.to_matrix(column) if lists else column.to_numpy().copy()


def pack_picture(contents: PictureContents) -> tuple[dict[str, Any], dict[str, Any]]:
    """The columns of a picture that was counted, and its numbers."""
    arrays, numbers = codec.pack(contents)
    return {PICTURE[name]: to_column(array) for name, array in arrays.items()}, numbers


def unpack_picture(table: Any, numbers: Any, n: int) -> PictureContents | None:
    """The picture of a file, for n points, if there is one; within `archive.sound`."""
    must = archive.must
    names = [name for name, column in PICTURE.items() if column in table.column_names]
    if numbers is None:
        must(not names, "columns of a picture that is none")
        return None
    arrays = {name: to_array(table.column(PICTURE[name])) for name in names}
    contents: PictureContents = codec.unpack(PictureContents, arrays, numbers)
    must(contents.neighbours is None, "a picture with neighbours")
    must(
        contents.kept is not None and contents.balance is not None, "a picture that was not counted"
    )
    shapes = {name: (n, 2) if name == "coordinates" else (n,) for name in PICTURE}
    for name, shape in shapes.items():
        array = getattr(contents, name)
        must(array.shape == shape and array.dtype == np.float64, f"{name} of the picture")
        must(np.isfinite(array).all() and (name == "coordinates" or (array >= 0).all()), name)
    must((arrays["kept"] <= 1.0).all() and 0.0 <= contents.kept_then <= 1.0, "kept of the picture")
    must(
        0.0 <= contents.gamma < np.inf and SPREADS[0] <= contents.spread <= SPREADS[1],
        "gamma, spread",
    )
    must(1 <= contents.n_neighbors <= LARGEST_NEIGHBORS, "n_neighbors of the picture")
    must(min(contents.age, contents.epoch) >= 0, "age and epoch of the picture")
    return contents


def check(arrays: dict[str, Array], numbers: dict[str, Any], tracked: Array) -> None:
    """Refuse the content of a file that no snapshot can have; within `archive.sound`."""
    must = archive.must
    names = numbers["feature_names"]
    n, k, d = len(arrays["ids"]), len(arrays["eigenvalues"]), len(names)
    spares = len(arrays["spare_eigenvalues"])
    must(numbers["method"] in METHODS, f"method is {numbers['method']!r}")
    method = METHODS[numbers["method"]]
    family, loaded = method.family, d if method.linear else 0
    width = arrays["lengths"].shape[-1] if family == "geodesic" else 0
    sizes = {"n": n, "k": k, "s": spares, "c": k + spares, "d": d, "l": loaded, "w": width}
    for name, (_, letters) in ARRAYS.items():
        array, shape = arrays[name], tuple(sizes[letter] for letter in letters)
        must(array.shape == shape, f"{name} has shape {array.shape}, not {shape}")
        if name == "ids":
            continue
        must(array.dtype == np.float64, f"{name} has dtype {array.dtype}")
        finite = np.isfinite(array) if name != "lengths" else array >= 0  # inf between parts
        must(finite.all(), f"{name} is not finite")
    if family == "graph":  # points that nothing joins have no share in the walk
        for name in ("stationary", "degrees", "reaches"):
            must((arrays[name] >= 0).all(), f"{name} is negative")
        shared = arrays["stationary"] > 0
        must((shared == (arrays["degrees"] > 0)).all(), "stationary and degrees differ")
        must(not shared.any() or abs(arrays["stationary"].sum() - 1.0) < 1e-6, "stationary")
    if family == "geodesic":
        must((arrays["stationary"] >= 0).all() and arrays["stationary"].any(), "stationary")
        ends = np.flatnonzero(arrays["stationary"]) if width < n else np.arange(n)
        must(width == len(ends), "lengths to other points than landmarks")
        must((arrays["lengths"][ends, np.arange(width)] == 0).all(), "lengths")
    positive = {"kernel": ("stationary", "degrees"), "graph": (), "geodesic": ()}
    share = positive.get(family, ("stationary",))
    for name in (*share, "masses", "density_weights", "widths", "scale"):
        must((arrays[name] > 0).all(), f"{name} is not positive")
    must(n >= 1 and k >= 1, "it has no points")
    must(tracked.dtype == np.float64 and len(tracked) == n, "tracked has another shape")
    must(np.isfinite(tracked).all(), "tracked is not finite")
    ids = arrays["ids"]
    if ids.dtype == object:
        must(all(type(key) is str for key in ids.tolist()), "ids are not text")
    else:
        must(ids.dtype == np.int64, f"ids have dtype {ids.dtype}")
    must(len(set(ids.tolist())) == n, "ids are not unique")
    must(isinstance(names, list) and all(type(one) is str for one in names), "names are not text")
    must(len(set(names)) == d, "names are not unique")
    must(type(numbers["ordered"]) is bool, "ordered is not a boolean")
    must(type(numbers["rung"]) is str, "rung is not text")
    must(numbers["position"] >= n, "position is too small")
    own_kernels = METHODS[numbers["method"]].kernels
    kernels = WEIGHTS if family in ("graph", "linear") else own_kernels or ("distance",)
    must(numbers["kernel"] in kernels, f"kernel is {numbers['kernel']!r}")
    must(numbers["n_connected"] <= n, "n_connected is above the number of points")
    for name, (kind, *limits) in FACTS.items():
        if limits:
            value = numbers[name]
            must(type(value) is kind and limits[0] <= value <= limits[1], f"{name} is {value!r}")
    certificate = numbers["certificate"]
    must(0.0 <= certificate.negative_mass <= 1.0, "certificate.negative_mass")
    must(certificate.stale >= 0.0, "certificate.stale")
    must(certificate.parts >= 1, "certificate.parts")
    must(certificate.missed is None or 0 <= certificate.missed <= n, "certificate.missed")
    must(0 <= certificate.isolated <= n, "certificate.isolated")
    must(0 <= certificate.bound_age <= numbers["position"], "certificate.bound_age")
    has_rate = certificate.residual_rate is not None
    must(has_rate == (family in ("graph", "linear")), "certificate.residual_rate")
    ratios = certificate.residual_last, certificate.residual_rate or 0.0
    must(all(0.0 <= ratio <= 1.0 for ratio in ratios), "certificate.residual_last")
    must(len(certificate.effective_points) == k, "certificate.effective_points")
    must(all(0 <= j < k for j in certificate.lone), "certificate.lone")
    frame = numbers["frame"]
    must(frame.epoch >= 0, "epoch is negative")
    must(0 <= frame.since <= numbers["position"], "since")
    must(np.isfinite([frame.fidelity, frame.price, *frame.correlations]).all(), "frame")
    must(all(0 <= j < k for j in frame.lost) and len(frame.correlations) in (0, k), "lost axes")
    since = frame.kept_since
    must(len(since) == k and all(0 <= s <= numbers["position"] for s in since), "kept_since")
    for name, metric in numbers["metrics"].items():
        must(metric.matrix.shape == (d, d), f"the metric {name} has another shape")
        must(metric.factor.shape[1:] == (d,), f"the factor of {name} has another shape")
        must(np.isfinite(metric.matrix).all(), f"the metric {name} is not finite")
        must(np.isfinite(metric.factor).all(), f"the factor of {name} is not finite")
        matches = metric.feature_names in (None, tuple(names))
        must(matches, f"the metric {name} has other features")
