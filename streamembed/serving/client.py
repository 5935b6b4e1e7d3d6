"""The client of a served run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self, TypeVar

import pyarrow as pa
import pyarrow.flight as fl

from streamembed.data.batch import Rejected
from streamembed.data.features import Features
from streamembed.data.ids import read_ids
from streamembed.data.labels import list_labels
from streamembed.data.split_table import split_kept_texts
from streamembed.engine.call import Learned
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import (
    InputError,
    ParameterError,
    ServerError,
    StreamembedError,
    build_file_error,
    quote,
)
from streamembed.serving.messages import (
    ID,
    LABEL,
    Transformed,
    build_table,
    convert_flight_error,
    infer_features,
    join_answers,
    pack_metadata,
    read_code,
    read_rows,
)
from streamembed.validation import check_real

T = TypeVar("T")
URL = re.compile(r"grpc(\+tcp|\+tls)?://(\[[^\]/@]+\]|[^:/@\[\]]+):(\d{1,5})/?")
# Rows of a batch, unless the server takes fewer.
MAX_ROWS = 1 << 13
# Seconds between two attempts, at first and at most.
PAUSE, MAX_PAUSE = 0.05, 1.0


def connect(
    url: str,
    *,
    token: str | None = None,
    tls_roots: str | os.PathLike[str] | None = None,
    patience: float = 10.0,
) -> Client:
    """Connect to a run that `streamembed serve` serves; the server has answered once.

    Parameters
    ----------
    url
        ``grpc://host:port``, or ``grpc+tls://host:port`` where the server has a certificate.
    token
        Token that `streamembed serve --new-token` printed; None where the server has no tokens.
    tls_roots
        PEM file of the certificates to trust; None for those that the system trusts.
    patience
        Seconds, 0 to 3600, of retries while the server is not available.

    Raises
    ------
    ParameterError
        An argument is not valid.
    ServerError
        The server cannot be reached, its certificate is not trusted, or it refuses the token.

    Examples
    --------
    >>> connect("127.0.0.1:8815")
    Traceback (most recent call last):
    streamembed.errors.ParameterError: url='127.0.0.1:8815' must be such as grpc://127.0.0.1:8815
    """
    if not isinstance(url, str) or not URL.fullmatch(url):
        raise ParameterError(f"url={quote(url)} must be such as grpc://127.0.0.1:8815")
    if token is not None and not (
        isinstance(token, str) and token.isascii() and token.isprintable()
    ):
        raise ParameterError("token must be text that `streamembed serve --new-token` printed")
    roots = None
    if tls_roots is not None:
        try:
            roots = Path(tls_roots).read_bytes()
        except OSError as error:
            raise build_file_error(error, tls_roots, "read") from error
    client = Client(url, token, roots, check_real("patience", patience, 0.0, 3600.0))
    try:
        _ = client.ready
    except BaseException:
        client.close()
        raise
    return client


class Client:
    """A client of a served run, for one thread; a context manager. See `connect`.

    Calls are retried for `patience` seconds while the server restarts or has too many open calls;
    `learn` as well, because the offset of a batch tells whether the server has it.
    """

    def __init__(self, url: str, token: str | None, roots: bytes | None, patience: float) -> None:
        """Use `connect`."""
        headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
        self._options = fl.FlightCallOptions(headers=headers)
        self._roots = {} if roots is None else {"tls_root_certs": roots}
        self._url, self._patience = url, patience
        self._is_closed = False
        self._flight: Any = None
        self._stream: Any = None  # writer and reader of an open exchange of points
        self._features: Features | None = None
        self._learns_labels: bool | None = None  # of the run; None until the server has said it
        self._keep: tuple[str, ...] = ()  # columns that it keeps
        self._offset: int | None = None  # of the next call of `learn`
        # rows and bytes of a batch, until the server sends its own
        self._limits = MAX_ROWS, 1 << 24

    def __repr__(self) -> str:
        return f"<Client of {self._url}{', closed' * self._is_closed}>"

    # ------------------------------------------------------------------ public methods

    def transform(self, X: Any) -> Transformed:
        """Coordinates and coverage of points, all by the newest snapshot.

        Parameters
        ----------
        X
            Any table (n, d), as in `Snapshot.transform`.

        Raises
        ------
        FeatureError, InputError
            X is not a table of numbers, or has other features.
        NotReadyError
            The warm-up of the run has not ended.
        ServerError
            The server cannot be reached, or refuses.
        """
        return self._retry(lambda: self._transform(X))

    def learn(self, X: Any, y: Any = None, ids: Any = None) -> Learned:
        """Learn events; when it returns, they are committed. O(1) round trips per batch.

        Parameters
        ----------
        X
            Any table (n, d), as in `Run.learn`.
        y, ids
            A label and an id for each row; None for the columns ``label`` and ``id`` of a data
            frame or Arrow table, if it has them. Times are not sent.

        Raises
        ------
        FeatureError, InputError
            The first refused batch and all later ones were not learned: repeat the call with
            corrected rows, which learns no row twice.
        ServerError
            The server cannot be reached, or refuses. Repeat the call with the same rows: no row is
            learned twice. To go on with other rows, read `offset` first. The code is "offset" where
            other rows were learned there, such as those of another producer with this token name;
            then read `offset`, and learn the missing rows.
        """
        table = self._retry(lambda: self._build_events(X, y, ids))
        first = self.offset if self._offset is None else self._offset
        self._offset, answers = first, list[dict[str, Any]]()
        try:
            while self._offset < first + len(table):
                self._retry(lambda: self._ingest(table, first, answers))
        except BaseException as error:
            if getattr(error, "code", None) != "offset":
                self._offset = first  # a repeated call begins there
            elif n_learned := self._offset - first:
                raise ServerError(
                    f"{error}. The first {n_learned} rows are learned", "offset"
                ) from None
            raise
        rejected = [
            Rejected(answer["offset"] - first + i, key, reason)
            for answer in answers
            for i, key, reason in answer["rejected"]
        ]
        return Learned(sum(answer["accepted"] for answer in answers), tuple(rejected))

    def _build_events(self, X: Any, y: Any, ids: Any) -> pa.RecordBatch:
        if self._features is None or self._learns_labels is None:
            self._fetch_metadata("learn")
        X, texts = split_kept_texts(X, self._keep)
        points, features, split = read_rows(X, self._features)
        if y is not None and not self._learns_labels:
            raise InputError("y was given, but this run learns no metrics: leave it out")
        y = split.read("label") if y is None and self._learns_labels else y
        labels = None if y is None else list_labels(y, len(points))
        keys = read_ids(split.read("id") if ids is None else ids, len(points))
        keys = None if keys is None else keys.tolist()
        kept = {
            name: pa.array(column, pa.string())
            for name, column in zip(self._keep, texts, strict=True)
        }
        return build_table(points, features, {ID: keys, LABEL: labels, **kept})

    @property
    def offset(self) -> int:
        """Number of rows that the server has from this producer (the name of its token).

        The next call of `learn` starts there. Without reading it, a call after one that failed
        starts where that one did, so that it can be repeated.
        """
        self._offset = int(self._retry(lambda: self._fetch_metadata("learn"))["offset"])
        return self._offset

    @property
    def ready(self) -> bool:
        """Whether points can be transformed: a snapshot is served, and no shutdown is in progress.

        False before the warm-up of the run has ended; `learn` works all the same.
        """
        action = fl.Action("ready", b"")
        (answer,) = self._retry(lambda: list(self._connect().do_action(action, self._options)))
        return bool(json.loads(answer.body.to_pybytes())["ready"])

    def snapshot(self, position: int | None = None) -> Snapshot:
        """A snapshot of the run, bit for bit; None for the newest.

        Raises
        ------
        NotReadyError, ServerError
            There is no snapshot yet, or none at that position.
        """
        which = "latest" if position is None else str(position)
        table = self._retry(lambda: self._get(f"snapshot/{which}"))
        return Snapshot.from_bytes(b"".join(table["bytes"].to_pylist()))

    def timeline(self) -> pa.Table:
        """A table with a row per committed snapshot, as from `RunReader.timeline`."""
        return self._retry(lambda: self._get("timeline"))

    def close(self) -> None:
        """Close the connection; the client cannot be used afterwards."""
        self._disconnect()
        self._is_closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------------ calls

    def _connect(self) -> Any:
        if self._is_closed:
            raise ParameterError("this client is closed; connect again")
        if self._flight is None:
            self._flight = fl.FlightClient(self._url, **self._roots)
        return self._flight

    def _fetch_metadata(self, *path: str) -> dict[str, Any]:
        """The metadata of a path; sets the features and limits of this client."""
        info = self._connect().get_flight_info(fl.FlightDescriptor.for_path(*path), self._options)
        features = infer_features(info.schema)
        self._features = features if features.names else None
        metadata: dict[str, Any] = json.loads(info.app_metadata)
        self._limits = metadata["max_rows"], metadata["max_bytes"]
        self._learns_labels = metadata.get("labels", self._learns_labels)
        self._keep = tuple(metadata.get("keep", self._keep))
        return metadata

    def _compute_batch_rows(self, table: pa.RecordBatch) -> int:
        max_rows, max_bytes = self._limits
        by_size = max_bytes * len(table) // (2 * int(table.nbytes) + 1)
        return max(1, min(max_rows, MAX_ROWS, by_size))

    def _get(self, ticket: str) -> Any:
        return self._connect().do_get(fl.Ticket(ticket.encode()), self._options).read_all()

    def _transform(self, X: Any) -> Transformed:
        if self._features is None:
            self._fetch_metadata("transform")
        points, features, _ = read_rows(X, self._features)
        table = build_table(points, features, {})
        rows = self._compute_batch_rows(table)
        if self._stream is None:
            descriptor = fl.FlightDescriptor.for_path("transform")
            writer, reader = self._connect().do_exchange(descriptor, self._options)
            writer.begin(table.schema)
            self._stream = writer, reader
        pieces = [table.slice(at, rows) for at in range(0, len(table), rows)] or [table]
        return join_answers([self._exchange(piece, i > 0) for i, piece in enumerate(pieces)])

    def _exchange(self, rows: pa.RecordBatch, continues: bool) -> Any:
        """The answer for one batch, by the snapshot of the batch before if it ``continues``."""
        writer, reader = self._stream
        try:
            writer.write_with_metadata(rows, pack_metadata(continues=continues))
            return reader.read_chunk()
        except StopIteration:
            raise ServerError("the server ended the stream") from None
        except (pa.ArrowException, OSError) as error:
            raise _close_and_convert(writer, error) from None

    def _ingest(self, table: pa.RecordBatch, first: int, answers: list[dict[str, Any]]) -> None:
        """Send unacknowledged rows; an error behind the first answer is left to the next call."""
        assert self._offset is not None
        start, rows = self._offset, self._compute_batch_rows(table)
        descriptor = fl.FlightDescriptor.for_path("learn")
        writer, reader = self._connect().do_put(descriptor, table.schema, self._options)
        try:
            for at in range(start - first, len(table), rows):
                writer.write_with_metadata(table.slice(at, rows), pack_metadata(offset=first + at))
                answer = reader.read()
                if answer is None:  # closing it raises the server's error
                    raise pa.ArrowCancelled("the server ended the stream")
                answers.append(json.loads(answer.to_pybytes()))
                self._offset = answers[-1]["next"]
            writer.close()
        except (pa.ArrowException, OSError) as error:
            failure = _close_and_convert(writer, error)
            if self._offset == start:
                raise failure from None

    def _retry(self, call: Callable[[], T]) -> T:
        """Call, and retry while the server is unavailable; Flight errors become this package's."""
        until, pause = time.monotonic() + self._patience, PAUSE
        while True:
            try:
                return call()
            except StreamembedError as error:
                failure: StreamembedError = error
            except (pa.ArrowException, OSError) as error:
                failure = convert_flight_error(error)
            if isinstance(failure, InputError):  # also where this client raises it
                failure.code = "invalid"
            code = failure.code
            if self._stream is not None or code == "unavailable":
                self._disconnect()
            if code != "unavailable" or time.monotonic() + pause > until:
                raise failure
            time.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE)

    def _disconnect(self) -> None:
        """Close the connection, and forget the features that it sent."""
        if self._stream is not None:
            with contextlib.suppress(pa.ArrowException, OSError):
                self._stream[0].close()
        if self._flight is not None:
            self._flight.close()
        self._flight = self._stream = self._features = None


def _close_and_convert(writer: Any, error: BaseException) -> StreamembedError:
    """The error of a failed stream: closing it may raise a more specific one than writing."""
    try:
        writer.close()
    except (pa.ArrowException, OSError) as later:
        if read_code(error) == "internal" or not getattr(error, "extra_info", None):
            return convert_flight_error(later)
    return convert_flight_error(error)
