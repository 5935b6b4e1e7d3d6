"""Addresses: whether only this machine reaches one."""

from __future__ import annotations

import ipaddress

__all__ = ["EVERYWHERE", "LOOPBACK", "is_loopback"]

LOOPBACK = "127.0.0.1"
# All addresses of a machine: to listen at, and not to call.
EVERYWHERE = ("0.0.0.0", "::")


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
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
