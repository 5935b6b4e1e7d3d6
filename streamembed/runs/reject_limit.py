"""How many rows of a log may be rejected before that is an error."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

from streamembed.errors import BadRowError, ParameterError, shown
from streamembed.validation import count_or_unit

__all__ = ["Limit"]

# Rows of which a share is looked at: of fewer, one bad row may be many percent.
FEWEST = 1000


@dataclass(frozen=True, slots=True)
class Limit:
    """At most so many rows; infinite where nobody asked.

    Attributes
    ----------
    rows : float
    share : float
        Of the rows that were taken.
    """

    rows: float = math.inf
    share: float = math.inf

    @classmethod
    def of(cls, asked: int | str | None) -> Self:
        """From a number of rows, a share such as "1%", or None.

        Raises
        ------
        ParameterError
            Anything else.

        Examples
        --------
        >>> Limit.of("1%").share, Limit.of(20).rows
        (0.01, 20.0)
        """
        if asked is None:
            return cls()
        rows, percent = count_or_unit(asked, "%")
        if rows is not None:
            return cls(rows=float(rows))
        if percent is not None and percent <= 100:
            return cls(share=percent / 100)
        raise ParameterError(
            f"max_rejected={shown(asked)} must be a number of rows, or a share such as '1%'"
        )

    def check(self, rejected: int, taken: int, ended: bool = False) -> None:
        """BadRowError where there are more."""
        too_many = rejected > self.rows
        if taken >= FEWEST or ended:
            too_many = too_many or rejected > self.share * taken
        if too_many:
            most = f"{self.share:.3g} of them" if math.isinf(self.rows) else f"{self.rows:.0f}"
            raise BadRowError(
                f"{rejected:,} of {taken:,} rows of the log were rejected, more than max_rejected "
                f"allows ({most}); rejected.parquet says why: fix the log and begin "
                "anew (--overwrite), or allow more (--max-rejected)",
                (),
            )
