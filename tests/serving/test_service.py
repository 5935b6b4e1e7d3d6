"""Every call of a server, of one online run: what is answered, and to whom."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as fl
import pytest

import streamembed as se
from streamembed.errors import ServerError
from streamembed.serving import client as client_module
from tests.serving.served import Server, X, bearer, made, serving, tokens_in

Path_ = fl.FlightDescriptor.for_path


class World:
    """A server with tokens, the run it serves, and plain calls."""

    def __init__(self, run: Path, server: Server, read: str, write: str) -> None:
        self.run, self.server, self.read, self.write = run, server, read, write
        self.flight = server.flight()

    def exchange(self, *batches: Any, path: str = "transform", token: str = "") -> list[Any]:
        """What comes back for batches, one each."""
        writer, reader = self.flight.do_exchange(Path_(path), bearer(token or self.read))
        found = []
        with writer:
            writer.begin(batches[0].schema)
            for batch in batches:
                writer.write_batch(batch)
                found.append(reader.read_chunk())
            writer.done_writing()
        return found

    def put(self, points: Any, metadata: bytes | None, token: str = "", **more: Any) -> Any:
        """What the server says to one batch of events."""
        batch = points if isinstance(points, pa.RecordBatch) else rows(points, **more)
        writer, reader = self.flight.do_put(
            Path_("learn"), batch.schema, bearer(token or self.write)
        )
        try:
            if metadata is None:
                writer.write_batch(batch)
            else:
                writer.write_with_metadata(batch, metadata)
            answer = reader.read()
            writer.done_writing()
        finally:
            writer.close()
        return answer and json.loads(answer.to_pybytes())

    def metrics(self, name: str) -> float:
        """One of the counters."""
        found = self.page().splitlines()
        lines = [line for line in found if line.startswith(f"streamembed_{name} ")]
        return float(lines[0].rpartition(" ")[2]) if lines else 0.0

    def page(self) -> str:
        """What Prometheus reads."""
        with urllib.request.urlopen(self.server.web, timeout=30) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("served")
    run = made(folder)
    path, read, write = tokens_in(folder)
    flags = ("--learn", "--tokens", path, "--max-rows", 100, "--max-batch-mib", 1)
    with serving(run, *flags) as server:
        yield World(run, server, read, write)
        assert "Traceback" not in "".join(server.said)


def rows(points: Any, **more: Any) -> pa.RecordBatch:
    """As they are sent: one column of lists, and others beside it."""
    flat = pa.array(np.asarray(points, dtype=np.float64).ravel())
    columns = {"point": pa.FixedSizeListArray.from_arrays(flat, np.shape(points)[1]), **more}
    return pa.record_batch(columns)


def valid(answer: Any) -> list[bool]:
    """Which rows were embedded."""
    return list(answer.data["reason"].is_null().to_pylist())


def test_points_are_embedded_as_the_snapshot_does(world: World) -> None:
    """To the bit, with coverage, and with which snapshot it was."""
    with se.read_run(world.run) as reader:
        snapshot = reader.snapshot(200)
    coordinates, coverage = snapshot.transform_with_coverage(X[:50])
    first, second = world.exchange(rows(X[:50]), rows(X[50:51]))
    *axes, covered, reasons = first.data.columns
    assert np.array_equal(np.column_stack(axes), coordinates)
    assert np.array_equal(covered.to_numpy(), coverage)
    assert reasons.null_count == 50
    assert second.data.num_rows == 1
    told = json.loads(bytes(first.app_metadata))
    assert told == {
        "epoch": snapshot.frame.epoch,
        "position": 200,
        "met": snapshot.certificate.met,
    }


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308, -1e151])
def test_a_bad_value_costs_its_row_alone(world: World, bad: float) -> None:
    """It is not valid, and the others are as without it."""
    points = X[:4].copy()
    points[2, 1] = bad
    (answer,) = world.exchange(rows(points))
    (clean,) = world.exchange(rows(X[[0, 1, 3]]))
    assert valid(answer) == [True, True, False, True]
    for column in answer.data.columns[:-1]:
        assert column.is_null().to_pylist() == [False, False, True, False]
    assert "in '1'" in answer.data["reason"][2].as_py()
    assert answer.data.filter(pa.array(valid(answer))).equals(clean.data)


def test_a_snapshot_comes_bit_for_bit(world: World) -> None:
    """As the run keeps it."""
    with se.read_run(world.run) as reader:
        expected = reader.snapshot(200).to_bytes()
    for which in ("200", "latest"):
        ticket = fl.Ticket(f"snapshot/{which}".encode())
        table = world.flight.do_get(ticket, bearer(world.read)).read_all()
        data = b"".join(table["bytes"].to_pylist())
        assert se.Snapshot.from_bytes(data).position >= 200
        assert which == "latest" or data == expected


def test_the_action_tells_nothing_of_the_run(world: World) -> None:
    """Only whether points can be transformed."""
    (found,) = world.flight.do_action(fl.Action("ready", b""), bearer(world.read))
    assert found.body.to_pybytes() == b'{"ready": true}'


# ------------------------------------------------------------------------ learning


def test_events_are_learned_once(world: World) -> None:
    """A batch that is put again is acknowledged as it was, and nothing is learned."""
    with world.server.client(world.write) as client:
        at = client.offset
    points = X[200:210].copy()
    points[3, 0] = np.nan
    answer = world.put(points, json.dumps({"offset": at}).encode())
    assert (answer["accepted"], answer["next"], answer["repeated"]) == (9, at + 10, False)
    assert [row[0] for row in answer["rejected"]] == [3]
    assert "NaN" in answer["rejected"][0][2]
    learned = world.metrics("events_learned_total")
    again = world.put(points, json.dumps({"offset": at}).encode())
    assert again == {**answer, "repeated": True}
    assert world.metrics("events_learned_total") == learned


def test_a_gap_an_overlap_and_other_rows_are_refused(world: World) -> None:
    """Each by what is wrong; nothing is learned."""
    with world.server.client(world.write) as client:
        first = client.offset
        client.learn(X[210:220])
        at = client.offset
    assert at == first + 10
    learned = world.metrics("events_learned_total")
    for offset in (at + 1, first + 1, first):  # a gap, inside a batch, other rows
        for n in (1, 9, 10, 11):
            text = f"at offset {offset}, and the run has {at} rows of 'ben'"
            with pytest.raises(fl.FlightServerError, match=text) as told:
                world.put(X[:n], json.dumps({"offset": offset}).encode())
            assert told.value.extra_info == b"offset"
    assert world.metrics("events_learned_total") == learned


def test_a_client_that_was_overtaken_hears_it_and_goes_on(world: World) -> None:
    """Nothing of its call is learned until it has read the offset again; then it is, once."""
    learned = world.metrics("events_learned_total")
    with world.server.client(world.write) as one, world.server.client(world.write) as other:
        at = one.offset
        one.learn(X[250:260])
        other.learn(X[260:270])
        for n in (10, 3, 20):
            with pytest.raises(ServerError, match=r"another producer .*client\.offset") as told:
                one.learn(X[270 : 270 + n])
            assert told.value.code == "offset"
        assert one.offset == at + 20
        assert one.learn(X[270:280]).accepted == 10
        assert one.offset == at + 30
    assert world.metrics("events_learned_total") == learned + 30


def test_rows_behind_a_repetition_are_not_left_out(world: World) -> None:
    """Two batches of one call: the first is known, another producer is at the second."""
    with world.server.client(world.write) as one, world.server.client(world.write) as other:
        at = one.offset
        other.learn(X[:100])
        other.learn(X[100:200])
        learned = world.metrics("events_learned_total")
        with pytest.raises(ServerError, match="The first 100 rows are learned") as told:
            one.learn(np.vstack([X[:100], X[300:400]]))  # this server takes 100 rows at most
        assert told.value.code == "offset"
        assert one.offset == at + 200
        assert world.metrics("events_learned_total") == learned


@pytest.mark.parametrize("lost", [1, 2])
def test_a_call_that_broke_off_can_be_made_again(
    world: World, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Learned once, whichever acknowledgement was lost; other rows need the offset to be read."""
    learned = world.metrics("events_learned_total")
    points = np.vstack([X[:200], X[:5]])
    points[7, 0] = np.nan
    with world.server.client(world.write, patience=0.0) as client:
        before, n_sent = client.offset, 0
        pack = client_module.pack_metadata

        def losing(**facts: Any) -> bytes:
            nonlocal n_sent
            n_sent += 1
            if n_sent > lost:
                raise KeyboardInterrupt
            return pack(**facts)

        monkeypatch.setattr(client_module, "pack_metadata", losing)
        with pytest.raises(KeyboardInterrupt):
            client.learn(points)
        monkeypatch.setattr(client_module, "pack_metadata", pack)
        with pytest.raises(ServerError, match=r"Read client\.offset"):
            client.learn(X[300:305])
        again = client.learn(points)
        assert (again.accepted, [row.index for row in again.rejected]) == (204, [7])
        assert client.learn(X[390:395]).accepted == 5
        assert client.offset == before + 210
    assert world.metrics("events_learned_total") == learned + 209


