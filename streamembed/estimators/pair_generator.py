"""Generated pairs, without labels, for metrics of your own."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, quote
from streamembed.numeric.arrays import Array, Bools, Floats, Ints
from streamembed.pairs import pair_memory, thresholds
from streamembed.pairs.pair_memory import PairCounts, State
from streamembed.pairs.thresholds import PairSettings
from streamembed.parameters import check_names
from streamembed.validation import (
    LARGEST_DRAW,
    LARGEST_TIME,
    check_optional,
    check_real,
    check_whole,
)


@dataclass(frozen=True, slots=True, eq=False)
class GeneratedPairs:
    """New pairs from one snapshot, with the evidence for their similarity.

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


@check_names
class PairGenerator:
    """Similar and dissimilar pairs from snapshots, by thresholds on diffusion distances.

    Parameters
    ----------
    n_components
        Coordinates in which pairs are judged; None: the number of features, or of tracked pairs.
    diffusion_time
        t of (lambda / lambda_1)**t psi; None: psi as it is, the source's Laplacian eigenmap.
    percentiles
        Of the squared distances seen: the thresholds.
    similar_below, dissimilar_above
        Thresholds by hand, on squared distances in the embedding; None: by the percentiles.
    candidates
        Pairs drawn of a snapshot; one in ten is beyond a threshold.
    buffer
        Pairs remembered, so that none comes twice.
    decay
        Weight of earlier snapshots' distances, in (0, 1].
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
    >>> found = PairGenerator(n_components=1).update(engine.snapshot())
    >>> across = (found.left[:, 0] > 4.0) != (found.right[:, 0] > 4.0)
    >>> bool(across[found.similar].any()), bool(across[~found.similar].mean() > 0.9)
    (False, True)

    Notes
    -----
    Source: Jain, section 1.3; docs/algorithms/pairs.md for the departures.
    """

    def __init__(
        self,
        n_components: int | None = None,
        diffusion_time: float | None = 16.0,
        percentiles: tuple[float, float] = (5.0, 95.0),
        similar_below: float | None = None,
        dissimilar_above: float | None = None,
        candidates: int = 500,
        buffer: int = 1000,
        decay: float = 0.9,
        seed: int = 0,
    ) -> None:
        self.n_components = check_optional(check_whole, "n_components", n_components, 1)
        self.diffusion_time = check_optional(
            check_real, "diffusion_time", diffusion_time, 0.0, LARGEST_TIME
        )
        self._settings = PairSettings(
            candidates=check_whole("candidates", candidates, 1, high=LARGEST_DRAW),
            buffer=buffer,
            percentiles=percentiles,
            similar_below=similar_below,
            dissimilar_above=dissimilar_above,
            decay=decay,
            seed=seed,
        )
        self._state: State | None = None
        self._numbers: dict[Hashable, int] = {}
        self._next = 0

    @property
    def counts(self) -> PairCounts:
        """Number of candidates so far, by outcome."""
        return PairCounts() if self._state is None else self._state.counts

    def update(self, snapshot: Snapshot) -> GeneratedPairs:
        """New pairs from a snapshot's support; remembered pairs are judged again.

        A snapshot of the position that came last has nothing new to say.

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
        coordinates = thresholds.weight_columns(psi[:, :count], values[:count], self.diffusion_time)
        scaled = (snapshot.points - snapshot.center) / snapshot.scale
        births = self._number_ids(snapshot.ids.tolist())
        before = self._state or pair_memory.init(scaled.shape[1])
        if self._state is None or self._state.position != snapshot.position:
            self._state = thresholds.update(
                before,
                coordinates,
                scaled,
                births,
                snapshot.masses,
                snapshot.position,
                self._settings,
            )
        is_new, _ = pair_memory.compare(before.pairs, self._state.pairs)
        new = self._state.pairs.take(is_new)
        slots = np.searchsorted(births, new.births)
        similar_below, dissimilar_above = thresholds.compute_thresholds(self._state, self._settings)
        return GeneratedPairs(
            left=snapshot.points[slots[:, 0]],
            right=snapshot.points[slots[:, 1]],
            similar=new.similar,
            left_ids=snapshot.ids[slots[:, 0]],
            right_ids=snapshot.ids[slots[:, 1]],
            d2=new.d2,
            similar_below=similar_below,
            dissimilar_above=dissimilar_above,
            position=snapshot.position,
        )

    def _number_ids(self, ids: list[Hashable]) -> Ints:
        """A number for every id, ascending with age; those of ids that have left are forgotten."""
        numbers = {}
        for key in ids:
            numbers[key] = self._numbers.get(key, self._next)
            self._next += key not in self._numbers
        self._numbers = numbers
        return np.array(list(numbers.values()), dtype=np.int64)
