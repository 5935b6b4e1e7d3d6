"""Values that a caller may pass by mistake, or on purpose; `scenarios.fuzz.inputs` draws them."""

from __future__ import annotations

import datetime
import warnings
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import scipy.sparse

__all__ = [
    "NAMES",
    "D",
    "columns",
    "draw_distance_rows",
    "hosts",
    "paths",
    "points",
    "scalars",
    "tables",
]

D = 3
NAMES = ["a", "b", "c"]


def _view(array: Any) -> memoryview:
    return memoryview(array)


class Hostile:
    """An object that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


def scalars() -> list[Any]:
    """Values of a parameter."""
    return [
        None, True, False, 0, -1, 1, 3, 10**30, 10**400, 2**63, -(2**63) - 1, 0.5, -0.5, np.nan,
        np.inf, -np.inf, 1e308, 5e-324, "", "x", "1", "auto", "\ud800", "a\0b", "x" * 300, b"x",
        bytearray(b"1"), np.int64(2), np.uint64(2**64 - 1), np.float32(0.5), np.float16(1),
        np.bool_(True), np.str_("window"), np.bytes_(b"x"), Fraction(1, 2), Decimal("0.5"),
        Decimal("sNaN"), Decimal("1e999"), 1j, np.complex128(1 + 2j), np.longdouble("1e400"),
        datetime.datetime(2020, 1, 1), datetime.timedelta(1), np.datetime64("2020-01-01", "ns"),
        np.datetime64("NaT", "s"), np.timedelta64(5, "D"), pd.NA, pd.NaT, np.ma.masked, object(),
        Hostile(), len, int, Ellipsis, slice(3), {1}, frozenset("a"), {}, {"a": 1}, [], (), [None],
        [1, "a"], range(3), iter([1, 2]), np.array(2), np.array([1.0, 2.0]), np.array("auto"),
        np.zeros((0, 0)), Path("x"), memoryview(b"abc"), pa.scalar(1.5), pa.array([1]),
    ]  # fmt: skip


def tables(rng: np.random.Generator) -> list[Any]:
    """Values in place of points."""
    X = rng.normal(size=(4, D))
    text = X.astype(str)
    structured = np.zeros(4, dtype=[("a", float), ("b", float)])
    nested = pa.array([[1.0, 2.0]] * 4)
    two = pd.DataFrame(X, columns=["a", "a", "b"])
    deep = pd.DataFrame(X, columns=pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        matrix = np.matrix(X)
    return [
        X.astype(np.float16), X.astype(np.longdouble) * np.longdouble("1e400"), matrix, text,
        text.astype("S"), text.astype(object), X.astype(complex), X.astype("M8[D]"),
        X.astype("M8[ns]"), X.astype("m8[us]"), (X > 0), X.astype("i1"), X.astype("u8"),
        np.full((4, D), 10**400, dtype=object), np.full((4, D), None, dtype=object), structured,
        np.full((4, D), np.datetime64("2020", "ns"), dtype=object), X[:, :0], X[:0], X[0], X[:, :2],
        X[None], np.asfortranarray(X), X[::-1], X * np.nan, X * np.inf, X * 1e200, X * 1e-320,
        np.ma.masked_greater(X, 0.0), np.ma.masked_greater((X * 10).astype(int), 0),
        [np.ma.masked_greater(row, 0.0) for row in X], [[np.ma.masked, 1.0, 2.0]],
        np.ma.array(X, mask=True), X.tolist(), text.tolist(), [[1.0], [1.0, 2.0]], [[10**400, 1,
        2]],
        [["a", 1, 2]], [[None, 1, 2]], [[], []], [1, 2, 3], [{"a": 1, "b": 2, "c": 3}],
        [{1: 1.0, "1": 2.0}], [{"a": 1}, {"b": 2}], [{}], [{"a": "1", "b": 2, "c": 3}],
        [{"a": 1j, "b": 2, "c": 3}], [{"a": 10**400, "b": 2, "c": 3}], [{"\ud800": 1.0}],
        [{"a": np.datetime64("2020", "ns"), "b": 2, "c": np.timedelta64(1, "s")}],
        [{Hostile(): 1.0}],
        [{"a": np.complex128(1), "b": pd.NA, "c": np.ma.masked}], [{10**5000: 1.0}], [{"a": 1}, 5],
        [{"a": np.array([1, 2]), "b": [1], "c": {}}], {"a": [1.0]}, two, deep, pd.DataFrame(X),
        pd.DataFrame({"a": [1], "b": ["x"], "c": [2]}), pd.DataFrame(), pd.Series([1.0, 2.0]),
        pd.DataFrame({"a": pd.Categorical(["x"]), "b": [1], "c": [pd.Timestamp("2020")]}),
        pd.DataFrame({"a": [1, None], "b": [pd.NA, 2], "c": [1j, 2]}), pl.Series([1.0, 2.0]),
        pd.DataFrame.sparse.from_spmatrix(scipy.sparse.eye(3), columns=NAMES),
        pl.DataFrame(X, schema=NAMES), pl.DataFrame(X, schema=NAMES).lazy(),
        pl.DataFrame({"a": [[1.0]], "b": [1], "c": [datetime.date(2020, 1, 1)]}),
        pa.table(dict(zip(NAMES, X.T, strict=True))), pa.table([X[:, 0]] * 2, names=["a", "a"]),
        pa.table({"a": nested, "b": X[:, 0], "c": X[:, 1]}), pa.table({"a": pa.nulls(2)}),
        pa.table({"a": pa.array([Decimal("1.5")]), "b": pa.array([1]), "c": pa.array([True])}),
        pa.table({"a": pa.array(["x"]).dictionary_encode(), "b": [1], "c": [2]}),
        pa.record_batch(dict(zip(NAMES, X.T, strict=True))), pa.array(X[:, 0]), nested,
        pa.table(dict(zip(NAMES, X.T, strict=True))).to_reader(), scipy.sparse.csr_matrix(X),
        scipy.sparse.coo_array(X), _view(X), _view(X[0].copy()), (row for row in X),
        {1.0, 2.0}, "text", b"bytes", 5, None, np.array(3.0), X.reshape(2, 2, 3), Hostile(),
        [Hostile()], [[Hostile()] * 3], np.full((2, D), Hostile(), dtype=object),
    ]  # fmt: skip


def columns(rng: np.random.Generator) -> list[Any]:
    """Values in place of ids or labels of four rows."""
    n = 4
    big = np.full(n, 2**64 - 1, "u8") - np.arange(n, dtype="u8")
    return [
        big, [2**63 + i for i in range(n)], [10**30] * n, [1, "a", 2, "b"], ["a", "a\0", "b", ""],
        ["x" * 1000, "a", "b", "c"], [True, False, True, False], [0.5, 1.0, 2.0, 3.0], np.arange(n),
        np.arange(n, dtype="u1"), np.array(["a", "b", "c", "d"]), np.array(list("abcd"), object),
        np.array(list("abcd"), "S1"), [b"a", b"b", b"c", b"d"], [None] * n, ["a", None, "b", None],
        [1, None, 2, 3], np.ma.masked_equal(np.arange(n), 1), np.array(3), np.zeros((n, 1)),
        [[1], [1, 2], [3], [4]], {1, 2, 3, 4}, {"a": 1, "b": 2, "c": 3, "d": 4}, b"0123", "abcd",
        range(n), iter(range(n)), pd.Series(range(n)), pd.Series(list("abcd"), index=list("wxyz")),
        pd.Categorical(list("abca")), pd.Index(range(n)), pl.Series(list("abcd")),
        pa.array([1] * n),
        pa.array(list("abcd")), pa.chunked_array([[1, 2], [3, 4]]), pa.array(["a", None, "b", "c"]),
        [np.int64(1), np.int64(2), 3, 4], [np.str_("a"), "b", "c", "d"],
        [np.datetime64("2020")] * n,
        np.arange(n).astype("M8[s]"), np.arange(n).astype("m8[s]"), np.arange(n) * 1j, [1j] * n,
        [object()] * n, [Hostile()] * n, ["\ud800"] * n, [10**5000] * n, [np.nan] * n, [pd.NA] * n,
        [pd.NaT] * n, np.array([1.0, np.nan, 2.0, 3.0], np.longdouble), [(1,), (2,), (3,), (4,)],
        [Fraction(1, 2)] * n, [Decimal(1)] * n, 5, None, [], (), memoryview(b"abcd"), Hostile(),
        rng.integers(0, 2, n).astype(bool), rng.integers(-(10**9), 10**9, n),
    ]  # fmt: skip


def draw_distance_rows(rng: np.random.Generator) -> list[Any]:
    """Values in place of distances."""
    row = rng.random(30)
    return [
        [row], [row, row], np.array([row, row]), [row.tolist()], [row * np.nan], [-row], [row[:2]],
        [[]], [[], [1.0], [1.0, 2.0]], [[10**400] * 30], [["1"] * 30], [row.astype(str)],
        [row.astype(complex)], [row.astype("m8[s]")], [None], [None, row], [np.ma.masked_less(row,
        1)],
        [[np.ma.masked] * 30], pa.array([row.tolist()]), pa.array([None, [1.0]]), pa.array(["a"]),
        pa.array([["a"]]), pa.array([[[1.0]]]), pa.array([1.0]), _view(np.array([row])), [1, 2],
        np.zeros((2, 2, 2)), np.array(5), "ab", {1: 2}, {1.0}, 5, None, iter([row]), Hostile(),
        [Hostile()],
        [[Hostile()]], np.full((2, 30), None, object), rng.random((5, 5)), np.zeros((3, 3)),
        [np.longdouble("1e400") * row], scipy.sparse.eye(3), pd.DataFrame(np.zeros((3, 3))),
        [[True]],
    ]  # fmt: skip


def points(rng: np.random.Generator, named: bool) -> list[Any]:
    """Valid points, of every kind."""
    X = rng.normal(size=(4, D))
    if not named:
        return [X, X.tolist(), X.astype(np.float32), (10 * X).astype(int)]
    columns = dict(zip(NAMES, X.T, strict=True))
    dicts = [dict(zip(NAMES, row, strict=True)) for row in X.tolist()]
    return [pa.table(columns), pa.record_batch(columns), pd.DataFrame(columns), dicts]


def paths(folder: Path) -> list[Any]:
    """Values in place of a path."""
    return [
        folder, folder / "missing", folder / "no" / "folder", folder / "pipe", "/dev/null", "",
        "\0", "x\0y", "\ud800", 5, None, b"x", 1.5, [], folder / ("x" * 300), Hostile(), object(),
        True,
    ]  # fmt: skip


def hosts(rng: np.random.Generator, port: int, count: int) -> list[bytes]:
    """Headers ``Host`` that are no name of a server at a port of this machine."""
    names = [b"localhost", b"127.0.0.1", b"[::1]", b"LOCALHOST"]
    others = [b"evil.example", b"127.0.0.1.evil.example", b"a@localhost", b"localhost.", b"[", b"]",
        b"[localhost]", b"::1", b"1.2.3", b"127.0.0.1,evil.example", b"", b"\xff", b"\xe2\x80\xae",
        "١٢٧.0.0.1".encode(), b"%31", b"127.0.0.1\t1", b"http://localhost",
        b"x" * 5000]  # fmt: skip
    ports = [b":\xb2", b":" + b"1" * 5000, b":0" + str(port).encode(), b":", b":-1", b":65536",
        b":+1", b":0", b": 1", b":1_0", b":\xd9\xa1", b":0x50", b":80:80", b":1e3"]  # fmt: skip
    good = b":%d" % port
    made = [name + good for name in others] + [name + bad for name in names for bad in ports]
    while len(made) < count:
        noise = rng.integers(128, 256, rng.integers(1, 4), dtype=np.uint8).tobytes()
        name, at = names[rng.integers(4)] + good, rng.integers(1 + len(names[0]))
        made.append(name[:at] + noise + name[at:])
    return made
