"""TLS: why a server's certificate is not trusted, and for which hosts it is."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from collections.abc import Collection
from typing import Any

from streamembed.errors import ParameterError

# gRPC's environment variable: the file of the certificates that it trusts by default.
ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
# OpenSSL's codes for: not valid yet, expired, self-signed, wrong host name, wrong address.
DEFINITE_REASONS = frozenset({9, 10, 18, 62, 64})
# Signed by an unknown authority; definite only where the trusted certificates are given.
UNKNOWN_SIGNER = frozenset({19, 20})
REMEDY = "pass tls_roots=, the file of the certificate or of the authority that signed it"


def create_context(roots: bytes | None) -> ssl.SSLContext:
    """A context that trusts what a gRPC client does: these certificates (PEM), or the system's.

    Raises
    ------
    ParameterError
        There is no certificate in ``roots``.
    """
    try:
        if roots is None:
            context = ssl.create_default_context(cafile=os.environ.get(ROOTS_VARIABLE))
        else:
            context = ssl.create_default_context(cadata=roots.decode("ascii"))
    except (OSError, ValueError) as error:
        raise ParameterError("tls_roots has no certificates in PEM") from error
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.set_alpn_protocols(["h2"])
    return context


def diagnose_connection(
    host: str,
    port: int,
    context: ssl.SSLContext | None,
    patience: float,
    reasons: Collection[int] | None = None,
) -> str | None:
    """Why a client cannot connect to a server, found by a TLS handshake; None where it may.

    Nothing but the handshake is sent. A server that does not answer is no reason: it may start.

    Parameters
    ----------
    context
        What the client trusts; None where it does not use TLS.
    patience
        Seconds that the handshake may take.
    reasons
        OpenSSL's codes of the certificate errors that count; None: all. The certificates of the
        system may differ from those that gRPC trusts.
    """
    probe = context
    if probe is None:
        probe = create_context(None)
        probe.check_hostname, probe.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host, port), patience) as connection,
            probe.wrap_socket(connection, server_hostname=host),
        ):
            return None if context is not None else "the server uses TLS: connect with grpc+tls://"
    except ssl.SSLCertVerificationError as error:
        if reasons is not None and error.verify_code not in reasons:
            return None
        return f"the certificate of {host} is not trusted ({error.verify_message}): {REMEDY}"
    except ssl.SSLError as error:
        if context is not None and error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            return "the server does not use TLS: connect with grpc://"
    except (OSError, ValueError):
        pass
    return None


def read_certificate_names(cert: str, key: str) -> list[str]:
    """The hosts of a certificate, from its PEM files; empty where it cannot be used.

    Two endpoints in memory do a handshake: the standard library reads certificates no other way.
    """
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError):
        server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), create_context(None)
        server.load_cert_chain(cert, key)
        client.load_verify_locations(cert)
        client.check_hostname = False
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client_end = client.wrap_bio(to_client, to_server, server_side=False)
        server_end = server.wrap_bio(to_server, to_client, server_side=True)
        for end in (client_end, server_end, client_end):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        certificate: dict[str, Any] = client_end.getpeercert() or {}
        pairs = certificate.get("subjectAltName", ())
        names = [str(name) for kind, name in pairs if kind in ("DNS", "IP Address")]
    return names
