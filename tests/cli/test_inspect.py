"""`inspect`: the verdict first, four digits for people, all of them as JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import streamembed as se
from streamembed.cli import exit_codes
from streamembed.logs.event_log import write_log
from streamembed.methods.options import Config
from streamembed.version import __version__
from tests.cli.test_cli import NAMES, POINTS, SMALL, call


def inspected(path: Path) -> tuple[list[str], dict[str, Any]]:
    """The lines for people, and the facts."""
    told, facts = call("inspect", path), call("inspect", path, "--json")
    assert told.exit_code == facts.exit_code == 0, told.output
    return told.stdout.splitlines(), json.loads(facts.stdout)


def test_inspect_knows_every_kind(tmp_path: Path, log: Path, run: Path) -> None:
    """A log, a folder of logs, a snapshot, a saved engine, a run."""
    engine = se.Engine(size=80)
    engine.learn(POINTS[:77])
    engine.save(tmp_path / "engine.arrow")
    kinds = {
        log: "log",
        run / "snapshot.arrow": "snapshot",
        tmp_path / "engine.arrow": "saved engine",
        run: "run",
    }
    for path, kind in kinds.items():
        facts = json.loads(call("inspect", path, "--json").stdout)
        assert facts["kind"] == kind
        assert kind in call("inspect", path).stdout
    folder = tmp_path / "folder [a]"  # brackets are no markup
    folder.mkdir()
    write_log(folder / "1", POINTS, NAMES, format="parquet")
    facts = json.loads(call("inspect", folder, "--json").stdout)
    assert (facts["rows"], facts["formats"]) == ([230], ["parquet"])
    assert "folder [a]" in " ".join(call("inspect", folder).stdout.split())


def test_a_run_says_how_it_came_about(tmp_path: Path, run: Path) -> None:
    """Configuration, version, the columns of the log and of its tables; JSON has all of it."""
    lines, facts = inspected(run)
    assert "engine             n_components=3, size=80; defaults otherwise" in lines
    assert f"version            {__version__}" in lines
    parameters = Config(n_components=3, size=80).as_dict()
    assert facts["engine"] == {**parameters, "metrics": []}
    assert facts["log"] == {
        "kind": "points",
        "features": NAMES,
        "list_column": None,
        "has_ids": True,
        "label": None,
        "event_time": None,
    }
    assert (facts["snapshot_every"], facts["state"]) == (100, "finished")
    assert str(tmp_path) not in json.dumps(facts)


def test_what_replay_refuses_is_a_hint(tmp_path: Path) -> None:
    """Which columns are the features is told, in flags, with what is there."""
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(180.0)), 2)
    columns = pa.table({"v": vectors, "price": np.random.default_rng(0).normal(size=90)})
    pq.write_table(columns, tmp_path / "log")
    lines, facts = inspected(tmp_path / "log")
    assert lines[0] == "log: 90 rows of 2 columns in 1 file"
    assert lines[1].startswith("hint: replay refuses the log: ")
    assert "choose one with features=, for example ['v'] or ['price']" in lines[1]
    assert "  price              double" in lines
    assert facts["hints"][0] in lines[1]
    assert facts["columns"]["price"] == "double"


def test_an_interrupted_or_damaged_run_says_so(tmp_path: Path, log: Path, run: Path) -> None:
    """A run that ended early looked like any other once."""
    cut = tmp_path / "cut"
    write_log(cut, POINTS, NAMES, rows_per_batch=50)
    cut.write_bytes(cut.read_bytes()[:-200])
    assert call("replay", cut, "--run", run, "--overwrite", *SMALL).exit_code == exit_codes.DAMAGED
    lines, facts = inspected(run)
    assert lines[0].endswith("the log was NOT read to the end")
    assert lines[1].startswith("hint: the log was not read to the end: ")
    assert lines[1].endswith("repeat the command to resume")
    assert (facts["state"], facts["damage"] in lines[1]) == ("finished", True)
    lines, facts = inspected(cut)
    assert "DAMAGED" in lines[0] or facts["damages"] == []


def test_a_run_of_rejected_rows_was_said_to_end_before_its_warm_up(tmp_path: Path) -> None:
    """Its hint says how many rows are rejected, and the most frequent reason."""
    write_log(tmp_path / "log", np.full((30, 2), np.nan), ["x", "y"])
    se.replay(tmp_path / "log", se.Engine(), tmp_path / "run")
    told = call("inspect", tmp_path / "run").stdout
    assert (
        "hint: all 30 rows of the log are rejected, most often with the reason: NaN in 'x'" in told
    )
    assert "warm_up" not in told
    assert "every row of the log rejected" in " ".join(call("--help").stdout.split())


def test_certificates_that_are_not_met_are_explained(tmp_path: Path, log: Path) -> None:
    """Of a run how many and where; of its last snapshot why, with the tolerance of the run."""
    run = tmp_path / "run"
    wide = ["--kernel", "gaussian", "--bandwidth", "25", "--scaling", "none", "--size", "80"]
    assert call("replay", log, "--run", run, *wide, "--tolerance", "1e-12").exit_code == 0
    timeline = pq.read_table(run / "timeline.parquet")
    missed = timeline["met"].to_pylist().count(False)
    assert missed
    lines, facts = inspected(run)
    assert lines[0].endswith(f"{missed} certificates NOT met")
    assert facts["hints"][0].startswith(f"{missed} of 4 certificates are not met, at events ")
    last = facts["snapshot"]["certificate"]["residual"]
    why = f"its residual {last:.4g} is above the tolerance 1e-12; use a larger"
    assert facts["hints"][1].startswith(f"the certificate is not met: {why}")
    _, facts = inspected(run / "snapshot.arrow")  # which does not know its tolerance
    assert "is above the tolerance, or an eigenvalue outside" in facts["hints"][0]


@pytest.mark.filterwarnings("ignore::streamembed.errors.ScalingWarning")
def test_what_is_off_with_a_map_is_a_hint(tmp_path: Path) -> None:
    """Here a few outliers that carry a component; and a log that ended too early."""
    points = POINTS.copy()
    points[200:203] += 1e3
    write_log(tmp_path / "log", points, NAMES)
    options = ["--kernel", "gaussian", "--bandwidth", "1", *SMALL]
    call("replay", tmp_path / "log", "--run", tmp_path / "run", *options)
    assert any(
        line.startswith("hint: component 1 is carried") for line in inspected(tmp_path / "run")[0]
    )
    write_log(tmp_path / "few", POINTS[:20], NAMES)
    call("replay", tmp_path / "few", "--run", tmp_path / "short", *SMALL)
    lines, _ = inspected(tmp_path / "short")
    assert lines[0] == "run: 20 events, 0 rejected; no snapshot"
    assert "see warm_up" in lines[1]
    call("replay", tmp_path / "log", "--run", tmp_path / "plain", *SMALL, "--tolerance", "none")
    assert inspected(tmp_path / "plain")[0][0].endswith("4 snapshots without a tolerance")


def test_the_notes_of_a_monitor_reach_the_command_line(tmp_path: Path) -> None:
    """They were in no JSON of `replay`, and `inspect` said nothing of a monitor."""
    rng, X = np.random.default_rng(0), np.zeros((700, 3))
    for i in range(1, len(X)):
        X[i] = 0.9 * X[i - 1] + rng.standard_normal(3)
    write_log(tmp_path / "log", X, list("abc"))
    watched = ["--monitor", "--ert", "1000", "--n-reference", "500"]
    arguments = ["replay", tmp_path / "log", "--run", tmp_path / "run", *SMALL, *watched]
    told = json.loads(call(*arguments, "--json").stdout)["monitor"]
    notes = told["notes"]
    assert "autocorrelated" in notes[0]
    lines, facts = inspected(tmp_path / "run")
    assert facts["monitor"] == told
    assert "n_reference=2000 would have 200" in notes[-1]
    note = notes[0]
    assert note in facts["hints"]
    assert f"hint: {note}" in lines
    (line,) = [line for line in lines if line.startswith("monitor ")]
    assert "alarm" in line
    asked, half = iter([False] * 6 + [True] * 99), tmp_path / "half"
    watcher = se.Monitor(ert=1000, n_reference=500)
    engine = se.Engine(size=80)
    with pytest.raises(KeyboardInterrupt):
        se.replay(tmp_path / "log", engine, half, monitor=watcher, stop=lambda: next(asked))
    (half / "timeline.parquet").unlink()
    lines, facts = inspected(half)
    assert lines[0].startswith("unfinished replay")
    assert facts["monitor"]["notes"] == notes
    assert f"hint: {note}" in lines


def test_a_table_that_was_changed_is_damage(run: Path) -> None:
    """Whatever stands in it."""
    path = run / "timeline.parquet"
    pq.write_table(pq.read_table(path).replace_schema_metadata({"engine": "1"}), path)
    done = call("inspect", run)
    assert done.exit_code == exit_codes.DAMAGED
    assert "timeline.parquet is not what was written" in done.stderr
