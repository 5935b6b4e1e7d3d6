"""Masses that fade by the times of events: late ones, early ones, calls, files, and the log."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.data.times import find_late, read_times
from streamembed.errors import BadRowError, FeatureError, InputError, ParameterError
from streamembed.geometry.scaling import Scaling
from streamembed.landmarks import covering

pytestmark = pytest.mark.filterwarnings("ignore::streamembed.errors.ResolutionWarning")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((400, 2))
TIMES = np.cumsum(RNG.exponential(1.0, 400)) + RNG.exponential(3.0, 400)  # some come late
HALF_LIFE = 60.0


def engine(**changes: Any) -> se.Engine:
    fixed: dict[str, Any] = {
        "memory": "landmarks",
        "size": 40,
        "half_life": HALF_LIFE,
        "clock": "event_time",
        "chunk_size": 20,
        "scaling": None,
    }
    return se.Engine(**{**fixed, **changes})


def weight(times: np.ndarray, half_life: float = HALF_LIFE) -> float:
    """Of all events, as of the newest: the definition."""
    return float(sum(2.0 ** (-(times.max() - t) / half_life) for t in times.tolist()))


def test_mass_is_that_of_the_times() -> None:
    """In whatever order events come; 400 sums and products, of which each rounds."""
    for order in (np.arange(400), np.argsort(TIMES), np.argsort(-TIMES)):
        one = engine()
        one.learn(X[order], times=TIMES[order])
        np.testing.assert_allclose(one.snapshot().masses.sum(), weight(TIMES), rtol=1e-12)
        assert one.landmark_set().time == TIMES.max()


def test_a_row_of_the_year_2100_is_a_bad_row() -> None:
    """It would fade all others to nothing; the reason names both numbers."""
    stamps = pa.array(TIMES * 1e6, pa.float64()).cast(pa.int64(), safe=False)
    table = pa.table(
        {"a": X[:, 0], "b": X[:, 1], "event_time": stamps.cast(pa.timestamp("us", "UTC"))}
    )
    future = pa.table(
        {
            "a": [0.0],
            "b": [0.0],
            "event_time": pa.array(
                [datetime.datetime(2100, 1, 1, tzinfo=datetime.UTC)], pa.timestamp("us", "UTC")
            ),
        }
    )
    one = engine(max_skew=3600)
    one.learn(table)
    before = one.to_bytes()
    with pytest.raises(BadRowError, match=r"row 0: the event time 4102444800 is more than max_sk"):
        one.learn(future)
    assert one.to_bytes() == before
    careful = engine(max_skew=3600, on_bad_row="skip")
    careful.learn(table)
    (row,) = careful.learn(future).rejected
    assert "beyond the newest" in row.reason
    careless = engine()
    careless.learn(table)
    careless.learn(pa.concat_tables([future] * 20))
    assert careless.snapshot().masses.sum() == pytest.approx(20)  # nothing else is left


def test_a_log_whose_times_are_text_is_refused(tmp_path: Path) -> None:
    """Before anything is learned, by one process and by several."""
    table = pa.table({"x": [1.0, 2.0], "event_time": ["noon", "night"]})
    pq.write_table(table, tmp_path / "log.parquet")
    timing: dict[str, Any] = {"half_life": 60.0, "clock": "event_time", "size": 50}
    with pytest.raises(FeatureError, match="times of type string"):
        se.replay_partitions(tmp_path / "log.parquet", tmp_path / "parts", **timing)
    timed = se.Engine(memory="landmarks", **timing)
    with pytest.raises(FeatureError, match="times of type string"):
        se.replay(tmp_path / "log.parquet", timed, tmp_path / "run")


def test_what_a_time_may_be() -> None:
    """Numbers, timestamps, dates, of arrays, columns and lists; anything else is refused."""
    day = datetime.date(1970, 1, 2)
    stamp = np.datetime64("1970-01-02T00:00:00", "us")
    for given_times in (
        [86400, None],
        np.array([86400.0, np.nan]),
        pa.array([86400, None]),
        pa.array([day, None]),
        [day, None],
        np.array([stamp, np.datetime64("NaT", "us")]),
        pa.array([86_400_000, None], pa.timestamp("ms", "Europe/Berlin")),
        pa.chunked_array([pa.array([86400.0]), pa.array([None], pa.float64())]),
    ):
        np.testing.assert_array_equal(read_times(given_times, 2), [86400.0, np.nan])
    nanoseconds = [1704112215 * 10**9, None]
    np.testing.assert_array_equal(read_times(nanoseconds, 2), [1.704112215e18, np.nan])
    far = np.array(["9999-12-31", "NaT"], "datetime64[D]")  # beyond nanoseconds of 64 bits
    for kind in ("D", "h", "25s", "s", "ms", "us"):
        column = far.astype(f"datetime64[{kind}]")
        days = column.astype("datetime64[s]")[0].astype(np.int64)
        np.testing.assert_array_equal(read_times(column, 2), [days, np.nan])
    assert days == 253402214400
    faults = find_late(read_times([1e300, np.inf, None, 5], 4), None, None)
    says = [(0, "1e+300 is beyond"), (1, "inf is beyond"), (2, "time is missing")]
    assert [row for row, _ in faults] == [row for row, _ in says]
    assert all(words in why for (_, why), (_, words) in zip(faults, says, strict=True))
    for wrong in (["noon", "night"], pa.array(["a", "b"]), [day, 3.0]):
        with pytest.raises(InputError, match="time"):
            read_times(wrong, 2)
    for wrong in ([1.0], pa.array([1.0])):
        with pytest.raises(InputError):
            read_times(wrong, 2)
    assert find_late(np.array([1.0, 9.0, 2.0]), None, 5.0)[0][0] == 1


def test_a_clock_goes_with_a_half_life_and_with_times() -> None:
    """Options that would do nothing are refused, and so are rows without a time."""
    with pytest.raises(ParameterError, match="needs half_life"):
        engine(half_life=None)
    with pytest.raises(ParameterError, match=r"max_skew=3\.0 is for clock='event_time'"):
        engine(clock="position", max_skew=3.0)
    with pytest.raises(ParameterError, match="clock='wall' must be one of"):
        engine(clock="wall")
    with pytest.raises(InputError, match="these rows have none"):
        engine().learn(X)
    with pytest.raises(ParameterError, match="masses fade by positions"):
        engine(clock="position").learn(X, times=TIMES)
    with pytest.raises(InputError, match="needs points with times"):
        engine().learn_distances([[]])


def test_a_log_is_replayed_by_its_column_of_times(tmp_path: Path) -> None:
    """Rows that lie beyond are rejected with the reason; a log without times is refused."""
    times = TIMES.copy()
    times[100] = 1e9
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "at": times})
    pq.write_table(table, tmp_path / "log.parquet")
    done = se.replay(tmp_path / "log.parquet", engine(max_skew=50), tmp_path / "run", time="at")
    assert done.rejected == 1
    told = pq.read_table(tmp_path / "run" / "rejected.parquet").to_pylist()
    assert told[0]["offset"] == 100
    assert "more than max_skew=50" in told[0]["reason"]
    assert done.snapshot is not None
    kept = np.delete(times, 100)[: done.learned]
    np.testing.assert_allclose(done.snapshot.masses.sum(), weight(kept), rtol=1e-12)
    with pytest.raises(FeatureError, match="the log has no column of times"):
        se.replay(tmp_path / "log.parquet", engine(), tmp_path / "other", features=["a", "b"])


def test_partitions_with_one_clock_merge_to_the_exact_mass() -> None:
    """However events fell to them; the map's engine goes on by the same clock."""
    which = RNG.integers(3, size=400)
    sets = []
    for part in range(3):
        one = engine(chunk_size=1)
        one.learn(X[which == part], times=TIMES[which == part])
        sets.append(one.landmark_set(part))
    merged = se.merge(sets)
    np.testing.assert_allclose(merged.mass, weight(TIMES), rtol=1e-12)
    whole = se.Engine.of_landmarks(merged, chunk_size=1)
    whole.learn(X[:10], times=TIMES[:10] + 500)
    later = np.concatenate([TIMES, TIMES[:10] + 500])
    np.testing.assert_allclose(whole.snapshot().masses.sum(), weight(later), rtol=1e-12)


def test_an_event_too_late_to_weigh_anything_is_taken() -> None:
    """It weighs the least there is."""
    scaling = Scaling(np.zeros(2), np.ones(2), 1.0)
    held = covering.update(covering.init(2), X[:5], scaling, 40, 1e-3, np.zeros(5))
    held = covering.update(held, X[5:7], scaling, 40, 1e-3, np.array([1e9, -1e9]))
    assert (held.support.masses > 0).all()
    assert held.support.masses.sum() == pytest.approx(1.0)
