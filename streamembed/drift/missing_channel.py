"""The channel of missing rows: are more rows rejected than in the reference?

A row is rejected where a value is missing or no number. Page's CUSUM of the log-likelihood ratio of
a raised share of such rows, against that of the first ``n_reference`` rows.

Source: Page (1954), "Continuous inspection schemes"; Lorden (1971): the run length of a CUSUM is
that of its threshold's exponential at least. Differs: one standard error is added to the share of
the reference, and where rejected rows follow one another, a run of them counts as one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from streamembed.drift.alarm import Alarm, Explanation
from streamembed.numeric.arrays import Bools

CHANNEL = "missing"
MIN_REJECTED = 20  # rows of an alarm: a burst or two may be usual
PRIOR = 5  # rows, rejected and not: a reference without rejected ones knows little
LEAST_RISE = 0.05  # of the share, beside twice what it was
UNITS = 1_000_000  # of the CUSUM: sums of whole numbers do not depend on how the stream is cut


@dataclass(frozen=True, slots=True)
class MissingRows:
    """The share of rejected rows in the reference, and the CUSUM of the rows behind it."""

    # Of the reference: rows, rejected ones, and runs of them; whether the last row was rejected.
    rows: int = 0
    rejected: int = 0
    runs: int = 0
    was_rejected: bool = False
    value: int = 0  # of the CUSUM, in millionths
    # Since the CUSUM was 0: the event, rows, and rejected ones.
    onset: int = 0
    since: int = 0
    rejected_since: int = 0

    def is_idle(self, n_reference: int) -> bool:
        """Whether a row that is not rejected changes nothing."""
        return self.rows >= n_reference and not self.value

    def collect(self, is_rejected: Bools) -> MissingRows:
        """The same with some more rows of the reference."""
        if not len(is_rejected):
            return self
        before = np.concatenate([[self.was_rejected], is_rejected[:-1]])
        return replace(
            self,
            rows=self.rows + len(is_rejected),
            rejected=self.rejected + int(is_rejected.sum()),
            runs=self.runs + int((is_rejected & ~before).sum()),
            was_rejected=bool(is_rejected[-1]),
        )

    def weigh(self) -> tuple[int, int]:
        """How much a rejected row raises the CUSUM, and another lowers it."""
        p = (self.rejected + PRIOR) / (self.rows + 2 * PRIOR)
        length = max(1.0, self.rejected / max(self.runs, 1) * (1 - p))
        p = min(p + math.sqrt(p * (1 - p) * length / self.rows), 0.99)
        raised = min(2 * p + LEAST_RISE, (1 + p) / 2)
        up, down = math.log(raised / p), math.log((1 - p) / (1 - raised))
        return round(UNITS * up / length), round(UNITS * down / length)


def watch(
    before: MissingRows, is_rejected: Bools, position: int, n_reference: int, threshold: float
) -> tuple[MissingRows, int, bool]:
    """Watch rows, up to the first that raises an alarm.

    Parameters
    ----------
    position
        Events before the first of these rows.
    threshold
        Of the CUSUM.

    Returns
    -------
    The state after them, how many they are, and whether there is an alarm.
    """
    done = min(max(n_reference - before.rows, 0), len(is_rejected))
    state = before.collect(is_rejected[:done])
    position += done - int(is_rejected[:done].sum())
    if done == len(is_rejected):
        return state, done, False

    def is_alarm(value: int, rejected: int) -> bool:
        return value > threshold * UNITS and rejected >= MIN_REJECTED

    up, down = state.weigh()
    value, onset, since, rejected = state.value, state.onset, state.since, state.rejected_since
    for i in [*(np.flatnonzero(is_rejected[done:]) + done).tolist(), len(is_rejected)]:
        others = i - done
        value, since, position = max(value - others * down, 0), since + others, position + others
        if not value:
            onset, since, rejected = position, 0, 0
        done = i
        if i < len(is_rejected):
            value, since, rejected, done = value + up, since + 1, rejected + 1, i + 1
            if is_alarm(value, rejected):
                break
    if not value:  # the next rejected row sets it
        onset = 0
    state = replace(state, value=value, onset=onset, since=since, rejected_since=rejected)
    return state, done, is_alarm(value, rejected)


def explain(state: MissingRows, position: int, reference: int, number: int, ert: float) -> Alarm:
    """The alarm of the rows of a state."""
    before, after = state.rejected / state.rows, state.rejected_since / state.since
    sentence = (
        f"Share of rejected rows, with a missing or unusable value, rose from {before:.0%} to "
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
