"""The maps of all methods: what each keeps, and all that depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from pkgutil import resolve_name

from streamembed.methods.engine_parameters import METHODS
from streamembed.methods.state import EmbeddingMap

MAPS: Mapping[str, type[EmbeddingMap]] = {
    name: resolve_name(f"{__package__}.{row.map}") for name, row in METHODS.items()
}
