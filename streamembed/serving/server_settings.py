"""The settings of a server; the parent checks them and sends them to its processes."""

from __future__ import annotations

import errno
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from streamembed.addresses import LOOPBACK, is_loopback
from streamembed.errors import MissingFileError, ParameterError, quote

PORT = 8815
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a run is served: the options of `streamembed serve`, whose help describes them."""

    run: str
    host: str = LOOPBACK
    port: int = PORT
    learn: bool = False
    readers: int = 1
    tokens: str | None = None
    tls: Sequence[str] | None = None  # PEM files of the certificate and of its key
    insecure: bool = False
    max_rows: int = 1 << 16
    max_bytes: int = 1 << 24
    max_streams: int = 64
    max_memory: int = 1 << 31  # bytes that a reader may allocate beyond what it starts with
    # Seconds.
    idle: float = 60.0
    grace: float = 10.0
    checkpoint_every: str | None = None
    metrics_host: str = LOOPBACK
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if self.port and self.port + self.readers - 1 > 65535:
            raise ParameterError(
                f"--port {self.port} is too high for {self.readers} readers, which take this port "
                "and the next ones; choose a lower one"
            )
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


def check_port_free(host: str, port: int, flag: str = "port") -> None:
    """Check that a server can listen there; port 0 is any free port.

    Parameters
    ----------
    flag
        The option that the message names.

    Raises
    ------
    ParameterError
        The port is in use or not allowed, or the address is not one of this machine.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in addresses[:1]:
            with socket.socket(family, kind, protocol) as listener:
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind(address)
                listener.listen(1)
    except OSError as error:
        raise build_listen_error(error, host, port, flag) from error


def build_listen_error(error: OSError, host: str, port: int, flag: str = "port") -> ParameterError:
    """The error of a server that cannot listen there, with what to choose instead.

    Examples
    --------
    >>> raise build_listen_error(OSError(errno.EADDRINUSE, ""), "127.0.0.1", 8815)
    Traceback (most recent call last):
    streamembed.errors.ParameterError: port 8815 is in use: choose another --port, or 0
    """
    if error.errno == errno.EADDRINUSE:
        return ParameterError(f"port {port} is in use: choose another --{flag}, or 0")
    if error.errno == errno.EACCES:
        return ParameterError(f"port {port} is not allowed: choose --{flag} 1024 or higher, or 0")
    other = flag.replace("port", "host")
    why = error.strerror or str(error)
    return ParameterError(
        f"{host} is not an address of this machine ({why}): choose another --{other}"
    )
