"""The settings of a server, checked before it starts."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamembed.errors import MissingFileError, ParameterError, quote

LOOPBACK = "127.0.0.1"
PORT = 8815
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a run is served: the options of `streamembed serve`, whose help describes them."""

    run: str
    host: str = LOOPBACK
    port: int = PORT
    learn: bool = False
    tokens: str | None = None
    tls: Sequence[str] | None = None  # PEM files of the certificate and of its key
    insecure: bool = False
    max_rows: int = 1 << 16
    max_bytes: int = 1 << 24
    max_streams: int = 512
    max_memory: int = 1 << 31  # bytes beyond what the server starts with and the stacks of calls
    grace: float = 10.0  # seconds
    checkpoint_every: str | None = None
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        for path in self.tls or ():
            if not Path(path).is_file():
                raise MissingFileError(f"--tls {path} is not an existing file")
        if self.insecure or is_loopback(self.host):
            return
        if self.tokens is None or self.tls is None:
            missing = [flag for flag in ("tokens", "tls") if getattr(self, flag) is None]
            lacks = " and ".join(f"--{flag}" for flag in missing)
            verb = "is" if len(missing) == 1 else "are"
            raise ParameterError(
                f"--host {self.host} can be reached by other machines, and {lacks} {verb} missing: "
                "give both --tokens and --tls, or --insecure behind a proxy that checks both"
            )


def parse_bytes(text: str) -> int:
    """A number of bytes, written as such or with KiB, MiB or GiB.

    Raises
    ------
    ParameterError
        The text is no number of bytes, or less than a KiB.

    Examples
    --------
    >>> parse_bytes("16MiB"), parse_bytes("65536")
    (16777216, 65536)
    """
    match = re.fullmatch(r"(\d{1,12})\s*([KMG]iB|)", text)
    size = 0 if match is None else int(match[1]) * UNITS[match[2]]
    if size < UNITS["KiB"]:
        raise ParameterError(f"{quote(text)} must be a number of bytes, such as 65536 or 16MiB")
    return size


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("")
    (True, True, True, False)
    >>> is_loopback("0.0.0.0"), is_loopback("example.org")
    (False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_port(flag: str, host: str, port: int) -> None:
    """Check that a server can listen there; port 0 is any free port.

    Raises
    ------
    ParameterError
        The port is in use or not allowed, or the address is not one of this machine.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while")[0]
        raise ParameterError(
            f"{flag} {port} cannot be used at {host} ({reason}): choose another, or 0 for any "
            "free port"
        ) from error
