"""The commands: every flag, every exit code, what is printed where."""

from __future__ import annotations

import json
import os
import re
import shutil
import unicodedata
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import streamembed as se
from scenarios.pictures import shuttle
from streamembed.cli import command_options, commands, exit_codes, replay_run
from streamembed.engine.snapshot import Frame
from streamembed.errors import ParameterError, StoppedError
from streamembed.logs.event_log import open_log, write_distance_log, write_log
from streamembed.methods.options import Config
from streamembed.runs import log_transform
from streamembed.runs.driver import ReplayDriver
from streamembed.runs.log_transform import transform_log
from streamembed.runs.partitioned import SNAPSHOT_EVERY as PARTITION_EVERY

POINTS = np.random.default_rng(0).standard_normal((230, 3))
NAMES = ["x", "y", "z"]
SMALL = ["--size", "80", "--n-components", "3"]
DISTANCES = [np.linalg.norm(POINTS[:t] - POINTS[t], axis=1) for t in range(230)]


def call(*arguments: Any, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(commands.main, [str(argument) for argument in arguments], input=stdin)


def test_the_commands_are_those_written_down() -> None:
    """A roster; each has a help text."""
    assert [*commands.COMMANDS] == [
        *("demo", "export", "inspect", "merge", "replay", "report", "serve"),
        "transform",
        *("verify", "watch"),
    ]
    for name in commands.COMMANDS:
        shown = call(name, "--help")
        assert shown.exit_code == 0
        assert shown.output.startswith("Usage:")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [("streamembed tr", "transform"), ("streamembed replay --overw", "--overwrite")],
)
def test_the_shell_completes(typed: str, completed: str) -> None:
    """Commands and flags; they are behind a door that opens late."""
    asked = {"_STREAMEMBED_COMPLETE": "bash_complete", "COMP_WORDS": typed}
    asked["COMP_CWORD"] = str(len(typed.split()) - 1)
    done = CliRunner().invoke(commands.main, [], env=asked, prog_name="streamembed")
    assert done.output == f"plain,{completed}\n"


def test_every_parameter_is_a_flag() -> None:
    """None can be forgotten: with its default, and a line of help."""
    shown = " ".join(call("replay", "--help").output.split())
    for parameter in fields(Config):
        if parameter.name == "on_bad_row":  # a replay rejects such rows
            continue
        assert "--" + parameter.name.replace("_", "-") in shown
        assert command_options.HELP[parameter.name].split(":")[0] in shown
    assert f"with --workers {PARTITION_EVERY}]" in shown


