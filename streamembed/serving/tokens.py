"""Tokens: who may read, and who may write. Kept are their hashes alone.

A file has a line for each: ``name role hash``. Two lines may have the same name, so that a new
token can be handed out before the old one is taken away.
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

from streamembed.errors import ParameterError, file_error, shown

__all__ = ["NAME", "ROLES", "Token", "add_token", "hash_of", "read_tokens", "who_has"]

ROLES = ("read", "write")
NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
HASH = re.compile(r"[0-9a-f]{64}")
# Bytes of randomness in a token, and of its hash.
SIZE = 32


@dataclass(frozen=True, slots=True)
class Token:
    """One line: a name, what it may ("read" or "write", which may read, too), and a hash."""

    name: str
    role: str
    hash: str


def hash_of(token: str) -> str:
    """What a file keeps of a token.

    Examples
    --------
    >>> hash_of("secret")[:16]
    'ae4aafb3c7d8616b'
    """
    return blake2b(token.encode(errors="surrogatepass"), digest_size=SIZE).hexdigest()


def read_tokens(path: str | os.PathLike[str]) -> list[Token]:
    """The lines of a file; blank ones, and those that begin with #, say nothing.

    Raises
    ------
    ParameterError
        Others than its owner may read or write it; a line is none; or there is none.
    FileError
        It cannot be read.
    """
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
        text = Path(path).read_text(errors="replace")
    except OSError as error:
        raise file_error(error, path, "read") from error
    if mode & 0o077:
        raise ParameterError(
            f"{path} has mode {mode:04o}, so that others of this machine can use it; it must have "
            f"0600: chmod 600 {path}"
        )
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 3 or not NAME.fullmatch(words[0]) or words[1] not in ROLES:
            raise ParameterError(_line(path, number, "must be a name, read or write, and a hash"))
        if not HASH.fullmatch(words[2]):
            raise ParameterError(_line(path, number, "has no hash of 64 hexadecimal digits"))
        found.append(Token(*words))
    if not found:
        raise ParameterError(
            f"{path} has no token: streamembed serve --new-token NAME read --tokens {path}"
        )
    return found


def _line(path: object, number: int, what: str) -> str:
    return f"line {number} of {path} {what}: streamembed serve --new-token writes one"


def add_token(path: str | os.PathLike[str], name: str, role: str) -> str:
    """A new token, whose line is appended to a file, which is made where there is none.

    Raises
    ------
    ParameterError
        The name or the role is none.
    FileError
        The file cannot be written.
    """
    if not NAME.fullmatch(name):
        raise ParameterError(
            f"NAME={shown(name)} must have 1 to 64 letters, digits, dots, dashes or underscores"
        )
    if role not in ROLES:
        raise ParameterError(f"ROLE={shown(role)} must be read or write")
    token = secrets.token_urlsafe(SIZE)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with contextlib.closing(os.fdopen(handle, "w")) as sink:
            sink.write(f"{name} {role} {hash_of(token)}\n")
    except OSError as error:
        raise file_error(error, path, "written") from error
    return token


def who_has(presented: str, tokens: Iterable[Token]) -> Token | None:
    """The line of a token; how long it takes tells nothing of which one it is, or nearly was."""
    asked, found = hash_of(presented), None
    for token in tokens:
        if hmac.compare_digest(asked, token.hash):
            found = token
    return found
