"""How many rows of a log may be rejected before that is an error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

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
