"""The base of what is saved as one Arrow file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from streamembed.numeric import codec
from streamembed.storage import archive
from streamembed.validation import check_bytes


class SavedObject:
    """An object that is saved as one Arrow IPC file: versioned, checksummed, no pickle."""

    __slots__ = ()
    _kind: ClassVar[str]
    # Classes of parts that are declared as Any; see `codec.unpack`.
    _kinds: ClassVar[Mapping[str, Any]] = {}

    def _to_file(self) -> tuple[Any, Mapping[str, Any]]:
        """The table and the header of the file, a function of the object alone."""
        arrays, header = codec.pack(self)
        return archive.to_table(arrays), header

    @classmethod
    def _of_file(cls, table: Any, header: dict[str, Any]) -> Self:
        """What `_to_file` gave, checked for what the checksum cannot tell."""
        loaded: Self = codec.unpack(cls, archive.unpack(table), header, cls._kinds)
        return loaded

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; any Arrow reader opens it.

        Raises
        ------
        FileError, ParameterError
            The file cannot be written; the path is none.
        """
        data = self.to_bytes()
        with archive.replace_file(path) as temporary:
            temporary.write_bytes(data)

    def to_bytes(self) -> bytes:
        """The bytes that `save` writes, for a store of your own."""
        table, header = self._to_file()
        return archive.seal(table, self._kind, header)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as its bytes, and checked when unpickled."""
        return type(self).from_bytes, (self.to_bytes(),)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The object that `save` wrote, bit for bit; no code from the file is run.

        Raises
        ------
        DamagedFileError
            The bytes are not what was written, or of another kind.
        FileError
            The file is missing, or cannot be read.
        """
        return archive.unseal(archive.read_bytes(path), cls._kind, path, cls._of_file)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The object of which `to_bytes` gave these; DamagedFileError where they are others."""
        return archive.unseal(check_bytes("data", data), cls._kind, "data", cls._of_file)
