"""The codec: whatever a dataclass declares is kept, bit for bit, and nothing else is let in."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, make_dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.geometry.kernel_matrix import KernelMatrix
from streamembed.metrics.catalog import NAMES, STATES
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.storage import archive

POINTS = np.random.default_rng(0).standard_normal((75, 3))
SMALL: dict[str, Any] = {"size": 30, "warm_up": 20, "chunk_size": 10}


@dataclass(frozen=True, slots=True, eq=False)
class Inner:
    values: Floats
    count: int


@dataclass(frozen=True, slots=True, eq=False)
class Outer:
    """One of everything that a state may be made of."""

    inner: Inner
    maybe: Inner | None
    absent: Floats | None
    ragged: tuple[Floats, ...]
    pair: tuple[Ints, Bools, str]
    parts: tuple[Inner, ...]
    by_name: Mapping[str, Inner]
    open: dict[str, Any]
    ids: Array
    ring: KernelMatrix
    label: str | int | float | bool
    kind: Literal["a", "b"]
    ratio: float
    cache: dict[str, int] = field(default_factory=dict, metadata=codec.NOT_SAVED)


def outer() -> Outer:
    inner = Inner(np.arange(3.0), 2)
    return Outer(
        inner=inner,
        maybe=inner,
        absent=None,
        ragged=(np.zeros((0, 0)), np.ones((2, 3)), np.full((1, 3), np.inf)),
        pair=(np.arange(2), np.array([True]), "x"),
        parts=(inner, inner),
        by_name={"one": inner},
        open={"inner": inner, "nothing": None},
        ids=np.array(["é", "", "long" * 99], dtype=object),
        ring=KernelMatrix.of(np.eye(2, dtype=np.float32), 5),
        label=True,
        kind="b",
        ratio=0.1 + 0.2,
        cache={"x": 1},
    )


KINDS = {"inner": Inner}


def through_a_file(kind: Any, value: Any, kinds: Mapping[str, Any] = STATES) -> Any:
    """What a file gives back: arrays as bytes, numbers as JSON."""
    arrays, numbers = codec.pack(value)
    table = archive.to_table(arrays)
    return codec.unpack(kind, archive.unpack(table), json.loads(json.dumps(numbers)), kinds)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every part of a state that is to be kept, by a walk of its own; arrays as their bytes."""
    if isinstance(value, np.ndarray):
        data = value.tolist() if value.dtype == object else value.tobytes()
        yield path, (value.dtype.str, value.shape, data)
    elif isinstance(value, KernelMatrix):
        yield from leaves(value.weights, path + ".weights")
        yield path, (value.n, value.capacity)
    elif isinstance(value, se.Engine):
        yield from leaves(value.config, path + ".config")
        yield from leaves(value._progress, path + ".progress")
    elif (
        isinstance(value, PendingParts) and value.count
    ):  # in one piece, however the calls were cut
        yield path, value.count
        yield from leaves(type(value.parts[0]).joined(value.parts), path)
    elif is_dataclass(value):
        for each in fields(value):
            if each.metadata != codec.NOT_SAVED:
                yield from leaves(getattr(value, each.name), f"{path}.{each.name}")
    elif isinstance(value, tuple):
        yield path, len(value)
        for i, part in enumerate(value):
            yield from leaves(part, f"{path}.{i}")
    elif isinstance(value, Mapping):
        yield path, sorted(value)
        for key in sorted(value):
            yield from leaves(value[key], f"{path}.{key}")
    else:
        yield path, (type(value), repr(value))


