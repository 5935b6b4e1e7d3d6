"""Tokens that allow to read or to write; only their hashes are stored.

A file has a line ``name role hash`` for each token. Two lines may have the same name, so that a new
token can be distributed before the old one is removed.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from streamembed.errors import ParameterError, build_file_error, quote

LINE = re.compile(r"[A-Za-z0-9_.-]{1,64} (read|write) [0-9a-f]{64}")
# Bytes of randomness in a token, and of its hash.
SIZE = 32


@dataclass(frozen=True, slots=True)
class Token:
    """One line: a name, a role ("read", or "write", which includes reading), and a hash."""

    name: str
    role: str
    hash: str


def hash_token(token: str) -> str:
    """The hash of a token, as the file stores it.

    Examples
    --------
    >>> hash_token("secret")[:16]
    'ae4aafb3c7d8616b'
    """
    return blake2b(token.encode(errors="surrogatepass"), digest_size=SIZE).hexdigest()


def read_tokens(path: str | os.PathLike[str]) -> list[Token]:
    """The tokens of a file; blank lines, and lines that begin with #, are ignored.

    Raises
    ------
    ParameterError
        Other users than its owner may access the file; a line is not valid; or it has no token.
    FileError
        It cannot be read.
    """
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        text = Path(path).read_text(errors="replace")
    except OSError as error:
        raise build_file_error(error, path, "read") from error
    if mode & 0o077:
        raise ParameterError(
            f"{path} has mode {mode:04o}, which lets other users access it; it must have 0600: "
            f"chmod 600 {path}"
        )
    tokens = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if words and not words[0].startswith("#"):
            if not LINE.fullmatch(" ".join(words)):
                raise ParameterError(
                    f"line {number} of {path} must be a name, read or write, and a hash of 64 "
                    "hexadecimal digits: add tokens with streamembed serve --new-token"
                )
            tokens.append(Token(*words))
    if not tokens:
        raise ParameterError(
            f"{path} has no token: streamembed serve --new-token NAME read --tokens {path}"
        )
    return tokens


def add_token(path: str | os.PathLike[str], name: str, role: str) -> str:
    """A new token; its line is appended to a file, which is created if it does not exist.

    Raises
    ------
    ParameterError
        The name or the role is not valid.
    FileError
        The file cannot be written.
    """
    token = secrets.token_urlsafe(SIZE)
    line = f"{name} {role} {hash_token(token)}"
    if not LINE.fullmatch(line):
        raise ParameterError(
            f"NAME={quote(name)} must have 1 to 64 letters, digits, dots, dashes or underscores, "
            f"and ROLE={quote(role)} must be read or write"
        )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with contextlib.closing(os.fdopen(handle, "w")) as sink:
            sink.write(f"{line}\n")
    except OSError as error:
        raise build_file_error(error, path, "written") from error
    return token


def find_token(presented: str, tokens: Iterable[Token]) -> Token | None:
    """The token with this secret, or None; the time it takes does not depend on the match."""
    presented_hash, match = hash_token(presented), None
    for token in tokens:
        if hmac.compare_digest(presented_hash, token.hash):
            match = token
    return match
