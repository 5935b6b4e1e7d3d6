"""States as named arrays and plain numbers, as in files, and back.

The fields of a dataclass are its format. Arrays go by their path (``support.points``,
``parts.0.ids``), and all the rest is a tree of what JSON has, in which every array has a
placeholder: dicts of dataclasses and of dicts, lists of tuples, numbers, texts, None. Types are
those that the fields declare, of a field of an abstract class the class below it that is named. An
entry that is not declared, or a missing one, is an error. So is an array of another shape than is
declared beside its type, ``Annotated[Floats, "n d"]``: ``d``, the number of features, is the same
throughout a state, ``slots`` throughout an object with a field ``support``, other letters
throughout an object, ``*`` is any size and a digit that size. What follows is a rule for all
entries, or for a number or tuple: see `RULES` and `Within`.

A field that is declared as ``object`` is a tree of plain values, kept as it is.

A class may differ in four ways only. A field with the metadata `NOT_SAVED` is left to its default,
or to None. One with `SAVED_IF_SET` is left out where it has its default, so that files from
before there was such a field can be read. An array with `AS_NUMBERS` is a list of numbers among the
rest. And a class with ``__pack__`` is saved as the dataclass, tuple or dict that it returns, from
which its ``__unpack__`` restores it; ``__unpack__`` alone completes an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from streamembed.numeric.arrays import Array, freeze

NOT_SAVED: Final = {"saved": False}
SAVED_IF_SET: Final = {"saved": "if set"}
AS_NUMBERS: Final = {"saved": "as numbers"}
# The placeholder of an array among the numbers.
ARRAY = "array"
# The entry with the name of a class below an abstract one; no field can have that name.
CLASS = "class"
PLAIN = (bool, int, float, str)
# Sizes that several objects share.
SHARED = ("d", "slots")
# What an array's entries, a number or a tuple must be; NaN is none of the first three.
RULES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "finite": np.isfinite,
    "positive": lambda entries: entries > 0,
    "at least 0": lambda entries: entries >= 0,
    "one of its rows": lambda entries: (entries >= 0) & (entries < len(entries)),
    "one of its rows or -1": lambda entries: (entries >= -1) & (entries < len(entries)),
    "float32 or float64": lambda entries: entries.dtype.str in ("<f4", "<f8"),
    "int64 or text": lambda entries: (
        entries.dtype == np.int64 or all(type(entry) is str for entry in entries.tolist())
    ),
    "ascending": lambda entries: np.diff(entries) > 0,
    "different": lambda entries: (
        len(set(entries.tolist() if isinstance(entries, np.ndarray) else entries)) == len(entries)
    ),
}


@dataclass(frozen=True)
class Within:
    """The rule that numbers, or entries, are from ``low`` to ``high`` and of the type of these."""

    low: float
    high: float

    def __call__(self, entries: Any) -> Any:
        """Whether they are; NaN is not."""
        is_typed = isinstance(entries, np.ndarray) or type(entries) is type(self.low)
        return (entries >= self.low) & (entries <= self.high) & is_typed

    def __str__(self) -> str:
        return f"{self.low!r} to {self.high!r}"


# Numbers that many states have.
Count = Annotated[int, "at least 0"]

Arrays = dict[str, Array]


def pack(value: Any) -> tuple[Arrays, dict[str, Any]]:
    """Every array and every number of a state, by name; `unpack` is the inverse, bit for bit.

    Raises
    ------
    TypeError
        A part is of a type that `unpack` could not restore.

    Examples
    --------
    >>> from streamembed.numeric.histogram import init
    >>> arrays, numbers = pack(init())
    >>> sorted(arrays), numbers
    (['buckets', 'counts'], {'buckets': 'array', 'counts': 'array'})
    """
    arrays: Arrays = {}
    return arrays, _pack_value(value, "", arrays)


def unpack(
    kind: Any, arrays: Mapping[str, Array], numbers: Any, kinds: Mapping[str, Any] | None = None
) -> Any:
    """The state of class ``kind`` that `pack` saved.

    Parameters
    ----------
    kinds
        Classes of fields that are declared as Any, by the key of the innermost dict that it lies
        in.

    Raises
    ------
    ValueError, KeyError, TypeError
        Something is missing, is of another type, or is not declared.
    """
    reader = _Reader(arrays, kinds or {})
    with np.errstate(all="ignore"):
        value = reader.read(kind, numbers, "", "")
    _require(
        len(reader.paths) == len(arrays),
        "an array without a place in it",
        arrays.keys() - reader.paths,
    )
    return value


def check(value: Any) -> None:
    """Refuse a dataclass of which a field is not as it is declared; as `unpack`, of any source."""
    arrays, numbers = pack(value)
    with np.errstate(all="ignore"):
        _Reader(arrays, {}).read_fields(type(value), numbers, "", "")


def preload_types(*kinds: Any) -> None:
    """Read the declared types of all that such states can hold, so that `unpack` compiles nothing.

    `unpack` would do so when it first meets them, and an environment that loads files may forbid
    it.
    """
    stack: list[Any] = list(kinds)
    done: set[Any] = set()
    while stack:
        kind = stack.pop()
        if kind in done or isinstance(kind, str) or get_origin(kind) is np.ndarray:
            continue
        done.add(kind)
        stack += get_args(kind)
        if _is_abstract(kind):
            stack += _list_concrete(kind)
            continue
        inner = _find_packed_class(kind)
        stack += _read_layout(inner).hints.values() if is_dataclass(_find_class(inner)) else [inner]


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the fields of a dataclass are saved."""

    hints: dict[str, Any]  # declared types of those that are saved, by name
    numbers: frozenset[str]  # names of arrays that are saved as numbers
    optional: dict[str, Any]  # defaults of those that are saved only where they differ from these
    skipped: tuple[str, ...]  # names of those that are not saved and have no default
    is_variant: bool  # whether it is below an abstract class: its name is saved, too


