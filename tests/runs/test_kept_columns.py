"""Columns that ride along: from the log into the embedding, the alarms' events and the page."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import FeatureError, InputError, ParameterError
from streamembed.report.page import write_page
from streamembed.report.report_contents import read_contents
from streamembed.runs import run_export
from tests.cli.test_cli import call
from tests.report.runs import ATTACK
from tests.report.test_page import Parts
from tests.serving.served import serving

N = 160
POINTS = np.random.default_rng(0).standard_normal((N, 2))
TITLES = [f"title {i}" for i in range(N)]
IDS = [f"e{i}" for i in range(N)]
TITLES[3], TITLES[150] = ATTACK, "long " * 100
SMALL: dict[str, Any] = {"size": 60, "warm_up": 40}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Texts, nested values and a null, in two files; the second lacks a column."""
    more: dict[str, Any] = {
        "title": [*TITLES[:7], None, *TITLES[8:]],
        "tags": [[f"t{i % 3}"] for i in range(N)],
        "id": IDS,
    }
    table = pa.table({"a": POINTS[:, 0], "b": POINTS[:, 1], **more})
    (tmp_path / "log").mkdir()
    pq.write_table(table.slice(0, 90), tmp_path / "log" / "1.parquet")
    pq.write_table(table.slice(90).drop(["tags"]), tmp_path / "log" / "2.parquet")
    return tmp_path / "log"


def replayed(log: Path, run: Path, **changes: Any) -> Any:
    given = {"keep": ("title", "tags"), **changes}
    return se.replay(log, se.Engine(**SMALL), run, snapshot_every=40, **given)


@pytest.mark.parametrize("embed", ["final", "causal"])
def test_they_are_in_the_embedding(log: Path, tmp_path: Path, embed: str) -> None:
    """In their types, nulls where a file has none; they are neither features nor left out."""
    done = replayed(log, tmp_path / "run", embed=embed)
    assert {*done.columns.keep} == {"title", "tags"}
    assert not done.columns.left_out
    table = pq.read_table(tmp_path / "run" / "embedding.parquet")
    assert table["title"].to_pylist() == [*TITLES[:7], None, *TITLES[8:]]
    assert table["tags"].to_pylist() == [[f"t{i % 3}"] for i in range(90)] + [None] * 70


def test_a_run_that_was_stopped_goes_on_with_them(log: Path, tmp_path: Path) -> None:
    """The same bytes as one that was not; other columns are another run."""
    replayed(log, tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(KeyboardInterrupt):
        replayed(log, tmp_path / "cut", stop=lambda: next(asked))
    found = se.read_run(tmp_path / "cut").find_events(["e3", "e7", "e9"])
    assert {key: event.kept["title"] for key, event in found.items()} == {
        "e3": ATTACK,
        "e7": None,
        "e9": "title 9",
    }
    with pytest.raises(ParameterError, match=r"columns.keep had 2 entries and has 0"):
        replayed(log, tmp_path / "cut", keep=None)
    replayed(log, tmp_path / "cut")
    whole, cut = ((tmp_path / name / "embedding.parquet").read_bytes() for name in ("whole", "cut"))
    assert whole == cut


def test_what_cannot_be_kept_is_refused(log: Path, tmp_path: Path) -> None:
    """A column that is missing, or that the embedding has itself."""
    with pytest.raises(FeatureError, match=r"keep='titles' is not a column"):
        replayed(log, tmp_path / "run", keep=["titles"])
    renamed = pq.read_table(log / "1.parquet").rename_columns(["a", "b", "coverage", "c", "id"])
    pq.write_table(renamed, tmp_path / "other.parquet")
    with pytest.raises(FeatureError, match=r"keep='coverage' is a column of embedding.parquet"):
        replayed(tmp_path / "other.parquet", tmp_path / "run", keep=["coverage"])
    assert not (tmp_path / "run").exists()


def test_they_are_on_the_page_as_text(log: Path, tmp_path: Path) -> None:
    """Of every event of a plot and of an alarm, shortened; a link is one of http alone."""
    done = call(
        *("replay", log, "--run", tmp_path / "run", "--size", "60", "--warm-up", "40"),
        *("--keep", "title", "--monitor", "--n-reference", "100", "--snapshot-every", "40"),
    )
    assert done.exit_code == 0, done.output
    kept = read_contents(tmp_path / "run")["kept"]
    assert kept["columns"] == ["title"]
    assert kept["events"]["e150"] == [("long " * 100)[:199] + "…"]
    page = write_page(tmp_path / "run", tmp_path / "a.html", link="https://example.org/{title}")
    parts = Parts(page.read_text())
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in parts.tags)
    assert json.loads(parts.scripts[0])["link"] == "https://example.org/{title}"
    with pytest.raises(ParameterError, match=r"names 'url', and the run has kept \['title'\]"):
        write_page(tmp_path / "run", tmp_path / "a.html", link="https://example.org/{url}")
    with pytest.raises(ParameterError, match="must begin with https://, http:// or a column"):
        write_page(tmp_path / "run", tmp_path / "a.html", link="javascript:alert({title})")
    with pytest.raises(ParameterError, match=r"must name a column, such as \{id\}"):
        write_page(tmp_path / "run", tmp_path / "a.html", link="https://example.org")