def engines() -> dict[str, se.Engine]:
    """Of every memory and kind of input, in the middle of a chunk; one before its warm-up ends."""
    made = {name: se.Engine(memory=name, **SMALL) for name in ("window", "landmarks", "all")}
    for engine in made.values():
        engine.learn(POINTS)
    y = np.arange(75) % 3
    names = pa.table(dict(zip("abc", POINTS.T, strict=True)))
    made["taught"] = se.Engine(metrics=NAMES, **SMALL)
    made["taught"].learn(names, y=y.astype(str).tolist(), ids=[f"k{i}" for i in range(75)])
    made["unfitted"] = se.Engine(metrics=NAMES, **SMALL)
    made["unfitted"].learn(POINTS)
    made["warming"] = se.Engine(metrics=NAMES, **SMALL)
    made["warming"].learn_pairs(POINTS[:5], POINTS[5:10], np.arange(5) % 2)
    made["warming"].learn(POINTS[:15], y=y[:15])
    made["distances"] = se.Engine(**SMALL)
    far = np.linalg.norm(POINTS[:28, None] - POINTS[:28], axis=2)
    made["distances"].learn_distances([far[i, :i] for i in range(28)])
    return made


ENGINES = engines()


def test_every_kind_of_part_comes_back_bit_for_bit() -> None:
    """Also an empty array among ragged ones, texts, infinities; not what is not to be kept."""
    value = outer()
    again = through_a_file(Outer, value, KINDS)
    assert dict(leaves(again)) == dict(leaves(value))
    assert again.cache == {}
    assert again.ring.buffer.shape == (5, 5)


@pytest.mark.parametrize("name", ENGINES)
def test_every_field_of_an_engine_comes_back_bit_for_bit(name: str) -> None:
    """All dataclasses below it, found by a walk and not by a list."""
    engine = ENGINES[name]
    again = through_a_file(se.Engine, engine)
    saved, found = (dict(leaves(one.__pack__())) for one in (engine, again))
    assert found == saved
    state, loaded = engine._progress.state, again._progress.state
    if state is not None:  # what follows from the rest is there, too
        assert loaded.support.scaled.tobytes() == state.support.scaled.tobytes()
    assert len([path for path in saved if ".state." in path]) > 25 or name == "warming"


def test_a_field_that_is_added_is_kept_without_anybody_remembering_it() -> None:
    """Of a class with three fields more, that no class declares: they are in the file."""
    grown = make_dataclass(
        "Grown",
        [("added", Floats), ("more", Inner, field(kw_only=True)), ("flag", bool)],
        bases=(Outer,),
        frozen=True,
        eq=False,
        kw_only=True,
    )
    parts = {each.name: getattr(outer(), each.name) for each in fields(Outer)}
    value = grown(**parts, added=np.ones(2), more=Inner(np.zeros(1), 7), flag=False)
    again = through_a_file(grown, value, KINDS)
    assert dict(leaves(again)) == dict(leaves(value))
    assert (again.more.count, again.flag) == (7, False)


def test_a_ring_is_copied_when_it_is_packed() -> None:
    """Written into afterwards, what was packed stays as it was."""
    ring = KernelMatrix.of(np.eye(3), 3)
    arrays, _ = codec.pack(ring)
    ring.with_rows(np.array([0]), np.array([[1.0, 0.5, 0.5]]))
    np.testing.assert_array_equal(arrays["weights"], np.eye(3))


def test_points_are_saved_once() -> None:
    """What follows from the rest is in no file."""
    arrays, _ = codec.pack(ENGINES["window"])
    assert not [name for name in arrays if name.endswith("scaled")]
    assert "scaled" not in str(codec.pack(ENGINES["window"])[1])


def test_what_cannot_be_put_together_again_is_not_saved() -> None:
    """A list, a set, an object: a TypeError when saving, not a loss when loading."""
    for wrong in ([1], {1}, object(), {1: 2}):
        with pytest.raises(TypeError, match="cannot be saved"):
            codec.pack(replace(outer(), label=wrong))