def _pack_value(value: Any, path: str, arrays: Arrays) -> Any:
    if value is None or type(value) in PLAIN:
        return value
    if hasattr(value, "__pack__"):
        value = value.__pack__()
    if isinstance(value, np.ndarray):
        arrays[path] = value
        return ARRAY
    if isinstance(value, np.generic) and type(value.item()) in PLAIN:
        return value.item()
    if isinstance(value, tuple):
        return [_pack_value(part, _join_path(path, i), arrays) for i, part in enumerate(value)]
    if isinstance(value, Mapping) and all(type(key) is str for key in value):
        return {
            name: _pack_value(part, _join_path(path, name), arrays) for name, part in value.items()
        }
    if not is_dataclass(value):
        raise TypeError(f"{path} is a {type(value).__name__}, which cannot be saved")
    layout = _read_layout(value.__class__)
    packed: dict[str, Any] = {CLASS: type(value).__name__} if layout.is_variant else {}
    for name in layout.hints:
        part = getattr(value, name)
        if name in layout.numbers:
            packed[name] = part.tolist()
        elif name not in layout.optional or not _is_same(part, layout.optional[name]):
            packed[name] = _pack_value(part, _join_path(path, name), arrays)
    return packed


class _Reader:
    """Restores objects: arrays by path, and the classes of fields declared as Any."""

    def __init__(self, arrays: Mapping[str, Array], kinds: Mapping[str, Any]) -> None:
        self.paths: set[str] = set()  # of the arrays that were read
        self._arrays = arrays
        self._kinds = kinds
        self._sizes: dict[str, int] = {}

    def read(self, hint: Any, value: Any, path: str, key: str) -> Any:
        """The object of type ``hint`` from its saved value; ``key`` is the innermost of a dict."""
        if type(value) is hint in PLAIN:
            return value
        origin, options = get_origin(hint), get_args(hint)
        if origin in (Union, UnionType):
            return self._read_union(options, value, path, key)
        if hint in PLAIN or origin is Literal:
            is_valid = value in options if options else type(value) is hint
            _require(is_valid or (hint is float and type(value) is int), path, value)
            return value
        if hint is object:
            return value
        if hint is Any:
            return None if value is None else self.read(self._kinds[key], value, path, key)
        if origin is np.ndarray:
            return self._read_array(options[1], value, path)
        if origin is Annotated:
            return self._read_annotated(options, value, path, key)
        if origin is tuple:
            _require(isinstance(value, list | tuple), path, value)
            is_variadic = options[-1] is Ellipsis
            hints = options[:1] * len(value) if is_variadic else options
            _require(len(hints) == len(value), path, value)
            parts = enumerate(zip(hints, value, strict=True))
            return tuple(
                self.read(item_hint, item, _join_path(path, i), key)
                for i, (item_hint, item) in parts
            )
        if origin is not None and issubclass(origin, Mapping):
            _require(isinstance(value, dict), path, value)
            return {
                name: self.read(options[1], value[name], _join_path(path, name), name)
                for name in value
            }
        return self._read_object(hint, value, path, key)

    def _read_annotated(self, options: tuple[Any, ...], value: Any, path: str, key: str) -> Any:
        part, rules = self.read(options[0], value, path, key), options[1:]
        if isinstance(part, np.ndarray):
            part = self._fit_shape(part, rules[0], path)
            rules = rules[1:]
        for rule in rules:
            holds = (RULES[rule] if isinstance(rule, str) else rule)(part)
            if not (holds if type(holds) is bool else holds.all()):
                raise ValueError(f"{path} must be {rule}")
        return part

    def _read_union(self, options: tuple[Any, ...], value: Any, path: str, key: str) -> Any:
        if value is None and NoneType in options:
            return None
        kinds = [kind for kind in options if kind is not NoneType]
        exact = [kind for kind in kinds if type(value) is kind]
        return self.read((exact or kinds)[0], value, path, key)

    def _read_array(self, dtype: Any, value: Any, path: str) -> Array:
        array: Array = value
        if not isinstance(value, np.ndarray):
            _require(value == ARRAY, path, value)
            array = self._arrays[path]
            self.paths.add(path)
        declared = get_args(dtype)[0]
        _require(declared is Any or array.dtype == np.dtype(declared), path, array.dtype)
        return array

    def _fit_shape(self, array: Array, declared: str, path: str) -> Array:
        """The array, if it has the declared shape; no numbers are an array without rows."""
        owner, letters, shape = path.rpartition(".")[0], declared.split(), array.shape
        names = [f"{'' if letter in SHARED else owner} {letter}" for letter in letters]
        if shape == (0,):
            array = array.reshape(0, *(self._sizes.get(name, 0) for name in names[1:]))
        _require(len(letters) == array.ndim, path, shape)
        for letter, name, size in zip(letters, names, array.shape, strict=True):
            if letter.isdecimal():
                _require(size == int(letter), path, shape)
            elif letter != "*":
                _require(self._sizes.setdefault(name, size) == size, path, shape)
        return array

    def _read_object(self, kind: Any, entries: Any, path: str, key: str) -> Any:
        if _is_abstract(kind):
            kind = _find_concrete(kind, entries, path)
        inner = _find_packed_class(kind)
        if inner is not kind and not is_dataclass(_find_class(inner)):  # saved as a tuple or dict
            return kind.__unpack__(self.read(inner, entries, path, key))
        value = _find_class(inner)(**self.read_fields(inner, entries, path, key))
        owner = _find_class(kind)  # a generic one hides its methods
        return owner.__unpack__(value) if hasattr(owner, "__unpack__") else value

    def read_fields(self, kind: Any, entries: Any, path: str, key: str) -> dict[str, Any]:
        """The fields of a dataclass by name, those that are skipped as None."""
        layout = _read_layout(kind)
        if "support" in layout.hints:
            self._sizes.pop(" slots", None)
        _require(isinstance(entries, dict), path, entries)
        _require(layout.hints.keys() - layout.optional <= entries.keys(), path, sorted(entries))
        known = {*layout.hints, CLASS} if layout.is_variant else layout.hints.keys()
        _require(entries.keys() <= known, path, sorted(entries))
        parts: dict[str, Any] = dict.fromkeys(layout.skipped)
        for name, hint in layout.hints.items():
            if name in entries:
                value, inner = entries[name], _join_path(path, name)
                if name in layout.numbers:
                    _require(isinstance(value, list), inner, value)
                    value = freeze(np.array(value))
                parts[name] = self.read(hint, value, inner, key)
        return parts


