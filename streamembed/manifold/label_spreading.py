"""Labels spread over the nearest neighbours of a stream's newest events, few of which have one.

    (I - a S) F = Y,   S = D^-1/2 W D^-1/2,   W_ij = exp(-d_ij^2 / (s_i s_j)) between neighbours

The graph has the newest events, the *window*, and *anchors*: labelled events that have left it.
Conjugate gradients start from the F of the chunk before.

Symbols: n = slots, c = classes, a = damping, W = weights, D = degrees, s_i = distance to the 7th
neighbour, Y = 1 where a slot has the label of the class, F = scores.

Source: Zhou, Bousquet, Lal, Weston & Schoelkopf (2004), "Learning with local and global
consistency"; widths of Zelnik-Manor & Perona (2004). Differs: 1. neighbours in place of all points.
2. Scores of a class are divided by a power of its number of labels. 3. The graph follows a stream,
and keeps labelled events.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import cdist

from streamembed.geometry.lists import NeighborLists, Slots
from streamembed.geometry.pairwise import PointDistances, split_slots
from streamembed.numeric.arrays import Array, Floats, Ints, pad
from streamembed.spectral import adjacency

UNLABELLED = -1
# Anchors of a class, and of all: the oldest of the class that has most of them goes.
CLASS_ANCHORS, MOST_ANCHORS = 40, 400
# Of the residual of every column, relative to that of F = 0.
TOLERANCE = 1e-3
# Residuals are updated, not computed: stop where they are half of what the certificate may say.
SAFETY = 0.5
# With a damping a the error falls by (1 - sqrt(1 - a)) a step: 300 steps for a = .9995.
MOST_STEPS = 1000
# 0 is the sum of a class's labels, 1 their mean; below 1 the majority decides among equal points.
BALANCE = 0.9
# The same where questions are chosen: what more labels have reached counts for more.
REACH_BALANCE = 0.5
# A score of one fifth halves what a label is worth to `choose_questions`.
REACH = 5.0


@dataclass(frozen=True, slots=True, eq=False)
class LabelGraph:
    """Window and anchors with their scores: a value, whose arrays are never written."""

    points: Floats  # (n, d), scaled
    positions: Ints  # (n,): of the events in the stream
    classes: Ints  # (n,), UNLABELLED where there is no label
    window: Ints  # slots of the newest events, oldest first; the others are anchors
    lists: NeighborLists
    scores: Floats  # (n, c): F
    widths: Floats  # (n,): s
    degrees: Floats  # (n,): D
    residual: float  # the largest of the columns, relative; 0 without labels


def create_empty(width: int, n_neighbors: int) -> LabelGraph:
    """No events yet, of so many features."""
    points, no_slots, nothing = np.zeros((0, width)), np.zeros(0, dtype=np.int64), np.zeros(0)
    lists = NeighborLists.build(PointDistances(points), no_slots, n_neighbors)
    slots = no_slots, no_slots, no_slots
    return LabelGraph(points, *slots, lists, np.zeros((0, 0)), nothing, nothing, residual=0.0)


def advance(
    graph: LabelGraph,
    points: Floats,
    positions: Ints,
    classes: Ints,
    n_classes: int,
    size: int,
    damping: float,
) -> LabelGraph:
    """The graph after a chunk, with the scores of its labels.

    Parameters
    ----------
    points, positions, classes
        Of the events that arrive, (b, d), (b,) and (b,); b = 0 solves again for changed classes.
    n_classes
        Classes so far, at least those that occur.
    size
        Events of the window.

    Returns
    -------
    LabelGraph
        O(b n d + n K c) a step of conjugate gradients.
    """
    if len(points):
        graph = _place_events(graph, points, positions, classes, size)
    walk, widths, degrees = build_walk(*graph.lists.nearest)
    scores = np.pad(graph.scores, ((0, 0), (0, n_classes - graph.scores.shape[1])))
    labels = (graph.classes[:, None] == np.arange(n_classes)).astype(np.float64)
    scores, residual = solve(walk, labels, scores, damping)
    return replace(graph, scores=scores, widths=widths, degrees=degrees, residual=residual)


def _place_events(
    graph: LabelGraph, points: Floats, positions: Ints, classes: Ints, size: int
) -> LabelGraph:
    """With events in the slots of those that leave; labelled ones stay as anchors."""
    window = deque(graph.window.tolist())
    of_slot = graph.classes.tolist()
    anchors: dict[int, deque[int]] = {}
    is_anchor = ~np.isin(np.arange(len(of_slot)), graph.window)
    for slot in np.flatnonzero(is_anchor)[np.argsort(graph.positions[is_anchor])].tolist():
        anchors.setdefault(of_slot[slot], deque()).append(slot)
    event_of = dict[int, int]()  # slot -> the last of the events that it got
    for event, code in enumerate(classes.tolist()):
        slot = len(of_slot)
        if len(window) == size:
            slot = _release(window.popleft(), of_slot, anchors)
        of_slot[slot : slot + 1] = [code]
        window.append(slot)
        event_of[slot] = event
    slots, events = (np.array(part) for part in zip(*sorted(event_of.items()), strict=True))
    old = graph.points, graph.positions, graph.scores
    new_points, new_positions, scores = (pad(part, len(of_slot)) for part in old)
    new_points[slots], new_positions[slots], scores[slots] = points[events], positions[events], 0.0
    return replace(
        graph,
        points=new_points,
        positions=new_positions,
        classes=np.array(of_slot, dtype=np.int64),
        window=np.array(window, dtype=np.int64),
        lists=graph.lists.replace(slots, PointDistances(new_points), new_positions),
        scores=scores,
    )


def _release(slot: int, of_slot: list[int], anchors: dict[int, deque[int]]) -> int:
    """Which slot becomes free where an event leaves the window: a new one where it stays."""
    code = of_slot[slot]
    if code == UNLABELLED:
        return slot
    own = anchors.setdefault(code, deque())
    own.append(slot)
    if len(own) > CLASS_ANCHORS:
        return own.popleft()
    if sum(map(len, anchors.values())) > MOST_ANCHORS:
        return max(anchors.values(), key=len).popleft()
    return len(of_slot)


def build_walk(near: Slots, d2: Floats) -> tuple[csr_array, Floats, Floats]:
    """S (n, n), widths and degrees (n,), of lists of neighbours (n, K): slots and d2.

    A point without neighbours has a row of 0.
    """
    graph = adjacency.join_lists((near, d2), "self_tuning", 1.0)
    widths = adjacency.compute_local_scales(d2)
    degrees = np.asarray(graph.sum(axis=1)).ravel()
    roots = np.divide(1.0, np.sqrt(degrees), out=np.zeros(len(degrees)), where=degrees > 0.0)
    graph.data *= np.repeat(roots, np.diff(graph.indptr)) * roots[graph.indices]
    return graph, widths, degrees


def solve(walk: csr_array, labels: Floats, start: Floats, damping: float) -> tuple[Floats, float]:
    """F of (I - a S) F = Y, from ``start``, by conjugate gradients, a column each.

    Parameters
    ----------
    walk, labels, start
        S (n, n), Y (n, c) and a first F (n, c).

    Returns
    -------
    scores, residual
        F, and the largest of |Y - (I - a S) F| / |Y| over the columns that have labels; columns
        without are 0.
    """
    norms = np.linalg.norm(labels, axis=0)
    # 0 where no label of a class is connected: what is left of an old start would be a certain one
    n_parts, parts = connected_components(walk, directed=False)
    is_reached = np.zeros((n_parts, labels.shape[1]), dtype=np.bool_)
    rows, columns = np.nonzero(labels)
    is_reached[parts[rows], columns] = True
    scores = np.where(is_reached[parts], start, 0.0)
    rest = labels - scores + damping * (walk @ scores)
    direction, squares = rest, np.einsum("ij,ij->j", rest, rest)
    limits = (SAFETY * TOLERANCE * norms) ** 2
    for _ in range(MOST_STEPS):
        if (squares <= limits).all():
            break
        image = direction - damping * (walk @ direction)
        curvature = np.einsum("ij,ij->j", direction, image)
        step = np.divide(squares, curvature, out=np.zeros(len(squares)), where=curvature > 0.0)
        scores = scores + step * direction
        rest = rest - step * image
        previous, squares = squares, np.einsum("ij,ij->j", rest, rest)
        ratio = np.divide(squares, previous, out=np.zeros(len(squares)), where=previous > 0.0)
        direction = rest + ratio * direction
    rest = labels - scores + damping * (walk @ scores)
    has_labels = norms > 0.0
    residuals = np.linalg.norm(rest[:, has_labels], axis=0) / norms[has_labels]
    return scores, float(residuals.max(initial=0.0))


def score(graph: LabelGraph, points: Floats, damping: float) -> Floats:
    """Scores of new points (m, d), as if each were one slot more whose score changes no other.

    Returns
    -------
    Shape (m, c), of each class as `balance` has them. O(m n d).
    """
    scores = balance(graph, graph.scores)
    result = np.zeros((len(points), scores.shape[1]))
    for rows in split_slots(np.arange(len(points)), len(graph.points)):
        d2 = cdist(points[rows], graph.points, "sqeuclidean")
        near = np.argsort(d2, axis=1, kind="stable")[:, : graph.lists.n_neighbors]
        near_d2 = np.take_along_axis(d2, near, 1)
        widths = np.sqrt(near_d2[:, : adjacency.SCALE_NEIGHBOR][:, -1])
        widths = np.maximum(widths, graph.widths.min())
        with np.errstate(under="ignore"):
            weights = np.exp(-(near_d2 / widths[:, None]) / graph.widths[near])
        degrees = graph.degrees[near] * weights.sum(axis=1, keepdims=True)
        shares = np.divide(
            damping * weights, np.sqrt(degrees), out=np.zeros_like(weights), where=degrees > 0.0
        )
        result[rows] = np.einsum("ij,ijc->ic", shares, scores[near])
    return result


def balance(graph: LabelGraph, scores: Floats, power: float = BALANCE) -> Floats:
    """Scores (m, c), of each class divided by a power of its number of labels."""
    counts = np.bincount(graph.classes[graph.classes >= 0], minlength=scores.shape[1])
    return scores / np.maximum(counts, 1) ** power


def compute_shares(scores: Floats) -> Floats:
    """Scores (m, c) as probabilities: their shares; equal ones where no label is reached."""
    positive = np.maximum(scores, 0.0)
    totals = positive.sum(axis=1, keepdims=True)
    equal = np.full(scores.shape, 1.0 / max(1, scores.shape[1]))
    shares: Floats = np.divide(positive, totals, out=equal, where=totals > 0.0)
    return shares


def choose_questions(graph: LabelGraph, n: int, damping: float) -> Ints:
    """Slots of the n events of the window whose labels would tell most, best first.

    Each is the one whose label would reach most events that are uncertain, or reached by no label:
    the largest entry of (I - a S)^-1 u with u = (1 - margin) / (1 + 5 F 1), the margin that of the
    two likeliest classes. What was chosen counts as a label of unknown class.
    """
    walk, _, _ = build_walk(*graph.lists.nearest)
    scores = balance(graph, graph.scores, REACH_BALANCE)
    doubt, reach = np.ones(len(scores)), scores.sum(axis=1)
    if scores.shape[1] > 1:
        ordered = np.sort(compute_shares(scores), axis=1)
        doubt = 1.0 - (ordered[:, -1] - ordered[:, -2])
    is_open = np.isin(np.arange(len(scores)), graph.window) & (graph.classes == UNLABELLED)
    chosen: list[int] = []
    for _ in range(min(n, int(is_open.sum()))):
        worth = _spread_column(walk, doubt / (1.0 + REACH * np.maximum(reach, 0.0)), damping)
        slot = int(np.where(is_open, worth, -np.inf).argmax())
        chosen.append(slot)
        is_open[slot] = False
        reach = reach + _spread_column(walk, np.arange(len(reach)) == slot, damping)
    return np.array(chosen, dtype=np.int64)


def _spread_column(walk: csr_array, column: Array, damping: float) -> Floats:
    """(I - a S)^-1 of a column (n,)."""
    right = column.astype(np.float64)[:, None]
    return solve(walk, right, np.zeros_like(right), damping)[0][:, 0]
