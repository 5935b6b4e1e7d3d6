"""A producer that sends events without a pause, until it is ended.

``python -m scenarios.baselines.busy_producer URL ROWS`` learns batches of that many rows, and
prints a line after the first one.
"""

from __future__ import annotations

import itertools
import sys

import streamembed as se
from scenarios.benchmarks.serving import draw_points


def main() -> None:
    """Learn, again and again."""
    url, rows = sys.argv[1], int(sys.argv[2])
    X = draw_points(20_000)
    with se.connect(url) as client:
        for batch in itertools.count():
            at = batch * rows % (len(X) - rows)
            client.learn(X[at : at + rows])
            if batch == 0:
                print("learning", flush=True)


if __name__ == "__main__":
    main()
