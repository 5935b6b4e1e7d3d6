"""The sums of `forces` as loops, for where they can be compiled.

The same terms in the same order, nothing reordered and nothing fused: the bits are those of numpy.
"""

from __future__ import annotations

import numpy as np

from streamembed.numeric.arrays import Array, Floats, Ints
from streamembed.numeric.compilation import compile_at_first_call

# Rows per pass over the points: as many as a processor divides at once, or a few times more.
LANES = 32


@compile_at_first_call
def attract(
    starts: Ints, slots: Ints, weights: Floats, places: Floats, at: Floats
) -> tuple[Floats, Floats]:
    """See `streamembed.layout.forces.attract`."""
    pulled, strength = np.empty((len(at), 2)), np.empty(len(at))
    for a in range(len(at)):
        x, y = at[a, 0], at[a, 1]
        sum_x = sum_y = total = 0.0
        for e in range(starts[a], starts[a + 1]):
            j = slots[e]
            dx, dy = places[j, 0] - x, places[j, 1] - y
            pull = weights[e] / (1.0 + (dx * dx + dy * dy))
            sum_x += pull * dx
            sum_y += pull * dy
            total += pull
        pulled[a, 0], pulled[a, 1], strength[a] = sum_x, sum_y, total
    return pulled, strength


@compile_at_first_call
def repel(x: Array, y: Array, own_x: Array, own_y: Array, pushed_x: Array, pushed_y: Array) -> None:
    """See `streamembed.layout.forces.repel`; all arrays are of one precision."""
    one = x.dtype.type(1)
    lane_x, lane_y, sum_x, sum_y = np.zeros((4, LANES), dtype=x.dtype)
    for start in range(0, len(own_x), LANES):
        count = min(LANES, len(own_x) - start)
        for a in range(LANES):
            i = start + min(a, count - 1)
            lane_x[a], lane_y[a] = own_x[i], own_y[i]
            sum_x[a] = sum_y[a] = 0.0
        for j in range(len(x)):
            xj, yj = x[j], y[j]
            for a in range(LANES):
                dx, dy = lane_x[a] - xj, lane_y[a] - yj
                w = one / ((dx * dx + dy * dy) + one)
                w = w * w
                sum_x[a] += dx * w
                sum_y[a] += dy * w
        for a in range(count):
            pushed_x[start + a], pushed_y[start + a] = sum_x[a], sum_y[a]


@compile_at_first_call
def sum_weights(x: Array, y: Array, own_x: Array, own_y: Array, sums: Array) -> None:
    """See `streamembed.layout.forces.sum_weights`; all arrays are of one precision."""
    one = x.dtype.type(1)
    lane_x, lane_y, sum_w = np.zeros((3, LANES), dtype=x.dtype)
    for start in range(0, len(own_x), LANES):
        count = min(LANES, len(own_x) - start)
        for a in range(LANES):
            i = start + min(a, count - 1)
            lane_x[a], lane_y[a] = own_x[i], own_y[i]
            sum_w[a] = 0.0
        for j in range(len(x)):
            xj, yj = x[j], y[j]
            for a in range(LANES):
                dx, dy = lane_x[a] - xj, lane_y[a] - yj
                sum_w[a] += one / ((dx * dx + dy * dy) + one)
        for a in range(count):
            sums[start + a] = sum_w[a]
