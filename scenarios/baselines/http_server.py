"""The usual way to serve a model: FastAPI, pydantic models and JSON, one process by uvicorn.

``python -m scenarios.baselines.http_server SNAPSHOT`` prints its port.
`scenarios.benchmarks.serving` asks it beside our own, where fastapi, pydantic and uvicorn are
installed.
"""

from __future__ import annotations

import socket
import sys

import fastapi
import numpy as np
import pydantic
import uvicorn

import streamembed as se


class Points(pydantic.BaseModel):  # type: ignore[misc,unused-ignore]
    """A batch of events."""

    points: list[list[float]]


class PlacedPoints(pydantic.BaseModel):  # type: ignore[misc,unused-ignore]
    """Where they are."""

    coordinates: list[list[float]]
    coverage: list[float]


def build_app(snapshot: se.Snapshot) -> fastapi.FastAPI:
    """One call: coordinates and coverage of points."""
    app = fastapi.FastAPI()

    def transform(request: Points) -> PlacedPoints:
        placement = snapshot.transform_with_coverage(np.asarray(request.points))
        return PlacedPoints(coordinates=placement[0].tolist(), coverage=placement[1].tolist())

    app.post("/transform")(transform)
    return app


def main() -> None:
    """Serve until the end."""
    snapshot = se.Snapshot.load(sys.argv[1])
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(build_app(snapshot), log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
