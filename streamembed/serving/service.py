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

from streamembed.data.column_roles import RENAME, describe_suspicious, find_suspicious
from streamembed.errors import StreamembedError, summarise_error
from streamembed.serving.authentication import Authentication, OpenCall
from streamembed.serving.batch_learner import BatchLearner
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
    extract_points,
    infer_features,
    pack_metadata,
    read_metadata,
    read_offset,
)
from streamembed.serving.server_metrics import ServerMetrics
from streamembed.serving.server_settings import ServerSettings
from streamembed.version import __version__

AUTHENTICATION = "authentication"
ACTIONS = {
    "health": "ok, if this server answers",
    "ready": "whether a snapshot is served, and the server is not shutting down",
    "version": "version of streamembed",
}
PATHS = ("timeline", "learn", "transform", "snapshot/latest")
# Bytes of a file in one message.
CHUNK_SIZE = 1 << 20
_UNKNOWN_PATH = (
    "unknown path; the paths are transform, learn, timeline, snapshot/latest and snapshot/POSITION "
    "of a position in the timeline"
)
_FILE_SCHEMA = pa.schema([("bytes", pa.binary())])


def _handle_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a Flight method: its errors reach the client as a code and a message alone."""

    @wraps(method)
    def answer(self: Service, context: fl.ServerCallContext, *args: Any) -> Any:
        call: OpenCall = context.get_middleware(AUTHENTICATION)
        began = time.perf_counter()
        try:
            result = method(self, call, *args)
        except BaseException as error:
            raise build_flight_error(self._refuse(call.kind, error)) from None
        if call.kind not in ("transform", "learn"):  # these count their batches
            self._metrics.count_request(call.kind, "ok", time.perf_counter() - began)
        return result

    return answer


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """The Arrow Flight server of a run; it listens once it is made.

    Parameters
    ----------
    learner
        Learns the events of producers; None where the server only reads.
    """

    def __init__(
        self,
        settings: ServerSettings,
        learner: BatchLearner | None,
        authentication: Authentication,
        metrics: ServerMetrics,
    ) -> None:
        self._settings, self._learner = settings, learner
        self._authentication, self._metrics = authentication, metrics
        self._follower = LatestSnapshot(settings.run)
        self.served: ServedSnapshot | None = None  # replaced by one assignment
        self.refresh()
        certificates = []
        if settings.tls is not None:
            with open(settings.tls[0], "rb") as cert, open(settings.tls[1], "rb") as key:
                certificates = [(cert.read(), key.read())]
        scheme = "grpc+tcp" if settings.tls is None else "grpc+tls"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        super().__init__(
            f"{scheme}://{host}:{settings.port}",
            tls_certificates=certificates,
            middleware={AUTHENTICATION: authentication},
        )

    @property
    def ready(self) -> bool:
        """Whether points can be transformed."""
        return self.served is not None and not self._authentication.draining

    def refresh(self) -> None:
        """Serve the newest snapshot; StreamembedError where the run cannot be read."""
        if self._learner is not None:
            self.served = self._learner.compute_snapshot(self.served)
            return
        self._follower.refresh()
        self.served = self._follower.current

    def _require_served(self) -> ServedSnapshot:
        if self.served is None:
            raise RefusedError("not_ready", "the warm-up has not ended: there is no snapshot yet")
        return self.served

    def _require_learner(self) -> BatchLearner:
        if self._learner is None:
            raise RefusedError(
                "not_found", "this server does not learn: it was started without --learn"
            )
        return self._learner

    # ------------------------------------------------------------------ rows in, rows out

    @_handle_errors
    def do_exchange(self, call: OpenCall, descriptor: Any, reader: Any, writer: Any) -> None:
        """Points in, coordinates and coverage out, batch by batch."""
        if _parse_path(descriptor) != "transform":
            raise RefusedError("not_found", "DoExchange needs the path transform")
        served = self._require_served()
        features = _require_features(served)
        check_schema(_read_arrow(lambda: reader.schema), features)
        writer.begin(served.schema)
        for batch, metadata in self._read_batches(reader):
            began = time.perf_counter()
            if not read_metadata(metadata, "continues"):
                served = _check_compatible(served, self._require_served())
            writer.write_with_metadata(
                served.embed(extract_points(batch, features)), served.metadata
            )
            self._metrics.count_request(
                "transform", "ok", time.perf_counter() - began, batch.num_rows
            )

    @_handle_errors
    def do_put(self, call: OpenCall, descriptor: Any, reader: Any, writer: Any) -> None:
        """Events in; each batch is acknowledged once it is committed."""
        if _parse_path(descriptor) != "learn":
            raise RefusedError("not_found", "DoPut needs the path learn")
        learner = self._require_learner()
        schema, features = _read_arrow(lambda: reader.schema), learner.features
        if features is None:  # the first events define the features
            features = infer_features(schema, (ID, LABEL))
            if not features.names:
                raise RefusedError("invalid", "the schema must have a column for each feature")
            if suspicious := find_suspicious(features.names):
                raise RefusedError("invalid", describe_suspicious(suspicious, RENAME))
        check_schema(schema, features, (ID, LABEL))
        for batch, metadata in self._read_batches(reader):
            began = time.perf_counter()
            learned, acknowledgement = learner.learn(
                call.token.name, read_offset(metadata), batch, features
            )
            writer.write(pack_metadata(**acknowledgement))
            self._metrics.count_request("learn", "ok", time.perf_counter() - began, batch.num_rows)
            self._metrics.count_learned(learned)

    def _read_batches(self, reader: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the checked batches of a stream, with their metadata, until the client ends it."""
        while True:
            try:
                chunk = _read_arrow(reader.read_chunk)
            except StopIteration:
                return
            if self._authentication.draining:
                raise RefusedError("unavailable", "the server is shutting down")
            if chunk.data is None:
                raise RefusedError("invalid", "empty batch")
            check_batch(chunk.data, self._settings.max_rows, self._settings.max_bytes)
            yield chunk.data, chunk.app_metadata

    # ------------------------------------------------------------------ files and descriptions

    @_handle_errors
    def do_get(self, call: OpenCall, ticket: Any) -> Any:
        """The file of a snapshot, in chunks; or the timeline."""
        path = _decode_path(ticket.ticket)
        if path == "timeline":
            return fl.RecordBatchStream(self._read_timeline())
        data = self._read_snapshot(path)
        chunks = [
            pa.record_batch([[data[at : at + CHUNK_SIZE]]], schema=_FILE_SCHEMA)
            for at in range(0, len(data), CHUNK_SIZE)
        ]
        return fl.RecordBatchStream(pa.Table.from_batches(chunks, _FILE_SCHEMA))

    def _read_timeline(self) -> pa.Table:
        with self._follower.open_reader() as reader:
            return reader.timeline().replace_schema_metadata(None)

    def _read_snapshot(self, path: str) -> bytes:
        kind, _, which = path.partition("/")
        if path == "snapshot/latest":
            return self._require_served().file_bytes
        if kind != "snapshot" or not which.isdecimal() or len(which) > 18:
            raise RefusedError("not_found", _UNKNOWN_PATH)
        with self._follower.open_reader() as reader:
            if int(which) not in reader.positions:
                raise RefusedError("not_found", f"there is no snapshot at position {which}")
            return reader.snapshot(int(which)).to_bytes()

    @_handle_errors
    def list_flights(self, call: OpenCall, _: bytes) -> list[fl.FlightInfo]:
        """Describe everything that is available now."""
        infos = []
        for path in PATHS:
            # what is not available now, as in a damaged run, is not listed
            with contextlib.suppress(RefusedError, StreamembedError):
                infos.append(self._describe(call, path))
        return infos

    @_handle_errors
    def get_flight_info(self, call: OpenCall, descriptor: Any) -> fl.FlightInfo:
        """Schema, number of rows and bytes, endpoint and metadata of a path."""
        return self._describe(call, _parse_path(descriptor))

    def _describe(self, call: OpenCall, path: str) -> fl.FlightInfo:
        rows, size, metadata = -1, -1, b""  # -1 where unknown
        limits = {"max_rows": self._settings.max_rows, "max_bytes": self._settings.max_bytes}
        if path == "transform":
            schema = build_point_schema(_require_features(self._require_served()))
            metadata = pack_metadata(**limits)
        elif path == "learn":
            learner = self._require_learner()
            features, offset = learner.features, learner.get_offset(call.token.name)
            schema = pa.schema([]) if features is None else build_point_schema(features)
            metadata = pack_metadata(offset=offset, labels=learner.learns_labels, **limits)
        elif path == "timeline":
            table = self._read_timeline()
            schema, rows, size = table.schema, table.num_rows, table.nbytes
        else:
            schema, size = _FILE_SCHEMA, len(self._read_snapshot(path))
        descriptor = fl.FlightDescriptor.for_path(*path.split("/"))
        # without a location a client keeps the address that it called
        endpoint = fl.FlightEndpoint(fl.Ticket(path.encode()), [])
        return fl.FlightInfo(schema, descriptor, [endpoint], rows, size, app_metadata=metadata)

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
        if name == "version":
            return [__version__.encode()]
        return [pack_metadata(ready=self.ready) if name == "ready" else b"ok"]

    def _refuse(self, kind: str, error: BaseException) -> RefusedError:
        """An error as the client receives it; the log receives what the client must not see."""
        refused = convert_error(error)
        self._metrics.count_request(kind, refused.code)
        if refused.code == "internal" or isinstance(error, StreamembedError):
            print(
                f"streamembed: {type(error).__name__}: {summarise_error(error)}",
                file=sys.stderr,
                flush=True,
            )
        return refused


def _require_features(served: ServedSnapshot) -> Any:
    if served.features is None:
        raise RefusedError("not_found", "this run learned distances: it cannot transform points")
    return served.features


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
    except MemoryError:
        raise RefusedError("invalid", "the message is too large") from None
    except (pa.ArrowException, OSError, UnicodeDecodeError):
        raise RefusedError("invalid", "the message is not valid Arrow data") from None


def _parse_path(descriptor: Any) -> str:
    if descriptor.descriptor_type != fl.DescriptorType.PATH or not descriptor.path:
        raise RefusedError("not_found", "the descriptor must be a path, such as transform")
    return _decode_path(b"/".join(descriptor.path))


def _decode_path(path: bytes) -> str:
    if len(path) > 100:
        raise RefusedError("not_found", _UNKNOWN_PATH)
    return path.decode(errors="replace")
