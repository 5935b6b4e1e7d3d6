"""A client that opens streams and says nothing, until it is ended.

``python -m scenarios.baselines.silent_client URL COUNT`` prints a line when they are open; 50
share a connection. What Arrow prints of those that are refused goes to standard error.
"""

from __future__ import annotations

import contextlib
import sys
import time

import pyarrow as pa
import pyarrow.flight as fl


def main() -> None:
    """Open them, and wait."""
    url, count = sys.argv[1], int(sys.argv[2])
    path = fl.FlightDescriptor.for_path("transform")
    flights = [fl.FlightClient(url) for _ in range(-(-count // 50))]
    streams = []
    for i in range(count):
        with contextlib.suppress(pa.ArrowException, OSError):
            streams.append(flights[i // 50].do_exchange(path))
    print(len(streams), flush=True)
    time.sleep(3600)


if __name__ == "__main__":
    main()
