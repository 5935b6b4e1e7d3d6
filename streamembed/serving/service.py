"""The Flight service. A client receives every error as a code and one line."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from streamembed.data.column_roles import RENAME, describe_suspicious, find_suspicious
from streamembed.data.features import Features
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

AUTHENTICATION = "authentication"
# Bytes of a file in one message.
CHUNK_SIZE = 1 << 20
UNKNOWN_PATH = (
    "unknown path; DoExchange has transform, DoPut has learn, GetFlightInfo has both, and DoGet "
    "has timeline, snapshot/latest and snapshot/POSITION of a position in the timeline"
)


def _handle_errors(method: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a Flight method: its errors reach the client as a code and a message alone."""

    @wraps(method)
    def answer(self: Service, context: fl.ServerCallContext, *args: Any) -> Any:
        call: OpenCall = context.get_middleware(AUTHENTICATION)
        try:
            result = method(self, call, *args)
        except BaseException as error:
            raise build_flight_error(self._refuse(call.kind, error)) from None
        if call.kind not in ("transform", "learn"):  # these count their batches
            self.metrics.count("requests", call.kind, "ok")
        return result

    return answer


class Service(fl.FlightServerBase):  # type: ignore[misc]
    """The Arrow Flight server of a run; it listens once it is made.

    Parameters
    ----------
    learner
        Learns the events of producers; None where the server only reads.

    Raises
    ------
    StreamembedError
        The run, or the file of tokens, cannot be read.
    ArrowException
        The server cannot listen.
    """

    def __init__(self, settings: ServerSettings, learner: BatchLearner | None) -> None:
        self._settings, self._learner = settings, learner
        self.metrics = ServerMetrics(self._read_gauges)
        count_refused = partial(self.metrics.count, "requests")
        self.authentication = Authentication(
            settings.max_streams, settings.read_tokens(), count_refused
        )
        self._follower = LatestSnapshot(settings.run)
        self.served: ServedSnapshot | None = None  # replaced by one assignment
        self.refresh()
        certificates = [tuple(Path(path).read_bytes() for path in settings.tls or ())]
        scheme = "grpc+tcp" if settings.tls is None else "grpc+tls"
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        super().__init__(
            f"{scheme}://{host}:{settings.port}",
            tls_certificates=certificates if settings.tls else [],
            middleware={AUTHENTICATION: self.authentication},
        )

    @property
    def ready(self) -> bool:
        """Whether points can be transformed."""
        return self.served is not None and not self.authentication.draining

    @property
    def failure(self) -> BaseException | None:
        """Why the run has stopped to learn, after which the server must be started again."""
        return None if self._learner is None else self._learner.failure

    def refresh(self) -> None:
        """Serve the newest snapshot; StreamembedError where the run cannot be read."""
        if self._learner is not None:
            self.served = self._learner.compute_snapshot(self.served)
            return
        self._follower.refresh()
        self.served = self._follower.current

    def reload_tokens(self) -> None:
        """Read the file of tokens again; if it is not valid, the previous tokens stay in use."""
        try:
            self.authentication.tokens = self._settings.read_tokens()
        except StreamembedError as error:
            print(f"streamembed: the tokens are unchanged: {error}", file=sys.stderr)

    def drain(self) -> None:
        """Refuse new calls, and wait for the open ones for as long as the settings say."""
        self.authentication.draining = True
        until = time.monotonic() + self._settings.grace
        while self.authentication.n_open and time.monotonic() < until:
            time.sleep(0.02)

    def _read_gauges(self) -> dict[str, float]:
        gauges = {"ready": float(self.ready), "streams_open": self.authentication.n_open}
        if (served := self.served) is not None:
            snapshot = served.snapshot
            gauges |= {
                "snapshot_epoch": snapshot.frame.epoch,
                "snapshot_position": snapshot.position,
                "snapshot_age_seconds": max(0.0, time.time() - served.written_at),
                "certificate_residual": snapshot.certificate.residual,
                "certificate_met": float(bool(snapshot.certificate.met)),
                "resolution": snapshot.resolution,
                "mass_total": float(snapshot.masses.sum()),
            }
        return gauges

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
        _require_path(descriptor, "transform")
        served = self._require_served()
        features, schema = _require_features(served), served.schema
        check_schema(reader.schema, features)
        writer.begin(schema)
        for rows, metadata in self._read_batches(reader):
            began = time.perf_counter()
            if not read_metadata(metadata, "continues"):
                served = self._require_served()
                if served.snapshot.features != features or served.schema != schema:
                    raise RefusedError(
                        "unavailable", "the snapshot has other columns now; start a new stream"
                    )
            answer = served.embed(extract_points(rows, features))
            writer.write_with_metadata(answer, served.metadata)
            self.metrics.count_batch("transform", rows.num_rows, time.perf_counter() - began)

    @_handle_errors
    def do_put(self, call: OpenCall, descriptor: Any, reader: Any, writer: Any) -> None:
        """Events in; each batch is acknowledged once it is committed."""
        _require_path(descriptor, "learn")
        learner = self._require_learner()
        features, others = learner.engine.features, (ID, LABEL, *learner.kept_columns)
        if features is None:  # the first events define the features
            features = infer_features(reader.schema, others)
            if suspicious := find_suspicious(features.names):
                raise RefusedError("invalid", describe_suspicious(suspicious, RENAME))
        check_schema(reader.schema, features, others)
        for rows, metadata in self._read_batches(reader):
            began = time.perf_counter()
            answer = learner.learn(call.token.name, read_offset(metadata), rows)
            writer.write(pack_metadata(**answer))
            self.metrics.count_batch("learn", rows.num_rows, time.perf_counter() - began)
            if not answer["repeated"]:
                self.metrics.count("events_learned", value=answer["accepted"])
                self.metrics.count("rows_rejected", value=len(answer["rejected"]))

    def _read_batches(self, reader: Any) -> Iterator[tuple[Any, Any]]:
        """Yield the checked batches of a stream, with their metadata, until the client ends it."""
        limits = self._settings.max_rows, self._settings.max_batch_mib << 20
        for chunk in reader:
            if self.authentication.draining:
                raise RefusedError("unavailable", "the server is shutting down")
            if chunk.data is None:
                raise RefusedError("invalid", "empty batch")
            check_batch(chunk.data, *limits)
            yield chunk.data, chunk.app_metadata

    # ------------------------------------------------------------------ files and descriptions

    @_handle_errors
    def do_get(self, call: OpenCall, ticket: Any) -> Any:
        """The file of a snapshot, in chunks; or the timeline."""
        path = ticket.ticket.decode(errors="replace")
        if path == "timeline":
            with self._follower.open_reader() as reader:
                return fl.RecordBatchStream(reader.timeline().replace_schema_metadata(None))
        data = self._read_snapshot(path)
        chunks = [data[at : at + CHUNK_SIZE] for at in range(0, len(data), CHUNK_SIZE)]
        table = pa.table({"bytes": pa.array(chunks, pa.binary())})
        return fl.RecordBatchStream(table.to_reader(max_chunksize=1))

    def _read_snapshot(self, path: str) -> bytes:
        kind, _, which = path.partition("/")
        if path == "snapshot/latest":
            return self._require_served().file_bytes
        if kind != "snapshot" or not which.isdecimal() or len(which) > 18:
            raise RefusedError("not_found", UNKNOWN_PATH)
        with self._follower.open_reader() as reader:
            if int(which) not in reader.positions:
                raise RefusedError("not_found", f"there is no snapshot at position {which}")
            return reader.snapshot(int(which)).to_bytes()

    @_handle_errors
    def get_flight_info(self, call: OpenCall, descriptor: Any) -> fl.FlightInfo:
        """What a batch must be: its columns and limits, and where events are learned its offset."""
        settings, features = self._settings, None
        facts: dict[str, Any] = {
            "max_rows": settings.max_rows,
            "max_bytes": settings.max_batch_mib << 20,
        }
        if _parse_path(descriptor) == "transform":
            features = _require_features(self._require_served())
        else:
            _require_path(descriptor, "learn")
            learner = self._require_learner()
            features = learner.engine.features
            facts |= {
                "offset": learner.get_offset(call.token.name),
                "labels": bool(learner.engine.config.metrics),
                "keep": learner.kept_columns,
            }
        schema = build_point_schema(features or Features((), False))
        # without a location a client keeps the address that it called
        endpoints = [fl.FlightEndpoint(fl.Ticket(b""), [])]
        return fl.FlightInfo(schema, descriptor, endpoints, app_metadata=pack_metadata(**facts))

    @_handle_errors
    def do_action(self, call: OpenCall, action: Any) -> list[bytes]:
        """Whether points can be transformed."""
        if action.type != "ready":
            raise RefusedError("not_found", "unknown action; the only one is ready")
        return [pack_metadata(ready=self.ready)]

    def _refuse(self, kind: str, error: BaseException) -> RefusedError:
        """An error as the client receives it; the log receives what the client must not see."""
        refused = convert_error(error)
        self.metrics.count("requests", kind, refused.code)
        if refused.code == "internal" or isinstance(error, StreamembedError):
            text = f"streamembed: {type(error).__name__}: {summarise_error(error)}"
            print(text, file=sys.stderr, flush=True)
        return refused


def _require_features(served: ServedSnapshot) -> Features:
    features = served.snapshot.features
    if not features.names:
        raise RefusedError("not_found", "this run learned distances: it cannot transform points")
    return features


def _parse_path(descriptor: Any) -> str:
    return b"/".join(descriptor.path or ()).decode(errors="replace")


def _require_path(descriptor: Any, path: str) -> None:
    if _parse_path(descriptor) != path:
        raise RefusedError("not_found", UNKNOWN_PATH)