def test_every_refusal_has_its_code(world: World) -> None:
    """Whatever its class, and whichever side found it out."""
    with world.server.client(world.write) as client:
        at = client.offset
        calls: dict[str, Callable[[], Any]] = {
            "narrow": lambda: client.transform(X[:2, :2]),
            "labels": lambda: client.learn(X[:2], y=["a", "b"]),
            "ids": lambda: client.learn(X[:2], ids=["a", 1]),
            "no ids": lambda: client.learn(X[:2], ids=[1]),
        }
        for name, call in calls.items():
            with pytest.raises(se.errors.InputError) as told:
                call()
            assert told.value.code == "invalid", name
        with pytest.raises(ServerError) as refused:
            client.snapshot(3)
        assert refused.value.code == "not_found"
        assert client.offset == at


@pytest.mark.parametrize(
    "metadata",
    [
        *(None, b"", b"x", b"{}", b'{"offset": -1}', b'{"offset": 1.0}', b'{"offset": true}'),
        *(
            b'{"offset": 9007199254740993}',
            b'{"offset": 0}' + b" " * 5000,
            b"[" * 4000,
            b"\xff\x00",
        ),
    ],
)
def test_an_offset_that_is_none_is_refused(world: World, metadata: bytes | None) -> None:
    """Before anything of the batch is looked at."""
    with pytest.raises(fl.FlightServerError, match="app_metadata such as"):
        world.put(X[:3], metadata)


