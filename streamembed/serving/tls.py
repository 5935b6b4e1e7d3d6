"""Certificates: why a server's is not trusted, and what names it has."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Collection
from typing import Any

from streamembed.errors import ParameterError

__all__ = ["CERTAIN", "UNKNOWN_SIGNER", "context_of", "names_in", "why_not"]

# gRPC's own variable: the file of the certificates that it trusts where none are given.
ROOTS = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
# Of OpenSSL's reasons: not valid yet, expired, signed by itself, for another name, or address.
CERTAIN = frozenset({9, 10, 18, 62, 64})
# Signed by somebody who is not known; certain where it was said whom to trust.
UNKNOWN_SIGNER = frozenset({19, 20})
REMEDY = "pass tls_roots=, the file of its certificate or of the authority that signed it"


def context_of(roots: bytes | None) -> ssl.SSLContext:
    """What a client of gRPC trusts: these certificates (PEM), or those of the system.

    Raises
    ------
    ParameterError
        There is no certificate in them.
    """
    try:
        if roots is None:
            context = ssl.create_default_context(cafile=os.environ.get(ROOTS))
        else:
            context = ssl.create_default_context(cadata=roots.decode("ascii"))
    except (OSError, ValueError) as error:
        raise ParameterError("tls_roots holds no certificates in PEM") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context


def why_not(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    patience: float,
    reasons: Collection[int] | None = None,
) -> str | None:
    """Why a client cannot speak with a server there, by a handshake; None where it can, or may.

    Nothing is sent but the handshake. A server that is not there is no reason: it may come.

    Parameters
    ----------
    context
        What the client trusts; None where it does not speak TLS.
    patience
        Seconds that it may take.
    reasons
        Numbers of OpenSSL for what is wrong with a certificate that count; None: all. Those of the
        system may be others than those that gRPC knows.
    """
    asked = context
    if asked is None:
        asked = context_of(None)
        asked.check_hostname, asked.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), patience) as plain,
            asked.wrap_socket(plain, server_hostname=host),
        ):
            return None if context is not None else "the server speaks TLS: use grpc+tls://"
    except ssl.SSLCertVerificationError as error:
        if reasons is not None and error.verify_code not in reasons:
            return None
        return f"the certificate of {host} is not trusted ({error.verify_message}): {REMEDY}"
    except ssl.SSLError as error:
        if context is not None and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "the server does not speak TLS: use grpc://"
    except (OSError, ValueError):
        pass
    return None


def names_in(cert: str, key: str) -> list[str]:
    """Hosts that a certificate is for, by its files (PEM); none where it cannot be used.

    Two ends in memory shake hands, for the standard library reads certificates no other way.
    """
    found: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), context_of(None)
        server.load_cert_chain(cert, key)
        client.load_verify_locations(cert)
        client.check_hostname = False
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        one = client.wrap_bio(down, up, server_side=False)
        other = server.wrap_bio(up, down, server_side=True)
        for end in (one, other, one):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        told: dict[str, Any] = one.getpeercert() or {}
        pairs = told.get("subjectAltName", ())
        found = [str(name) for kind, name in pairs if kind in ("DNS", "IP Address")]
    return found
