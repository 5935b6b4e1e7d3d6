"""What a client says before it asks anybody, and where nobody answers."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import streamembed as se
from streamembed.errors import MissingFileError, ParameterError, ServerError


@pytest.mark.parametrize(
    "url",
    [
        *("", "127.0.0.1:8815", "http://127.0.0.1:8815", "grpc://127.0.0.1", "grpc://a@b:1"),
        *(8815, None, "grpc+unix:///socket", "grpc://127.0.0.1:8815/path"),
    ],
)
def test_a_url_that_is_none_is_refused(url: Any) -> None:
    """The message shows one."""
    with pytest.raises(ParameterError, match="must be such as grpc://"):
        se.connect(url)


@pytest.mark.parametrize("token", [b"x", 7, "ä", "a\nb"])
def test_a_token_that_is_none_is_refused(token: Any) -> None:
    """And is not shown."""
    with pytest.raises(ParameterError, match="must be text") as told:
        se.connect("grpc://127.0.0.1:1", token=token)
    assert str(token) not in str(told.value)


def test_other_arguments_are_looked_at(tmp_path: Path) -> None:
    """Before anything is sent."""
    with pytest.raises(MissingFileError):
        se.connect("grpc+tls://127.0.0.1:1", tls_roots=tmp_path / "none")
    with pytest.raises(ParameterError, match="patience"):
        se.connect("grpc://127.0.0.1:1", patience=-1)


def test_nobody_there_is_an_error_of_one_line() -> None:
    """Not one of gRPC."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(ServerError, match=r"^the server cannot be reached") as told:
        se.connect(f"grpc://127.0.0.1:{port}", patience=0.0)
    assert told.value.code == "unavailable"
    assert "\n" not in str(told.value)