def test_ids_come_along_and_labels_need_a_metric(world: World) -> None:
    """An id that the support holds is a row that is rejected; this run learns no metrics."""
    with world.server.client(world.write) as client:
        at = client.offset
        with pytest.raises(se.errors.InputError, match="learns no metrics"):
            client.learn(X[220:222], y=["a", "b"])
        assert client.offset == at
        with pytest.raises(se.errors.InputError, match="ids"):
            client.learn(X[220:222], ids=["a", 1])
        assert client.offset == at


# ------------------------------------------------------------------------ who may


def test_a_reader_may_not_write(world: World) -> None:
    """It is refused before a row of it is read."""
    with pytest.raises(fl.FlightUnauthorizedError, match="may only read"):
        world.put(X[:3], b'{"offset": 0}', token=world.read)


CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "list_flights": lambda flight, options: list(flight.list_flights(b"", options)),
    "do_action": lambda flight, options: list(flight.do_action(fl.Action("ready", b""), options)),
    "get_flight_info": lambda flight, options: flight.get_flight_info(Path_("transform"), options),
    "do_get": lambda flight, options: flight.do_get(fl.Ticket(b"timeline"), options).read_all(),
    "do_put": lambda flight, options: flight.do_put(Path_("learn"), rows(X[:1]).schema, options)[
        1
    ].read(),
    "do_exchange": lambda flight, options: flight.do_exchange(Path_("transform"), options)[
        1
    ].read_chunk(),
}
WRONG = {
    "none": bearer(None),
    "wrong": bearer("x" * 43),
    "empty": bearer(""),
    "two": bearer("a", (b"authorization", b"Bearer b")),
    "basic": bearer(None, (b"authorization", b"Basic YTpi")),
    "binary": bearer(None, (b"authorization-bin", b"\x00\xff")),
    "huge": bearer("x" * 5000),
    "enormous": bearer("x" * 200_000),
}


@pytest.mark.parametrize("name", CALLS)
def test_every_call_takes_a_token(world: World, name: str) -> None:
    """No token, a wrong one, one among too many, or a header that is too long is refused."""
    for kind, options in WRONG.items():
        with pytest.raises((fl.FlightError, pa.ArrowInvalid)) as told:
            CALLS[name](world.flight, options)
        if kind != "enormous":  # that is refused by gRPC itself
            assert isinstance(told.value, fl.FlightUnauthenticatedError), kind
        assert "Traceback" not in str(told.value)


def test_other_calls_are_refused(world: World) -> None:
    """pyarrow would send the traceback with its errors: it must not get as far as one."""
    for call in (
        lambda: world.flight.get_schema(Path_("transform"), bearer(world.read)),
        lambda: list(world.flight.list_flights(b"", bearer(world.read))),
        lambda: world.flight.list_actions(bearer(world.read)),
        lambda: world.flight.authenticate_basic_token(b"a", b"b"),
    ):
        with pytest.raises((pa.ArrowException, OSError)) as told:
            call()
        assert "Traceback" not in str(told.value)


# ------------------------------------------------------------------------ what is refused


def named(schema: dict[str, Any]) -> pa.RecordBatch:
    return pa.record_batch({name: pa.array(*values) for name, values in schema.items()})


