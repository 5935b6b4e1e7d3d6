"""The monitor: compares a stream with a frozen reference, and raises alarms when it leaves it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa

from streamembed.data import batch, column_roles, split_table
from streamembed.data.ids import classify_ids
from streamembed.data.labels import LabelIndex, list_labels
from streamembed.drift import dependence, missing_channel
from streamembed.drift.advance import (
    add_event,
    add_record,
    add_waiting,
    advance,
    find_due,
    start_watching,
)
from streamembed.drift.alarm import Alarm
from streamembed.drift.missing_channel import MissingRows
from streamembed.drift.monitor_state import (
    OTHER_SHARE,
    CalibratedReference,
    Candidate,
    Events,
    MonitorSettings,
    MonitorState,
    are_vectors,
    build_reference,
)
from streamembed.drift.reference import CHUNK
from streamembed.drift.regions import find_copies
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, NotReadyError, ParameterError, quote
from streamembed.geometry.scaling import LARGEST_BANDWIDTH, SMALLEST_BANDWIDTH
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.numeric.chunks import PendingParts
from streamembed.parameters import reject_unknown_parameters
from streamembed.storage.saved_object import SavedObject
from streamembed.threads import FairQueue, one_blas_thread
from streamembed.validation import (
    LARGEST_SEED,
    check_choice,
    check_flag,
    check_real,
    check_scaling,
    check_whole,
)

MIN_REFERENCE = 100
GOOD_REFERENCE = 500
MIN_ERT = 10 * CHUNK
MAX_RECORDS = 1000


@reject_unknown_parameters
class Monitor(SavedObject):
    """Watches a stream for drift, at a false-alarm rate of your choice.

    The first ``n_reference`` events become a frozen reference: half of them a diffusion map, half
    a calibration. Every ten events after them are compared with it in what they cover, where they
    lie in the map, in their features, and in how widely all these are spread.

    Where the reference shows that events depend on each other, means of blocks of them are watched;
    ``notes`` says so. The events behind an alarm become the next reference, provisional from 200
    events on, unless they are like the first reference or the last one that was left: the stream
    has then returned to it.

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
        After an alarm the events from the onset on become the next reference. With "hold" the
        first one stays home: ``is_alarmed`` until the stream has recovered. "stop" ends the
        monitoring.
    labels
        Watch the relation between labels and features, too. Without labels a change in that
        relation alone cannot be detected.
    metric
        "euclidean", or "cosine": every vector is divided by its length, and distances in the map
        are not scaled. Vectors of zeros are unusable rows.
    scaling
        "standard": features are divided by their standard deviations; "global": all by one; None:
        by nothing. "standard" gives irrelevant noisy features the same weight as the others. The
        numbers of a vector (more than 32 features without names) have one unit: they are not scaled
        unless a bandwidth is given.
    bandwidth
        Of the gaussian kernel, in scaled units; "auto" chooses it.
    on_bad_row
        "raise" refuses a call with unusable rows, "skip" leaves these rows out.
    seed
        Of the calibration.
    period
        Events of a season, whose regression on sines and cosines is subtracted; a reference must
        have two periods. None for no season.

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

    _kind: ClassVar[str] = "monitor"

    def __init__(
        self,
        ert: float = 10_000,
        n_reference: int = 1_000,
        n_coordinates: int = 16,
        policy: str = "renew",
        labels: bool = False,
        metric: str = "euclidean",
        scaling: str | None = "standard",
        bandwidth: float | str = "auto",
        on_bad_row: str = "raise",
        seed: int = 0,
        period: int | None = None,
    ) -> None:
        metric, scaling = check_scaling(metric, scaling)
        is_endless = isinstance(ert, float) and ert == np.inf
        is_auto = isinstance(bandwidth, str) and bandwidth == "auto"
        ends = SMALLEST_BANDWIDTH, LARGEST_BANDWIDTH
        self._settings = MonitorSettings(
            ert=np.inf if is_endless else check_real("ert", ert, MIN_ERT, 1e15, " (or inf)"),
            n_reference=check_whole("n_reference", n_reference, MIN_REFERENCE, high=100_000),
            n_coordinates=check_whole("n_coordinates", n_coordinates, 1),
            policy=check_choice("policy", policy, ("renew", "hold", "stop")),
            labels=check_flag("labels", labels),
            metric=metric,
            scaling=scaling,
            bandwidth=None if is_auto else check_real("bandwidth", bandwidth, *ends, " or 'auto'"),
            on_bad_row=check_choice("on_bad_row", on_bad_row, ("raise", "skip")),
            seed=check_whole("seed", seed, 0, high=LARGEST_SEED),
            period=None if period is None else check_whole("period", period, 2),
        )
        if period is not None and n_reference < 2 * period:
            raise ParameterError(
                f"n_reference={n_reference} must have two periods, {2 * period:,} events at least: "
                f"period={period}"
            )
        self._state = MonitorState(self._settings, Candidate(0, self._settings.n_reference))
        self._turns = FairQueue(waits=False)

    @classmethod
    def of(cls, snapshot: Snapshot, **parameters: Any) -> Self:
        """A monitor whose reference is the events of a snapshot, from the first event on.

        Parameters
        ----------
        snapshot
            With a window of points, at least 100.
        **parameters
            As of `Monitor`, but ``n_reference``.

        Raises
        ------
        InputError
            The snapshot is of distances, or of landmarks, which are no sample of the events.
        """
        if not isinstance(snapshot, Snapshot):
            raise InputError(
                f"snapshot is a {type(snapshot).__name__}; it must be a Snapshot: `Snapshot.load` "
                "reads a saved one"
            )
        points = snapshot.points
        if not points.shape[1]:
            raise InputError("snapshot is of distances and has no points; a monitor needs points")
        if not (snapshot.masses == 1).all():
            raise InputError(
                "snapshot is of landmarks, which lie evenly where events lie densely: give one "
                "with memory='window', or let the monitor collect its reference"
            )
        if len(points) < MIN_REFERENCE:
            raise InputError(
                f"snapshot has {len(points)} points; a reference needs {MIN_REFERENCE} at least"
            )
        if parameters.setdefault("metric", snapshot.metric) != snapshot.metric:
            raise ParameterError(
                f"metric={quote(parameters['metric'])} must be {snapshot.metric!r}, as that of the "
                "snapshot: leave it out"
            )
        for name in ("n_reference", "labels", "period"):
            if parameters.get(name):
                raise ParameterError(
                    f"{name}={quote(parameters[name])} cannot be chosen: the reference is the "
                    f"{len(points)} points of the snapshot, which have no labels and no season"
                )
        monitor = cls(n_reference=len(points), **parameters)
        none = np.full(len(points), -1, dtype=np.int64)
        order = np.arange(-len(points), 0)
        events = Events(np.array(points), np.array(snapshot.ids), order, none)
        state = replace(monitor._state, features=snapshot.features, numbered=1)
        with one_blas_thread():
            serial = dependence.measure(events.points, enough=len(points))
            reference = build_reference(
                events, monitor._settings, 0, None, serial, snapshot.features
            )
        monitor._state = start_watching(state, reference)
        return monitor

    def __repr__(self) -> str:
        return (
            f"<Monitor, ert {self._settings.ert:g}: {self.state} at event {self.position:,}, "
            f"{len(self.alarms)} alarm{'' if len(self.alarms) == 1 else 's'}>"
        )

    @property
    def state(self) -> str:
        """ "collecting", "watching", "relearning"; after an alarm with policy="stop" "stopped"."""
        return self._state.phase

    @property
    def position(self) -> int:
        """Events so far."""
        return self._state.position

    @property
    def rejected(self) -> int:
        """Unusable rows that were left out, with on_bad_row="skip"."""
        return self._state.rejected

    @property
    def ert(self) -> float:
        """Expected run of events between false alarms."""
        return self._settings.ert

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """Alarms so far, as they were explained last."""
        kinds = ("alarm", "explained")
        return tuple({r.number: r for r in self.records if r.kind in kinds}.values())

    @property
    def alarm(self) -> Alarm | None:
        """The last alarm, as it was explained last; None before the first."""
        kinds = ("alarm", "explained")
        return next((r for r in reversed(self.records) if r.kind in kinds), None)

    @property
    def records(self) -> tuple[Alarm, ...]:
        """Alarms and what follows from them, in order; the last 1,000. See `Alarm.kind`."""
        return self._state.records

    @property
    def is_alarmed(self) -> bool:
        """Whether the stream is away from its reference; with policy="hold", from home."""
        state = self._state
        if state.watching is None:
            return state.phase != "collecting"
        return self._settings.policy == "hold" and not state.watching.is_home

    @property
    def is_provisional(self) -> bool:
        """Whether the reference that watches is to be made again from more events."""
        return None not in (self._state.watching, self._state.candidate)

    def acknowledge(self) -> Alarm | None:
        """Make the newest reference home, with ``policy="hold"``: the stream is where it belongs.

        Returns
        -------
        The record; None where the stream is at home.
        """
        self._check_hold("acknowledge")
        return self._turns.run(self._change_home, "acknowledged")

    def reset(self) -> Alarm | None:
        """Compare with home from now on, with ``policy="hold"``, wherever the stream is.

        Returns
        -------
        The record; None where home is what the stream is compared with, and where the next
        reference is to be home.
        """
        self._check_hold("reset")
        return self._turns.run(self._change_home, "reset")

    def _check_hold(self, name: str) -> None:
        if self._settings.policy != "hold":
            raise ParameterError(
                f"{name}() needs policy='hold': with policy={self._settings.policy!r} no reference "
                "is home"
            )

    def _change_home(self, kind: str) -> Alarm | None:
        state, home = self._state, self._state.home
        if not self.is_alarmed or home is None:  # acknowledged, and there is no reference yet
            return None
        if kind == "reset":
            number, text = home.number, "home watches again"
            state = replace(start_watching(state, home), waiting=PendingParts())
        else:
            number, text = -1, "the next reference is home"
            if state.watching is not None:
                number = state.watching.reference.number
                text = f"reference {number} is home"
                state = replace(state, watching=replace(state.watching, is_home=True))
            state = replace(state, home=None, left=home)
        sentence = f"{kind.capitalize()} at event {state.position:,}: {text}."
        state = add_event(state, kind, state.position, number, sentence)
        self._assign(state)
        return state.records[-1]

    def _assign(self, state: MonitorState) -> None:
        """The new state, with the last of its records."""
        self._state = replace(state, records=state.records[-MAX_RECORDS:])

    @property
    def notes(self) -> tuple[str, ...]:
        """What limits the rate of false alarms: the settings, and dependence in the reference."""
        n, ert, state = self._settings.n_reference, self._settings.ert, self._state
        notes: list[str] = []
        if state.rejected and not state.position:
            notes.append(f"all {state.rejected:,} rows so far were rejected: nothing is watched")
        reference = state.reference
        if reference is not None:
            if self._settings.labels and reference.labels is None:
                notes.append("the reference has no labels: they are not watched")
            count = len(reference.events)
            if self.is_provisional:
                notes.append(
                    f"the reference is provisional: it has {count:,} events, the final one {n:,}"
                )
            notes += reference.dependence.notes(count)
            if are_vectors(state.features):
                same = int(find_copies(reference.events.points).sum()) + 1
                if same > 1:
                    notes.append(f"one event is {same / count:.0%} of the reference")
        if n >= GOOD_REFERENCE and (n >= ert / 20 or not np.isfinite(ert)):
            return tuple(notes)
        wanted = max(GOOD_REFERENCE, 0 if not np.isfinite(ert) else int(np.ceil(ert / 20)))
        return (
            *notes,
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
        records = self._turns.run(self._learn, X, ids, y)
        return tuple(record for record in records if record.kind == "alarm")

    def _learn(self, X: Any, ids: Any, y: Any) -> tuple[Alarm, ...]:
        state = self._state
        table = split_table.split(X, state.names or None, remedy=column_roles.RENAME)
        read = batch.read(
            table.points,
            table.read("id") if ids is None else ids,
            state.features,
            self._settings.on_bad_row,
            "nothing was watched: fix them, or leave them out with on_bad_row='skip'",
            metric=self._settings.metric,
        )
        return self._watch_batch(read, table.read("label") if y is None else y)

    def watch(
        self, events: batch.Batch, y: Any = None, is_filled: Bools | None = None
    ) -> tuple[Alarm, ...]:
        """As `learn`, for a checked batch; the records of all kinds.

        ``is_filled`` says of each row whether a missing value of it was filled in.
        """
        return self._turns.run(self._watch_batch, events, y, is_filled)

    def _watch_batch(
        self, read: batch.Batch, y: Any, is_filled: Bools | None = None
    ) -> tuple[Alarm, ...]:
        state = self._state
        read = read.with_metric(self._settings.metric, "skip")
        n = len(read.kept) + len(read.rejected)
        kept, observed = len(read.kept), state.known
        labels = np.full(kept, -1, dtype=np.int64)
        if self._settings.labels:
            labels, observed = self._number_labels(y, n, read.kept)
        kind = classify_ids(read.ids) if kept else state.ids_kind
        if state.ids_kind not in (None, kind):
            raise InputError(
                f"ids are {kind} and were {state.ids_kind} before: they must be of one kind"
            )
        own: Array = np.arange(state.position, state.position + kept)
        if state.names and read.features.names != state.names:
            given = quote(list(read.features.names))
            raise InputError(f"X has the features {given}, not those before")
        events = Events(read.points, own if read.ids is None else read.ids, own, labels)
        rejected = state.rejected + len(read.rejected)
        state = replace(
            state, features=read.features, ids_kind=kind, rejected=rejected, known=observed
        )
        is_missing = np.zeros(n, dtype=np.bool_) if is_filled is None else is_filled.copy()
        is_missing[[row.index for row in read.rejected]] = True
        is_idle = state.missing.is_idle(state.settings.n_reference) and not is_missing.any()
        if is_idle and state.position + kept < find_due(state):
            self._state = add_waiting(state, events)
            return ()
        rows = np.searchsorted(read.kept, np.arange(n + 1))  # events before each row
        count = len(state.records)
        with one_blas_thread(), np.errstate(under="ignore"):
            state = self._watch_rows(state, events, is_missing, state.position + rows)
        self._assign(state)
        return state.records[count:]

    def _watch_rows(
        self, state: MonitorState, events: Events, is_missing: Bools, positions: Ints
    ) -> MonitorState:
        """Watch all rows in their order; ``positions`` counts the events before each."""
        ert = state.settings.ert
        line = float(np.log(ert / OTHER_SHARE))
        while len(is_missing) and state.phase != "stopped":
            missing, count, is_alarm = missing_channel.watch(
                state.missing, is_missing, positions, state.settings.n_reference, line
            )
            kept = int(positions[count] - positions[0])
            state = advance(replace(state, missing=missing), events[:kept])
            events, is_missing, positions = events[kept:], is_missing[count:], positions[count:]
            if is_alarm and state.phase != "stopped":
                own = -1 if state.reference is None else state.reference.number
                alarm = missing_channel.explain(
                    missing, state.position, own, state.next_alarm_number, ert
                )
                state = add_record(replace(state, missing=MissingRows()), alarm)
        return advance(state, events)

    def _number_labels(self, y: Any, n: int, kept: Ints) -> tuple[Ints, tuple[Any, ...]]:
        if y is None:
            raise InputError(
                "labels=True needs labels: pass one per row (y=), None where it is unknown"
            )
        values = list_labels(y, n)
        codes, labels = LabelIndex(self._state.known).encode_labels(
            [values[i] for i in kept.tolist()]
        )
        return codes, labels.known

    def timeline(self) -> pa.Table:
        """Distance of the stream from its reference, in stretches of 100 events (later of more).

        Returns
        -------
        A row for each stretch and channel: ``position`` (events when it ended), ``channel``,
        ``memory`` (events) and ``run_length`` (events in which a value this high is expected once
        without drift) where it was strongest, ``score`` (mean anomaly score of its events, .5
        without drift), and ``state``. Stretches without a reference have one row, with
        nulls; so has each of `records`, with its ``kind``.
        """
        return self._state.timeline.table(self.records)

    def score(self, X: Any) -> Floats:
        """Anomaly scores of points, shape (n,), in [0, 1]; nothing is learned.

        By their coverage, the mass of the reference around them. They are calibrated by the half of
        the reference that does not make the map: without drift a score of .99 or more has a
        probability of .01 at most. The highest that n calibration events can give is n / (n + 1).

        Parameters
        ----------
        X
            As in `learn`; with ``period`` the points come next in the stream.

        Raises
        ------
        NotReadyError
            There is no reference yet.
        FeatureError, BadRowError, InputError
            As `learn`.
        """
        reference, state = self._get_reference(), self._state
        table = split_table.split(X, state.names or None)
        read = batch.read(table.points, table.read("id"), state.features, "raise", "fix them")
        none = np.full(len(read.kept), -1, dtype=np.int64)
        positions = np.arange(state.position, state.position + len(read.kept))
        points = reference.deseasonalise(Events(read.points, positions, positions, none))
        with one_blas_thread(), np.errstate(under="ignore"):
            return reference.score_anomalies(reference.map.compute_scores(points)[:, 0])

    def _get_reference(self) -> CalibratedReference:
        reference = self._state.reference
        if reference is None:
            raise NotReadyError(
                f"there is no reference yet: {self.position} of {self._settings.n_reference} "
                "events have been collected"
            )
        return reference

    @property
    def reference(self) -> tuple[Array, Array]:
        """Points (n, d) and ids (n,) of the reference; NotReadyError before there is one."""
        events = self._get_reference().events
        return events.points, events.ids

    @property
    def threshold(self) -> float:
        """Run length of a channel at which there is an alarm; NotReadyError before a reference."""
        return float(np.exp(min(self._get_reference().calibration.threshold, 709.0)))

    @property
    def calibration(self) -> dict[str, Any]:
        """Figures of the calibration, JSON-ready; NotReadyError before there is a reference."""
        calibration = self._get_reference().calibration
        return {
            "n_reference": len(self._get_reference().events),
            "largest_autocorrelation": float(calibration.coefficients.max(initial=0.0)),
            "block": calibration.block,
            "integrated_time": self._get_reference().dependence.integrated,
            "threshold": self.threshold,
            "run_lengths": np.exp(np.minimum(calibration.maxima, 709.0)).tolist(),
        }

    def become(self, other: Monitor) -> None:
        """Take the state of another monitor; ParameterError if its parameters differ."""
        if not isinstance(other, Monitor) or other._settings != self._settings:
            raise ParameterError(f"other={other!r} must be a monitor of the same parameters")
        self._state = other._state

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters by name, JSON-ready."""
        return asdict(self._settings)

    def __pack__(self) -> MonitorState:
        return self._state

    @classmethod
    def __unpack__(cls, saved: MonitorState) -> Self:
        monitor = cls.__new__(cls)
        monitor._settings, monitor._state = saved.settings, saved
        monitor._turns = FairQueue(waits=False)
        return monitor
