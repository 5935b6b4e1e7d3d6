"""A client of a served run, in a few lines."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from streamembed.data.batch import Rejected
from streamembed.data.ids import read_ids
from streamembed.data.labels import list_labels
from streamembed.engine.engine import Learned
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    InputError,
    ParameterError,
    ServerError,
    StreamembedError,
    file_error,
    shown,
)
from streamembed.merging.landmark_set import LARGEST_PARTITION, LandmarkSet
from streamembed.serving.messages import (
    Features,
    Transformed,
    code_of,
    digest_of,
    failure_of,
    features_in,
    joined,
    packed,
    read_points,
    table_of,
)
from streamembed.serving.tls import CERTAIN, UNKNOWN_SIGNER, context_of, why_not
from streamembed.validation import real, whole

__all__ = ["Client", "connect"]

T = TypeVar("T")
URL = re.compile(r"grpc(\+tcp|\+tls)?://(\[[^\]/@]+\]|[^:/@\[\]]+):(\d{1,5})/?")
# Rows of a batch, where the server takes as many.
ROWS = 1 << 13
# Seconds between two attempts, at first and at most.
PAUSE, LONGEST_PAUSE = 0.05, 1.0
# Seconds that a handshake may take, by which it is found out why there is no connection.
HANDSHAKE = 2.0


def connect(
    url: str,
    *,
    token: str | None = None,
    tls_roots: str | os.PathLike[str] | None = None,
    patience: float = 10.0,
) -> Client:
    """A client of a run that `streamembed serve` serves; it has answered once.

    Parameters
    ----------
    url
        ``grpc://host:port``, or ``grpc+tls://host:port`` where the server has a certificate.
    token
        As `streamembed serve --new-token` printed it; None where the server asks for none.
    tls_roots
        File of the certificates to trust, PEM; None for those that the system trusts.
    patience
        Seconds, 0 to 3600, that a call is tried again where the server is not there or has no room.

    Raises
    ------
    ParameterError
        An argument is none of these.
    ServerError
        The server cannot be reached, or does not know the token; or its certificate is not trusted,
        which is said at once ("untrusted").

    Examples
    --------
    >>> connect("127.0.0.1:8815")
    Traceback (most recent call last):
    streamembed.errors.ParameterError: url='127.0.0.1:8815' must be such as grpc://127.0.0.1:8815
    """
    if not isinstance(url, str) or not URL.fullmatch(url):
        raise ParameterError(f"url={shown(url)} must be such as grpc://127.0.0.1:8815")
    if token is not None and not (
        isinstance(token, str) and token.isascii() and token.isprintable()
    ):
        raise ParameterError("token must be text as `streamembed serve --new-token` printed it")
    roots = None
    if tls_roots is not None:
        try:
            roots = Path(tls_roots).read_bytes()
        except OSError as error:
            raise file_error(error, tls_roots, "read") from error
    if roots is not None:
        context_of(roots)
    made = Client(url, token, roots, real("patience", patience, 0.0, 3600.0))
    try:
        made._meet()
    except BaseException:
        made.close()
        raise
    return made


class Client:
    """A client of a served run, for one thread; a context manager. See `connect`.

    Calls are tried again where the server was restarted, or has no room, for `patience` seconds;
    learning as well, for the server knows by its offset what it has.
    """

    def __init__(self, url: str, token: str | None, roots: bytes | None, patience: float) -> None:
        """Use `connect`."""
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._options = fl.FlightCallOptions(headers=headers)
        self._roots, self._patience = roots, patience
        self._urls = [url]
        self._has_met = False  # whether it ever answered
        self._flight: Any = None
        self._stream: Any = None  # of points, by the newest snapshot
        self._features: Features | None = None
        self._offset: int | None = None
        # A call of learn that failed: where it began, and a digest of its rows.
        self._unheard: tuple[int, bytes] | None = None
        self._limits = (ROWS, 1 << 24)  # rows and bytes of a batch, once it was told

    def __repr__(self) -> str:
        return f"<Client of {self._urls[0]}>" if self._urls else "<Client, closed>"

    # ------------------------------------------------------------------ what can be asked

    def transform(self, X: Any) -> Transformed:
        """Coordinates and coverage of points, all by the newest snapshot.

        Parameters
        ----------
        X
            Any table (n, d), as of `Snapshot.transform`.

        Raises
        ------
        FeatureError, InputError
            It is none, or has other features.
        NotReadyError
            The warm-up of the run has not ended.
        ServerError
            The server cannot be reached, or refuses.
        """
        return self._tried(lambda: self._transform(X))

    def learn(self, X: Any, y: Any = None, ids: Any = None) -> Learned:
        """Learn events; once it returns, they are committed. O(1) round trips a batch.

        Parameters
        ----------
        X
            Any table (n, d), as of `Run.learn`.
        y, ids
            A label, and an id, for each; or None.

        Raises
        ------
        FeatureError, InputError
            Nothing of the first batch that is refused was learned, and nothing behind it.
        ServerError
            The server cannot be reached, or refuses. The same call with the same rows may be made
            again: what of it is in is not learned twice. Its code is "offset" where another
            producer that uses this token has learned meanwhile: then read `offset`, and learn what
            is not in yet.
        """
        table = self._tried(lambda: self._to_learn(X, y, ids))
        first = self._begins_at(table)
        self._offset = first
        try:
            learned = self._learn(table, first)
        except BaseException as error:
            # whether the server has these rows is not known, unless it said that they come too late
            was_overtaken = getattr(error, "code", None) == "offset"
            self._unheard = None if was_overtaken else (first, digest_of(table))
            if was_overtaken and (done := self._offset - first):
                raise ServerError(f"{error}. The first {done} rows are in", "offset") from None
            raise
        self._unheard = None
        return learned

    def _to_learn(self, X: Any, y: Any, ids: Any) -> pa.Table:
        """Events as they are sent."""
        points, features = read_points(X, self._features_to_learn())
        n = len(points)
        labels = None if y is None else list_labels(y, n)
        known = read_ids(ids, n)
        return table_of(points, features, labels, None if known is None else known.tolist())

    def _begins_at(self, table: pa.Table) -> int:
        """The offset of a call: that of the one before, where that failed and had the same rows."""
        if self._unheard is not None and self._unheard[1] == digest_of(table):
            return self._unheard[0]
        return self.offset if self._offset is None else self._offset

    def _learn(self, table: pa.Table, first: int) -> Learned:
        """Put until all is acknowledged, the first row at an offset."""
        assert self._offset is not None
        accepted, rejected = 0, list[Rejected]()
        while (done := self._offset - first) < len(table):
            told = self._tried(lambda: self._put(table, first))
            for one in told:
                self._offset = max(self._offset, int(one["next"]))
                accepted += one["accepted"]
                at = one["offset"] - first
                rejected += [Rejected(at + i, key, why) for i, key, why in one["rejected"]]
            if self._offset - first == done:
                raise ServerError("the server acknowledged nothing", "internal")
        return Learned(accepted, tuple(rejected))

    @property
    def offset(self) -> int:
        """Rows that this producer (the name of its token) has put, as the server has them now.

        The next call of `learn` begins there; but not one with the same rows as the last, where
        that broke off: it is the same call, and what of it is in is not learned twice.
        """
        self._offset = int(self._tried(lambda: self._told("learn"))["offset"])
        return self._offset

    @property
    def ready(self) -> bool:
        """Whether points can be transformed now: a snapshot is served, and the server does not end.

        False for a run whose warm-up is not over: it can be learned into all the same.
        """
        return bool(json.loads(self._acted("ready"))["ready"])

    def drain(self) -> None:
        """Ask the server to end: it lets open calls end, and commits what was put.

        Raises
        ------
        ServerError
            The token may only read, or the server cannot be reached.
        """
        self._acted("drain")

    def _acted(self, name: str) -> bytes:
        action = fl.Action(name, b"")
        (told,) = self._tried(lambda: list(self._connected().do_action(action, self._options)))
        return bytes(told.body.to_pybytes())

    def snapshot(self, position: int | None = None) -> Snapshot:
        """A snapshot that the run keeps, bit for bit; None for the newest.

        Raises
        ------
        NotReadyError, ServerError
            There is none yet, or none of that position.
        """
        which = "latest" if position is None else str(position)
        table = self._tried(lambda: self._get(f"snapshot/{which}"))
        return Snapshot.from_bytes(b"".join(table["bytes"].to_pylist()))

    def landmark_set(self, partition: int = 0) -> LandmarkSet:
        """Landmarks and masses as they were committed last, to be merged with those of others.

        They may be newer than `snapshot()`, which is looked for now and then.

        Parameters
        ----------
        partition
            The number of the server's stream among those that are merged, 0 to 65,535.

        Raises
        ------
        NotReadyError, ServerError
            There are none yet, or the run keeps none.
        """
        number = whole("partition", partition, 0, high=LARGEST_PARTITION)
        table = self._tried(lambda: self._get(f"landmarks/{number}"))
        return LandmarkSet.from_bytes(b"".join(table["bytes"].to_pylist()))

    def timeline(self) -> pa.Table:
        """A row a snapshot that was committed, as of `RunReader.timeline`."""
        return self._tried(lambda: self._get("timeline"))

    def close(self) -> None:
        """End; the client cannot be used afterwards."""
        self._drop()
        self._urls = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ calls

    def _connected(self) -> Any:
        if not self._urls:
            raise ParameterError("this client is closed: connect again")
        if self._flight is None:
            if self._urls[0].startswith("grpc+tls"):  # gRPC would log it, and not say why
                self._must_speak(CERTAIN | (UNKNOWN_SIGNER if self._roots else frozenset()))
            roots = {} if self._roots is None else {"tls_root_certs": self._roots}
            self._flight = fl.FlightClient(self._urls[0], **roots)
        return self._flight

    def _must_speak(self, reasons: frozenset[int] | None = None) -> None:
        """Say why a server that never answered never will; ServerError with "untrusted"."""
        if self._has_met:
            return
        secure, host, port = URL.fullmatch(self._urls[0]).groups()  # type: ignore[union-attr]
        context = context_of(self._roots) if secure == "+tls" else None
        patience = min(max(self._patience, 0.5), HANDSHAKE)
        why = why_not(host.strip("[]"), int(port), context, patience, reasons)
        if why is not None:
            raise ServerError(why, "untrusted")

    def _meet(self) -> None:
        """Is it there, does it know this token, and where else does it answer?"""
        infos = self._tried(lambda: list(self._connected().list_flights(b"", self._options)))
        self._has_met = True
        places: set[str] = set()
        for info in infos:
            if b"/".join(info.descriptor.path) == b"transform":
                found = [place.uri for end in info.endpoints for place in end.locations]
                places |= {uri.decode() for uri in found if uri.startswith(b"grpc")}
        if len(places) > 1:  # readers of one server: clients spread over them
            self._drop()
            self._urls = random.sample(sorted(places), len(places))

    def _told(self, *path: str) -> dict[str, Any]:
        """What the server says of one of its flights, its schema put into ``_features``."""
        asked = fl.FlightDescriptor.for_path(*path)
        info = self._connected().get_flight_info(asked, self._options)
        names = features_in(info.schema)
        self._features = names if names.names else None
        told: dict[str, Any] = json.loads(info.app_metadata)
        self._limits = told["max_rows"], told["max_bytes"]
        return told

    def _rows(self, table: pa.Table) -> int:
        """Rows of a batch that the server takes."""
        most, size = self._limits
        by_size = size * len(table) // (2 * int(table.nbytes) + 1)
        return max(1, min(most, ROWS, by_size))

    def _get(self, ticket: str) -> Any:
        return self._connected().do_get(fl.Ticket(ticket.encode()), self._options).read_all()

    def _features_to_learn(self) -> Features | None:
        if self._features is None:
            self._told("learn")
        return self._features

    def _transform(self, X: Any) -> Transformed:
        if self._features is None:
            self._told("transform")
        points, features = read_points(X, self._features)
        table = table_of(points, features, None, None)
        rows = self._rows(table)
        if len(points) <= rows:
            stream = self._stream or self._exchange("transform", "follow")
            self._stream = stream
            return joined([stream.answer(table.to_batches() or _empty(table))])
        stream = self._exchange("transform")
        try:
            pieces = (table.slice(at, rows) for at in range(0, len(points), rows))
            return joined([stream.answer(piece.to_batches()) for piece in pieces])
        finally:
            stream.close()

    def _exchange(self, *path: str) -> _Stream:
        asked = fl.FlightDescriptor.for_path(*path)
        return _Stream(*self._connected().do_exchange(asked, self._options))

    def _put(self, table: pa.Table, first: int) -> list[dict[str, Any]]:
        """Put what is not acknowledged; what came back, though it may break off."""
        assert self._offset is not None
        found: list[dict[str, Any]] = []
        asked, rows = fl.FlightDescriptor.for_path("learn"), self._rows(table)
        writer, reader = self._connected().do_put(asked, table.schema, self._options)
        try:
            for at in range(self._offset - first, len(table), rows):
                (batch,) = table.slice(at, rows).combine_chunks().to_batches()
                writer.write_with_metadata(batch, packed(offset=first + at))
                answer = reader.read()
                if answer is None:
                    writer.close()  # raises what the server said
                    raise ServerError("the server ended the stream")
                found.append(json.loads(answer.to_pybytes()))
            writer.done_writing()
        except (pa.ArrowException, OSError) as error:
            failure = _closing(writer, error)
            if not found:
                raise failure from None
        else:
            with contextlib.suppress(pa.ArrowException, OSError):
                writer.close()
        return found

    def _tried(self, call: Callable[[], T]) -> T:
        """A call, again and again where the server is not there; errors as this package's."""
        until, pause = time.monotonic() + self._patience, PAUSE
        while True:
            try:
                return call()
            except StreamembedError as error:
                failure: StreamembedError = error
            except (pa.ArrowException, OSError) as error:
                failure = failure_of(error)
            if isinstance(failure, InputError):  # that of this side, too
                failure.code = "invalid"
            code = failure.code
            if self._stream is not None or code == "unavailable":
                self._drop()
            if code == "unavailable":
                self._must_speak()
            if code != "unavailable" or time.monotonic() + pause > until:
                raise failure
            self._urls = [*self._urls[1:], *self._urls[:1]]
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    def _drop(self) -> None:
        """Forget the connection, and what was learned by it."""
        if self._stream is not None:
            self._stream.close()
        if self._flight is not None:
            self._flight.close()
        self._flight = self._stream = self._features = None


class _Stream:
    """One exchange: a batch of points, then its answer."""

    def __init__(self, writer: Any, reader: Any) -> None:
        self._writer, self._reader = writer, reader
        self._begun = False

    def answer(self, batches: list[Any]) -> Any:
        (batch,) = batches
        try:
            if not self._begun:
                self._writer.begin(batch.schema)
                self._begun = True
            self._writer.write_batch(batch)
            return self._reader.read_chunk()
        except StopIteration:
            raise ServerError("the server ended the stream") from None
        except (pa.ArrowException, OSError) as error:
            raise _closing(self._writer, error) from None

    def close(self) -> None:
        with contextlib.suppress(pa.ArrowException, OSError):
            self._writer.close()


def _closing(writer: Any, error: BaseException) -> StreamembedError:
    """What went wrong with a stream: closing it may say more than writing to it did."""
    try:
        writer.close()
    except (pa.ArrowException, OSError) as later:
        if code_of(error) == "internal" or not getattr(error, "extra_info", None):
            return failure_of(later)
    return failure_of(error)


def _empty(table: pa.Table) -> list[Any]:
    return [pa.RecordBatch.from_pylist([], table.schema)]
