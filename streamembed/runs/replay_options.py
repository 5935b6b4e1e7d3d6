"""The options of a replay that its driver and its recorder share."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from streamembed.drift.alarm import Alarm
from streamembed.drift.monitor import Monitor
from streamembed.errors import BadRowError, ParameterError, quote
from streamembed.validation import parse_count_or_unit

# Rows of which a share is looked at: of fewer, one bad row may be many percent.
MIN_ROWS = 1000


@dataclass(frozen=True, slots=True)
class RejectLimit:
    """The most rows that may be rejected; infinite by default."""

    rows: float = math.inf
    share: float = math.inf  # of the rows that were taken

    @classmethod
    def parse(cls, value: int | str | None) -> Self:
        """From a number of rows, a share such as "1%", or None.

        Raises
        ------
        ParameterError
            Anything else.

        Examples
        --------
        >>> RejectLimit.parse("1%").share, RejectLimit.parse(20).rows
        (0.01, 20.0)
        """
        if value is None:
            return cls()
        rows, percent = parse_count_or_unit(value, "%")
        if rows is not None:
            return cls(rows=float(rows))
        if percent is not None and percent <= 100:
            return cls(share=percent / 100)
        raise ParameterError(
            f"max_rejected={quote(value)} must be a number of rows, or a share such as '1%'"
        )

    def check(self, rejected: int, taken: int, ended: bool = False) -> None:
        """BadRowError where there are more."""
        too_many = rejected > self.rows
        if taken >= MIN_ROWS or ended:
            too_many = too_many or rejected > self.share * taken
        if too_many:
            allowed = f"{self.share:.3g} of them" if math.isinf(self.rows) else f"{self.rows:.0f}"
            raise BadRowError(
                f"{rejected:,} of {taken:,} rows of the log were rejected, more than max_rejected "
                f"allows ({allowed}); rejected.parquet says why: fix the log and start "
                "again with overwrite=True, or allow more",
                (),
            )


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """Checked arguments of `streamembed.replay`."""

    every: int  # events between snapshots, a multiple of the chunk size
    on_bad_row: str = "skip"  # "skip" or "raise"
    # Whether events are embedded as of when each was learned, or all by the last snapshot.
    causal: bool = True
    reject_limit: RejectLimit = field(default_factory=RejectLimit)
    monitor: Monitor | None = None  # watches the events that the engine accepts
    on_alarm: Callable[[Alarm], None] | None = None
    progress: Callable[[int], None] | None = None
    stop: Callable[[], bool] | None = None
