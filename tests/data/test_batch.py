"""The door: whatever is tabular comes out as one checked matrix, or as an error that says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamembed.data import batch
from streamembed.data.features import Features
from streamembed.errors import BadRowError, FeatureError, InputError, StreamembedError

VALUES = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.5]])
COLUMNS = {"b": VALUES[:, 1], "a": VALUES[:, 0]}  # out of order on purpose


class StreamCapsule:
    """Only an Arrow stream capsule, nothing else."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


class ArrayCapsule:
    """Only an Arrow array capsule."""

    def __init__(self, rows: pa.RecordBatch) -> None:
        self._rows = rows

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any:
        return self._rows.__arrow_c_array__(requested_schema)


@pytest.mark.parametrize("X", [VALUES, VALUES.tolist(), np.asfortranarray(VALUES)])
def test_arrays_keep_their_order(X: Any) -> None:
    """Columns of an array are named by their place."""
    read = batch.read(X)
    assert read.features == Features(("0", "1"), True)
    assert read.points.flags.c_contiguous
    np.testing.assert_array_equal(read.points, VALUES)


BAD = [1.0, np.nan, np.inf, -np.inf, 1e200]


def test_bad_rows_are_refused_by_reason() -> None:
    """Under "raise" the whole call is refused; the error names rows, columns and what to try."""
    with pytest.raises(BadRowError, match=r"4 of 5 rows .*NaN in '0'.*on_bad_row='skip'") as caught:
        batch.read(np.array([[value] for value in BAD]))
    assert [index for index, _ in caught.value.rows] == [1, 2, 3, 4]


def test_bad_rows_are_set_aside_by_reason() -> None:
    """Under "skip" the good rows come through and the others are handed back."""
    read = batch.read(np.array([[v] for v in BAD]), ids=list("vwxyz"), on_bad_row="skip")
    assert read.points.tolist() == [[1.0]]
    assert read.kept.tolist() == [0]
    assert [row.index for row in read.rejected] == [1, 2, 3, 4]
    assert [row.id for row in read.rejected] == ["w", "x", "y", "z"]
    assert read.rejected[3].reason == "value 1e+200 in '0' is beyond 1e150, so its square overflows"


def test_dicts_with_other_features_are_bad_rows() -> None:
    """A missing, an unknown or a non-numeric feature spoils its row alone."""
    rows = [{"a": 1.0}, {"b": 1.0}, {"a": 1.0, "b": 2.0}, {"a": "x"}, {"a": None}, {"a": [1]}]
    read = batch.read(rows, on_bad_row="skip")
    assert read.kept.tolist() == [0]
    assert [row.reason for row in read.rejected] == [
        "missing features ['a']",
        "unknown features ['b']",
        "'x' in 'a' is not a number",
        "null in 'a'",
        "[1] in 'a' is not a number",
    ]


@pytest.mark.parametrize(
    ("X", "error", "says"),
    [
        (np.zeros(3), FeatureError, r"shape \(3,\).*reshape"),
        (np.zeros((2, 0)), FeatureError, "no features"),
        (np.array([["a"]]), FeatureError, "must be numeric"),
        (np.array([[1 + 1j]]), FeatureError, "must be numeric"),
        ([[1.0], [1.0, 2.0]], FeatureError, "differ in length"),
        (pa.table({"x": ["a"]}), FeatureError, "column 'x' has type string"),
        (pd.DataFrame({"x": [1, "a"]}), FeatureError, "not numeric"),
        ({"a": 1.0}, InputError, "X is a dict"),
        ("text", InputError, "X is a str"),
        (7, InputError, "X is a int"),
        (pa.table([[1], [2]], names=["x", "x"]), FeatureError, "duplicate column names"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_what_is_not_a_table_of_numbers_is_refused(
    X: Any, error: type[StreamembedError], says: str
) -> None:
    """The message names the argument, what it was and what to try."""
    with pytest.raises(error, match=says):
        batch.read(X)


def test_features_are_matched_by_name() -> None:
    """A known engine finds its columns by name, and says which are missing."""
    read = batch.read(pa.table(COLUMNS), features=Features(("b", "a"), False))
    np.testing.assert_array_equal(read.points, VALUES[:, ::-1])
    with pytest.raises(FeatureError, match=r"lacks the features \['c'\].*unknown features \['b'\]"):
        batch.read(pa.table(COLUMNS), features=Features(("a", "c"), False))
    with pytest.raises(FeatureError, match="2 columns; it must have 3"):
        batch.read(VALUES, features=Features(("0", "1", "2"), True))


def test_whole_number_column_names_are_names() -> None:
    """Not places, in whatever order and beside text; where two read alike, this is said."""
    four = pd.DataFrame(np.arange(12.0).reshape(3, 4))
    found = batch.read(four.drop(columns=0))
    assert found.features.names == ("1", "2", "3")
    np.testing.assert_array_equal(found.points, four.to_numpy()[:, 1:])
    known = batch.read(four)
    np.testing.assert_array_equal(
        batch.read(four[[2, 0, 3, 1]], features=known.features).points, known.points
    )
    mixed = four.set_axis(["a", "b", 0, 1], axis=1)
    assert batch.read(mixed).features.names == ("0", "1", "a", "b")
    np.testing.assert_array_equal(batch.read(mixed).points, four.to_numpy()[:, [2, 3, 0, 1]])
    with pytest.raises(FeatureError, match="duplicate column names"):
        batch.read(four.set_axis(["a", "b", "0", 0], axis=1))


LISTS: dict[str, Any] = {
    "fixed": pa.FixedSizeListArray.from_arrays(pa.array(VALUES.ravel()), 2),
    "chunked": pa.chunked_array([pa.array(VALUES.tolist()[:1]), pa.array(VALUES.tolist()[1:])]),
    "lists": pa.array(VALUES.tolist()),
    "polars": pl.Series(VALUES.tolist()),
    "pandas": pd.Series(VALUES.tolist()),
}


@pytest.mark.parametrize("kind", LISTS)
def test_an_array_of_lists_is_a_matrix(kind: str) -> None:
    """As the column of lists of a table is: no message of Arrow, whichever library has it."""
    read = batch.read(LISTS[kind])
    assert read.features.names == ("0", "1")
    assert np.array_equal(read.points, VALUES)
