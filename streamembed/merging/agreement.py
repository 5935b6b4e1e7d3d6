"""What sets of landmarks must have in common before they are merged."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from streamembed.errors import shown
from streamembed.geometry.scaling import Scaling
from streamembed.numeric.arrays import Floats

__all__ = ["Agreement"]

DIGEST = 16  # bytes


@dataclass(frozen=True)
class Agreement:
    """What makes distances and masses of two sets comparable.

    Attributes
    ----------
    features : tuple of str
        In order.
    ordered : bool
        Whether the features are places, as those of an array.
    scale : tuple of float
        What features are divided by; distances do not know what is subtracted before.
    bandwidth : float or None
        Of a gaussian kernel, in scaled units; None where points have widths of their own.
    half_life : float or None
        In units of the clock, after which a mass has halved.
    clock : str
        What masses fade by.
    epoch : int
        How often it was made anew.
    """

    features: tuple[str, ...]
    ordered: bool
    scale: tuple[float, ...]
    bandwidth: float | None
    half_life: float | None
    clock: str
    epoch: int = 0

    @cached_property
    def hash(self) -> str:
        """32 hexadecimal digits that two agreements share only if they are equal to the bit."""
        told = {name: _exact(value) for name, value in asdict(self).items()}
        text = json.dumps(told, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=DIGEST).hexdigest()

    def scaling(self, center: Floats | None = None) -> Scaling:
        """Of points, with a center (d,), or 0; its bandwidth is 1 where there is none."""
        scale = np.array(self.scale, dtype=np.float64)
        made = Scaling(np.zeros(len(scale)) if center is None else center, scale, 1.0)
        return made.of_bandwidth(self.bandwidth or 1.0)

    def differences(self, other: Agreement) -> list[str]:
        """What the other has otherwise, a phrase each."""
        mine, theirs = asdict(self), asdict(other)
        return [
            f"{name} is {shown(_brief(theirs[name]))} there and {shown(_brief(value))} here"
            for name, value in mine.items()
            if _exact(value) != _exact(theirs[name])
        ]

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, JSON-ready; `from_dict` is the inverse, bit for bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, told: dict[str, Any]) -> Self:
        """What `as_dict` gave; TypeError, ValueError or KeyError for anything else."""
        lists = {name: tuple(told[name]) for name in ("features", "scale")}
        made = cls(**{**told, **lists})
        made.check()
        return made

    def check(self) -> None:
        """ValueError where no stream can be learned so."""
        if not all(type(name) is str for name in self.features):
            raise ValueError("features are not text")
        if type(self.ordered) is not bool or type(self.epoch) is not int:
            raise ValueError("ordered or epoch")
        if type(self.clock) is not str:
            raise ValueError("clock")
        given = [value for value in (self.bandwidth, self.half_life) if value is not None]
        numbers = [*self.scale, *given]
        if not all(type(value) is float and np.isfinite(value) for value in numbers):
            raise ValueError("a number is not finite")
        if len(self.scale) != len(self.features):
            raise ValueError("scale is not that of the features")
        if not all(value > 0 for value in numbers):
            raise ValueError("a scale, bandwidth or half-life is not positive")


def _exact(value: Any) -> Any:
    """The same for JSON, numbers to the last bit."""
    if isinstance(value, float):
        return value.hex()
    return [_exact(one) for one in value] if isinstance(value, (tuple, list)) else value


def _brief(value: Any) -> Any:
    return value[:3] if isinstance(value, tuple) and len(value) > 3 else value
