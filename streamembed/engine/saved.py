"""Checks of a saved engine, before an engine is made of it.

The checksum of a file finds what was damaged; it cannot tell whether what was sealed is an engine.
Everything here runs within `streamembed.storage.archive.sound`, which makes any error a
`DamagedFileError`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from streamembed.data.labels import LARGEST_CLASSES
from streamembed.engine import metrics
from streamembed.engine.config import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH, Config
from streamembed.engine.state import State
from streamembed.geometry.support import slots_for
from streamembed.numeric.arrays import Array
from streamembed.storage.archive import must

__all__ = ["check", "check_metrics"]

# A ring has room for more slots than are in use: twice as many, and some at the start.
SPARE = 1024
FLAGS = ("frame_restless",)
# Of floats; the second is that of large rings and of what is made of them alone.
WIDTHS = ["<f8", "<f4"]
SINGLE = ("graph.weights", "distances", "factor.vectors")
# Degrees are sums of the ring's rows, and whoever edits one without the other changes more.
ROUNDING = 1e-4
COUNTS = (
    "position",
    "capacity",
    "frame_position",
    "frame_epoch",
    "refreshes",
    "rebuilds",
    "rows_since_refresh",
)
NUMBERS = ("bandwidth", "frame_displacement", "frame_movement", "rows_since_frame")
# may be infinite: the landmark nearest to one that is alone
UNBOUNDED = ("cover.nearest_d2",)


def check(arrays: dict[str, Array], header: dict[str, Any], config: Config) -> None:
    """Refuse arrays and numbers that no engine with these parameters can have."""
    features = header["features"]
    names: list[Any] = []
    if features is not None:
        names, ordered = features
        must(isinstance(names, list) and all(type(name) is str for name in names), "names")
        must(len(set(names)) == len(names) and type(ordered) is bool, "names")
    must(header["ids_kind"] in (None, "positions", "numbers", "strings"), "ids_kind")
    for name in ("rejected", "unlearned"):
        must(type(header[name]) is int and header[name] >= 0, name)
    labels = header["labels"]
    must(isinstance(labels, list) and len(labels) <= LARGEST_CLASSES, "labels")
    must(all(isinstance(label, (str, int, float, bool)) for label in labels), "labels")
    for name, array in arrays.items():
        if array.dtype.kind == "f":
            bad = np.isnan(array) if name in UNBOUNDED else ~np.isfinite(array)
            # metrics and distances that are not known have infinities of their own
            inside = name.startswith("metrics.")
            must(not (np.isnan(array) if inside else bad).any(), f"{name} is not finite")
    is_text = header["ids_kind"] == "strings"
    position = 0
    if header["state"] is not None:
        position = _check_state(arrays, header["state"], len(names), is_text, config)
    else:
        must(header["ids_kind"] is None or "pending.ids" in arrays, "no event is there")
    if any(name.startswith("pending.") for name in arrays):
        must(("pending.classes" in arrays) == bool(config.metrics), "classes of pending events")
        count = _check_pending(arrays, len(names), is_text)
        chunk = config.chunk_size
        end = config.warm_up_events if position == 0 else (position // chunk + 1) * chunk
        must(position + count < end, "more events wait than a chunk has")
    if "early.similar" in arrays:
        pairs = len(arrays["early.similar"])
        _has(arrays, "early.similar", (pairs,), "b")
        _has(arrays, "early.left", (pairs, len(names)), "f")
        _has(arrays, "early.right", (pairs, len(names)), "f")


def check_metrics(state: State | None) -> None:
    """Refuse learners from which no metric can be made."""
    if state is not None and state.metrics is not None:
        with np.errstate(all="ignore"):
            metrics.published(state.metrics, state.scaling.scale)


def _check_state(
    arrays: dict[str, Array], numbers: dict[str, Any], d: int, is_text: bool, config: Config
) -> int:
    """The position of a state, if it is one."""
    n = len(arrays["support.births"])
    m, c = arrays["frame.columns"].shape
    r = len(arrays["factor.values"])
    shapes: dict[str, tuple[tuple[int, ...], str]] = {
        "scaling.center": ((d,), "f"),
        "scaling.scale": ((d,), "f"),
        "support.points": ((n, d), "f"),
        "support.births": ((n,), "i"),
        "support.masses": ((n,), "f"),
        "graph.weights": ((n, n), "f"),
        "degrees": ((n,), "f"),
        "factor.vectors": ((n, r), "f"),
        "factor.values": ((r,), "f"),
        "factor.scaling": ((n,), "f"),
        "frame.columns": ((m, c), "f"),
        "frame.eigenvalues": ((c,), "f"),
        "frame.births": ((m,), "i"),
    }
    if config.memory == "landmarks":
        shapes["cover.nearest"] = ((n,), "i")
        shapes["cover.nearest_d2"] = ((n,), "f")
        nearest = arrays["cover.nearest"]
        must(((nearest >= -1) & (nearest < n)).all(), "cover.nearest leads nowhere")
    if d == 0:
        shapes["distances"] = ((n, n), "f")
    for name, (shape, kind) in shapes.items():
        _has(arrays, name, shape, kind)
    _has_ids(arrays["support.ids"], n, is_text)
    for name in ("scaling.scale", "support.masses", "degrees", "factor.scaling"):
        must((arrays[name] > 0).all(), f"{name} is not positive")
    for name in COUNTS:
        must(type(numbers[name]) is int and numbers[name] >= 0, f"{name} is {numbers[name]!r}")
    for name in NUMBERS:
        value = numbers[name]
        must(type(value) in (int, float) and abs(value) < np.inf, f"{name} is {value!r}")
    for name in FLAGS:
        must(type(numbers[name]) is bool, f"{name} is {numbers[name]!r}")
    must(SMALLEST_BANDWIDTH <= numbers["bandwidth"] <= LARGEST_BANDWIDTH, "bandwidth")
    must(1 <= n <= (config.slots or n), f"the support has {n} points")
    must(numbers["capacity"] <= max(config.slots or 0, 4 * n + SPARE), "capacity")
    births, position = arrays["support.births"], int(numbers["position"])
    must(len(np.unique(births)) == n, "births are not unique")
    must(((births >= 0) & (births < position)).all(), "births lie outside of the stream")
    masses, weights = arrays["support.masses"], arrays["graph.weights"]
    if config.memory != "landmarks":
        must((masses == 1.0).all(), "masses of a window are 1")
        must(n == min(position, config.window or position), f"{n} points of {position} events")
        slots = slots_for(position - n, n, config.window)
        must((births[slots] == np.arange(position - n, position)).all(), "births and slots differ")
    must(weights.dtype == arrays["factor.vectors"].dtype, "ring and factor differ in precision")
    with np.errstate(all="ignore"):
        sums = weights.astype(np.float64) @ masses
    must(np.allclose(arrays["degrees"], sums, rtol=ROUNDING, atol=0.0), "degrees are no sums")
    must(("metrics" in numbers) == bool(config.metrics), "metrics")
    return position


def _check_pending(arrays: dict[str, Array], d: int, is_text: bool) -> int:
    """How many events wait, if they are events."""
    count = len(arrays["pending.ids"])
    _has(arrays, "pending.points", (count, d), "f")
    _has_ids(arrays["pending.ids"], count, is_text)
    if "pending.rows" in arrays or "pending.lengths" in arrays:
        lengths = arrays["pending.lengths"]
        _has(arrays, "pending.lengths", (count,), "i")
        must((lengths >= 0).all(), "pending.lengths")
        _has(arrays, "pending.rows", (int(lengths.sum()),), "f")
    if "pending.classes" in arrays:
        _has(arrays, "pending.classes", (count,), "i")
    return count


def _has(arrays: dict[str, Array], name: str, shape: tuple[int, ...], kind: str) -> None:
    array = arrays[name]
    must(array.shape == shape, f"{name} has shape {array.shape}, not {shape}")
    allowed = {"f": WIDTHS if name in SINGLE else WIDTHS[:1], "i": ["<i8"], "b": ["|b1"]}[kind]
    must(array.dtype.str in allowed, f"{name} has dtype {array.dtype}")


def _has_ids(ids: Array, n: int, is_text: bool) -> None:
    must(ids.shape == (n,), "ids have another shape")
    must(ids.dtype == (np.dtype(object) if is_text else np.dtype(np.int64)), "ids: wrong kind")
    must(len(set(ids.tolist())) == n, "ids are not unique")
