"""Rows of the matrices that methods are made of, and their normalisation."""

from __future__ import annotations

from collections.abc import Callable

from streamembed.methods.options import Config
from streamembed.numeric.arrays import Floats, Ints
from streamembed.spectral import operator
from streamembed.spectral.operator import Normalisation

# W x for one x, shape (n,): by all weights, by trial functions, or of some rows of W alone.
Product = Callable[[Floats], Floats]
# All slots of a support.
EVERYWHERE = slice(None)


def normalise(
    degrees: Floats,
    masses: Floats,
    config: Config,
    product: Product,
    slots: Ints | slice = EVERYWHERE,
) -> Normalisation:
    """The normalisation of some slots, by one ``product`` with W at most: alpha 0 needs none.

    Of a walk the sampling density is taken out to the power alpha, and the rows are made to sum to
    1; of a centred method every event weighs the same.
    """
    if config.is_centred:
        normal = operator.weigh_equally(masses)
        return Normalisation(normal.density[slots], normal.scaling[slots], normal.stationary[slots])
    density = degrees**-config.correction
    spread = degrees[slots] if config.correction == 0.0 else product(masses * density)
    return operator.normalise(density[slots], masses[slots], spread)
