"""Tokens, and what a server refuses to start with."""

from __future__ import annotations

import socket
import stat
from dataclasses import fields
from pathlib import Path

import pytest

from streamembed.errors import ParameterError
from streamembed.serving.server_settings import ServerSettings
from streamembed.serving.tokens import add_token, find_token, hash_token, read_tokens
from tests.cli.test_cli import call
from tests.serving.served import made


def test_a_token_is_found_by_itself_alone(tmp_path: Path) -> None:
    """Neither a part of it, nor its hash, nor that of another."""
    path = tmp_path / "tokens"
    ann, ben = add_token(path, "ann", "read"), add_token(path, "ben", "write")
    tokens = read_tokens(path)
    assert [(one.name, one.role) for one in tokens] == [("ann", "read"), ("ben", "write")]
    assert find_token(ann, tokens) == tokens[0]
    assert find_token(ben, tokens) == tokens[1]
    for wrong in ("", ann[:-1], ann + "x", hash_token(ann), "\udcff", "x" * 10_000):
        assert find_token(wrong, tokens) is None
    assert ann not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
def test_a_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    """And the message says what to do."""
    add_token(tmp_path / "tokens", "ann", "read")
    (tmp_path / "tokens").chmod(mode)
    with pytest.raises(ParameterError, match=r"must have 0600: chmod 600"):
        read_tokens(tmp_path / "tokens")


@pytest.mark.parametrize(
    "line",
    ["ann read", "ann admin " + "0" * 64, "an/n read " + "0" * 64, "ann read xyz", "# nothing"],
)
def test_a_line_that_is_none_is_refused(tmp_path: Path, line: str) -> None:
    """Not skipped: a client would be locked out, or accepted by mistake."""
    path = tmp_path / "tokens"
    path.write_text(line + "\n")
    path.chmod(0o600)
    with pytest.raises(ParameterError, match="--new-token"):
        read_tokens(path)


def test_the_command_makes_tokens(tmp_path: Path) -> None:
    """The token goes to standard output, once; the file has its hash."""
    path = tmp_path / "tokens"
    done = call("serve", "--new-token", "ann", "read", "--tokens", path)
    assert done.exit_code == 0
    token = done.stdout.strip()
    assert find_token(token, read_tokens(path)) is not None
    assert call("serve", "--new-token", "ann", "read").exit_code == 2
    assert call("serve", "--new-token", "ann", "king", "--tokens", path).exit_code == 2
    assert call("serve", "--new-token", "a b", "read", "--tokens", path).exit_code == 2
    assert len(read_tokens(path)) == 1


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "example.org", ""])
def test_other_machines_are_served_with_tokens_and_tls_only(tmp_path: Path, host: str) -> None:
    """Unless the user asks for it with --insecure."""
    settings = {field.name: None for field in fields(ServerSettings)} | {"host": host}
    both = {"tokens": "tokens", "tls": ("cert", "key")}
    assert ServerSettings(**{**settings, **both}).host == host
    assert ServerSettings(**{**settings, "insecure": True}).host == host
    assert ServerSettings(**{**settings, "host": "localhost"}).host == "localhost"
    for missing in both:
        rest = {**settings, **both, missing: None}
        with pytest.raises(ParameterError, match=f"without --{missing}"):
            ServerSettings(**rest)
    with pytest.raises(ParameterError, match="without --tokens and --tls"):
        ServerSettings(**settings)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ([], 2),
        (["none"], 4),
        (["none", "--host", "0.0.0.0"], 2),
        (["none", "--tokens", "nowhere"], 4),
        (["none", "--checkpoint-every", "40"], 2),
        (["none", "--max-batch-mib", "all"], 2),
        (["none", "--tls", "one"], 2),
        (["none", "--tls", "nowhere", "nowhere"], 2),
    ],
)
def test_what_cannot_be_served_is_an_error(arguments: list[str], code: int, tmp_path: Path) -> None:
    """With its exit code, and a line."""
    given = [str(tmp_path / one) if one in ("none", "nowhere") else one for one in arguments]
    done = call("serve", *given)
    assert done.exit_code == code
    assert "Traceback" not in done.stderr
    assert done.stderr.strip()


def test_a_port_that_is_taken_is_an_error_of_one_line(tmp_path: Path) -> None:
    """At once, as any other parameter that cannot be used."""
    run = made(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = call("serve", run, "--port", port)
        why = "cannot be used at 127.0.0.1 (Address already in use)"
        said = f"streamembed: --port {port} {why}: choose another, or 0 for any free port\n"
        assert (done.exit_code, done.stderr) == (2, said)
        done = call("serve", run, "--port", 0, "--metrics-port", port)
        assert (done.exit_code, done.stderr) == (2, said.replace("--port", "--metrics-port"))