LISTS = pa.list_(pa.float64(), 3)
NARROW = rows(np.zeros((2, 2)))
SCHEMAS = {
    "narrow": NARROW,
    "wide": rows(np.zeros((2, 4))),
    "twice": pa.record_batch([pa.array([[1.0, 2.0, 3.0]], LISTS)] * 2, ["point", "point"]),
    "list of text": named({"point": ([["1", "2", "3"]], pa.list_(pa.string()))}),
    "nested": named({"point": ([[[1.0, 2.0, 3.0]]], pa.list_(LISTS, 1))}),
    "names": named({"x": ([1.0],), "y": ([1.0],), "z": ([1.0],)}),
    "text": named({"point": (["1 2 3"],)}),
    "more": named({"point": ([[1.0, 2.0, 3.0]], LISTS), "id": ([1],)}),
    "dictionary": pa.record_batch({"point": pa.array(["a"]).dictionary_encode()}),
    "renamed": named({"points": ([[1.0, 2.0, 3.0]], LISTS)}),
    "too many rows": rows(np.zeros((101, 3))),
    "/etc/passwd": named({"/etc/passwd": ([1.0],)}),
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_other_schemas_and_sizes_are_refused(world: World, name: str) -> None:
    """Whatever they are; no path and no traceback comes back."""
    batch = SCHEMAS[name]
    with pytest.raises(fl.FlightServerError) as told:
        world.exchange(batch)
    assert told.value.extra_info == b"invalid"
    text = str(told.value).split(". gRPC client debug context")[0]
    assert "Traceback" not in text
    assert "/" not in text


ASKED: dict[str, Callable[[World], Any]] = {
    "ticket": lambda w: w.flight.do_get(fl.Ticket(b"../run.db"), bearer(w.read)).read_all(),
    "empty": lambda w: w.flight.do_get(fl.Ticket(b""), bearer(w.read)).read_all(),
    "binary": lambda w: w.flight.do_get(fl.Ticket(b"\xff\x00"), bearer(w.read)).read_all(),
    "long": lambda w: w.flight.do_get(fl.Ticket(b"9" * 3000), bearer(w.read)).read_all(),
    "position": lambda w: w.flight.do_get(fl.Ticket(b"snapshot/3"), bearer(w.read)).read_all(),
    "big": lambda w: w.flight.do_get(
        fl.Ticket(b"snapshot/" + b"9" * 80), bearer(w.read)
    ).read_all(),
    "digits": lambda w: w.flight.do_get(
        fl.Ticket("snapshot/²".encode()), bearer(w.read)
    ).read_all(),
    "info": lambda w: w.flight.get_flight_info(Path_("snapshot", "x"), bearer(w.read)),
    "info2": lambda w: w.flight.get_flight_info(Path_("nothing"), bearer(w.read)),
    "command": lambda w: w.flight.get_flight_info(
        fl.FlightDescriptor.for_command(b"SELECT 1"), bearer(w.read)
    ),
    "action": lambda w: list(w.flight.do_action(fl.Action("state", b""), bearer(w.read))),
    "exchange": lambda w: w.exchange(rows(X[:1]), path="learn"),
    "no features": lambda w: w.put(pa.record_batch({"id": pa.array([1])}), b'{"offset": 0}'),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_there_is_not_is_said_in_a_line(world: World, name: str) -> None:
    """No path, no traceback."""
    with pytest.raises(fl.FlightServerError) as told:
        ASKED[name](world)
    text = str(told.value).split(". gRPC client debug context")[0]
    assert told.value.extra_info in (b"not_found", b"invalid"), text
    assert "Traceback" not in text
    assert not {".py", "run.db"} & set(text.split())


# ------------------------------------------------------------------------ watched


def test_counters_and_readiness(world: World) -> None:
    """Over HTTP; counters say what was asked, and nothing of who asked."""
    before = world.metrics('rows_total{call="transform"}')
    world.exchange(rows([[1.0, 2.0, np.inf], [1.0, 2.0, 3.0]]))
    assert world.metrics('rows_total{call="transform"}') == before + 2
    with world.server.client(world.write) as client:
        learned, rejected = (
            world.metrics(f"{n}_total") for n in ("events_learned", "rows_rejected")
        )
        client.learn([[1.0, 2.0, np.inf], [1.0, 2.0, 3.0]])
    assert world.metrics("events_learned_total") == learned + 1
    assert world.metrics("rows_rejected_total") == rejected + 1
    text = world.page()
    assert len([line for line in text.splitlines() if not line.startswith("#")]) < 200
    assert not {"ann", "ben", str(world.run)} & set(text.replace('"', " ").split())
    assert world.metrics("snapshot_position") >= 200
    assert world.metrics("ready") == 1


def test_learned_events_are_served_soon(world: World) -> None:
    """By the same server, without a checkpoint; a call of many batches has one snapshot."""
    with world.server.client(world.write) as client:
        position = client.transform(X[:1]).position
        client.learn(X[:50])
        until = time.monotonic() + 30
        while (newest := client.transform(X[:250])).position < position + 50:
            assert time.monotonic() < until
        assert len(newest.coordinates) == 250  # three batches
        assert client.snapshot().position == newest.position
