"""What a frame says of the axes of a snapshot, in words."""

from __future__ import annotations

from collections.abc import Sequence

from streamembed.methods.snapshot_contents import Frame

# Share of the spread from which what is not shown is worth a word.
LEAST_PRICE = 0.005


def describe_frame(frame: Frame, n_components: int) -> str:
    """The epoch of the axes and since when, which are lost, and what is not shown.

    Examples
    --------
    >>> describe_frame(Frame(2, 3000, (1, 3), (0, 3000, 0, 3000, 0), 0.98, 0.0, ()), 5)
    'epoch 2 since event 3,000, fidelity 0.98; axes 1 and 3 are lost'
    """
    parts = (
        f"epoch {frame.epoch} since event {frame.since:,}, fidelity {frame.fidelity:.2f}",
        describe_lost_axes(frame.lost),
        describe_hidden_spread(frame, n_components),
    )
    return "; ".join(part for part in parts if part)


def describe_lost_axes(lost: Sequence[int]) -> str:
    """Which axes could not be kept; "" if there are none.

    Examples
    --------
    >>> describe_lost_axes((1,)), describe_lost_axes((0, 1, 3))
    ('axis 1 is lost', 'axes 0, 1 and 3 are lost')
    """
    if not lost:
        return ""
    if len(lost) == 1:
        return f"axis {lost[0]} is lost"
    first = ", ".join(map(str, lost[:-1]))
    return f"axes {first} and {lost[-1]} are lost"


def describe_hidden_spread(frame: Frame, n_components: int) -> str:
    """What is not shown because axes were kept; "" if that is less than half a percent.

    Examples
    --------
    >>> describe_hidden_spread(Frame(0, 3000, (), (3000,) * 5, 0.98, 0.05, ()), 5)
    '5 % of the spread of components 0 to 4 is not shown: axes have been kept since event 3,000'
    """
    if not frame.price >= LEAST_PRICE:
        return ""
    return (
        f"{100 * frame.price:.0f} % of the spread of {name_components(n_components)} is not shown: "
        f"axes have been kept since event {frame.since:,}"
    )


def name_components(count: int) -> str:
    """The first so many components, which are counted from 0.

    Examples
    --------
    >>> [name_components(count) for count in (1, 2, 5)]
    ['component 0', 'components 0 and 1', 'components 0 to 4']
    """
    last = count - 1
    return {0: "component 0", 1: "components 0 and 1"}.get(last, f"components 0 to {last}")