def test_flags_reach_the_engine(tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Words, numbers and "none" become what the engine takes."""
    seen: dict[str, Any] = {}
    original = se.Engine.__init__

    def spy(self: se.Engine, **parameters: Any) -> None:
        seen.update(parameters)
        original(self, **parameters)

    monkeypatch.setattr(se.Engine, "__init__", spy)
    flags = "--kernel gaussian --bandwidth 1.5 --rank 40 --tolerance none"
    flags += " --warm-up 60 --scaling none --alpha 0.5"
    flags += " --memory landmarks --half-life 500 --chunk-size 20 --seed 3 --diffusion-time 2"
    assert call("replay", log, "--run", tmp_path / "run", *flags.split()).exit_code == 0
    assert {**seen, "on_bad_row": "raise"} == {
        **Config().as_dict(),
        "kernel": "gaussian",
        "bandwidth": 1.5,
        "rank": 40,
        "tolerance": None,
        "warm_up": 60,
        "scaling": None,
        "alpha": 0.5,
        "memory": "landmarks",
        "half_life": 500.0,
        "chunk_size": 20,
        "seed": 3,
        "diffusion_time": 2.0,
    }


def test_replay_leaves_a_run_and_says_so(tmp_path: Path, log: Path) -> None:
    """A line for people; progress goes to standard error."""
    done = call("replay", log, "--run", tmp_path / "run", *SMALL)
    assert "run: 230 events, 0 rejected" in done.stdout
    assert "met" in done.stdout
    assert re.search(r"^axes +epoch \d+ since event \d+, fidelity [01]\.\d\d", done.stdout, re.M)
    assert "230 rows in " in done.stderr
    names = {path.name for path in (tmp_path / "run").iterdir()}
    tables = {"embedding.parquet", "timeline.parquet", "rejected.parquet"}
    assert names == {"snapshot.arrow", "run.db", ".lock", *tables}


def test_json_is_one_object_and_nothing_else(tmp_path: Path, log: Path) -> None:
    """On standard output; standard error stays empty."""
    done = call("replay", log, "--run", tmp_path / "run", "--json", *SMALL)
    facts = json.loads(done.stdout)
    assert facts["learned"] == 230
    assert facts["snapshot"]["certificate"]["met"] is True
    assert set(facts["snapshot"]["frame"]) == {field.name for field in fields(Frame)}
    assert done.stderr == ""


@pytest.mark.parametrize("name", ["new.parquet", "new.arrow"])
def test_transform_embeds_new_events(tmp_path: Path, run: Path, name: str) -> None:
    """The coordinates are those of `Snapshot.transform`; bad rows keep their place and a reason."""
    new = POINTS[:20].copy()
    new[7, 2] = np.nan
    write_log(tmp_path / "new", new, NAMES, rows_per_batch=6)
    output = tmp_path / name
    done = call("transform", run / "snapshot.arrow", tmp_path / "new", "-o", output)
    assert "19 events embedded, 1 rejected" in done.stdout
    table = (
        pq.read_table(output) if name.endswith("parquet") else pa.ipc.open_file(output).read_all()
    )
    assert table["offset"].to_pylist() == list(range(20))
    assert table["reason"].to_pylist()[7] == "NaN in 'z'"
    assert table["diffusion_map_0"].to_pylist()[7] is None
    snapshot = se.Snapshot.load(run / "snapshot.arrow")
    kept = np.delete(new, 7, axis=0)
    expected = snapshot.transform(pa.table(dict(zip("xyz", kept.T, strict=True))))
    found = np.column_stack([table[f"diffusion_map_{j}"].drop_null().to_numpy() for j in range(3)])
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.long
def test_every_flag_of_no_default_takes_none_and_a_value(tmp_path: Path, log: Path) -> None:
    """One without a type of its own failed with a traceback once, whatever it was given."""
    flags = [field.name for field in fields(Config) if field.default is None]
    none = [part for name in flags for part in (f"--{name.replace('_', '-')}", "none")]
    assert call("replay", log, "--run", tmp_path / "a", *none, *SMALL).exit_code == 0
    some = ("--method", "isomap", "--n-landmarks", "20", "--gamma", "none")
    assert call("replay", log, "--run", tmp_path / "b", *some, *SMALL).exit_code == 0
    assert "--n-landmarks 2 must" in call(
        "replay", log, "--run", tmp_path / "c", *some[:2], "--n-landmarks", "2", *SMALL
    ).output.replace("\n", " ")


@pytest.mark.parametrize("memory", ["window", "landmarks"])
def test_logs_of_distances(tmp_path: Path, memory: str) -> None:
    """Replayed, inspected, and embedded by rows of distances to the items of the snapshot."""
    ids = [f"e{i}" for i in range(230)]
    write_distance_log(tmp_path / "log", DISTANCES, ids)
    facts = json.loads(call("inspect", tmp_path / "log", "--json").stdout)
    assert (facts["holds"], facts["list_column"], facts["features"]) == (
        "distances",
        "distances",
        [],
    )
    options = [*SMALL, "--memory", memory, "--kernel", "gaussian", "--bandwidth", "4"]
    options += ["--chunk-size", "10"]
    done = call("replay", tmp_path / "log", "--run", tmp_path / "run", *options)
    assert "run: 230 events, 0 rejected" in done.stdout
    snapshot = se.Snapshot.load(tmp_path / "run" / "snapshot.arrow")
    support = POINTS[[int(key[1:]) for key in snapshot.ids.tolist()]]
    new = np.random.default_rng(1).standard_normal((6, 3))
    rows: list[Any] = [np.linalg.norm(support - x, axis=1) for x in new]
    rows[1], rows[2], rows[3] = None, rows[2][1:], rows[3].copy()
    rows[3][5] = np.nan
    write_distance_log(tmp_path / "new", rows, list("uvwxyz"), rows_per_batch=4)
    output = tmp_path / "out.parquet"
    done = call("transform", tmp_path / "run" / "snapshot.arrow", tmp_path / "new", "-o", output)
    assert "3 events embedded, 3 rejected" in done.stdout, done.output
    table = pq.read_table(output)
    reasons = table["reason"].to_pylist()
    assert reasons[1] == "null in 'distances'"
    assert reasons[2].startswith("79 distances for a support of 80 objects")
    assert "nan" in reasons[3]
    assert [reason is None for reason in reasons] == [True, False, False, False, True, True]
    assert table["id"].to_pylist() == list("uvwxyz")
    good = [rows[i] for i in (0, 4, 5)]
    found = np.column_stack([table[f"diffusion_map_{j}"].drop_null().to_numpy() for j in range(3)])
    np.testing.assert_allclose(found, snapshot.transform_distances(good), rtol=1e-9, atol=1e-12)
    coverage = table["coverage"].drop_null().to_numpy()
    np.testing.assert_allclose(coverage, snapshot.coverage_distances(good), rtol=1e-9)


@pytest.mark.parametrize("flags", [[], ["--overwrite"]])
def test_transform_does_not_destroy_its_inputs(
    tmp_path: Path, log: Path, run: Path, flags: list[str]
) -> None:
    """It did once, and said that all was well: the snapshot, the log, a file of its folder."""
    snapshot = run / "snapshot.arrow"
    folder = tmp_path / "folder"
    folder.mkdir()
    shutil.copy(log, folder / "a")
    targets = [snapshot, log, folder / "a", folder / "new.parquet"]
    for target in (snapshot, log, folder / "a"):
        for link, kind in ((f"soft-{target.name}", os.symlink), (f"hard-{target.name}", os.link)):
            kind(target, tmp_path / link)
            targets.append(tmp_path / link)
    outside = tmp_path / "outside"
    outside.symlink_to(folder)
    targets.append(outside / "new.parquet")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for target in targets:
        done = call("transform", snapshot, log, folder, "-o", target, *flags)
        assert done.exit_code == exit_codes.USAGE, (target, done.output)
        assert "--output " in done.stderr
        assert "choose another" in done.stderr
        assert "overwrite=" not in done.stderr
    after = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert after == before
    # a file beside the log, where no folder was named
    assert call("transform", snapshot, folder / "a", "-o", folder / "new").exit_code == 0


def test_transform_does_not_replace_an_older_file_by_chance(
    tmp_path: Path, log: Path, run: Path
) -> None:
    """It must be asked to, in Python too."""
    output = tmp_path / "out.arrow"
    output.write_text("mine")
    transform = ["transform", run / "snapshot.arrow", log, "-o", output]
    done = call(*transform)
    assert done.exit_code == exit_codes.USAGE
    assert "already exists" in done.stderr
    assert "replace it with --overwrite" in done.stderr
    loaded = se.Snapshot.load(run / "snapshot.arrow")
    with pytest.raises(ParameterError, match="overwrite=True"):
        transform_log(loaded, open_log(log), output)
    assert output.read_text() == "mine"
    assert call(*transform, "--overwrite").exit_code == 0
    assert pa.ipc.open_file(output).read_all().num_rows == 230


def test_transform_says_that_the_folder_does_not_exist(
    tmp_path: Path, log: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not the name of its temporary file, for no other error either."""
    output = tmp_path / "nodir" / "t.arrow"
    done = call("transform", run / "snapshot.arrow", log, "-o", output)
    assert done.exit_code == exit_codes.IO
    assert f"the folder {output.parent} does not exist: create it first" in done.stderr
    assert ".part" not in done.stderr

    def vanishes(*_: Any) -> Any:
        return pa.OSFile(str(output.parent / "no" / "x.part"), "wb")

    monkeypatch.setattr(log_transform, "open_writer", vanishes)
    output = tmp_path / "t.arrow"
    done = call("transform", run / "snapshot.arrow", log, "-o", output)
    assert done.exit_code == exit_codes.IO
    assert f"{output} cannot be written (No such file or directory)" in done.stderr


def test_transform_carries_ids_labels_and_times(tmp_path: Path, run: Path) -> None:
    """Labels and times in the types of the log, ids as int64 or text, under any name."""
    passed = {
        "key": pa.array(range(230), pa.uint16()),
        "kind": pa.array(["a", None] * 115).dictionary_encode(),
        "when": pa.array(range(230), pa.timestamp("ms")),
    }
    points = dict(zip(NAMES, POINTS.T, strict=True))
    pq.write_table(pa.table({**points, **passed}), tmp_path / "typed")
    output = tmp_path / "out.parquet"
    roles = ("--id", "key", "--label", "kind", "--time", "when")
    assert call("transform", run, tmp_path / "typed", "-o", output, *roles).exit_code == 0
    table = pq.read_table(output)
    assert table.column_names[:4] == ["offset", "id", "label", "event_time"]
    assert table["id"].combine_chunks() == passed["key"].cast(pa.int64())
    assert table["label"].combine_chunks() == passed["kind"].dictionary_decode()
    assert table["event_time"].combine_chunks() == passed["when"]


def test_transform_takes_a_run_folder(tmp_path: Path, log: Path, run: Path) -> None:
    """Its final snapshot; no file of the run is overwritten, and a run is no log."""
    outputs = [tmp_path / "by folder.parquet", tmp_path / "by file.parquet"]
    for source, output in zip((run, run / "snapshot.arrow"), outputs, strict=True):
        assert call("transform", source, log, "-o", output).exit_code == 0
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    before = {path: path.read_bytes() for path in run.iterdir()}
    for name in before:
        done = call("transform", run, log, "-o", name, "--overwrite")
        assert (done.exit_code, f"is the input {name}" in done.stderr) == (exit_codes.USAGE, True)
    assert {path: path.read_bytes() for path in run.iterdir()} == before
    for command in (
        ("replay", run, "--run", tmp_path / "run 2"),
        ("transform", run / "snapshot.arrow", run, "-o", tmp_path / "out"),
    ):
        done = call(*command)
        assert (done.exit_code, "is a run folder; it must be a log" in done.stderr) == (2, True)


def test_snapshots_between_chunks_are_told(tmp_path: Path, log: Path) -> None:
    """They were an error once; with --json the number says it."""
    replay = ["replay", log, "--run", tmp_path / "run", "--overwrite", *SMALL, "--snapshot-every"]
    done = call(*replay, 15)
    assert "snapshots every 20 events instead of 15: they change only with whole" in done.stderr
    positions = pq.read_table(tmp_path / "run" / "timeline.parquet")["position"].to_pylist()
    assert positions == [50, *range(60, 221, 20), 230]
    assert "instead of" not in call(*replay, 20).stderr
    done = call(*replay, 15, "--json")
    assert (json.loads(done.stdout)["snapshot_every"], done.stderr) == (20, "")
    assert "--snapshot-every 0 must be" in call(*replay, 0).stderr


@pytest.mark.long
def test_an_overwritten_run_leaves_no_picture(tmp_path: Path, log: Path) -> None:
    """The picture of the run before was left beside the new one once."""
    replay = ["replay", log, "--run", tmp_path / "run", "--overwrite", *SMALL]
    call(*replay, "--picture")
    assert (tmp_path / "run" / "picture.parquet").exists()
    call(*replay)
    assert not (tmp_path / "run" / "picture.parquet").exists()


def cases(tmp_path: Path, log: Path, run: Path) -> dict[str, tuple[list[Any], int, str]]:
    """Arguments, exit code, and a part of the message."""
    cut = tmp_path / "cut"
    cut.write_bytes(log.read_bytes()[:-40])
    flipped = tmp_path / "flipped.arrow"
    data = bytearray((run / "snapshot.arrow").read_bytes())
    data[len(data) // 2] ^= 1
    flipped.write_bytes(bytes(data))
    damaged = tmp_path / "damaged"
    shutil.copytree(run, damaged)
    (damaged / "timeline.parquet").write_bytes(b"PAR1")
    noise = tmp_path / "noise"
    noise.write_bytes(b"\0" * 20)
    (tmp_path / "table.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    far = tmp_path / "far run"
    write_distance_log(tmp_path / "far", DISTANCES)
    assert call("replay", tmp_path / "far", "--run", far, *SMALL).exit_code == 0
    out = tmp_path / "other"
    return {
        "unknown option": (["replay", log, "--run", out, "--metrical", "x"], 2, "No such option"),
        "no log": (["replay", "--run", out], 2, "Missing argument"),
        "wrong parameter": (["replay", log, "--run", out, "--rank", "1"], 2, "--rank 1 must be"),
        "wrong number": (["replay", log, "--run", out, "--rank", "x"], 2, "'x' must be a number"),
        "run not empty": (["replay", log, "--run", run], 2, "is not empty"),
        "wrong feature": (["replay", log, "--run", out, "--features", "q"], 2, "q"),
        "wrong pattern": (
            ["replay", log, "--run", out, "--features", "x,q*"],
            2,
            "'q*' of",
        ),
        "standard input": (["replay", "-", "--run", out], 2, "--follow"),
        "points for distances": (
            ["transform", far / "snapshot.arrow", log, "-o", out],
            2,
            "choose another log",
        ),
        "distances for points": (
            ["transform", run / "snapshot.arrow", tmp_path / "far", "-o", out],
            2,
            "'x' of",
        ),
        "cut log": (["replay", cut, "--run", out, *SMALL], 3, "cut"),
        "not arrow": (["replay", noise, "--run", out], 2, "Arrow"),
        "CSV": (["replay", tmp_path / "table.csv", "--run", out], 2, "docs/guides/formats.md"),
        "remote run": (["replay", log, "--run", "s3://bucket/run"], 2, "path of this machine"),
        "remote snapshot": (["transform", "s3://bucket/x", log, "-o", out], 2, "of this machine"),
        "no such scheme": (["replay", "http://host/log", "--run", out], 2, "a URI that Arrow"),
        "empty folder": (
            ["replay", tmp_path / "empty", "--run", out],
            2,
            "a folder without log files",
        ),
        "missing log": (["replay", tmp_path / "no", "--run", out], 4, "no"),
        "flipped snapshot": (["transform", flipped, log, "-o", out], 3, "checksum"),
        "damaged run": (["inspect", damaged], 3, "timeline.parquet"),
        "output named CSV": (
            ["transform", run, log, "-o", tmp_path / "new.csv"],
            2,
            "let it end in .parquet or .arrow",
        ),
        "no such column": (
            ["replay", log, "--run", out, "--id", "q"],
            2,
            "--id 'q' is not a column of",
        ),
        "two uses": (
            ["replay", log, "--run", out, "--id", "x", "--features", "x"],
            2,
            "'x' is in --id and in --features",
        ),
        "missing run": (["verify", tmp_path / "no"], 4, "no does not exist"),
        "missing snapshot": (["transform", tmp_path / "no", log, "-o", out], 4, "no"),
        "nowhere to write": (
            ["transform", run / "snapshot.arrow", log, "-o", tmp_path / "no" / "x"],
            4,
            "no",
        ),
        "nothing to inspect": (["inspect", tmp_path / "no"], 4, "does not exist"),
        "a name that is too long": (["inspect", tmp_path / ("x" * 300)], 4, "does not exist"),
    }


def test_messages_named_parameters(tmp_path: Path, log: Path, run: Path) -> None:
    """As Python calls them, where the user has typed options; paths stay as they are."""
    (tmp_path / "label=1" / "mine").mkdir(parents=True)
    replay = ["replay", log, "--run", tmp_path / "new"]
    for arguments, says in (
        ([*replay, "--n-neighbors", 0], "--n-neighbors 0 must be a whole number from 1 to 1000"),
        ([*replay, "--clock", "event_time"], "needs half_life"),
        (["replay", log, "--run", run, "--size", 90], "or replace it with --overwrite\n"),
        (["transform", run, log, "-o", run / "snapshot.arrow"], "--output '"),
        (["replay", log, "--run", tmp_path / "label=1"], "label=1' is not empty"),
        ([*replay, "--monitor", "--n-reference", 3], "--n-reference 3 must be"),
        (["transform", "", log, "-o", "x"], "snapshot='' must be"),
        (["inspect", ""], "path='' must be"),
        ([*replay, "--exclude", ""], "'--exclude': it must name columns"),
    ):
        done = call(*arguments)
        assert done.exit_code == 2, arguments
        assert says in done.stderr, done.stderr


def test_no_name_steers_the_terminal(tmp_path: Path) -> None:
    """Names of columns with escape codes, or with characters that turn their direction around."""
    names = ["a\u202etxt.exe", "b\x1b[31m", "c\r\x9b2J", "d\u2066\u2028e\u200f_id"]
    X = np.column_stack([POINTS, np.arange(len(POINTS))])
    X[7, 0] = np.nan
    pq.write_table(pa.table(dict(zip(names, X.T, strict=True))), tmp_path / "log")
    log, run = tmp_path / "log", tmp_path / "run"
    calls: list[list[Any]] = [
        ["replay", log, "--run", run, "--size", "80", "--monitor"],
        ["inspect", log],
        ["inspect", run],
        ["transform", run, log, "-o", tmp_path / "out.parquet"],
        ["replay", log, "--run", tmp_path / "other", "--features", "x"],
        ["replay", log, "--run", tmp_path / "other", "--exclude", "x\u202ey"],
    ]
    printed = ""
    for arguments in calls:
        texts = list(map(str, arguments))
        done = CliRunner().invoke(commands.main, texts, color=True)
        assert done.exit_code == (2 if tmp_path / "other" in arguments else 0)
        printed += done.output
    steering = {one for one in printed if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")}
    assert steering == {"\n"}
    assert "a\\u202etxt.exe" in printed
    assert "b\\x1b[31m" in printed
    assert "d\\u2066\\u2028e\\u200f_id" in printed


def test_exit_codes_are_those_documented(tmp_path: Path, log: Path, run: Path) -> None:
    """2 usage, 3 damaged data, 4 input or output; one line on standard error, no traceback."""
    for name, (arguments, code, says) in cases(tmp_path, log, run).items():
        done = call(*arguments)
        assert done.exit_code == code, (name, done.output)
        assert says in done.stderr, (name, done.stderr)
        assert "Traceback" not in done.stderr
        if code != 2:
            assert done.stderr.strip().split("\n")[-1].startswith("streamembed: "), name


def test_transform_takes_features_by_name(tmp_path: Path) -> None:
    """A snapshot of an engine taught arrays has "9" before "10"; they were mixed up once."""
    points = np.random.default_rng(1).standard_normal((120, 12)) * np.arange(1, 13)
    engine = se.Engine(size=100, scaling=None)
    engine.learn(points)
    engine.snapshot().save(tmp_path / "snapshot.arrow")
    write_log(tmp_path / "log", points[:20], [str(j) for j in range(12)])
    output = tmp_path / "out.parquet"
    assert (
        call("transform", tmp_path / "snapshot.arrow", tmp_path / "log", "-o", output).exit_code
        == 0
    )
    table = pq.read_table(output)
    found = np.column_stack([table[f"diffusion_map_{j}"].to_numpy() for j in range(2)])
    np.testing.assert_allclose(found, engine.snapshot().transform(points[:20]), rtol=1e-9)


def test_an_interrupt_has_a_code(
    tmp_path: Path, log: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """130, as for any program, and transform leaves no half of a file behind."""

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(log_transform, "_embed", stop)
    output = tmp_path / "out.parquet"
    done = call("transform", run / "snapshot.arrow", log, "-o", output)
    assert done.exit_code == exit_codes.INTERRUPTED
    assert not list(tmp_path.glob("out.parquet*"))


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_an_interrupted_replay_says_that_its_run_is_whole(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, flags: list[str]
) -> None:
    """And how many events it holds; it was only "Aborted!" once. Before the run there is less."""
    write_log(tmp_path / "in pieces", POINTS, NAMES, rows_per_batch=33)
    original, parts = ReplayDriver.learn, 0

    def stop(*arguments: Any, **options: Any) -> Any:
        nonlocal parts
        if (parts := parts + 1) > 4:
            raise KeyboardInterrupt
        return original(*arguments, **options)

    monkeypatch.setattr(ReplayDriver, "learn", stop)
    target = tmp_path / "other"
    done = call("replay", tmp_path / "in pieces", "--run", target, *SMALL, *flags)
    assert done.exit_code == exit_codes.INTERRUPTED
    held = pq.read_metadata(target / "embedding.parquet").num_rows
    assert held == 132
    assert f"interrupted at {held} events; {target} holds them and 3 snapshots" in done.stderr
    assert done.stdout == ""
    assert 0 < json.loads(call("inspect", target, "--json").stdout)["events"] <= held
    monkeypatch.setattr(replay_run, "open_with_choice", stop)
    done = call("replay", tmp_path / "in pieces", "--run", run, "--overwrite", *SMALL)
    assert (done.exit_code, "holds" in done.stderr) == (exit_codes.INTERRUPTED, False)
    assert "streamembed: interrupted" in done.stderr
    assert "Aborted" not in done.stderr


@pytest.mark.slow
def test_the_demo_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a shorter stream, twice over the same folder; its tables and its picture."""
    for events, looks in ((200, 3), (400, 5)):
        done = call("demo", "--output", tmp_path / "demo", "--events", events)
        assert done.exit_code == 0, done.output
        assert f"\n{looks} of {looks} certificates are met" in done.stdout
        assert "one false alarm in 10,000 events reports:" in done.stdout
        assert done.stdout.rstrip().endswith("streamembed replay your-log.parquet --run run/")
    assert open_log(tmp_path / "demo" / "shuttle.parquet").n_rows == 400
    shuttle.main(tmp_path / "demo.png", 400)
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "never seen before" in capsys.readouterr().out
    (tmp_path / "file").write_text("")
    for arguments, code in ((["--events", 100], 2), (["--output", tmp_path / "file"], 4)):
        assert call("demo", *arguments).exit_code == code


def test_replay_tells_of_metrics(tmp_path: Path) -> None:
    """From the map's pairs or from labels; as JSON with their certificates."""
    rng = np.random.default_rng(0)
    points = rng.standard_normal((300, 3))
    labels = (points[:, 0] > 0).tolist()
    for name, kinds in (("plain", None), ("labelled", labels)):
        write_log(tmp_path / name, points, ["a", "b", "c"], labels=kinds)
    arguments = ["--size", "200", "--metrics", "itml,fenn"]
    plain = call("replay", str(tmp_path / "plain"), "--run", str(tmp_path / "one"), *arguments)
    assert "generated pairs; agreement of halves " in plain.output
    assert "fenn               nothing learned yet" in plain.output
    told = call(
        "replay", str(tmp_path / "labelled"), "--run", str(tmp_path / "two"), *arguments, "--json"
    )
    found = json.loads(told.stdout)["snapshot"]["metrics"]
    assert found["itml"]["source"] == "labels"
    assert found["fenn"]["n_classes"] == 2
    wrong = call("replay", str(tmp_path / "plain"), "--run", "x", "--metrics", "itml,umap")
    assert wrong.exit_code == 2
    assert "--metrics 'umap' must be one of" in wrong.output


@pytest.mark.parametrize("more", [(), ("--json",), ("--workers", "1")])
def test_a_log_of_which_every_row_is_rejected_ended_well(
    tmp_path: Path, more: tuple[str, ...]
) -> None:
    """Exit code 2, twice: how many, why, and what to try; the rows are in rejected.parquet."""
    points = np.full((300, 2), np.nan)
    points[:40] = np.inf, 1.0
    write_log(tmp_path / "bad", points, ["x", "y"], format="parquet")
    for _ in range(2):
        done = call("replay", tmp_path / "bad", "--run", tmp_path / "run", *SMALL, *more)
        assert done.exit_code == exit_codes.USAGE, done.output
        told = done.stderr.splitlines()[-1]
        assert (
            "all 300 rows of the log are rejected, most often with the reason: NaN in 'x'" in told
        )
        assert "(260)" in told
        assert "exclude" in told
        assert pq.read_metadata(tmp_path / "run" / "rejected.parquet").num_rows == 300


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (StoppedError("run.db was removed"), "run.db was removed"),
        (MemoryError("8.0 GiB"), "out of memory (8.0 GiB)"),
    ],
)
def test_a_stopped_run_or_a_lack_of_memory_was_a_traceback(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, says: str
) -> None:
    """One line, and the code of input or output that failed."""

    def fails(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(replay_run, "replay", fails)
    done = call("replay", log, "--run", tmp_path / "run", *SMALL)
    assert (done.exit_code, says in done.stderr) == (exit_codes.IO, True), done.output


def test_transform_knows_the_log_and_the_roles_of_its_run(tmp_path: Path) -> None:
    """It never writes into that log, and names events by the columns that the replay took."""
    rng = np.random.default_rng(0)
    (tmp_path / "events").mkdir()
    columns = {
        "a": rng.normal(size=90),
        "b": rng.normal(size=90),
        "key": [f"k{i}" for i in range(90)],
    }
    pq.write_table(pa.table(columns), tmp_path / "events" / "1.parquet")
    pq.write_table(pa.table(columns).slice(0, 5), tmp_path / "new.parquet")
    pq.write_table(pa.table(columns).slice(0, 5).drop(["key"]), tmp_path / "bare.parquet")
    run = tmp_path / "run"
    done = call("replay", tmp_path / "events", "--run", run, "--size", "40", "--id", "key")
    assert done.exit_code == 0, done.output
    for name in ("1.parquet", "2.parquet"):
        done = call(
            *("transform", run, tmp_path / "new.parquet"),
            *("-o", tmp_path / "events" / name, "--overwrite"),
        )
        assert done.exit_code == 2
        assert "the log of" in done.output
    assert len(pq.read_table(tmp_path / "events")) == 90
    for name, keys in (("new", ["k0", "k1", "k2", "k3", "k4"]), ("bare", [None] * 5)):
        done = call(
            "transform",
            run,
            tmp_path / f"{name}.parquet",
            "-o",
            tmp_path / "out.parquet",
            "--overwrite",
        )
        assert done.exit_code == 0, done.output
        assert pq.read_table(tmp_path / "out.parquet")["id"].to_pylist() == keys