def test_what_is_not_declared_is_refused() -> None:
    """Parts missing, more than there are, or of another type, anywhere in the tree."""
    arrays, numbers = codec.pack(outer())
    for key in numbers:
        with pytest.raises((ValueError, KeyError)):
            codec.unpack(Outer, arrays, {k: v for k, v in numbers.items() if k != key}, KINDS)
    for name in arrays:
        with pytest.raises(KeyError):
            codec.unpack(Outer, {k: v for k, v in arrays.items() if k != name}, numbers, KINDS)
    for changed in (
        {"more": 1},
        {"inner": None},
        {"inner": "array"},
        {"absent": "x"},
        {"ragged": "array"},
        {"pair": ["array", "array"]},
        {"parts": {"0": numbers["inner"]}},
        {"by_name": []},
        {"open": {"other": numbers["inner"]}},
        {"label": None},
        {"label": []},
        {"kind": "c"},
        {"ratio": True},
        {"ratio": "1"},
        {"inner": {"values": "array", "count": True}},
        {"ring": {"weights": "array", "capacity": 10**9}},
        {"ring": {"weights": "array", "capacity": -1}},
    ):
        with pytest.raises((ValueError, KeyError, TypeError)):
            codec.unpack(Outer, arrays, {**numbers, **changed}, KINDS)
    for name, array in (("inner.values", np.arange(3)), ("pair.0", np.arange(2.0))):
        with pytest.raises(ValueError, match=name):
            codec.unpack(Outer, {**arrays, name: array}, numbers, KINDS)


class Shape(ABC):
    @abstractmethod
    def name(self) -> str: ...


@dataclass(frozen=True)
class Square(Shape):
    side: float

    def name(self) -> str:
        return "square"


@dataclass(frozen=True)
class Circle(Square):
    def name(self) -> str:
        return "circle"


@dataclass(frozen=True)
class Drawing:
    shapes: tuple[Shape, ...]


def test_classes_below_an_abstract_one_are_told_apart_by_name() -> None:
    """Also those with the same fields; another name is refused."""
    drawing = Drawing((Square(1.0), Circle(2.0)))
    arrays, numbers = codec.pack(drawing)
    assert codec.unpack(Drawing, arrays, numbers, {}) == drawing
    for wrong in (
        {"side": 1.0},
        {"class": "Shape", "side": 1.0},
        {"class": "Drawing", "shapes": []},
    ):
        with pytest.raises(ValueError, match=r"shapes\.0"):
            codec.unpack(Drawing, arrays, {"shapes": [wrong]}, {})


def test_numbers_are_pythons_own() -> None:
    """Those of numpy have the same value, and JSON can hold them."""
    value = replace(outer(), ratio=np.float64(0.1), label=np.int64(3))
    numbers = codec.pack(value)[1]
    assert (type(numbers["ratio"]), type(numbers["label"])) == (float, int)


@dataclass(frozen=True, slots=True, eq=False)
class Shaped:
    points: Annotated[Floats, "n d"]
    weights: Annotated[Floats, "n"]
    ends: Annotated[Ints, "n 2"] | None
    samples: tuple[Annotated[Floats, "* d"], ...]


@dataclass(frozen=True, slots=True, eq=False)
class TwoShaped:
    first: Shaped
    second: Shaped


def test_arrays_have_the_shapes_that_are_declared() -> None:
    """Sealed files of other shapes were loaded, and failed in the middle of a later chunk."""
    some = Shaped(np.ones((4, 3)), np.ones(4), np.ones((4, 2), np.int64), (np.ones((1, 3)),))
    few = Shaped(np.ones((0, 3)), np.ones(0), None, (np.ones((0, 3)), np.ones((2, 3))))
    arrays, numbers = codec.pack(TwoShaped(some, few))
    codec.unpack(TwoShaped, arrays, numbers)  # each with an n of its own
    for name, shape in {
        "first.points": (3, 3),
        "first.weights": (4, 1),
        "first.ends": (4, 3),
        "first.samples.0": (1, 2),
        "second.points": (0, 4),
        "second.samples.1": (6,),
    }.items():
        changed = np.ones(shape, arrays[name].dtype)
        with pytest.raises(ValueError, match=name.partition(".")[0]):
            codec.unpack(TwoShaped, {**arrays, name: changed}, numbers)


