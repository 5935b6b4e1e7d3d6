"""Pairs of examples: those that were given, and a partner or two for each labelled point."""

from __future__ import annotations

import numpy as np

from streamembed.metric_learners.labelled_examples import Examples
from streamembed.numeric.arrays import Bools, Floats, Ints
from streamembed.pairs import reservoir
from streamembed.pairs.reservoir import Reservoirs

__all__ = ["CAPACITY", "merged", "pairs"]

# Points remembered a class: partners repeat after some hundred points, and 26 classes of letter
# are 2,600 points.
CAPACITY = 100


def pairs(reservoirs: Reservoirs, examples: Examples) -> tuple[Reservoirs, Floats, Bools]:
    """Differences (m, d) and kinds (m,), in the order of the events, and the reservoirs after."""
    after, drawn = reservoir.update(
        reservoirs, examples.points, examples.classes, examples.generator()
    )
    labelled = np.flatnonzero(examples.codes >= 0)
    given = np.flatnonzero(examples.codes < 0)
    owners = np.concatenate([labelled[drawn.owners], given])
    order = np.argsort(owners, kind="stable")
    differences = np.concatenate([drawn.differences, examples.differences])[order]
    return after, differences, np.concatenate([drawn.similar, examples.similar])[order]


def merged(left: Reservoirs, right: Reservoirs, indices: Ints, seed: int) -> Reservoirs:
    """Samples of two streams as one; class c of the right one is class ``indices[c]``."""
    known = indices[: len(right.seen)]
    n_classes = max(len(left.seen), int(known.max(initial=-1)) + 1)
    generator = np.random.default_rng((seed, int(left.seen.sum()), int(right.seen.sum())))
    return reservoir.merge(left, reservoir.renumber(right, known, n_classes), generator)
