"""How a server ends, and what is there afterwards."""

from __future__ import annotations

import contextlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import streamembed as se
from streamembed.data.features import Features
from streamembed.errors import FeatureError, ParameterError, ServerError
from streamembed.serving.batch_learner import BatchLearner
from streamembed.serving.latest_snapshot import LatestSnapshot
from tests.report import runs
from tests.serving.served import SMALL, X, made, serving, tokens_in


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)],
)
def test_a_signal_amid_puts_loses_nothing(tmp_path: Path, number: int, code: int) -> None:
    """What was acknowledged is there, and nothing else; open calls end at their next batch."""
    run = made(tmp_path)
    points = np.random.default_rng(1).standard_normal((20_000, 3))
    heard: list[int] = []
    with serving(run, "--learn", "--grace", 20) as server:
        with server.client(patience=0.0) as client:

            def put() -> None:
                with contextlib.suppress(ServerError):
                    for at in range(0, len(points), 20):
                        client.learn(points[at : at + 20])
                        heard.append(at + 20)

            thread = threading.Thread(target=put)
            thread.start()
            while len(heard) < 5:
                thread.join(0.01)
            assert server.stop(number) == code
            thread.join()
        said = "".join(server.said)
    assert "committed" in said
    assert "cut off" not in said
    assert "Traceback" not in said
    assert heard[-1] < len(points)
    with se.open_run(run) as opened:
        assert opened.position == 200 + heard[-1]


def test_an_idle_stream_is_cut_off(tmp_path: Path) -> None:
    """After the grace, and the log says so. Here with features that have names."""
    named = pa.table({name: X[:200, j] for j, name in enumerate("yxz")})
    with se.open_run(tmp_path / "run", SMALL) as run:
        run.learn(named, ids=[f"e{i}" for i in range(200)])
        snapshot = run.snapshot()
    with serving(tmp_path / "run", "--learn", "--grace", 0.5) as server, server.client() as client:
        found = client.transform(named.select(["z", "y", "x"])).coordinates
        expected = snapshot.transform(named)
        assert np.array_equal(found, np.column_stack([*expected.itercolumns()]))
        for wrong in (X[:5], named.select(["x", "y"]), named.rename_columns(["x", "y", "w"])):
            with pytest.raises(FeatureError):
                client.transform(wrong)
        rows = [{"z": 1.0, "x": 2.0, "y": 3.0}, {"z": 1.0, "x": None, "y": 3.0}]
        assert client.transform(rows).valid.tolist() == [True, False]
        assert client.learn(rows, ids=["a", "b"]).accepted == 1
        assert server.stop() == 143
        assert "1 calls that were open after 0.5 seconds were cut off" in "".join(server.said)
    with se.open_run(tmp_path / "run") as run:
        assert run.position == 201


def test_a_run_of_the_other_kind_is_served_but_not_learned_into(tmp_path: Path) -> None:
    """A replay that has ended: its file, bit for bit."""
    run = runs.replayed(tmp_path)
    with pytest.raises(ParameterError, match="is a replay of a log"):
        BatchLearner(str(run), None)
    follower = LatestSnapshot(str(run))
    follower.refresh()
    served = follower.current
    assert served is not None
    assert served.file_bytes == (run / "snapshot.arrow").read_bytes()
    assert served.snapshot.features == Features(("age", "height", "wbf"), False)


UNTRUSTED = """
import sys
import streamembed as se
url, other = sys.argv[1:]
plain, name = url.replace("+tls", ""), url.replace("localhost", "127.0.0.2")
for asked, roots in ((url, None), (url, other), (name, other[:-9] + "one.pem"), (plain, None)):
    try:
        se.connect(asked, tls_roots=roots, patience=0)
    except se.errors.ServerError as error:
        print(error.code, error)
"""


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """A self-signed certificate, and its key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}.key"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
            *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-keyout", key, "-out", cert),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes the certificate")
def test_other_machines_are_served_by_tls(tmp_path: Path) -> None:
    """Whoever does not know the certificate, or has no token, is not answered."""
    run = made(tmp_path)
    (cert, key), (other_cert, _) = (certificate(tmp_path, name) for name in ("one", "other"))
    path, read, _ = tokens_in(tmp_path)
    flags = ("--host", "0.0.0.0", "--tokens", path, "--tls", cert, key)
    with serving(run, *flags) as server:
        port = server.url.rpartition(":")[2]  # the host is not 0.0.0.0
        assert server.url == f"grpc+tls://{socket.gethostname()}:{port}"
        url = f"grpc+tls://localhost:{port}"
        with se.connect(url, token=read, tls_roots=cert) as client:
            assert client.transform(X[:5]).valid.all()
        with pytest.raises(ServerError, match="token") as told:
            se.connect(url, tls_roots=cert)
        assert told.value.code == "unauthenticated"
        done = subprocess.run(
            [sys.executable, "-c", UNTRUSTED, url, other_cert], capture_output=True, text=True
        )
        lines = done.stdout.splitlines()
        assert len(lines) == 4
        assert all(re.match("unavailable .*certificate is not trusted", line) for line in lines)
    assert "all addresses" in "".join(server.said)