@dataclass(frozen=True, slots=True, eq=False)
class Ruled:
    """Entries and a number with rules beside their types."""

    near: Annotated[Ints, "n", "one of its rows or -1"]
    widths: Annotated[Floats, "n", "finite", "positive"]
    count: Annotated[int, "at least 0"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"near": np.array([0, 2])}, "near must be one of its rows or -1"),
        ({"widths": np.array([1.0, np.nan])}, "widths must be finite"),
        ({"widths": np.array([1.0, 0.0])}, "widths must be positive"),
        ({"count": -1}, "count must be at least 0"),
    ],
)
def test_entries_that_break_a_rule_are_refused(changed: dict[str, Any], message: str) -> None:
    """The message names the entry and the rule."""
    value = Ruled(np.array([-1, 0]), np.ones(2), 0)
    assert dict(leaves(through_a_file(Ruled, value))) == dict(leaves(value))
    with pytest.raises(ValueError, match=message):
        through_a_file(Ruled, replace(value, **changed))


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """Arrays among the numbers, bounds, different entries, and a tree of plain values."""

    matrix: Annotated[Floats, "d d"] = field(metadata=codec.AS_NUMBERS)
    factor: Annotated[Floats, "r d"] = field(metadata=codec.AS_NUMBERS)
    rate: Annotated[float, codec.Within(0.0, 1.0)]
    ids: Annotated[Array, "n", "int64 or text", "different"]
    names: Annotated[tuple[str, ...], "different"]
    facts: object


def listed(rank: int = 0) -> Listed:
    ids = np.array(["a", "b"], dtype=object)
    return Listed(np.eye(3), np.ones((rank, 3)), 0.5, ids, ("x", "y"), {"any": (1, "two", None)})


@pytest.mark.parametrize("rank", [0, 2])
def test_arrays_among_the_numbers_come_back(rank: int) -> None:
    """Also one without rows, whose columns are those of another."""
    arrays, numbers = codec.pack(listed(rank))
    assert [*arrays] == ["ids"]
    assert numbers["matrix"][1] == [0.0, 1.0, 0.0]
    again = codec.unpack(Listed, arrays, json.loads(json.dumps(numbers)))
    assert again.factor.shape == (rank, 3)
    np.testing.assert_array_equal(again.matrix, np.eye(3))
    assert again.facts == {"any": [1, "two", None]}


@pytest.mark.parametrize(
    "changed",
    [
        {"matrix": "array"},
        {"matrix": [[1, 0, 0]] * 3},
        {"matrix": [[1.0], [1.0, 2.0]]},
        {"factor": [[1.0, 2.0]]},
        {"rate": 1},
        {"rate": 1.5},
        {"rate": float("nan")},
        {"names": ["x", "x"]},
    ],
)
def test_numbers_that_are_no_such_array_or_out_of_bounds_are_refused(
    changed: dict[str, Any],
) -> None:
    """A placeholder, whole numbers, ragged rows, other columns; an int where a float is bounded."""
    arrays, numbers = codec.pack(listed())
    with pytest.raises((ValueError, KeyError)):
        codec.unpack(Listed, arrays, {**numbers, **changed})


def test_arrays_that_nothing_declares_are_refused() -> None:
    """They were ignored."""
    arrays, numbers = codec.pack(listed())
    with pytest.raises(ValueError, match="without a place"):
        codec.unpack(Listed, {**arrays, "more": np.zeros(1)}, numbers)
    with pytest.raises(ValueError, match="matrix"):
        codec.unpack(Listed, {**arrays, "matrix": np.eye(3)}, {**numbers, "matrix": "array"})


def test_a_dataclass_of_any_source_is_checked_by_the_same_rules() -> None:
    """Without a file."""
    codec.check(listed())
    for wrong in ({"rate": 2.0}, {"matrix": np.ones((3, 2))}, {"ids": np.array([1, 1])}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            codec.check(replace(listed(), **wrong))
