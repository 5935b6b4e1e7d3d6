"""What a server was started with; the parent checks it, and hands it to its processes as JSON."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from streamembed.addresses import LOOPBACK, is_loopback
from streamembed.errors import MissingFileError, ParameterError, shown

__all__ = ["PORT", "Settings", "bytes_of"]

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
            raise ParameterError(
                f"--host {self.host} can be reached by others, and {lacks} is missing: give both "
                "--tokens and --tls, or --insecure where a proxy before it has them"
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