def make_frames() -> list[Any]:
    """The same events as a data frame, a table of Arrow and dicts."""
    table = pa.table({"a": POINTS[:, 0], "b": POINTS[:, 1], "id": IDS, "title": TITLES, "n": IDS})
    return [table[:60].to_pandas(), table[60:110], table[110:].to_pylist()]


def test_an_online_run_commits_them_with_its_events(tmp_path: Path) -> None:
    """As text, of tables and dicts, in what is repeated by name, and on its page; also reopened."""
    with se.open_run(tmp_path / "run", SMALL, keep=("title", "n")) as run:
        for i, part in enumerate(make_frames()):
            assert run.learn(part, batch_id=str(i)).accepted == len(part)
        assert run.engine.feature_names == ("a", "b")
    with se.open_run(tmp_path / "run") as run:
        assert (run.kept_columns, run.position) == (("n", "title"), N)
        other = make_frames()[1].set_column(3, "title", pa.array(["other"] * 50))
        with pytest.raises(InputError, match="with other rows"):
            run.learn(other, batch_id="1")
    with se.read_run(tmp_path / "run") as reader:
        found = reader.find_events([IDS[i] for i in (3, 80, 150)])
        with pytest.raises(InputError, match=r"'e3' is one id: pass \['e3'\]"):
            reader.find_events("e3")
    assert [event.kept["title"] for event in found.values()] == [TITLES[i] for i in (3, 80, 150)]
    assert read_contents(tmp_path / "run")["kept"]["events"]["e150"][1] == TITLES[150][:199] + "…"
    parts = Parts(write_page(tmp_path / "run", tmp_path / "a.html").read_text())
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in parts.tags)
    run_export.export(tmp_path / "run", tmp_path / "files")
    exported = pq.read_table(tmp_path / "files" / "embedding.parquet")
    assert exported.select(["title", "n"]).to_pydict() == {"title": TITLES, "n": IDS}


def test_an_online_run_refuses_events_without_them(tmp_path: Path) -> None:
    """Nothing is learned; the columns of a run are those that it began with."""
    with se.open_run(tmp_path / "run", SMALL, keep=["title"]) as run:
        with pytest.raises(FeatureError, match="X is a ndarray without columns"):
            run.learn(POINTS)
        with pytest.raises(FeatureError, match="X has no column 'title'"):
            run.learn(pa.table({"a": POINTS[:, 0], "b": POINTS[:, 1]}))
        assert run.position == 0
        with pytest.raises(FeatureError, match="X has no column 'title'"):
            run.learn([{"a": 1.0, "b": 2.0}])
        for wrong in (np.ones(2), 10**5000, Decimal("sNaN")):
            with pytest.raises(InputError, match=r"columns to be kept \(\['title'\]\)"):
                run.learn([{"a": 1.0, "b": 2.0, "title": wrong}])
        # times that Python does not know: a server takes an InputError for the client's fault
        never = pa.table({"a": [1.0], "b": [2.0], "title": pa.array([2**62], pa.timestamp("s"))})
        for kept in (never, never.append_column("id", never["title"])):
            with pytest.raises(InputError, match="values that Python cannot hold"):
                run.learn(kept)
        with pytest.raises(InputError, match="ids has type timestamp"):
            run.learn([{"a": 1.0, "b": 2.0, "title": "x"}], ids=never["title"])
        assert run.position == 0
        titles = ["\ud83d", pd.NA, np.nan]  # half an emoji, and nothing
        run.learn([{"a": 1.0, "b": 2.0, "title": title} for title in titles] + [{"a": 1, "b": 2}])
        assert run.position == 4
    with se.read_run(tmp_path / "run") as reader:
        found = reader.find_events([0, 1, 2, 3])
    assert [event.kept["title"] for event in found.values()] == ["?", None, None, None]
    with pytest.raises(ParameterError, match=r"columns.keep"):
        se.open_run(tmp_path / "run", keep=["url"])
    with pytest.raises(ParameterError, match="keep='label' is a column of events already"):
        se.open_run(tmp_path / "other", keep=["label"])
    with pytest.raises(ParameterError, match="must be a list of different column names"):
        se.open_run(tmp_path / "other", keep="title")


def test_a_server_commits_them(tmp_path: Path) -> None:
    """What a client sends of its table, rejected rows left out."""
    se.open_run(tmp_path / "run", {**SMALL, "on_bad_row": "skip"}, keep=["title"]).close()
    table = make_frames()[1].drop_columns(["n"])
    holes = pa.array([None, *range(49)], pa.float64())
    with serving(tmp_path / "run", "--learn") as server, server.client() as client:
        assert client.learn(table.set_column(0, "a", holes)).accepted == 49
        with pytest.raises(FeatureError, match="no column 'title'"):
            client.learn(table.drop_columns(["title"]))
        for name in ("title", "id"):  # a time that Python does not know ended the learner once
            never = pa.array([2**62], pa.timestamp("s"))
            rows = table.slice(0, 1).drop_columns([name]).append_column(name, never)
            with pytest.raises(InputError, match="values that Python cannot hold"):
                client.learn(rows)
        assert client.learn(table.slice(0, 1).set_column(2, "id", pa.array(["x"]))).accepted == 1
    with se.read_run(tmp_path / "run") as reader:
        found = reader.find_events(["e60", "e61", "e109"])
    titles = {key: event.kept["title"] for key, event in found.items()}
    assert titles == {"e61": "title 61", "e109": "title 109"}
