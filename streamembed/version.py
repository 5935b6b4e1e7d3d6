"""The version, where every floor can read it."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
