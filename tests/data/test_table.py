"""One reader of tables: both policies have the same numbers, in the same order."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamembed.data import batch, impute
from streamembed.data.table import read_table, sort_names
from streamembed.errors import FeatureError

TENTHS = [Decimal("0.1"), Decimal("123456789.123"), Decimal("-7.30")]
TABLES = {
    "decimals": pa.table({"b": pa.array(TENTHS, pa.decimal128(20, 3)), "a": [1, 2, 3]}),
    "decimals of polars": pl.DataFrame({"b": TENTHS, "a": [1, 2, 3]}),
    "decimals of dicts": [{"b": value, "a": 1} for value in TENTHS],
    "large whole numbers": pa.table({"b": pa.array([2**63 + 1], pa.uint64()), "a": [2**53 + 1]}),
    "coded": pa.table({"b": pa.array([1.5, 2.5]).dictionary_encode(), "a": [True, False]}),
    "objects": pd.DataFrame({"b": [1, 2.5], "a": [1.0, 2.0]}, dtype=object),
    "narrow floats": np.array([[0.1, 0.2]], dtype=np.float32),
    "an array of objects": np.array([[1, Decimal("0.1")], [True, 2.0]], dtype=object),
    "twelve columns by number": pd.DataFrame(np.arange(24.0).reshape(2, 12)),
    "dicts by number": [{10: 1.0, 9: 2.0, 2: 3.0}],
    "rows of lists": [[1, 2.5], [3, 4]],
}


@pytest.mark.parametrize("kind", TABLES)
def test_engine_and_faces_read_the_same_numbers(kind: str) -> None:
    """To the bit, columns in the same order."""
    strict, lenient = batch.read(TABLES[kind]), impute.read(TABLES[kind])
    assert strict.features.names == sort_names(lenient.names)
    assert lenient.align(strict.features.names)[0].tobytes() == strict.points.tobytes()


def test_places_come_in_their_order_and_names_by_name() -> None:
    """ "10" is after "9" where all names are places, and before it where one is not."""
    assert sort_names(["10", "9", "01", "1"]) == ("01", "1", "9", "10")
    assert sort_names(["10", "9", "b"]) == ("10", "9", "b")
    assert sort_names([]) == ()


GAPS: dict[str, Any] = {
    "nulls": pa.table({"a": pa.array([1.0, None]), "b": pa.array([None, 2])}),
    "masks": np.ma.array([[1.0, 5.0], [5.0, 2.0]], mask=[[0, 1], [1, 0]]),
    "masked objects": np.ma.array([[1, "x"], ["x", 2]], mask=[[0, 1], [1, 0]], dtype=object),
    "None": [{"a": 1.0, "b": None}, {"a": pa.scalar(None), "b": 2.0}],
    "NA": [{"a": 1.0, "b": pd.NA}, {"a": pd.NaT, "b": 2.0}],
    "masks of dicts": [{"a": 1.0, "b": np.ma.masked}, {"a": np.ma.masked, "b": 2.0}],
}


@pytest.mark.parametrize("kind", GAPS)
def test_nulls_of_every_kind_are_told_apart_from_numbers(kind: str) -> None:
    """They are NaN, and marked; the engine calls them null, faces impute them."""
    table = read_table(GAPS[kind])
    np.testing.assert_array_equal(table.values, [[1.0, np.nan], [np.nan, 2.0]])
    np.testing.assert_array_equal(table.nulls, [[False, True], [True, False]])
    reasons = [row.reason for row in batch.read(GAPS[kind], on_bad_row="skip").rejected]
    assert [reason[:7] for reason in reasons] == ["null in", "null in"]
    np.testing.assert_array_equal(impute.read(GAPS[kind]).values, table.values)


def test_columns_without_numbers_are_refused_or_imputed() -> None:
    """The same table: an error of the engine, gaps for a face."""
    for text in (pa.table({"a": ["x"], "b": [2.0]}), pd.DataFrame({"a": ["1"], "b": [2.0]})):
        with pytest.raises(FeatureError, match="column 'a'"):
            batch.read(text)
        np.testing.assert_array_equal(impute.read(text).values, [[np.nan, 2.0]])


def test_arrays_of_a_warm_up_may_have_several_widths() -> None:
    """What one lacks is a gap, and its columns stay in their places."""
    rows = impute.read(np.array([[1.0, 2.0]]))
    np.testing.assert_array_equal(rows.arrange(("0", "1", "2"))[0], [[1.0, 2.0, np.nan]])
    assert rows.arrange(("0",)) == (np.array([[1.0]]), 1)


def test_decimals_of_a_table_are_those_of_its_rows() -> None:
    """Arrow's own cast of 2635.2 is a unit in the last place off."""
    values = [Decimal("2635.2"), Decimal("0.1"), None]
    table = pa.table({"a": pa.array(values, pa.decimal128(10, 1))})
    found = read_table(table).values[:, 0]
    assert found[:2].tolist() == [2635.2, 0.1]
    assert np.isnan(found[2])
