"""Addresses: whether only this machine reaches one, and by which names a server is asked for."""

from __future__ import annotations

import ipaddress
import re
import socket

LOOPBACK = "127.0.0.1"
# All addresses of a machine: to listen at, and not to call.
ALL_INTERFACES = ("0.0.0.0", "::")
# The header ``Host``: a name or an address, and a port.
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:]+)(?::([1-9][0-9]{0,4}))?")
HTTP = 80


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches it.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("")
    (True, True, True, False)
    >>> is_loopback("0.0.0.0"), is_loopback("example.org")
    (False, False)
    """
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def list_host_names(host: str) -> frozenset[str]:
    """The names of a server that listens at ``host``, in lower case.

    Where it listens at all addresses these are the names of the machine.

    Examples
    --------
    >>> sorted(list_host_names("Metrics.example"))
    ['localhost', 'metrics.example']
    """
    own = {socket.gethostname(), socket.getfqdn()} if host in ALL_INTERFACES else {host}
    return frozenset(name.lower() for name in {"localhost", *own})


def is_own_host(asked: str, names: frozenset[str], port: int | None = None) -> bool:
    """Whether the header ``Host`` of a request names a server: by one of its names, or an address.

    A site can let a name of its own lead to this machine (DNS rebinding): a browser then sends that
    name. It cannot do so with an address.

    Parameters
    ----------
    names
        Of `list_host_names`.
    port
        The one that must be asked for; None: any.

    Examples
    --------
    >>> names = list_host_names("127.0.0.1")
    >>> [is_own_host(asked, names) for asked in ("LOCALHOST:80", "10.0.0.7", "[::1]:99")]
    [True, True, True]
    >>> [is_own_host(asked, names) for asked in ("evil.example:80", "localhost:²", "")]
    [False, False, False]
    """
    match = HOST.fullmatch(asked)
    if match is None:
        return False
    name, given = match[1], int(match[2] or HTTP)
    if given > 65535 or port not in (None, given):
        return False
    return name.lower() in names or _address(name.strip("[]")) is not None