def _is_abstract(kind: Any) -> bool:
    return bool(getattr(kind, "__abstractmethods__", ()))


def _find_concrete(kind: Any, entries: Any, path: str) -> Any:
    """The class below an abstract one that was saved."""
    concrete = {each.__name__: each for each in _list_concrete(kind)}
    _require(isinstance(entries, dict) and entries.get(CLASS) in concrete, path, entries)
    return concrete[entries[CLASS]]


def _list_concrete(kind: Any) -> list[Any]:
    """All classes below an abstract one that can be made."""
    below = [concrete for one in kind.__subclasses__() for concrete in _list_concrete(one)]
    return below if _is_abstract(kind) else [kind, *below]


def _join_path(path: str, name: object) -> str:
    return f"{path}.{name}" if path else str(name)


def _require(condition: object, path: str, value: object) -> None:
    if not condition:
        raise ValueError(f"{path or 'all of it'} is {value!r:.100}")


def _find_class(kind: Any) -> Any:
    """The class itself of a generic one, such as ``PendingParts[AcceptedEvents]``."""
    origin = get_origin(kind)
    return origin if is_dataclass(origin) else kind


@cache
def _find_packed_class(kind: Any) -> Any:
    """The dataclass that stands for a class: the result of its ``__pack__``, or itself."""
    if not hasattr(kind, "__pack__"):
        return kind
    packed = get_type_hints(kind.__pack__)["return"]
    return kind if _find_class(packed) is _find_class(kind) else packed


def _is_same(value: Any, default: Any) -> bool:
    """Whether a plain value is the default."""
    return value is default or (type(value) is type(default) in PLAIN and value == default)


@cache
def _read_layout(kind: Any) -> _Layout:
    """That of a dataclass, the types of its certain parts filled in; read once."""
    dataclass_type = _find_class(kind)
    hints = get_type_hints(dataclass_type, include_extras=True)
    if dataclass_type is not kind:
        arguments = dict(zip(dataclass_type.__parameters__, get_args(kind), strict=True))
        hints = {name: _fill_hint(hint, arguments) for name, hint in hints.items()}
    how = {item.name: item.metadata.get("saved", True) for item in fields(dataclass_type)}
    no_default = [f.name for f in fields(dataclass_type) if f.default is f.default_factory]
    return _Layout(
        {name: hints[name] for name in how if how[name]},
        frozenset(name for name in how if how[name] == AS_NUMBERS["saved"]),
        {
            item.name: item.default
            for item in fields(dataclass_type)
            if how[item.name] == SAVED_IF_SET["saved"]
        },
        tuple(name for name in no_default if not how[name]),
        any(map(_is_abstract, getattr(dataclass_type, "__mro__", ()))),
    )


def _fill_hint(hint: Any, arguments: Mapping[Any, Any]) -> Any:
    parameters = getattr(hint, "__parameters__", ())
    return hint[tuple(arguments[parameter] for parameter in parameters)] if parameters else hint
