"""Distance rows in river's manner: dicts ``{id: distance}`` in, rows in the engine's order out."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from streamembed.data.table import (
    are_dicts,
    check_point,
    read_table,
    to_feature_name,
    with_text_keys,
)
from streamembed.data.values import as_number
from streamembed.errors import BadRowError, InputError, quote
from streamembed.numeric.arrays import Array, Floats


def read_objects(X: Any) -> Sequence[Mapping[Any, Any]]:
    """Objects of any table as dicts of distances by id.

    Dicts stay as they are, since ids may be numbers; of other tables nulls are left out.
    """
    if are_dicts(X):
        return X
    table = read_table(X)
    present = ~table.nulls if table.nulls.size else np.ones(table.values.shape, dtype=bool)
    return [
        {
            name: value
            for name, value, is_present in zip(table.names, row, mask, strict=True)
            if is_present
        }
        for row, mask in zip(table.values.tolist(), present.tolist(), strict=True)
    ]


def order_distances(
    x: Mapping[Any, Any], ids: Array, has_ids: bool
) -> tuple[Floats, Hashable | None]:
    """The distances of a new object to ``ids``, in that order, and its own id where it has one.

    Parameters
    ----------
    x
        Distances by id: to all of ``ids``, and 0 to one more key, the object's own id.
    ids
        What the engine's next row must hold.
    has_ids
        Whether the stream's objects have ids; otherwise positions identify them.

    Raises
    ------
    InputError
        An id is missing or unknown (forgotten, perhaps), or the own distance is not 0.
    BadRowError
        A distance that is no number.
    """
    distances = with_text_keys(check_point(x))
    order = [str(key) for key in ids.tolist()]
    missing = [key for key in order if key not in distances]
    if missing:
        raise InputError(
            f"x lacks the distance to {quote(missing)}; it needs one to each of the "
            f"{len(order)} objects that the engine holds: engine.distance_row_ids lists them"
        )
    expected = set(order)
    others = [key for key in x if to_feature_name(key) not in expected]
    row = np.array([_number(key, distances[key]) for key in order], dtype=np.float64)
    if len(others) != has_ids:
        raise InputError(
            f"x has {len(others)} keys besides the objects that the engine holds "
            f"({quote(others)}); it must have {'one, its own id at distance 0' * has_ids or 'none'}"
            ": the others may have been forgotten, see engine.distance_row_ids"
        )
    if not has_ids:
        return row, None
    own_id = others[0]
    if _number(own_id, x[own_id]) != 0.0:
        raise InputError(
            f"the distance to {quote(own_id)} is {quote(x[own_id])}, but the engine holds no such "
            "object: it must be 0 to name the new object, or left out if the object has been "
            "forgotten"
        )
    return row, own_id


def read_distances(objects: Sequence[Mapping[Any, Any]], ids: Array) -> Floats:
    """Distances (n, N) of objects to ``ids``, inf where unknown; other keys are ignored.

    Raises
    ------
    InputError
        A row without a distance to any of ``ids``.
    BadRowError
        A distance that is no number.
    """
    column_of = {str(key): j for j, key in enumerate(ids.tolist())}
    result = np.full((len(objects), len(ids)), np.inf)
    for i, x in enumerate(objects):
        for key, value in with_text_keys(check_point(x)).items():
            j = column_of.get(key)
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
        raise BadRowError(f"the distance to {quote(key)} is {quote(value)}; it must be a number")
    return number
