"""Generated pairs, without labels, for metrics of your own."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, ParameterError, quote
from streamembed.numeric.arrays import Array, Bools, Floats
from streamembed.pairs import thresholds
from streamembed.parameters import declare_parameters
from streamembed.validation import (
    LARGEST_D2,
    LARGEST_DRAW,
    LARGEST_SEED,
    LARGEST_TIME,
    check_optional,
    check_percentiles,
    check_real,
    check_whole,
)


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedPairs:
    """Pairs of one snapshot, with the evidence for their similarity.

    Attributes
    ----------
    left, right : (p, d)
        The points, in the caller's units.
    similar : (p,)
        True for a similar pair.
    left_ids, right_ids : (p,)
    d2 : (p,)
        Squared distance in the embedding.
    similar_below, dissimilar_above : float
        Thresholds on it: similar at most, dissimilar at least.
    position : int
        Of the snapshot.
    """

    left: Floats
    right: Floats
    similar: Bools
    left_ids: Array
    right_ids: Array
    d2: Floats
    similar_below: float
    dissimilar_above: float
    position: int

    def __len__(self) -> int:
        return len(self.d2)


@declare_parameters({})
class PairGenerator:
    """Similar and dissimilar pairs of a snapshot, by thresholds on diffusion distances.

    Parameters
    ----------
    n_components
        Coordinates in which pairs are judged; None: the number of features, or of tracked pairs.
    diffusion_time
        t of (lambda / lambda_1)**t psi; None: psi as it is, the source's Laplacian eigenmap.
    percentiles
        Of the squared distances of the candidates: the thresholds.
    similar_below, dissimilar_above
        Thresholds by hand, on squared distances in the embedding; None: by the percentiles.
    candidates
        Pairs drawn of a snapshot; one in ten is beyond a threshold.
    seed
        Of the draws, together with the stream position.

    Raises
    ------
    ParameterError
        A parameter cannot have that value.

    Examples
    --------
    >>> import numpy as np
    >>> from streamembed import Engine
    >>> engine = Engine(size=200)
    >>> points = np.random.default_rng(0).standard_normal((200, 3))
    >>> points[::2, 0] += 8.0
    >>> _ = engine.learn(points)
    >>> found = PairGenerator(n_components=1).draw(engine.snapshot())
    >>> across = (found.left[:, 0] > 4.0) != (found.right[:, 0] > 4.0)
    >>> bool(across[found.similar].any()), bool(across[~found.similar].mean() > 0.9)
    (False, True)

    Notes
    -----
    Source: Jain, section 1.3; docs/algorithms/pairs.md for the departures.
    """

    n_components: int | None = None
    diffusion_time: float | None = 16.0
    percentiles: tuple[float, float] = thresholds.PERCENTILES
    similar_below: float | None = None
    dissimilar_above: float | None = None
    candidates: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the parameters."""
        low, high = self.similar_below, self.dissimilar_above
        check_optional(check_real, "similar_below", low, 0.0, LARGEST_D2)
        check_optional(check_real, "dissimilar_above", high, 0.0, LARGEST_D2)
        if low is not None and high is not None and not low < high:
            raise ParameterError(f"similar_below={low} must be below dissimilar_above={high}")
        check_optional(check_whole, "n_components", self.n_components, 1)
        check_optional(check_real, "diffusion_time", self.diffusion_time, 0.0, LARGEST_TIME)
        self.percentiles = check_percentiles("percentiles", self.percentiles)
        check_whole("candidates", self.candidates, 1, high=LARGEST_DRAW)
        check_whole("seed", self.seed, 0, high=LARGEST_SEED)

    def draw(self, snapshot: Snapshot) -> GeneratedPairs:
        """Pairs of a snapshot's support; of one snapshot always the same.

        Raises
        ------
        InputError
            The snapshot was learned from distances: its objects have no points to pair.
        """
        if not isinstance(snapshot, Snapshot):
            raise InputError(f"snapshot={quote(snapshot)} must be a Snapshot of an engine")
        if not snapshot.feature_names:
            raise InputError("the snapshot was learned from distances: it has no points to pair")
        psi, values = snapshot.tracked_pairs()
        count = self.n_components or snapshot.points.shape[1]
        drawn = thresholds.draw_pairs(
            thresholds.weight_columns(psi[:, :count], values[:count], self.diffusion_time),
            (snapshot.points - snapshot.center) / snapshot.scale,
            self.candidates,
            np.random.default_rng((self.seed, snapshot.position)),
            self.percentiles,
            self.similar_below,
            self.dissimilar_above,
        )
        return GeneratedPairs(
            left=snapshot.points[drawn.left],
            right=snapshot.points[drawn.right],
            similar=drawn.similar,
            left_ids=snapshot.ids[drawn.left],
            right_ids=snapshot.ids[drawn.right],
            d2=drawn.d2,
            similar_below=drawn.similar_below,
            dissimilar_above=drawn.dissimilar_above,
            position=snapshot.position,
        )
