"""The monitor: watches a stream against a frozen reference, and says when it has left it."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles
from streamembed.data.ids import kind_of
from streamembed.data.labels import LARGEST_CLASSES, label_key, list_labels
from streamembed.drift import explanation, monitor_timeline
from streamembed.drift.advance import advance, begun
from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor_state import Events, Saved, Settings, Standing, Watched
from streamembed.drift.reference import CHUNK, makes_map
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, NotReadyError, ParameterError, shown
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH
from streamembed.numeric import codec
from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.storage import archive
from streamembed.threads import Turns, one_blas_thread
from streamembed.validation import LARGEST_SEED, binary, flag, one_of, real, whole

__all__ = ["Monitor"]

KIND = "monitor"
LEAST_REFERENCE = 100
GOOD_REFERENCE = 500
LEAST_ERT = 10 * CHUNK
SHOWN = 640  # events that are compared with the reference


class Monitor:
    """Watches a stream for drift, at a false-alarm rate of your choice.

    The first ``n_reference`` events become a frozen reference: half of them a diffusion map, half
    a calibration. Every ten events after them are compared with it in what they cover, where they
    lie in the map, in their features, and in how widely all these are spread; every
    ``n_reference / 2`` events in their spectrum and in the metric that neighbours teach.

    The rate holds where events are independent, or depend on the event before as an AR(1) with a
    coefficient up to .5 does. From .7 on alarms come several times as often as you ask for; once
    there is a reference, of 500 events at least, ``notes`` says so, and how many events apart to
    watch.

    Parameters
    ----------
    ert
        Expected run of events between false alarms, on average over references; `math.inf` never
        alarms.
    n_reference
        Events of a reference. Run lengths scatter between references: with fewer than 500 or than
        ``ert / 20`` by a factor of three, see ``notes``.
    n_coordinates
        Diffusion coordinates that are watched, at most.
    policy
        After an alarm "renew" collects a new reference from the onset on; "hold" keeps it, and
        alarms again once the stream was back; "stop" ends the watching.
    labels
        Watch the labels, too: what goes with which of them. Without, a change in that alone is not
        seen, and cannot be.
    scaling
        "standard": features are divided by their standard deviations; "global": all by one; None:
        by nothing. Noise in features without a say is made as loud as the others by "standard".
    bandwidth
        Of the gaussian kernel, in scaled units; "auto" chooses it.
    on_bad_row
        "raise" refuses a call with rows that cannot be used, "skip" leaves these out.
    seed
        Of the calibration.

    Raises
    ------
    ParameterError
        Naming the parameter.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor(ert=2_000, n_reference=500)
    >>> monitor.learn(rng.standard_normal((900, 3)))
    ()
    >>> moved = rng.standard_normal((100, 3)) + [0.0, 1.5, 0.0]
    >>> (alarm,) = monitor.learn(moved)
    >>> alarm.channel, alarm.position, alarm.onset, alarm.features[0][0]
    ('features', 930, 900, '1')
    >>> monitor.state
    'relearning'
    """

    def __init__(
        self,
        ert: float = 10_000,
        n_reference: int = 1_000,
        n_coordinates: int = 16,
        policy: str = "renew",
        labels: bool = False,
        scaling: str | None = "standard",
        bandwidth: float | str = "auto",
        on_bad_row: str = "raise",
        seed: int = 0,
    ) -> None:
        is_endless = isinstance(ert, float) and ert == np.inf
        is_auto = isinstance(bandwidth, str) and bandwidth == "auto"
        ends = SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH
        self._settings = Settings(
            np.inf if is_endless else real("ert", ert, LEAST_ERT, 1e15, " (or inf)"),
            whole("n_reference", n_reference, LEAST_REFERENCE, high=100_000),
            whole("n_coordinates", n_coordinates, 1),
            one_of("policy", policy, ("renew", "hold", "stop")),
            flag("labels", labels),
            one_of("scaling", scaling, ("standard", "global", None)),
            None if is_auto else real("bandwidth", bandwidth, *ends, " or 'auto'"),
            one_of("on_bad_row", on_bad_row, ("raise", "skip")),
            whole("seed", seed, 0, high=LARGEST_SEED),
        )
        self._standing = Standing(monitor_timeline.empty(), np.full(2, np.nan))
        self._turns = Turns()

    @classmethod
    def of(cls, snapshot: Snapshot, **parameters: Any) -> Self:
        """A monitor that watches against the events of a snapshot from the first event on.

        Parameters
        ----------
        snapshot
            With a window of points, at least 100.
        **parameters
            As of `Monitor`, but ``n_reference``.

        Raises
        ------
        InputError
            A snapshot of distances, or of landmarks, which are no sample of the events.
        """
        if not isinstance(snapshot, Snapshot):
            raise InputError(
                f"snapshot is a {type(snapshot).__name__}, and must be a Snapshot: `Snapshot.load` "
                "reads a saved one"
            )
        points = snapshot.points
        if not points.shape[1]:
            raise InputError("snapshot has no points: it is of distances, which cannot be watched")
        if not (snapshot.masses == 1).all():
            raise InputError(
                "snapshot is of landmarks, which lie evenly where events lie densely: give one "
                "with memory='window', or let the monitor collect its reference"
            )
        if len(points) < LEAST_REFERENCE:
            raise InputError(
                f"snapshot has {len(points)} points; a reference needs {LEAST_REFERENCE} at least"
            )
        if "n_reference" in parameters:
            raise ParameterError(
                f"n_reference={shown(parameters['n_reference'])} cannot be chosen: the reference "
                f"is the {len(points)} points of the snapshot"
            )
        if parameters.get("labels"):
            raise ParameterError("labels=True is not possible here: a snapshot has no labels")
        made = cls(n_reference=len(points), **parameters)
        none = np.full(len(points), -1, dtype=np.int64)
        events = Events(np.array(points), np.array(snapshot.ids), none)
        known = replace(made._standing, names=snapshot.feature_names, ordered=snapshot._ordered)
        with one_blas_thread():
            made._standing = begun(known, events, made._settings)
        return made

    def __repr__(self) -> str:
        return (
            f"<Monitor, ert {self._settings.ert:g}: {self.state} at event {self.position:,}, "
            f"{len(self.alarms)} alarm{'' if len(self.alarms) == 1 else 's'}>"
        )

    @property
    def state(self) -> str:
        """ "collecting", "watching", "relearning"; after an alarm with policy="stop" "stopped"."""
        return self._standing.phase

    @property
    def position(self) -> int:
        """Events so far."""
        return self._standing.position

    @property
    def rejected(self) -> int:
        """Rows that could not be used, with on_bad_row="skip"."""
        return self._standing.rejected

    @property
    def ert(self) -> float:
        """Expected run of events between false alarms."""
        return self._settings.ert

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Those so far; the last 1,000."""
        return self._standing.alarms

    @property
    def is_alarmed(self) -> bool:
        """Whether the stream is away from its reference, as far as it is known."""
        return self._standing.is_alarmed

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the rate of false alarms: the settings, and dependence in the reference."""
        n, ert = self._settings.n_reference, self._settings.ert
        told: list[str] = []
        against = self._standing.watched
        if against is not None and self._settings.labels and against.labels is None:
            told.append("the reference has no labels: they are not watched")
        if against is not None:
            told += filter(None, [against.dependence.note(len(against.events))])
        if n >= GOOD_REFERENCE and (n >= ert / 20 or not np.isfinite(ert)):
            return tuple(told)
        wanted = max(GOOD_REFERENCE, 0 if not np.isfinite(ert) else int(np.ceil(ert / 20)))
        return (
            *told,
            f"run lengths of this monitor vary by a factor of three between references: "
            f"n_reference={n} is below {wanted:,}",
        )

    def learn(self, X: Any, ids: Any = None, y: Any = None) -> tuple[Alarm, ...]:
        """Watch more events; the alarms that they raise.

        Parameters
        ----------
        X
            As in `Engine.learn`.
        ids
            One whole number or string a row; default: numbers in the stream.
        y
            One label a row, with ``labels=True``; ignored without.

        Raises
        ------
        FeatureError, BadRowError, InputError
            As `Engine.learn`; nothing of the call was watched.
        ConcurrentUseError
            Another thread is in such a call.
        """
        if isinstance(X, list) and not X:
            return ()
        return self._turns.now(self._learn, X, ids, y)

    def _learn(self, X: Any, ids: Any, y: Any) -> tuple[Alarm, ...]:
        standing = self._standing
        names = standing.names or None
        table = column_roles.split(X, names)
        read = batch.read(
            table.points,
            table.ids if ids is None else ids,
            names,
            standing.ordered if names else False,
            self._settings.on_bad_row,
            "nothing was watched: fix them, or leave them out with on_bad_row='skip'",
        )
        return self._take(read, table.labels if y is None else y)

    def watch(self, events: batch.Batch, y: Any = None) -> tuple[Alarm, ...]:
        """`learn` of a batch that was checked already."""
        return self._turns.now(self._take, events, y)

    def _take(self, read: batch.Batch, y: Any) -> tuple[Alarm, ...]:
        standing = self._standing
        n = len(read.kept) + len(read.rejected)
        labels, known = self._labels(y, n, read.kept) if self._settings.labels else (None, None)
        kept = len(read.kept)
        if labels is None:
            labels = np.full(kept, -1, dtype=np.int64)
        kind = kind_of(read.ids) if kept else standing.ids_kind
        if standing.ids_kind not in (None, kind):
            raise InputError(
                f"ids are {kind} and were {standing.ids_kind} before: they must be of one kind"
            )
        own: Array = np.arange(standing.position, standing.position + kept)
        if standing.names and read.names != standing.names:
            raise InputError(f"X has the features {shown(list(read.names))}, not those before")
        events = Events(read.points, own if read.ids is None else read.ids, labels)
        standing = replace(
            standing,
            names=read.names,
            ordered=read.ordered,
            ids_kind=kind,
            rejected=standing.rejected + len(read.rejected),
            known=standing.known if known is None else known,
        )
        with one_blas_thread(), np.errstate(under="ignore"):
            self._standing, alarms = advance(standing, events, self._settings)
        return alarms

    def _labels(self, y: Any, n: int, kept: Ints) -> tuple[Ints, tuple[Any, ...]]:
        """Numbers of the labels of the rows that are kept, and all that are known."""
        if y is None:
            raise InputError(
                "labels=True, and no labels came: give one a row (y=), None where it is not known"
            )
        values = list_labels(y, n)
        known = {label_key(label): i for i, label in enumerate(self._standing.known)}
        met = list(self._standing.known)
        found = np.full(len(kept), -1, dtype=np.int64)
        for i, row in enumerate(kept.tolist()):
            label = values[row]
            if label is None:
                continue
            key = label_key(label)
            if key not in known and len(known) < LARGEST_CLASSES:
                known[key] = len(known)
                met.append(label)
            found[i] = known.get(key, -1)
        return found, tuple(met)

    def timeline(self) -> pa.Table:
        """How far the stream was from its reference, in stretches of 100 events (later of more).

        Returns
        -------
        A row for each stretch and channel: ``position`` (events when it ended), ``channel``,
        ``memory`` (events), ``statistic`` and ``run_length`` (a value this high comes once in so
        many events without drift) where it was loudest, and ``state``. Stretches without a
        reference have one row, with nulls.
        """
        return self._standing.record.table()

    def components(self) -> pa.Table:
        """What the reference and the last 640 events are, score by score, in words.

        Raises
        ------
        NotReadyError
            Nothing has been watched yet.
        """
        against, recent = self._against(), self._standing.recent
        if recent is None:
            raise NotReadyError("nothing has been watched yet: learn more events")
        now = against.scores(recent[max(0, len(recent) - SHOWN) :])
        before = against.scores(against.events[0:])[~makes_map(len(against.events))]
        null = against.calibration.null
        low, high = null.low, null.high
        moved = (np.clip(now, low, high).mean(axis=0) - null.mean) @ null.whitening
        pairs = explanation.component_names(self._standing.names, against)
        shares = moved**2 / max(float((moved**2).sum()), 1e-300)
        return explanation.table(
            [name for name, _ in pairs], [channel for _, channel in pairs], before, now, shares
        )

    def _against(self) -> Watched:
        if self._standing.watched is None:
            raise NotReadyError(
                f"there is no reference yet: {self.position} of {self._settings.n_reference} "
                "events have come"
            )
        return self._standing.watched

    @property
    def reference(self) -> tuple[Array, Array]:
        """Points (n, d) and ids (n,) of the reference; NotReadyError before there is one."""
        events = self._against().events
        return events.points, events.ids

    @property
    def reference_coverage(self) -> Floats:
        """Coverage of the reference's events, log10 of the mean kernel weight, shape (n,)."""
        against = self._against()
        found: Floats = against.map.scores(against.events.points)[:, 0]
        return found

    @property
    def is_compared(self) -> bool:
        """Whether `components` has something to compare with the reference."""
        return self._standing.recent is not None

    @property
    def threshold(self) -> float:
        """Run length of a channel at which there is an alarm; NotReadyError before a reference."""
        return float(np.exp(min(self._against().calibration.threshold, 709.0)))

    @property
    def calibration(self) -> dict[str, Any]:
        """How the threshold came about, JSON-ready; NotReadyError before there is a reference."""
        found = self._against().calibration
        return {
            "n_reference": len(self._against().events),
            "largest_autocorrelation": float(found.coefficients.max(initial=0.0)),
            "bootstraps": len(found.maxima),
            "threshold": self.threshold,
            "effective_statistics": found.effective,
            "run_lengths": np.exp(np.minimum(found.maxima, 709.0)).tolist(),
        }

    def become(self, other: Monitor) -> None:
        """Go on where another monitor of the same parameters stands; ParameterError of others."""
        if not isinstance(other, Monitor) or other._settings != self._settings:
            raise ParameterError(f"other={other!r} must be a monitor of the same parameters")
        self._standing = other._standing

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready."""
        return asdict(self._settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all that is needed to go on exactly here, as Arrow IPC."""
        arrays, header = codec.pack(Saved(self._settings, self._standing))
        archive.write_table(path, archive.table_of(arrays), KIND, header)

    def to_bytes(self) -> bytes:
        """What `save` would write."""
        arrays, header = codec.pack(Saved(self._settings, self._standing))
        return archive.seal(archive.table_of(arrays), KIND, header)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The monitor that `save` wrote; DamagedFileError where the bytes are others."""
        return cls._of_table(*archive.read_table(path, KIND), path)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The monitor of which `to_bytes` gave these."""
        return cls._of_table(*archive.unseal(binary("data", data), KIND, "data"), "data")

    @classmethod
    def _of_table(cls, table: Any, header: dict[str, Any], path: str | os.PathLike[str]) -> Self:
        with archive.sound(path, KIND):
            saved = codec.unpack(Saved, archive.unpack(table), header)
            saved.check()
            made = cls.__new__(cls)
            made._settings, made._standing, made._turns = saved.settings, saved.standing, Turns()
            return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_bytes, (self.to_bytes(),)
