"""What changed between two snapshots of one engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from streamembed.engine.axis_messages import describe_hidden_spread, describe_lost_axes
from streamembed.errors import InputError
from streamembed.layout import measures
from streamembed.methods.frame_reference import LEAST_CORRELATION
from streamembed.methods.snapshot_contents import Frame, SnapshotContents
from streamembed.numeric.arrays import Floats
from streamembed.spectral import alignment

# A component went, or is new, where no component of the other map is as near to it as that.
ALIKE = 0.5
# Facts that all snapshots of an engine share.
PARAMETERS = ("method", "kernel", "n_neighbors", "width", "alpha", "diffusion_time")


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a later snapshot differs from an earlier one; numbers of components count from 0.

    Attributes
    ----------
    positions : (int, int)
        Of the stream: of the earlier and of the later snapshot.
    shared : int
        Events that are in both.
    share : float
        Of the later snapshot's events.
    frame : Frame
        Of the later snapshot: since when its axes are kept, and what is not shown because they are.
    epochs : int
        That have begun in between; ``same_epoch`` is whether it is 0.
    lost : tuple of int
        Axes that were lost in between or at either end, or have turned: over the shared events,
        where these are half or more, an axis correlates below .95 with itself. All others are
        compared as they are.
    movement : float
        Of the shared events, after the best rotation, reflection and shift: root mean square, in
        units of the spread of the earlier coordinates. NaN where fewer than three are shared.
    correlations : tuple of float
        Of each axis with itself in the earlier snapshot, over the shared events.
    covered : float
        Median coverage of the later snapshot's new events by the earlier one: near 0, they are like
        nothing that it had. NaN without new events, or of distances.
    gone, come : tuple of int
        Components of the earlier map that no component of the later one resembles, and of the later
        one that the earlier did not have.
    """

    positions: tuple[int, int]
    shared: int
    share: float
    frame: Frame
    epochs: int
    lost: tuple[int, ...]
    movement: float
    correlations: tuple[float, ...]
    covered: float
    gone: tuple[int, ...]
    come: tuple[int, ...]

    @property
    def same_epoch(self) -> bool:
        """Whether no epoch has begun in between."""
        return self.epochs == 0

    def __repr__(self) -> str:
        first, last = self.positions
        lines = [
            f"<Comparison of events {first:,} and {last:,}: {self.shared:,} events in both "
            f"({self.share:.0%})",
            f"  axes: {self._describe_axes()}",
        ]
        if self.shared:
            correlations = ", ".join(f"{value:.2f}" for value in self.correlations)
            moved = "too few to compare" if np.isnan(self.movement) else f"{self.movement:.2f}"
            lines += [
                f"  correlation of each axis with itself: {correlations}",
                f"  movement after the best rotation: {moved} of the spread",
            ]
        if not np.isnan(self.covered):
            lines.append(f"  the new events were covered by {self.covered:.2f} (median)")
        for name, components in (("gone", self.gone), ("come", self.come)):
            if components:
                lines.append(f"  components {name}: {', '.join(map(str, components))}")
        return "\n".join(lines) + ">"

    def _describe_axes(self) -> str:
        since, later = f"since event {self.frame.since:,}", f"{self.epochs} epochs later, "
        if self.same_epoch:
            parts = [f"one epoch {since}, fidelity {self.frame.fidelity:.2f}"]
        else:
            parts = [f"another epoch, {later if self.epochs > 1 else ''}{since}"]
        parts.append(describe_lost_axes(self.lost))
        parts.append(describe_hidden_spread(self.frame, len(self.correlations)))
        return "; ".join(part for part in parts if part)


def compare(
    earlier: SnapshotContents,
    later: SnapshotContents,
    cover: Callable[[Floats], tuple[Floats, Floats]],
) -> Comparison:
    """See `streamembed.Snapshot.compare`; ``cover`` is the extension of the earlier."""
    k = later.psi.shape[1]
    facts = {name: (getattr(earlier, name), getattr(later, name)) for name in PARAMETERS}
    facts["n_components"] = earlier.psi.shape[1], k
    facts["the kind of ids"] = earlier.ids.dtype.kind, later.ids.dtype.kind
    for name, (one, other) in facts.items():
        if one != other:
            raise InputError(
                f"other must be a snapshot of the same engine: {name} is {one} and {other} of the "
                "two"
            )
    _, here, there = np.intersect1d(later.ids, earlier.ids, return_indices=True)
    # an id may be used again once its event is gone
    same = (later.points[here] == earlier.points[there]).all(axis=1)
    here, there = here[same], there[same]
    before, after = earlier.coordinates[there], later.coordinates[here]
    correlations = np.full(k, np.nan)
    if len(here) > 1:
        correlations = alignment.correlate_matching_columns(after, before)
    has_moved = np.array(later.frame.kept_since) > earlier.position
    if earlier.frame.since < earlier.position:  # axes that had turned out of the frame then
        has_moved |= np.array(earlier.frame.kept_since) == earlier.position
    if 2 * len(here) >= len(later.ids):  # of fewer, correlations say little of an axis
        has_moved |= correlations < LEAST_CORRELATION
    gone, come = _find_unlike_components(earlier.psi[there], later.psi[here])
    fresh = np.delete(np.arange(len(later.ids)), here)
    covered = np.nan
    if len(fresh) and later.points.shape[1] and later.points.shape[1] == earlier.points.shape[1]:
        covered = float(np.median(cover(later.points[fresh])[1]))
    return Comparison(
        positions=(earlier.position, later.position),
        shared=len(here),
        share=len(here) / len(later.ids),
        frame=later.frame,
        epochs=later.frame.epoch - earlier.frame.epoch,
        lost=tuple(np.flatnonzero(has_moved).tolist()),
        movement=_measure_movement(before, after),
        correlations=tuple(correlations.tolist()),
        covered=covered,
        gone=gone,
        come=come,
    )


def _measure_movement(before: Floats, after: Floats) -> float:
    """Root mean square movement, after the best rotation, reflection and shift."""
    if len(before) < 3:
        return np.nan
    aligned = measures.align(after, before, np.arange(len(before)))
    spread = float(((before - before.mean(axis=0)) ** 2).sum())
    return float(np.sqrt(((aligned - before) ** 2).sum() / (spread or 1.0)))


def _find_unlike_components(
    before: Floats, after: Floats
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Columns of each map of which less than a share lies in the span of the other's."""
    if len(before) < 3:
        return (), ()
    return _measure_outside(before, after), _measure_outside(after, before)


def _measure_outside(columns: Floats, span: Floats) -> tuple[int, ...]:
    centred = columns - columns.mean(axis=0)
    basis = np.linalg.svd(span - span.mean(axis=0), full_matrices=False)[0]
    sizes = (centred**2).sum(axis=0)
    inside = ((basis.T @ centred) ** 2).sum(axis=0)
    return tuple(np.flatnonzero(inside < ALIKE * sizes).tolist())
