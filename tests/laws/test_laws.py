"""Laws that everything keeps that learns from a stream."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import streamembed as se
from streamembed import estimators
from streamembed.errors import StreamembedError
from tests.laws.subjects import (
    IDS,
    LABELS,
    POINTS,
    ROWS,
    SUBJECTS,
    Subject,
    digest,
    read_snapshot,
)

every_subject = pytest.mark.parametrize("name", SUBJECTS)
TABLES = [name for name, subject in SUBJECTS.items() if subject.table]


def learned(subject: Subject) -> Any:
    """Its whole stream; of the last call `EmbeddingDrift` says more than of others."""
    model = subject.make()
    subject.learn(model, 0, subject.n - 1)
    subject.learn(model, subject.n - 1, subject.n)
    return model


def draw(name: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(name.encode()))


def test_everything_that_learns_is_a_subject() -> None:
    """A class that is added needs a row."""
    made = {type(subject.make()).__name__ for subject in SUBJECTS.values()}
    assert made == {*estimators.__all__, "Engine", "Monitor"}


@every_subject
@pytest.mark.filterwarnings("ignore::streamembed.errors.NotLearnedWarning")
def test_calls_saves_and_readings_leave_no_trace(name: str) -> None:
    """Any cut, a copy by file or pickle, and questions in between: the same bits at the end."""
    subject, rng = SUBJECTS[name], draw(name)
    whole = learned(subject)
    model, at = subject.make(), 0
    while at < subject.n:
        last = max(at + 1, subject.n - 1)
        stop = min(last, at + int(rng.choice([1, 1, 2, 3, 7, 11, 30])))
        subject.learn(model, at, stop)
        at = stop
        chance = rng.random()
        if chance < 0.2:
            model = pickle.loads(pickle.dumps(model))
        elif chance < 0.4 and isinstance(model, se.Engine | se.Monitor):
            model = type(model).from_bytes(model.to_bytes())
        elif chance < 0.6:
            subject.read(model)
    assert digest(model) == digest(whole)
    assert digest(subject.read(model)) == digest(subject.read(whole))


@every_subject
def test_reading_changes_nothing(name: str) -> None:
    """Neither what is saved, nor what is read again."""
    subject = SUBJECTS[name]
    model = learned(subject)
    before = digest(model)
    shown = digest(subject.read(model))
    assert digest(model) == before
    assert digest(subject.read(model)) == shown
    for attribute in ("snapshot", "metric"):
        reader = getattr(type(model), attribute, None)
        if isinstance(reader, property):
            assert getattr(model, attribute) is getattr(model, attribute)
        elif callable(reader):
            assert model.snapshot() is model.snapshot()


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name.startswith("Engine")])
def test_a_loaded_snapshot_is_the_saved_one(name: str) -> None:
    """Its bytes, coordinates, certificate and picture, and places and neighbours of new points."""
    subject = SUBJECTS[name]
    snapshot = learned(subject).snapshot()
    loaded = se.Snapshot.from_bytes(snapshot.to_bytes())
    assert loaded.to_bytes() == snapshot.to_bytes()
    assert digest(read_snapshot(loaded)) == digest(read_snapshot(snapshot))


def learn_of(model: Any) -> Callable[..., object]:
    """Of tables of any kind, with labels where these are due."""
    learn = getattr(model, "learn_many", None) or model.learn
    if hasattr(model, "learn_pairs") and not isinstance(model, se.Engine):
        return lambda X, y=None: learn(X, LABELS[: len(X)] if y is None else y)
    if isinstance(model, se.Monitor) and model.parameters["labels"]:
        return lambda X: learn(X, y=LABELS[: len(X)])
    return learn


def list_wrong_calls(model: Any) -> list[Callable[[], object]]:
    """Calls that are refused, whatever was learned."""
    learn = learn_of(model)
    wrong = [lambda: learn(np.ones((3, 2, 2))), lambda: learn("text")]
    if isinstance(model, se.Engine):
        held = model.support_ids[-1] if model.ready else "e004"
        bad = np.r_[np.ones((15, 3)), [[np.nan, 1.0, 1.0]]]
        wrong += [
            lambda: learn(bad),
            lambda: learn(np.ones((2, 4))),
            lambda: learn(POINTS[:2], ids=["once"]),
            lambda: learn(POINTS[200:220], ids=[f"new{i % 19}" for i in range(20)]),
            lambda: learn(POINTS[200:220], ids=[held, *IDS[200:219]]),
            lambda: model.learn_pairs(POINTS[:2], POINTS[:1], [1]),
            lambda: model.label(["e099", "e098"], ["a"]),
        ]
    elif hasattr(model, "learn_pairs"):
        wrong += [
            lambda: learn(ROWS[:3], LABELS[:2]),
            lambda: model.learn_pairs(ROWS[:3], ROWS[:2], [True] * 3),
            lambda: model.learn_pairs(ROWS[:2], ROWS[2:4], [True, "maybe"]),
        ]
    return wrong


@every_subject
def test_a_refused_call_leaves_no_trace(name: str) -> None:
    """In the warm-up and after it, bad rows, ids, labels and tables: and learning goes on."""
    subject = SUBJECTS[name]
    model, at = subject.make(), 0
    for stop in (5, 61, subject.n - 1, subject.n):
        subject.learn(model, at, stop)
        at = stop
        before = digest(model)
        for call in list_wrong_calls(model):
            with pytest.raises(StreamembedError):
                call()
            assert digest(model) == before
    assert before == digest(learned(subject))


KINDS: dict[str, Callable[[Any], Any]] = {
    "pandas": lambda rows: pd.DataFrame(rows)[["c", "a", "b"]],
    "polars": lambda rows: pl.DataFrame(rows)[["b", "c", "a"]],
    "table": lambda rows: pa.Table.from_pylist(rows).select(["c", "b", "a"]),
    "record batch": lambda rows: pa.RecordBatch.from_pylist(rows),
    "dicts": lambda rows: [dict(reversed(row.items())) for row in rows],
}


@pytest.mark.parametrize("name", TABLES)
def test_kinds_of_tables_and_the_order_of_features_leave_no_trace(name: str) -> None:
    """The same bits of each; estimators give coordinates back in the kind that came."""
    subject = SUBJECTS[name]
    states, n = set(), min(subject.n, 40)
    for kind, convert in KINDS.items():
        model = subject.make()
        table = convert(ROWS[:n])
        given = {"times": np.arange(float(n))} if "clock" in name else {}
        learn_of(model)(table, **given)
        states.add(digest(model))
        if hasattr(model, "transform_many"):
            placed = model.transform_many(table)
            assert type(placed) is type(table)
            if kind == "pandas":
                assert placed.index.equals(table.index)
    assert len(states) == 1


@pytest.mark.parametrize("name", TABLES)
def test_what_is_handed_in_is_neither_changed_nor_kept(name: str) -> None:
    """An array that is overwritten afterwards was copied."""
    subject = SUBJECTS[name]
    models = [subject.make(), subject.make()]
    given = {"times": np.arange(40.0)} if "clock" in name else {}
    X = POINTS[:40].copy()
    for model, points in zip(models, (X, POINTS[:40]), strict=True):
        learn_of(model)(points, **given)
    np.testing.assert_array_equal(X, POINTS[:40])
    X[:] = 0.0
    assert digest(models[0]) == digest(models[1])


# Metrics that remember pairs fill their buffers first.
GROWING = (
    "ITML",
    "EigDML",
    "MustLinkMetric-",
    "FENN-cv",
    "Engine, metrics",
    "Monitor",
    "EmbeddingDrift",
)
BOUNDED = [name for name in SUBJECTS if ", all" not in name and not name.startswith(GROWING)]


@pytest.mark.parametrize("name", [name for name in BOUNDED if "distances" not in name.lower()])
def test_memory_is_flat(name: str) -> None:
    """What is saved after 380 events is at most 2 % and 100 bytes longer than after 180."""
    subject = SUBJECTS[name]
    model = subject.make()
    sizes = []
    for first, stop in ((0, 180), (180, 380)):
        subject.feed(model, first, stop)
        sizes.append(len(pickle.dumps(model)))
    assert sizes[1] <= 1.02 * sizes[0] + 100


PLACED = [name for name in TABLES if not name.startswith(("Engine", "Monitor", "Emb", "Label"))]


@pytest.mark.parametrize("name", PLACED)
def test_a_missing_value_is_the_mean_of_what_came(name: str) -> None:
    """Also where a key is missing, of one event and of many."""
    model = SUBJECTS[name].make()
    labels = [LABELS[:49]] if hasattr(model, "learn_pairs") else []  # a multiple of the chunks
    model.learn_many(ROWS[:49], *labels)
    mean = float(np.mean([row["b"] for row in ROWS[:49]]))
    expected = list(model.transform_one({**ROWS[60], "b": mean}).values())
    for gap in ({"b": None}, {"b": float("nan")}, {}):
        row = {**{key: ROWS[60][key] for key in "ac"}, **gap}
        (many,) = model.transform_many([row])
        for placed in (model.transform_one(row), many):
            np.testing.assert_allclose(list(placed.values()), expected, rtol=1e-6, atol=1e-9)
    assert np.abs(expected).max() > 0.0
