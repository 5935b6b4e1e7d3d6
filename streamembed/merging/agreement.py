"""The settings that sets of landmarks must share before they are merged."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any, Self

import numpy as np

from streamembed.data.features import Features
from streamembed.errors import quote
from streamembed.geometry.scaling import Scaling
from streamembed.numeric import codec
from streamembed.numeric.arrays import Floats

DIGEST = 16  # bytes
Positive = Annotated[float, "finite", "positive"]


@dataclass(frozen=True)
class MergeSettings:
    """The settings that make distances and masses of two sets comparable."""

    features: Annotated[tuple[str, ...], "different"]  # in order
    ordered: bool  # whether features are known by position, as those of an array
    # What features are divided by; what is subtracted first does not change distances.
    scale: tuple[Positive, ...]
    # Of a gaussian kernel, in scaled units; None where points have widths of their own.
    bandwidth: Positive | None
    half_life: Positive | None  # in units of the clock, after which a mass has halved
    clock: str  # the clock by which masses fade
    metric: str = "euclidean"  # or "cosine"
    epoch: int = 0  # how often it was recomputed

    def as_features(self) -> Features:
        """Names and order of the features as one value."""
        return Features(self.features, self.ordered, self.metric)

    @cached_property
    def hash(self) -> str:
        """32 hexadecimal digits, equal for two agreements only if these are equal to the bit."""
        exact = {name: _to_exact(value) for name, value in asdict(self).items()}
        text = json.dumps(exact, sort_keys=True, separators=(",", ":"))
        return hashlib.blake2b(text.encode(), digest_size=DIGEST).hexdigest()

    def scaling(self, center: Floats | None = None) -> Scaling:
        """The scaling of points, with a center (d,) or 0; bandwidth 1 where there is none."""
        scale = np.array(self.scale, dtype=np.float64)
        scaling = Scaling(np.zeros(len(scale)) if center is None else center, scale, 1.0)
        return scaling.with_bandwidth(self.bandwidth or 1.0)

    def differences(self, other: MergeSettings) -> list[str]:
        """The fields in which the other differs, a phrase each."""
        own, theirs = asdict(self), asdict(other)
        return [
            f"{name} is {quote(_shorten(theirs[name]))} there and {quote(_shorten(value))} here"
            for name, value in own.items()
            if _to_exact(value) != _to_exact(theirs[name])
        ]

    def as_dict(self) -> dict[str, Any]:
        """Fields by name, JSON-ready; `from_dict` is the inverse, bit for bit."""
        return asdict(self)

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """The agreement of such fields; TypeError, ValueError or KeyError for anything else."""
        agreement: Self = codec.unpack(cls, {}, fields)
        return agreement

    @staticmethod
    def __unpack__(packed: MergeSettings) -> MergeSettings:
        """ValueError for scales of other features."""
        if len(packed.scale) != len(packed.features):
            raise ValueError("scale is not that of the features")
        return packed


def _to_exact(value: Any) -> Any:
    """The value for JSON, numbers to the last bit."""
    if isinstance(value, float):
        return value.hex()
    return [_to_exact(item) for item in value] if isinstance(value, (tuple, list)) else value


def _shorten(value: Any) -> Any:
    return value[:3] if isinstance(value, tuple) and len(value) > 3 else value
