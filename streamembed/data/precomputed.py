"""Distance rows in river's manner: dicts ``{id: distance}`` in, rows in the engine's order out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from streamembed.data.table import are_dicts, feature_name, one_point, read_table, row_by_name
from streamembed.data.values import as_number
from streamembed.errors import BadRowError, InputError, shown
from streamembed.numeric.arrays import Array, Floats

__all__ = ["distances_to", "read_things", "row_of"]


def read_things(X: Any) -> tuple[Sequence[Mapping[Any, Any]], Any]:
    """Things of any table as dicts of distances by id, and the frame they came in, if it was one.

    Dicts are as they came, for ids may be numbers; of others nulls are left out.
    """
    if are_dicts(X):
        return X, None
    table = read_table(X)
    is_told = np.ones(table.values.shape, dtype=bool)
    if table.nulls.size and not table.mixes_nulls:
        is_told = ~table.nulls
    rows = [
        {name: value for name, value, told in zip(table.names, row, has, strict=True) if told}
        for row, has in zip(table.values.tolist(), is_told.tolist(), strict=True)
    ]
    return rows, table.frame


def row_of(x: Mapping[Any, Any], ids: Array, named: bool) -> tuple[Floats, Hashable | None]:
    """The distances of a new thing to ``ids``, in that order, and its own id where it has one.

    Parameters
    ----------
    x
        Distances by id: to all of ``ids``, and 0 to the one key beside them, which names the thing.
    ids
        What the engine's next row must hold.
    named
        Whether the stream's things have names; otherwise they are known by their positions.

    Raises
    ------
    InputError
        An id is missing or unknown (forgotten, perhaps), or the own distance is not 0.
    BadRowError
        A distance that is no number.
    """
    given = row_by_name(one_point(x))
    order = [str(key) for key in ids.tolist()]
    missing = [key for key in order if key not in given]
    if missing:
        raise InputError(
            f"x lacks the distance to {_some(missing)}; it needs one to each of the {len(order)} "
            "objects that the engine holds: engine.distance_row_ids lists them"
        )
    known = set(order)
    beside = [key for key in x if feature_name(key) not in known]
    row = np.array([_number(key, given[key]) for key in order], dtype=np.float64)
    if not named:
        if beside:
            raise InputError(
                f"x has distances to {_some(beside)}, which are unknown or forgotten; objects of "
                "this stream are identified by position, and engine.distance_row_ids lists those "
                "that the engine holds"
            )
        return row, None
    if len(beside) != 1:
        raise InputError(
            f"x has {len(beside)} keys besides the objects that the engine holds "
            f"({_some(beside)}); it must have exactly one, the object's own id with distance 0: "
            "the others may have been forgotten, see engine.distance_row_ids"
        )
    own = beside[0]
    if _number(own, x[own]) != 0.0:
        raise InputError(
            f"the distance to {shown(own)} is {shown(x[own])}, but the engine holds no such "
            "object: it must be 0 to name the new object, or left out if the object has been "
            "forgotten"
        )
    return row, own


def distances_to(given: Sequence[Mapping[Any, Any]], ids: Array) -> Floats:
    """Distances (n, N) of things to ``ids``, inf where a row does not say; other keys are ignored.

    Raises
    ------
    InputError
        A row without a distance to any of ``ids``.
    BadRowError
        A distance that is no number.
    """
    place = {str(key): j for j, key in enumerate(ids.tolist())}
    result = np.full((len(given), len(ids)), np.inf)
    for i, x in enumerate(given):
        for key, value in row_by_name(one_point(x)).items():
            j = place.get(key)
            if j is not None:
                result[i, j] = _number(key, value)
        if len(ids) and not np.isfinite(result[i]).any():
            raise InputError(
                f"x (row {i}) has no distance to any of the {len(ids)} objects of the snapshot; it "
                "needs at least one: snapshot().ids lists them"
            )
    return result


def _number(key: Any, value: Any) -> float:
    number = as_number(value)
    if number is None:
        raise BadRowError(f"the distance to {shown(key)} is {shown(value)}; it must be a number")
    return number


def _some(keys: Sequence[Any]) -> str:
    """The first few, in words."""
    if not keys:
        return "none"
    told = ", ".join(shown(key) for key in keys[:3])
    return told if len(keys) <= 3 else f"{told} and {len(keys) - 3} more"
