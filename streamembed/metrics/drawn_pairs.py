"""Pairs of examples: the given ones, and one or two partners for each labelled point."""

from __future__ import annotations

import numpy as np

from streamembed.metrics.examples import Examples
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.numeric.moments import drop_rounding
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs

# Points remembered per class: partners repeat after some hundred points, and the 26 classes of the
# data set letter make 2,600 points.
CAPACITY = 100


def draw_pairs(reservoirs: Reservoirs, examples: Examples) -> tuple[Reservoirs, Floats, Bools]:
    """Differences (m, d) and kinds (m,), in the order of the events, and the reservoirs after."""
    after, partners = reservoir.update(
        reservoirs, examples.points, examples.classes, examples.generator()
    )
    labelled = np.flatnonzero(examples.codes >= 0)
    owners = np.concatenate([labelled[partners.owners], np.flatnonzero(examples.codes < 0)])
    order = np.argsort(owners, kind="stable")
    steps = drop_rounding(partners.differences, examples.points[partners.owners])
    differences = np.concatenate([steps, examples.differences])[order]
    return after, differences, np.concatenate([partners.similar, examples.similar])[order]


def merge_samples(left: Reservoirs, right: Reservoirs, indices: Ints, seed: int) -> Reservoirs:
    """Samples of two streams as one; class c of the right one is class ``indices[c]``."""
    right_indices = indices[: len(right.seen)]
    n_classes = max(len(left.seen), int(right_indices.max(initial=-1)) + 1)
    generator = np.random.default_rng((seed, int(left.seen.sum()), int(right.seen.sum())))
    return reservoir.merge(left, reservoir.renumber(right, right_indices, n_classes), generator)
