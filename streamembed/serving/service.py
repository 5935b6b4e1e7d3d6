"""The calls of Flight. Whatever goes wrong in one, its client sees a code and one line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from streamembed.addresses import EVERYWHERE
from streamembed.errors import StreamembedError, said
from streamembed.merging.landmark_set import LARGEST_PARTITION
from streamembed.serving.authentication import Call, Gate, peer_of
from streamembed.serving.counters import Counts, reason_of
from streamembed.serving.ingest import Writer
from streamembed.serving.latest_snapshot import Follower, Served
from streamembed.serving.messages import (
    ID,
    LABEL,
    RefusedError,
    as_refused,
    features_in,
    flight_error,
    number_in,
    packed,
    points_of,
    put_of,
    within,
)
from streamembed.serving.server_settings import Settings
from streamembed.version import __version__

__all__ = ["Service"]

GATE = "gate"
ACTIONS = {
    "health": "ok, where this process answers",
    "ready": "whether a snapshot is served, and this server is not about to end",
    "drain": "end, once the calls that are open have; takes a token that may write",
    "version": "of streamembed",
}
# Bytes of a snapshot's file in one message.
PIECE = 1 << 20
WORDS = {"NaN": "nan", "inf": "infinite"}


def _answered(method: Callable[..., Any]) -> Callable[..., Any]:
    """A call of Flight, of which only what is meant for its client reaches it."""

    @wraps(method)
    def answer(self: Service, context: fl.ServerCallContext, *args: Any) -> Any:
        call: Call = context.get_middleware(GATE)
        began = time.perf_counter()
        try:
            call.peer = peer_of(context.peer())
            call.touch(busy=call.kind not in ("transform", "learn"))  # these wait for rows first
            found = method(self, call, *args)
        except BaseException as error:
            raise flight_error(self._refused(call.kind, error)) from None
        if call.kind not in ("transform", "learn"):  # these count their batches
            self._counts.request(call.kind, "ok", time.perf_counter() - began)
        call.touch(busy=False)
        return found

    return answer


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """A run by Arrow Flight.

    Parameters
    ----------
    settings
        Of the server.
    port
        To listen at; 0: any that is free.
    follower
        What is served.
    gate
        Who may.
    counts
        Where calls are counted.
    writer
        Where the writer listens; None where nothing is learned.
    """

    def __init__(
        self,
        settings: Settings,
        port: int,
        follower: Follower,
        gate: Gate,
        counts: Counts,
        writer: str | None,
    ) -> None:
        self._settings = settings
        self._follower, self._gate, self._counts = follower, gate, counts
        self._writer = writer
        self.ports: list[int] = []  # of all readers, once they are known
        self.drain_asked = False
        certificates = []
        if settings.tls is not None:
            with open(settings.tls[0], "rb") as cert, open(settings.tls[1], "rb") as key:
                certificates = [(cert.read(), key.read())]
        super().__init__(
            self._location(settings.host, port),
            tls_certificates=certificates,
            middleware={GATE: gate},
        )

    def _location(self, host: str, port: int) -> str:
        scheme = "grpc+tcp" if self._settings.tls is None else "grpc+tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def _limits(self) -> dict[str, int]:
        return {"max_rows": self._settings.max_rows, "max_bytes": self._settings.max_bytes}

    @property
    def ready(self) -> bool:
        """Whether it answers points."""
        return self._follower.current is not None and not self._gate.draining

    # ------------------------------------------------------------------ rows in, rows out

    @_answered
    def do_exchange(self, call: Call, descriptor: Any, reader: Any, writer: Any) -> None:
        """Points in, coordinates and coverage out, batch by batch."""
        path = _path(descriptor)
        if path not in ("transform", "transform/follow"):
            raise RefusedError(
                "not_found", "what can be exchanged is transform, or transform/follow"
            )
        served = self._follower.must_have()
        if served.features is None:
            raise RefusedError("invalid", "this run learned distances: points have no place in it")
        served.features.must_be(_sound(lambda: reader.schema))
        writer.begin(served.answers)
        for batch, _ in self._batches(call, reader):
            began = time.perf_counter()
            if path != "transform" and (now := self._follower.must_have()) is not served:
                served = _following(served, now)
            assert served.features is not None
            answer, valid = served.answer(points_of(batch, served.features))
            writer.write_with_metadata(answer, served.metadata)
            if answer.column(0).null_count:
                self._count_invalid(batch, valid, served)
            self._counts.request("transform", "ok", time.perf_counter() - began, batch.num_rows)

    def _count_invalid(self, batch: Any, valid: Any, served: Served) -> None:
        assert served.features is not None
        for row in points_of(batch, served.features)[~valid].tolist():
            finite = [abs(value) for value in row if value == value]
            word = "NaN" if len(finite) < len(row) else "value"
            word = "infinite" if word == "value" and max(finite) == float("inf") else word
            self._counts.rejected([reason_of(word)])

    @_answered
    def do_put(self, call: Call, descriptor: Any, reader: Any, writer: Any) -> None:
        """Events in; each batch is acknowledged once it is committed."""
        if _path(descriptor) != "learn":
            raise RefusedError("not_found", "what can be put is learn")
        with self._learning() as learning:
            features = learning.features()
            schema = _sound(lambda: reader.schema)
            if features is None:  # the first events say what a point is
                features = features_in(schema, (ID, LABEL))
                if not features.names:
                    raise RefusedError("invalid", "the schema must have a column for each feature")
            features.must_be(schema, (ID, LABEL))
            for batch, metadata in self._batches(call, reader):
                began = time.perf_counter()
                offset, put = number_in(metadata, "offset"), put_of(batch, features)
                told = learning.learn(call.who.name, offset, put, features)
                writer.write(packed(**told))
                self._counts.request("learn", "ok", time.perf_counter() - began, batch.num_rows)

    def _learning(self) -> Writer:
        if self._writer is None:
            raise RefusedError(
                "not_found", "nothing is learned here: it was started without --learn"
            )
        return Writer(self._writer)

    def _batches(self, call: Call, reader: Any) -> Iterator[tuple[Any, Any]]:
        """Batches of a stream, each within the limits and sound, until its client ends it."""
        while True:
            call.touch(busy=False)
            try:
                chunk = _sound(reader.read_chunk)
            except StopIteration:
                return
            call.touch(busy=True)
            if self._gate.draining:
                raise RefusedError("unavailable", "this server is about to end")
            if chunk.data is None:
                raise RefusedError("invalid", "every message must have rows")
            within(chunk.data, self._settings.max_rows, self._settings.max_bytes)
            yield chunk.data, chunk.app_metadata

    # ------------------------------------------------------------------ what there is

    @_answered
    def do_get(self, call: Call, ticket: Any) -> Any:
        """The file of a snapshot or of landmarks, in pieces; or the timeline."""
        path = _words(ticket.ticket)
        table = self._timeline() if path == "timeline" else _in_pieces(self._file(path))
        return fl.RecordBatchStream(_watched(call, table))

    def _timeline(self) -> pa.Table:
        return self._follower.timeline().replace_schema_metadata(None)

    def _file(self, path: str) -> bytes:
        kind, _, number = path.partition("/")
        if kind != "landmarks":
            return self._snapshot(path)
        if not number.isdecimal() or int(number[:9]) > LARGEST_PARTITION:
            raise RefusedError(
                "not_found", f"landmarks are those of a partition, 0 to {LARGEST_PARTITION}"
            )
        return self._follower.landmarks(int(number))

    def _snapshot(self, path: str) -> bytes:
        kind, _, which = path.partition("/")
        if kind == "snapshot" and which == "latest":
            return self._follower.must_have().data
        if kind == "snapshot" and which.isdecimal() and len(which) < 19:
            return self._follower.data_of(int(which))
        raise RefusedError("not_found", _KNOWN)

    @_answered
    def list_flights(self, call: Call, _: bytes) -> list[fl.FlightInfo]:
        """All that can be asked for now."""
        found = []
        for path in ("timeline", "learn", "transform", "snapshot/latest"):
            # what is not there now, as where the run is damaged, is not listed
            with contextlib.suppress(RefusedError, StreamembedError):
                found.append(self._info(path, *self._told(call, path)))
        if self._follower.current is not None:
            for at in self._follower.positions():
                found.append(self._info(f"snapshot/{at}", *_kept(at)))
        return found

    @_answered
    def get_flight_info(self, call: Call, descriptor: Any) -> fl.FlightInfo:
        """Schema, rows, bytes, where, and what else there is to know of one of them."""
        path = _path(descriptor)
        return self._info(path, *self._told(call, path))

    def _info(
        self, path: str, schema: pa.Schema, rows: int, size: int, told: bytes
    ) -> fl.FlightInfo:
        ticket = fl.Ticket(path.encode())
        where = [self._location(self._settings.host, port) for port in self.ports]
        if self._settings.host in EVERYWHERE:  # of all addresses: that which was asked
            where = where[:1] and ["arrow-flight-reuse-connection://?"]
        endpoints = [fl.FlightEndpoint(ticket, [one]) for one in where]
        if path not in ("transform", "learn"):  # one endpoint has all of it, anywhere
            endpoints = [fl.FlightEndpoint(ticket, where)]
        descriptor = fl.FlightDescriptor.for_path(*path.split("/"))
        return fl.FlightInfo(schema, descriptor, endpoints, rows, size, app_metadata=told)

    def _told(self, call: Call, path: str) -> tuple[pa.Schema, int, int, bytes]:
        """Schema, rows and bytes (-1 where it is not known), and metadata."""
        if path in ("transform", "transform/follow"):
            served = self._follower.must_have()
            if served.features is None:
                raise RefusedError("not_found", "this run learned distances: it embeds no points")
            return served.features.schema(), -1, -1, packed(**self._limits)
        if path == "learn":
            with self._learning() as learning:
                features, offset = learning.features(), learning.next(call.who.name)
            schema = pa.schema([]) if features is None else features.schema()
            return schema, -1, -1, packed(offset=offset, **self._limits)
        if path == "timeline":
            table = self._timeline()
            return table.schema, table.num_rows, table.nbytes, b""
        if path == "snapshot/latest":
            data = self._snapshot(path)
            return _PIECES, -1, len(data), self._follower.must_have().metadata
        if path.startswith("landmarks/"):
            return _PIECES, -1, len(self._file(path)), b""
        position = path.partition("/")[2]
        if not position.isdecimal() or int(position[:19]) not in self._follower.positions():
            raise RefusedError("not_found", _KNOWN)
        return _kept(int(position))

    # ------------------------------------------------------------------ actions

    @_answered
    def list_actions(self, call: Call) -> list[fl.ActionType]:
        """What `do_action` knows."""
        return [fl.ActionType(name, told) for name, told in ACTIONS.items()]

    @_answered
    def do_action(self, call: Call, action: Any) -> list[bytes]:
        """One word or a few; nothing of the run."""
        name = action.type
        if name not in ACTIONS:
            raise RefusedError("not_found", f"there are the actions {', '.join(ACTIONS)}")
        if name == "drain":
            if call.who.role != "write":
                raise RefusedError(
                    "unauthorized", "this token may read; to drain takes one that writes"
                )
            self.drain_asked = True
        if name == "version":
            return [__version__.encode()]
        return [packed(ready=self.ready) if name == "ready" else b"ok"]

    def _refused(self, kind: str, error: BaseException) -> RefusedError:
        """What a client is told; the log is told the rest."""
        refused = as_refused(error)
        self._counts.request(kind, refused.code)
        if refused.code == "internal" or isinstance(error, StreamembedError):
            print(
                f"streamembed: {type(error).__name__}: {said(error)}", file=sys.stderr, flush=True
            )
        return refused


_KNOWN = (
    "there are snapshot/latest, snapshot/POSITION of those that are listed, landmarks/PARTITION, "
    "and timeline"
)
_PIECES = pa.schema([("bytes", pa.binary())])


def _kept(position: int) -> tuple[pa.Schema, int, int, bytes]:
    """What is told of a snapshot that is not the newest: it was not read."""
    return _PIECES, -1, -1, packed(position=position)


def _in_pieces(data: bytes) -> pa.Table:
    """A file as a column of bytes."""
    pieces = [data[start : start + PIECE] for start in range(0, len(data), PIECE)]
    return pa.table({"bytes": pa.array(pieces, pa.binary())}, _PIECES)


def _watched(call: Call, table: pa.Table) -> pa.RecordBatchReader:
    """A table that touches its call whenever more of it is asked for."""

    def batches() -> Iterator[Any]:
        for batch in table.to_batches(max_chunksize=1 if table.schema == _PIECES else None):
            call.touch(busy=False)
            yield batch

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def _following(before: Served, now: Served) -> Served:
    """The next snapshot of a stream, which answers the same points by the same schema."""
    if now.features != before.features or now.answers != before.answers:
        raise RefusedError(
            "unavailable", "what is served has other features now: begin a new stream"
        )
    return now


def _sound(read: Callable[[], Any]) -> Any:
    """What Arrow reads; what it cannot read is the client's doing."""
    try:
        return read()
    except StopIteration:
        raise
    except fl.FlightError:
        raise RefusedError("unavailable", "the stream broke off") from None
    except (MemoryError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError):
            raise RefusedError("invalid", "that is too large") from None
        raise RefusedError("invalid", "what was sent is no sound Arrow data") from None


def _path(descriptor: Any) -> str:
    """What is asked for: ``for_path("snapshot", "latest")`` and ``for_path("snapshot/latest")``."""
    if descriptor.descriptor_type != fl.DescriptorType.PATH or not descriptor.path:
        raise RefusedError("not_found", "a descriptor must be a path, such as transform")
    return _words(b"/".join(descriptor.path))


def _words(path: bytes) -> str:
    if len(path) > 100:
        raise RefusedError("not_found", _KNOWN)
    return path.decode(errors="replace")
