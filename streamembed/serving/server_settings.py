"""The settings of a server, checked before it starts."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass

from streamembed.errors import ParameterError
from streamembed.serving.tokens import Token, read_tokens

# Hosts that only this machine reaches.
LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a run is served: the options of `streamembed serve`, whose help describes them.

    Raises
    ------
    ParameterError
        Other machines would be served without tokens or TLS.
    """

    run: str
    host: str
    port: int
    tokens: str | None
    tls: Sequence[str] | None  # PEM files of the certificate and of its key
    insecure: bool
    learn: bool
    checkpoint_every: str | None
    max_rows: int
    max_batch_mib: int
    max_streams: int
    max_memory_mib: int
    grace: float

    def __post_init__(self) -> None:
        missing = [f"--{flag}" for flag in ("tokens", "tls") if getattr(self, flag) is None]
        if missing and not self.insecure and self.host not in LOOPBACK:
            raise ParameterError(
                f"--host {self.host} can be reached by other machines, without "
                f"{' and '.join(missing)}: give both --tokens and --tls, or --insecure behind a "
                "proxy that checks both"
            )

    def read_tokens(self) -> list[Token] | None:
        """The tokens that are accepted; None where none is needed."""
        return None if self.tokens is None else read_tokens(self.tokens)


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
