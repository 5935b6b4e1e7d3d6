"""The channel "missing": do more rows have a missing value than in the reference?

Such rows are rejected, or a value is filled in. Page's CUSUM of the log-likelihood ratio of
a raised share of such rows, against that of the first ``n_reference`` rows, of those behind an
alarm, or of those behind a fall, which a second CUSUM shows and which is no alarm.

Source: Page (1954), "Continuous inspection schemes"; Lorden (1971): the run length of a CUSUM is
that of its threshold's exponential at least. Differs: one standard error is added to the share of
the reference, and where such rows follow one another, a run of them counts as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift.alarm import Alarm, Explanation
from streamembed.numeric.arrays import Bools, Ints

CHANNEL = "missing"
MIN_MISSING = 20  # rows of an alarm: a burst or two may be usual
PRIOR = 5  # rows of either kind: a reference in which none has a missing value knows little
LEAST_RISE = 0.05  # of the share, beside twice what it was
UNITS = 1_000_000  # of the CUSUM: sums of whole numbers do not depend on how the stream is cut


@dataclass(frozen=True, slots=True)
class MissingRows:
    """The share of rows with a missing value in the reference, and the CUSUM of those behind it."""

    # Of the reference: rows, those with a missing value, runs of these; whether the last was one.
    rows: int = 0
    missing: int = 0
    runs: int = 0
    was_missing: bool = False
    value: int = 0  # of the CUSUM, in millionths
    fallen: int = 0  # of that of a lower share
    # Since the CUSUM was 0: the event, rows, and those with a missing value.
    onset: int = 0
    since: int = 0
    missing_since: int = 0

    def is_idle(self, n_reference: int) -> bool:
        """Whether a row without a missing value changes nothing."""
        return self.rows >= n_reference and not self.value and not self.compute_fall_steps()[0]

    def collect(self, is_missing: Bools) -> MissingRows:
        """The same with some more rows of the reference."""
        if not len(is_missing):
            return self
        before = np.concatenate([[self.was_missing], is_missing[:-1]])
        return replace(
            self,
            rows=self.rows + len(is_missing),
            missing=self.missing + int(is_missing.sum()),
            runs=self.runs + int((is_missing & ~before).sum()),
            was_missing=bool(is_missing[-1]),
        )

    def compute_rise_steps(self) -> tuple[int, int]:
        """How much a row with a missing value raises the CUSUM, and another lowers it."""
        p, error, length = self._estimate_share()
        p = min(p + error, 0.99)
        raised = min(2 * p + LEAST_RISE, (1 + p) / 2)
        up, down = math.log(raised / p), math.log((1 - p) / (1 - raised))
        return round(UNITS * up / length), round(UNITS * down / length)

    def compute_fall_steps(self) -> tuple[int, int]:
        """How much a row without a missing value raises that of a fall, and another lowers it."""
        p, error, length = self._estimate_share()
        p -= error
        lower = (p - LEAST_RISE) / 2
        if lower <= 0:
            return 0, 0
        up, down = math.log((1 - lower) / (1 - p)), math.log(p / lower)
        return round(UNITS * up / length), round(UNITS * down / length)

    def _estimate_share(self) -> tuple[float, float, float]:
        """The share of the reference, its standard error, and rows that count as one."""
        p = (self.missing + PRIOR) / (self.rows + 2 * PRIOR)
        length = max(1.0, self.missing / max(self.runs, 1) * (1 - p))
        return p, math.sqrt(p * (1 - p) * length / self.rows), length


def watch(
    before: MissingRows, is_missing: Bools, positions: Ints, n_reference: int, threshold: float
) -> tuple[MissingRows, int, bool]:
    """Watch rows, up to the first that raises an alarm, or that shows a fall of the share.

    Parameters
    ----------
    positions
        Events before each of these rows, and behind the last.
    threshold
        Of the CUSUM.

    Returns
    -------
    The state after them, how many they are, and whether there is an alarm.
    """
    n = len(is_missing)
    done = min(max(n_reference - before.rows, 0), n)
    state = before.collect(is_missing[:done])
    if done == n:
        return state, done, False
    (up, down), (fall_up, fall_down) = state.compute_rise_steps(), state.compute_fall_steps()
    line, fallen = threshold * UNITS, state.fallen
    value, onset, since, missing = state.value, state.onset, state.since, state.missing_since
    is_alarm = False
    for i in [*(np.flatnonzero(is_missing[done:]) + done).tolist(), n]:
        if fall_up and fallen + (i - done) * fall_up >= line:
            return MissingRows(), done + math.ceil((line - fallen) / fall_up), False
        fallen = max(fallen + (i - done) * fall_up - (fall_down if i < n else 0), 0)
        value, since = max(value - (i - done) * down, 0), since + i - done
        if not value:
            onset, since, missing = int(positions[i]), 0, 0
        done = min(i + 1, n)
        if i < n:
            value, since, missing = value + up, since + 1, missing + 1
            is_alarm = value > line and missing >= MIN_MISSING
        if is_alarm:
            break
    if not value:  # the next row with a missing value sets it
        onset = 0
    state = replace(
        state, value=value, fallen=fallen, onset=onset, since=since, missing_since=missing
    )
    return state, done, is_alarm


def explain(state: MissingRows, position: int, reference: int, number: int, ert: float) -> Alarm:
    """The alarm of the rows of a state."""
    before, after = state.missing / state.rows, state.missing_since / state.since
    sentence = (
        f"Share of rows with a missing or unusable value rose from {before:.0%} to "
        f"{after:.0%} around event {state.onset:,} (detected at {position:,}; estimated from "
        f"{state.since:,} rows)."
    )
    p = math.exp(-state.value / UNITS)
    return Alarm(
        kind="alarm",
        number=number,
        position=position,
        onset=state.onset,
        reference=reference,
        sentence=sentence,
        channel=CHANNEL,
        run_length=ert,
        explanation=Explanation(CHANNEL, (), before, after, p, state.since),
    )
