"""What a server was started with; the parent checks it, and hands it to its processes as JSON."""

from __future__ import annotations

import errno
import json
import re
import socket
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from streamembed.addresses import LOOPBACK, is_loopback
from streamembed.errors import MissingFileError, ParameterError, shown

__all__ = ["PORT", "Settings", "bytes_of", "cannot_listen", "must_be_free"]

PORT = 8815
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a run is served.

    Attributes
    ----------
    run : str
        Its folder.
    host : str
        Address to listen at.
    port : int
        Of the first reader, the next ones follow; 0: any that are free.
    learn : bool
        Whether events can be put into it.
    readers : int
        Processes that answer.
    tokens : str or None
        File of who may; None where everybody may who reaches the port.
    tls : (str, str) or None
        Files of the certificate and of its key, both PEM.
    insecure : bool
        Whether others than this machine may be served without tokens and TLS.
    max_rows, max_bytes : int
        Of one batch.
    max_streams : int
        Calls that are open at once, per reader.
    max_memory : int
        Bytes that a reader may take beyond what it starts with.
    idle : float
        Seconds of silence after which a stream is closed.
    grace : float
        Seconds that open streams have to end when the server does.
    checkpoint_every : str or None
        As of `streamembed.open_run`: how often readers see what was learned.
    metrics_host : str
    metrics_port : int or None
        Where /metrics, /healthz and /readyz are; None: nowhere; 0: any that is free.
    """

    run: str
    host: str = LOOPBACK
    port: int = PORT
    learn: bool = False
    readers: int = 1
    tokens: str | None = None
    tls: tuple[str, str] | None = None
    insecure: bool = False
    max_rows: int = 1 << 16
    max_bytes: int = 1 << 24
    max_streams: int = 64
    max_memory: int = 1 << 31
    idle: float = 60.0
    grace: float = 10.0
    checkpoint_every: str | None = None
    metrics_host: str = LOOPBACK
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if self.port and self.port + self.readers - 1 > 65535:
            raise ParameterError(
                f"--port {self.port} leaves no ports for {self.readers} readers, which listen at "
                "it and the next ones: choose a lower one"
            )
        for path in self.tls or ():
            if not Path(path).is_file():
                raise MissingFileError(f"{path} of --tls is no file that is there")
        if self.insecure or is_loopback(self.host):
            return
        if self.tokens is None or self.tls is None:
            missing = [flag for flag in ("tokens", "tls") if getattr(self, flag) is None]
            lacks = " and ".join(f"--{flag}" for flag in missing)
            verb = "is" if len(missing) == 1 else "are"
            raise ParameterError(
                f"--host {self.host} can be reached by others, and {lacks} {verb} missing: give "
                "both --tokens and --tls, or --insecure where a proxy before it has them"
            )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` gave."""
        told = json.loads(text)
        told["tls"] = told["tls"] and tuple(told["tls"])
        return cls(**told)

    def to_json(self) -> str:
        """As one line."""
        return json.dumps(asdict(self))


def bytes_of(text: str) -> int:
    """A number of bytes, written as such or with KiB, MiB or GiB.

    Raises
    ------
    ParameterError
        Anything else, or less than a KiB.

    Examples
    --------
    >>> bytes_of("16MiB"), bytes_of("65536")
    (16777216, 65536)
    """
    found = re.fullmatch(r"(\d{1,12})\s*([KMG]iB|)", text)
    size = 0 if found is None else int(found[1]) * UNITS[found[2]]
    if size < UNITS["KiB"]:
        raise ParameterError(f"{shown(text)} must be a number of bytes, such as 65536 or 16MiB")
    return size


def must_be_free(host: str, port: int, flag: str = "port") -> None:
    """Whether a server can listen there; 0 is any port that is free.

    Parameters
    ----------
    flag
        The option that chose it, in words of a message.

    Raises
    ------
    ParameterError
        The port is in use or not allowed, or the address is not one of this machine.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in found[:1]:
            with socket.socket(family, kind, protocol) as door:
                door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                door.bind(address)
                door.listen(1)
    except OSError as error:
        raise cannot_listen(error, host, port, flag) from error


def cannot_listen(error: OSError, host: str, port: int, flag: str = "port") -> ParameterError:
    """Why a server cannot listen somewhere, and what to choose instead.

    Examples
    --------
    >>> raise cannot_listen(OSError(errno.EADDRINUSE, ""), "127.0.0.1", 8815)
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
        f"{host} is no address of this machine to listen at ({why}): choose another --{other}"
    )
