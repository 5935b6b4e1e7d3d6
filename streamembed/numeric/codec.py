"""States taken apart into named arrays and plain numbers, as files hold them, and put together.

The fields of a dataclass are its format. Arrays go by their path (``support.points``,
``parts.0.ids``), and all the rest is a tree of what JSON has, in which every array has a
placeholder: dicts of dataclasses and of dicts, lists of tuples, numbers, texts, None. Types are
those that the fields declare; nothing is made of a name in a file. Whatever is there and is not
declared, or the other way round, is an error. So is an array of another shape than is declared
beside its type, ``Annotated[Floats, "n d"]``: ``d``, the number of features, is the same throughout
a state, other letters throughout an object, ``*`` is any size and a digit that size.

A class may differ in three ways only. A field with the metadata `NOT_KEPT` is left to its default,
or to None. One with `KEPT_WHERE_SET` is left out where it has its default, so that files from
before there was such a field can be read. And a class with ``__pack__`` is kept as what that gives,
a dataclass, of which its ``__unpack__`` makes it again; ``__unpack__`` alone completes what was put
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from streamembed.numeric.arrays import Array

__all__ = ["ARRAY", "KEPT_WHERE_SET", "NOT_KEPT", "pack", "prepare", "unpack"]

NOT_KEPT: Final = {"kept": False}
KEPT_WHERE_SET: Final = {"kept": "where set"}
# What stands for an array among the numbers.
ARRAY = "array"
PLAIN = (bool, int, float, str)

Arrays = dict[str, Array]
_KNOWN: dict[Any, dict[str, Any]] = {}


def pack(value: Any) -> tuple[Arrays, dict[str, Any]]:
    """Every array and every number of a state, by name; `unpack` is the inverse, bit for bit.

    Raises
    ------
    TypeError
        A part is of a kind that nobody could put together again.

    Examples
    --------
    >>> from streamembed.numeric.histogram import init
    >>> arrays, numbers = pack(init())
    >>> sorted(arrays), numbers
    (['buckets', 'counts'], {'buckets': 'array', 'counts': 'array', 'zeros': 0})
    """
    arrays: Arrays = {}
    numbers: dict[str, Any] = _take_apart(value, "", arrays)
    return arrays, numbers


def unpack(
    kind: Any, arrays: Mapping[str, Array], numbers: Any, kinds: Mapping[str, Any] | None = None
) -> Any:
    """The state of that class that `pack` took apart.

    Parameters
    ----------
    kinds
        Classes of what is declared as Any, by the key of the innermost dict that it lies in.

    Raises
    ------
    ValueError, KeyError, TypeError
        Something is missing, is of another type, or is not declared.
    """
    with np.errstate(all="ignore"):
        return _Parts(arrays, kinds or {}).read(kind, numbers, "", "")


def prepare(*kinds: Any) -> None:
    """Read the declared types of all that such states can hold, so that `unpack` compiles nothing.

    `unpack` would do so when it first meets them, and whoever loads a file may have forbidden it.
    """
    todo: list[Any] = list(kinds)
    seen: set[Any] = set()
    while todo:
        kind = todo.pop()
        if kind in seen or isinstance(kind, str) or get_origin(kind) is np.ndarray:
            continue
        seen.add(kind)
        todo += get_args(kind)
        inner = _inner(kind)
        if is_dataclass(_class_of(inner)):
            todo += [_hints(inner)[name] for name in _kept(_class_of(inner))]


def _take_apart(value: Any, path: str, arrays: Arrays) -> Any:
    if hasattr(value, "__pack__"):
        value = value.__pack__()
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return ARRAY
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or type(value) in PLAIN:
        return value
    named: Any = value
    if is_dataclass(value):
        optional = _optional(value.__class__)
        named = {name: getattr(value, name) for name in _kept(value.__class__)}
        named = {
            name: part
            for name, part in named.items()
            if name not in optional or not _is_same(part, optional[name])
        }
    elif isinstance(value, tuple):
        return [_take_apart(part, _below(path, i), arrays) for i, part in enumerate(value)]
    elif not isinstance(value, Mapping) or not all(type(key) is str for key in value):
        raise TypeError(f"{path} is a {type(value).__name__}, which cannot be saved")
    return {name: _take_apart(part, _below(path, name), arrays) for name, part in named.items()}


class _Parts:
    """What is put together: arrays by path, and the classes of what is declared as Any."""

    def __init__(self, arrays: Mapping[str, Array], kinds: Mapping[str, Any]) -> None:
        self._arrays = arrays
        self._kinds = kinds
        self._sizes: dict[str, int] = {}

    def read(self, hint: Any, found: Any, path: str, key: str) -> Any:
        """The value of that type, of what was found there; ``key`` is the innermost of a dict."""
        origin, options = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._read_one_of(options, found, path, key)
        if hint in PLAIN or origin is Literal:
            fits = found in options if options else type(found) is hint
            _must(fits or (hint is float and type(found) is int), path, found)
            return found
        if hint is Any:
            return None if found is None else self.read(self._kinds[key], found, path, key)
        if origin is np.ndarray:
            return self._read_array(options[1], found, path)
        if origin is Annotated:
            array = self.read(options[0], found, path, key)
            self._check_shape(array.shape, options[1], path)
            return array
        if origin is tuple:
            _must(isinstance(found, list | tuple), path, found)
            several = options[-1] is Ellipsis
            hints = options[:1] * len(found) if several else options
            _must(len(hints) == len(found), path, found)
            parts = enumerate(zip(hints, found, strict=True))
            return tuple(self.read(one, part, _below(path, i), key) for i, (one, part) in parts)
        if origin is not None and issubclass(origin, Mapping):
            _must(isinstance(found, dict), path, found)
            return {
                name: self.read(options[1], found[name], _below(path, name), name) for name in found
            }
        return self._read_object(hint, found, path, key)

    def _read_one_of(self, options: tuple[Any, ...], found: Any, path: str, key: str) -> Any:
        if found is None and NoneType in options:
            return None
        kinds = [kind for kind in options if kind is not NoneType]
        exact = [kind for kind in kinds if type(found) is kind]
        return self.read((exact or kinds)[0], found, path, key)

    def _read_array(self, dtype: Any, found: Any, path: str) -> Array:
        _must(found == ARRAY, path, found)
        array, wanted = self._arrays[path], get_args(dtype)[0]
        _must(wanted is Any or array.dtype == np.dtype(wanted), path, array.dtype)
        return array

    def _check_shape(self, shape: tuple[int, ...], declared: str, path: str) -> None:
        letters = declared.split()
        _must(len(letters) == len(shape), path, shape)
        for letter, size in zip(letters, shape, strict=True):
            if letter.isdecimal():
                _must(size == int(letter), path, shape)
            elif letter != "*":
                owner = "" if letter == "d" else path.rpartition(".")[0]
                _must(self._sizes.setdefault(f"{owner} {letter}", size) == size, path, shape)

    def _read_object(self, kind: Any, found: Any, path: str, key: str) -> Any:
        inner = _inner(kind)
        made, hints = _class_of(inner), _hints(inner)
        declared = _kept(made)
        _must(isinstance(found, dict), path, found)
        _must(set(declared) - set(_optional(made)) <= found.keys(), path, sorted(found))
        _must(found.keys() <= set(declared), path, sorted(found))
        parts: dict[str, Any] = {
            name: self.read(hints[name], found[name], _below(path, name), key)
            for name in declared
            if name in found
        }
        parts.update(dict.fromkeys(_left_out(made)))
        value = made(**parts)
        return kind.__unpack__(value) if hasattr(kind, "__unpack__") else value


def _below(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _must(condition: object, path: str, found: object) -> None:
    if not condition:
        raise ValueError(f"{path or 'all of it'} is {found!r:.100}")


def _class_of(kind: Any) -> Any:
    """The class itself of one that was declared for certain parts, as ``Waiting[Events]``."""
    origin = get_origin(kind)
    return origin if is_dataclass(origin) else kind


def _inner(kind: Any) -> Any:
    """The dataclass that stands for a class: what its ``__pack__`` gives, or itself."""
    if not hasattr(kind, "__pack__"):
        return kind
    packed = _hints(kind.__pack__)["return"]
    return kind if _class_of(packed) is _class_of(kind) else packed


def _kept(kind: Any) -> tuple[str, ...]:
    """Names of the fields that are kept."""
    return tuple(field.name for field in fields(kind) if field.metadata.get("kept", True))


def _optional(kind: Any) -> dict[str, Any]:
    """Names and defaults of fields that are kept only where they differ from these."""
    told = KEPT_WHERE_SET["kept"]
    return {one.name: one.default for one in fields(kind) if one.metadata.get("kept") == told}


def _is_same(value: Any, default: Any) -> bool:
    """Whether a plain value is the default."""
    return value is default or (type(value) is type(default) in PLAIN and value == default)


def _left_out(kind: Any) -> tuple[str, ...]:
    """Names of those that are not, and have no default either."""
    left = (field for field in fields(kind) if field.name not in _kept(kind))
    return tuple(f.name for f in left if f.default is MISSING and f.default_factory is MISSING)


def _hints(kind: Any) -> dict[str, Any]:
    """Declared types by name, those of certain parts filled in; read once."""
    if kind not in _KNOWN:
        made = _class_of(kind)
        hints = get_type_hints(made, include_extras=True)
        if made is not kind:
            known = dict(zip(made.__parameters__, get_args(kind), strict=True))
            hints = {name: _fill(hint, known) for name, hint in hints.items()}
        _KNOWN[kind] = hints
    return _KNOWN[kind]


def _fill(hint: Any, known: Mapping[Any, Any]) -> Any:
    wanted = getattr(hint, "__parameters__", ())
    return hint[tuple(known[one] for one in wanted)] if wanted else hint
