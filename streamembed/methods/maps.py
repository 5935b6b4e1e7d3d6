"""The maps of all methods, as the table of methods names them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType

from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.state import EmbeddingMap


def _find(name: str) -> type[EmbeddingMap]:
    file, kind = name.split(".")
    found: type[EmbeddingMap] = getattr(import_module(f"streamembed.methods.{file}"), kind)
    return found


MAPS: Mapping[str, type[EmbeddingMap]] = MappingProxyType(
    {name: _find(method.map) for name, method in METHODS.items()}
)
