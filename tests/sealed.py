"""Files of saved objects, taken apart and made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streamembed.storage import archive


def unseal(data: bytes, kind: str) -> tuple[Any, dict[str, Any]]:
    """The table and the header of sealed bytes."""
    return archive.unseal(data, kind, "it", lambda table, header: (table, header))


def read_sealed(path: Path, kind: str) -> tuple[Any, dict[str, Any]]:
    """Those of a file."""
    return unseal(path.read_bytes(), kind)


def write_sealed(path: Path, table: Any, kind: str, header: dict[str, Any]) -> None:
    """Such a file, with the right checksum."""
    path.write_bytes(archive.seal(table, kind, header))
