"""Clusters of the pictures of a replay: with ids that persist, the same however it was cut."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.errors import ParameterError
from streamembed.logs import write_log
from streamembed.report.report_contents import read_contents
from streamembed.runs import cluster_table

RNG = np.random.default_rng(0)
GROUPS = np.where(np.arange(400) < 150, RNG.integers(0, 2, 400), RNG.integers(0, 3, 400))
POINTS = 40.0 * np.eye(3)[GROUPS] + RNG.standard_normal((400, 3))
IDS = [f"e{i}" for i in range(400)]


def replayed(folder: Path, **changes: object) -> Path:
    if not (folder / "log").exists():
        write_log(folder / "log", POINTS, ["a", "b", "c"], ids=IDS)
    engine = se.Engine(size=120, warm_up=60, picture=True)
    given = {"snapshot_every": 20, "clusters": True, **changes}
    run = folder / str(given.pop("name", "run"))
    se.replay(folder / "log", engine, run, **given)  # type: ignore[arg-type]
    return run


def test_clusters_are_the_groups_and_keep_their_ids(tmp_path: Path) -> None:
    """Two groups from the start, one that comes later; members and exemplars are of one group."""
    run = replayed(tmp_path)
    table = pq.read_table(run / "clusters.parquet").to_pandas()
    last = table[table.position == table.position.max()]
    of = dict(zip(IDS, GROUPS.tolist(), strict=True))
    last = last[last["size"] > 0]
    groups = [{of[key] for key in members} for members in last.members]
    assert sorted(map(tuple, groups)) == [(0,), (1,), (2,)]
    for row in last.itertuples():
        assert {of[key] for key in row.exemplars} == {of[row.members[0]]}
    # 18 pictures of two to three groups: ids stay but where the third one comes
    assert table.cluster.nunique() <= 5
    assert 2 in {*last.cluster}
    assert table[table.position == 60].event.tolist() == ["birth", "birth"]


def test_the_same_bytes_after_any_stop(tmp_path: Path) -> None:
    """Nothing of the clusters is in what a replay resumes from."""
    whole = replayed(tmp_path, name="whole")
    asked = iter([False] * 5 + [True])
    with pytest.raises(KeyboardInterrupt):
        replayed(tmp_path, name="cut", stop=lambda: next(asked))
    cut = replayed(tmp_path, name="cut")
    name = "clusters.parquet"
    assert (whole / name).read_bytes() == (cut / name).read_bytes()
    with pytest.raises(ParameterError, match="clusters was True and is False"):
        replayed(tmp_path, name="cut", clusters=False)


def test_they_are_on_the_page(tmp_path: Path) -> None:
    """With typical events; points of the last picture have the group that they are in."""
    groups = read_contents(replayed(tmp_path))["groups"]
    assert [len(row[2]) for row in groups["rows"]] == [3, 3, 3]
    assert {*groups["of"].values()} == {row[0] for row in groups["rows"]}
    assert {row[2] for row in groups["events"]} >= {"birth"}


def test_they_need_a_picture(tmp_path: Path) -> None:
    """Said before anything is written."""
    write_log(tmp_path / "log", POINTS, ["a", "b", "c"])
    with pytest.raises(ParameterError, match="needs an engine with picture=True"):
        se.replay(tmp_path / "log", se.Engine(), tmp_path / "run", clusters=True)
    assert not (tmp_path / "run").exists()


def test_exemplars_are_nearest_to_the_median() -> None:
    places = np.array([[9.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [-9.0, 0.0], [5.0, 0.0]])
    members = np.array([0, 1, 2, 3, 4])  # the median is 2
    assert cluster_table._choose_exemplars(members, places).tolist() == [2, 1, 3]
