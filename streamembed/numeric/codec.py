"""States taken apart into named arrays and plain numbers, as files hold them, and put together.

Of a dataclass: its arrays by name, those of a dataclass inside under ``name.``; all the rest (whole
numbers, floats, text, None, dicts of these) by name. A class that knows better has ``to_arrays``
and ``from_arrays`` of its own.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np

from streamembed.numeric.arrays import Array

__all__ = ["pack", "under", "unpack"]


def pack(value: Any) -> tuple[dict[str, Array], dict[str, Any]]:
    """Every array and every number of a state, by name; `unpack` is the inverse, bit for bit.

    Examples
    --------
    >>> import numpy as np
    >>> from streamembed.numeric.moments import init
    >>> arrays, numbers = pack(init(2))
    >>> sorted(arrays), numbers
    (['counts', 'means', 'squares'], {})
    """
    if hasattr(value, "to_arrays"):
        own: tuple[dict[str, Array], dict[str, Any]] = value.to_arrays()
        return own
    arrays: dict[str, Array] = {}
    numbers: dict[str, Any] = {}
    for field in fields(value):
        part = getattr(value, field.name)
        if isinstance(part, np.ndarray):
            arrays[field.name] = part
        elif is_dataclass(part):
            inside, numbers[field.name] = pack(part)
            arrays.update({f"{field.name}.{name}": array for name, array in inside.items()})
        else:
            numbers[field.name] = part
    return arrays, numbers


def unpack(kind: Any, arrays: dict[str, Array], numbers: dict[str, Any]) -> Any:
    """The state of that class that `pack` took apart."""
    if hasattr(kind, "from_arrays"):
        return kind.from_arrays(arrays, numbers)
    hints = get_type_hints(kind)
    parts: dict[str, Any] = {}
    for field in fields(kind):
        inner = _inner(hints[field.name])
        if field.name in arrays:
            parts[field.name] = arrays[field.name]
        elif inner is not None and numbers[field.name] is not None:
            parts[field.name] = unpack(inner, under(arrays, field.name), numbers[field.name])
        else:
            parts[field.name] = numbers[field.name]
    return kind(**parts)


def under(arrays: dict[str, Array], name: str) -> dict[str, Array]:
    """The arrays whose names begin with ``name.``, without that."""
    prefix = name + "."
    return {key.removeprefix(prefix): a for key, a in arrays.items() if key.startswith(prefix)}


def _inner(hint: Any) -> Any:
    """The dataclass that a field holds, if it holds one; None among the rest."""
    kinds = [kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)]
    return kinds[0] if kinds else None
