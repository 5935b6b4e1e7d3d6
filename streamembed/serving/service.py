"""The Flight service. A client receives every error as a code and one line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from streamembed.addresses import ALL_INTERFACES
from streamembed.data.column_roles import RENAME, describe_suspicious, find_suspicious
from streamembed.errors import StreamembedError, summarise_error
from streamembed.merging.landmark_set import LARGEST_PARTITION
from streamembed.serving.authentication import Authentication, OpenCall, parse_peer
from streamembed.serving.counters import RequestCounters, classify_reason
from streamembed.serving.ingest import IngestClient
from streamembed.serving.latest_snapshot import LatestSnapshot, ServedSnapshot
from streamembed.serving.messages import (
    ID,
    LABEL,
    RefusedError,
    build_flight_error,
    build_point_schema,
    check_batch,
    check_schema,
    convert_error,
    extract_events,
    extract_points,
    infer_features,
    pack_metadata,
    parse_number,
)
from streamembed.serving.server_settings import ServerSettings
from streamembed.version import __version__

AUTHENTICATION = "authentication"
ACTIONS = {
    "health": "ok, if this process answers",
    "ready": "whether a snapshot is served, and the server is not shutting down",
    "drain": "shut down after the open calls have ended; needs a token with role write",
    "version": "version of streamembed",
}
# Bytes of a file in one message.
CHUNK_SIZE = 1 << 20


def _handle_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a Flight method: its errors reach the client as a code and a message alone."""

    @wraps(method)
    def answer(self: Service, context: fl.ServerCallContext, *args: Any) -> Any:
        call: OpenCall = context.get_middleware(AUTHENTICATION)
        began = time.perf_counter()
        try:
            call.peer = parse_peer(context.peer())
            call.touch(busy=call.kind not in ("transform", "learn"))  # these wait for rows first
            result = method(self, call, *args)
        except BaseException as error:
            raise build_flight_error(self._refuse(call.kind, error)) from None
        if call.kind not in ("transform", "learn"):  # these count their batches
            self._counters.count_request(call.kind, "ok", time.perf_counter() - began)
        call.touch(busy=False)
        return result

    return answer


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """The Arrow Flight server of a run.

    Parameters
    ----------
    port
        Where it listens; 0: any free port.
    writer
        Path of the writer's socket; None where the server does not learn.
    """

    def __init__(
        self,
        settings: ServerSettings,
        port: int,
        follower: LatestSnapshot,
        authentication: Authentication,
        counters: RequestCounters,
        writer: str | None,
    ) -> None:
        self._settings = settings
        self._follower, self._authentication, self._counters = follower, authentication, counters
        self._writer = writer
        self.ports: list[int] = []  # of all readers, once they have started
        self.is_drain_requested = False
        certificates = []
        if settings.tls is not None:
            with open(settings.tls[0], "rb") as cert, open(settings.tls[1], "rb") as key:
                certificates = [(cert.read(), key.read())]
        super().__init__(
            self._format_location(settings.host, port),
            tls_certificates=certificates,
            middleware={AUTHENTICATION: authentication},
        )

    def _format_location(self, host: str, port: int) -> str:
        scheme = "grpc+tcp" if self._settings.tls is None else "grpc+tls"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def _limits(self) -> dict[str, int]:
        return {"max_rows": self._settings.max_rows, "max_bytes": self._settings.max_bytes}

    @property
    def ready(self) -> bool:
        """Whether points can be transformed."""
        return self._follower.current is not None and not self._authentication.draining

    # ------------------------------------------------------------------ rows in, rows out

    @_handle_errors
    def do_exchange(self, call: OpenCall, descriptor: Any, reader: Any, writer: Any) -> None:
        """Points in, coordinates and coverage out, batch by batch."""
        path = _parse_path(descriptor)
        if path not in ("transform", "transform/follow"):
            raise RefusedError(
                "not_found", "DoExchange needs the path transform or transform/follow"
            )
        served = self._follower.require_current()
        if served.features is None:
            raise RefusedError("invalid", "this run learned distances: it cannot transform points")
        check_schema(_read_arrow(lambda: reader.schema), served.features)
        writer.begin(served.schema)
        for batch, _ in self._read_batches(call, reader):
            began = time.perf_counter()
            newest = served if path == "transform" else self._follower.require_current()
            if newest is not served:
                served = _check_compatible(served, newest)
            assert served.features is not None
            answer, valid = served.embed(extract_points(batch, served.features))
            writer.write_with_metadata(answer, served.metadata)
            if answer.column(0).null_count:
                self._count_invalid(batch, valid, served)
            self._counters.count_request(
                "transform", "ok", time.perf_counter() - began, batch.num_rows
            )

    def _count_invalid(self, batch: Any, valid: Any, served: ServedSnapshot) -> None:
        assert served.features is not None
        for row in extract_points(batch, served.features)[~valid].tolist():
            finite = [abs(value) for value in row if value == value]
            reason = "NaN" if len(finite) < len(row) else "value"
            reason = "infinite" if reason == "value" and max(finite) == float("inf") else reason
            self._counters.count_rejected([classify_reason(reason)])

    @_handle_errors
    def do_put(self, call: OpenCall, descriptor: Any, reader: Any, writer: Any) -> None:
        """Events in; each batch is acknowledged once it is committed."""
        if _parse_path(descriptor) != "learn":
            raise RefusedError("not_found", "DoPut needs the path learn")
        with self._connect_writer() as writer_client:
            features, _ = writer_client.fetch_features()
            schema = _read_arrow(lambda: reader.schema)
            if features is None:  # the first events define the features
                features = infer_features(schema, (ID, LABEL))
                if not features.names:
                    raise RefusedError("invalid", "the schema must have a column for each feature")
                if suspicious := find_suspicious(features.names):
                    raise RefusedError("invalid", describe_suspicious(suspicious, RENAME))
            check_schema(schema, features, (ID, LABEL))
            for batch, metadata in self._read_batches(call, reader):
                began = time.perf_counter()
                offset, events = parse_number(metadata, "offset"), extract_events(batch, features)
                acknowledged = writer_client.learn(call.token.name, offset, events, features)
                writer.write(pack_metadata(**acknowledged))
                self._counters.count_request(
                    "learn", "ok", time.perf_counter() - began, batch.num_rows
                )

    def _connect_writer(self) -> IngestClient:
        if self._writer is None:
            raise RefusedError(
                "not_found", "this server does not learn: it was started without --learn"
            )
        return IngestClient(self._writer)

    def _read_batches(self, call: OpenCall, reader: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the checked batches of a stream, with their metadata, until the client ends it."""
        while True:
            call.touch(busy=False)
            try:
                chunk = _read_arrow(reader.read_chunk)
            except StopIteration:
                return
            call.touch(busy=True)
            if self._authentication.draining:
                raise RefusedError("unavailable", "the server is shutting down")
            if chunk.data is None:
                raise RefusedError("invalid", "empty batch")
            check_batch(chunk.data, self._settings.max_rows, self._settings.max_bytes)
            yield chunk.data, chunk.app_metadata

    # ------------------------------------------------------------------ files and descriptions

    @_handle_errors
    def do_get(self, call: OpenCall, ticket: Any) -> Any:
        """The file of a snapshot or of landmarks, in chunks; or the timeline."""
        path = _decode_path(ticket.ticket)
        table = self._read_timeline() if path == "timeline" else _split_file(self._read_file(path))
        return fl.RecordBatchStream(_track_activity(call, table))

    def _read_timeline(self) -> pa.Table:
        with self._follower.open_reader() as reader:
            return reader.timeline().replace_schema_metadata(None)

    def _read_file(self, path: str) -> bytes:
        kind, _, number = path.partition("/")
        if kind != "landmarks":
            return self._read_snapshot(path)
        if not number.isdecimal() or int(number[:9]) > LARGEST_PARTITION:
            raise RefusedError(
                "not_found", f"landmarks/PARTITION needs a partition from 0 to {LARGEST_PARTITION}"
            )
        return self._follower.read_landmarks(int(number))

    def _read_snapshot(self, path: str) -> bytes:
        kind, _, which = path.partition("/")
        if kind == "snapshot" and which == "latest":
            return self._follower.require_current().file_bytes
        if kind == "snapshot" and which.isdecimal() and len(which) < 19:
            return self._follower.read_snapshot(int(which))
        raise RefusedError("not_found", _UNKNOWN_PATH)

    @_handle_errors
    def list_flights(self, call: OpenCall, _: bytes) -> list[fl.FlightInfo]:
        """Describe everything that is available now."""
        infos = []
        for path in ("timeline", "learn", "transform", "snapshot/latest"):
            # what is not available now, as in a damaged run, is not listed
            with contextlib.suppress(RefusedError, StreamembedError):
                infos.append(self._build_info(path, *self._describe(call, path)))
        if self._follower.current is not None:
            for position in self._follower.list_positions():
                described = _describe_stored(position)
                infos.append(self._build_info(f"snapshot/{position}", *described))
        return infos

    @_handle_errors
    def get_flight_info(self, call: OpenCall, descriptor: Any) -> fl.FlightInfo:
        """Schema, number of rows and bytes, endpoints and metadata of a path."""
        path = _parse_path(descriptor)
        return self._build_info(path, *self._describe(call, path))

    def _build_info(
        self, path: str, schema: pa.Schema, rows: int, size: int, metadata: bytes
    ) -> fl.FlightInfo:
        ticket = fl.Ticket(path.encode())
        locations = [self._format_location(self._settings.host, port) for port in self.ports]
        if self._settings.host in ALL_INTERFACES:  # clients keep the address that they called
            locations = locations[:1] and ["arrow-flight-reuse-connection://?"]
        endpoints = [fl.FlightEndpoint(ticket, [location]) for location in locations]
        if path not in ("transform", "learn"):  # every reader has all of it: one endpoint
            endpoints = [fl.FlightEndpoint(ticket, locations)]
        descriptor = fl.FlightDescriptor.for_path(*path.split("/"))
        return fl.FlightInfo(schema, descriptor, endpoints, rows, size, app_metadata=metadata)

    def _describe(self, call: OpenCall, path: str) -> tuple[pa.Schema, int, int, bytes]:
        """Schema, number of rows and of bytes (-1 where unknown), and metadata of a path."""
        if path in ("transform", "transform/follow"):
            served = self._follower.require_current()
            if served.features is None:
                raise RefusedError(
                    "not_found", "this run learned distances: it cannot transform points"
                )
            return build_point_schema(served.features), -1, -1, pack_metadata(**self._limits)
        if path == "learn":
            with self._connect_writer() as writer_client:
                features, labels = writer_client.fetch_features()
                offset = writer_client.fetch_offset(call.token.name)
            schema = pa.schema([]) if features is None else build_point_schema(features)
            return schema, -1, -1, pack_metadata(offset=offset, labels=labels, **self._limits)
        if path == "timeline":
            table = self._read_timeline()
            return table.schema, table.num_rows, table.nbytes, b""
        if path == "snapshot/latest":
            data = self._read_snapshot(path)
            return _FILE_SCHEMA, -1, len(data), self._follower.require_current().metadata
        if path.startswith("landmarks/"):
            return _FILE_SCHEMA, -1, len(self._read_file(path)), b""
        position = path.partition("/")[2]
        if not position.isdecimal() or int(position[:19]) not in self._follower.list_positions():
            raise RefusedError("not_found", _UNKNOWN_PATH)
        return _describe_stored(int(position))

    # ------------------------------------------------------------------ actions

    @_handle_errors
    def list_actions(self, call: OpenCall) -> list[fl.ActionType]:
        """The actions of `do_action`."""
        return [fl.ActionType(name, description) for name, description in ACTIONS.items()]

    @_handle_errors
    def do_action(self, call: OpenCall, action: Any) -> list[bytes]:
        """Run an action; its answer contains no data of the run."""
        name = action.type
        if name not in ACTIONS:
            raise RefusedError("not_found", f"unknown action; the actions are {', '.join(ACTIONS)}")
        if name == "drain":
            if call.token.role != "write":
                raise RefusedError(
                    "unauthorized", "this token may only read; drain needs a token with role write"
                )
            self.is_drain_requested = True
        if name == "version":
            return [__version__.encode()]
        return [pack_metadata(ready=self.ready) if name == "ready" else b"ok"]

    def _refuse(self, kind: str, error: BaseException) -> RefusedError:
        """An error as the client receives it; the log receives what the client must not see."""
        refused = convert_error(error)
        self._counters.count_request(kind, refused.code)
        if refused.code == "internal" or isinstance(error, StreamembedError):
            print(
                f"streamembed: {type(error).__name__}: {summarise_error(error)}",
                file=sys.stderr,
                flush=True,
            )
        return refused


_UNKNOWN_PATH = (
    "unknown path; the paths are snapshot/latest, snapshot/POSITION of a listed position, "
    "landmarks/PARTITION and timeline"
)
_FILE_SCHEMA = pa.schema([("bytes", pa.binary())])


def _describe_stored(position: int) -> tuple[pa.Schema, int, int, bytes]:
    """Schema, sizes and metadata of a stored snapshot, without reading it."""
    return _FILE_SCHEMA, -1, -1, pack_metadata(position=position)


def _split_file(data: bytes) -> pa.Table:
    chunks = [data[start : start + CHUNK_SIZE] for start in range(0, len(data), CHUNK_SIZE)]
    return pa.table({"bytes": pa.array(chunks, pa.binary())}, _FILE_SCHEMA)


def _track_activity(call: OpenCall, table: pa.Table) -> pa.RecordBatchReader:
    """A reader of a table that marks its call as active whenever a batch is read."""

    def batches() -> Iterator[Any]:
        for batch in table.to_batches(max_chunksize=1 if table.schema == _FILE_SCHEMA else None):
            call.touch(busy=False)
            yield batch

    return pa.RecordBatchReader.from_batches(table.schema, batches())


def _check_compatible(previous: ServedSnapshot, newest: ServedSnapshot) -> ServedSnapshot:
    if newest.features != previous.features or newest.schema != previous.schema:
        raise RefusedError("unavailable", "the snapshot has other features now; start a new stream")
    return newest


def _read_arrow(read: Callable[[], Any]) -> Any:
    """The result of a read by Arrow; a failure is refused as the client's mistake."""
    try:
        return read()
    except StopIteration:
        raise
    except fl.FlightError:
        raise RefusedError("unavailable", "the stream was interrupted") from None
    except (MemoryError, pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError):
            raise RefusedError("invalid", "the message is too large") from None
        raise RefusedError("invalid", "the message is not valid Arrow data") from None


def _parse_path(descriptor: Any) -> str:
    if descriptor.descriptor_type != fl.DescriptorType.PATH or not descriptor.path:
        raise RefusedError("not_found", "the descriptor must be a path, such as transform")
    return _decode_path(b"/".join(descriptor.path))


def _decode_path(path: bytes) -> str:
    if len(path) > 100:
        raise RefusedError("not_found", _UNKNOWN_PATH)
    return path.decode(errors="replace")
