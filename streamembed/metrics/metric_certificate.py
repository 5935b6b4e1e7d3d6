"""The certificate of a learned metric: a read-only mapping of facts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import FrozenInstanceError
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from streamembed.errors import InputError, quote

# Keys of every certificate; None where the learner does not say.
COMMON = (
    "source",
    "status",
    "labelled",
    "pairs",
    "updates",
    "refused",
    "refused_events",
    "by_status",
    "agreement",
)


class MetricCertificate(Mapping[str, Any]):
    """What the learner of a metric proves of it: a read-only mapping, with the same keys for all.

    ``source`` ("labels", "given" or "generated" pairs), ``status``, ``labelled`` and ``pairs`` (how
    many it learned from), ``updates``, ``refused``, ``refused_events`` and ``by_status`` (what
    became of its chunks), and ``agreement`` (of generated pairs: how well two halves of the events
    agree on them) are always there, None where the learner does not say. All other keys are the
    learner's own. Values are plain: numbers, strings, booleans, None, tuples and dicts of these;
    None for NaN and infinity. Every key can be read as an attribute, too.

    Examples
    --------
    >>> proof = MetricCertificate({"status": "ok", "gap": 0.5})
    >>> proof["status"], proof.gap, proof["source"]
    ('ok', 0.5, None)
    """

    __slots__ = ("_facts",)
    _facts: dict[str, Any]

    def __init__(self, facts: Mapping[str, Any] | None = None) -> None:
        """Take a mapping of names to facts, or None; InputError for anything else."""
        given: Any = {} if facts is None else facts
        if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
            raise InputError(f"certificate={quote(facts)} must be a mapping of names to facts")
        plain = {str(name): _freeze(fact) for name, fact in given.items()}
        object.__setattr__(self, "_facts", {**dict.fromkeys(COMMON), **plain})

    def __getitem__(self, name: str) -> Any:
        return self._facts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and name in self._facts:
            return self._facts[name]
        raise AttributeError(f"this certificate has no {name!r}; it has {list(self._facts)}")

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to {name!r}: a certificate never changes")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete {name!r}: a certificate never changes")

    def __repr__(self) -> str:
        note = "" if self.fitted is not False else "nothing learned yet: "
        return f"MetricCertificate({note}{self._facts!r})"

    @property
    def fitted(self) -> bool | None:
        """Whether the metric has learned from a label or a pair; None where that is not stated."""
        counts = [self._facts["labelled"], self._facts["pairs"]]
        stated = [count for count in counts if count is not None]
        return any(stated) if stated else None

    def __hash__(self) -> int:
        return hash(tuple(self._facts))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.as_dict(),)

    def __pack__(self) -> dict[str, object]:
        return self._facts

    @classmethod
    def __unpack__(cls, facts: dict[str, object]) -> Self:
        return cls(facts)

    def as_dict(self) -> dict[str, Any]:
        """The facts in a dict of its own, JSON-ready."""
        return {name: _thaw(fact) for name, fact in self._facts.items()}


def _freeze(fact: Any) -> Any:
    """An immutable copy of a fact, of types that JSON has."""
    if isinstance(fact, np.ndarray | np.generic):
        fact = fact.tolist()
    if isinstance(fact, Mapping):
        return MappingProxyType({str(name): _freeze(value) for name, value in fact.items()})
    if isinstance(fact, list | tuple):
        return tuple(_freeze(value) for value in fact)
    if isinstance(fact, float) and not math.isfinite(fact):
        return None
    if fact is None or isinstance(fact, str | bool | int | float):
        return fact
    raise InputError(
        f"the certificate contains {quote(fact)}; its values must be numbers, strings, None, or "
        "collections of these"
    )


def _thaw(fact: Any) -> Any:
    if isinstance(fact, Mapping):
        return {name: _thaw(value) for name, value in fact.items()}
    return [_thaw(value) for value in fact] if isinstance(fact, tuple) else fact
