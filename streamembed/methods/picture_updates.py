"""The picture beside the coordinates: when it is laid out, spread out again, or followed.

It depends on the nearest neighbours that the method keeps, or on lists of its own where the method
has none. It changes nothing of the embedding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamembed.geometry.lists import NeighborLists
from streamembed.layout import layout, measures
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Ints

# Where more than this share of the slots is new, there is no picture to follow.
MOST_NEW = 1 / 2
# While the support grows, the picture is spread out again whenever it has grown by this factor.
GROWTH = 2


def begin(state: State, config: Config) -> State:
    """The state with a first picture, where one is asked for."""
    if not config.picture:
        return state
    lists, positions = _find_lists(state, config), state.support.births
    has_own_lists = state.lists is None
    columns = state.frame.columns  # the slots filled since it was renewed begin in the middle
    columns = np.pad(columns, ((0, len(positions) - len(columns)), (0, 0)))
    picture = layout.init(
        lists, has_own_lists, columns, positions, config.spread, label_duplicates(state)
    )
    return replace(state, picture=picture)


def relayout(state: State, shared: Ints, config: Config) -> State:
    """The state with a picture from scratch, turned as the one that it has, by the slots shared."""
    picture = begin(state, config).picture
    assert state.picture is not None
    assert picture is not None
    return replace(state, picture=layout.start_epoch(state.picture, picture, shared))


def update_picture(previous: State, following: State, slots: Ints, config: Config) -> State:
    """The state after a chunk that filled ``slots``, with its picture."""
    picture, arrivals = previous.picture, following.support.births
    if picture is None:
        return following
    n, remaining = len(arrivals), np.setdiff1d(np.arange(len(previous.support)), slots)
    if len(remaining) < MOST_NEW * n:
        return relayout(replace(following, picture=picture), remaining, config)
    previous_lists, lists = select_lists(previous), following.lists
    if lists is None:
        lists = previous_lists.replace(slots, following.as_input(slots).geometry, arrivals)
        if following.scaling is not previous.scaling:
            lists = _find_lists(following, config)
    positions = previous.position, following.position
    followed = layout.update(
        picture, previous_lists, lists, slots, arrivals, positions, config.spread
    )
    is_full = picture.laid_out < n == config.max_slots
    if n >= GROWTH * picture.laid_out or is_full:
        followed = layout.start_spreading(followed)
    elif picture.steps_left and not followed.steps_left:
        followed = layout.record_kept_at_rest(followed, lists, label_duplicates(following))
    return replace(following, picture=followed)


def _find_lists(state: State, config: Config) -> NeighborLists:
    """The lists of the method, or lists from scratch."""
    geometry = state.as_input().geometry
    return state.lists or NeighborLists.build(geometry, state.support.births, config.n_neighbors)


def select_lists(state: State) -> NeighborLists:
    """The nearest neighbours that the picture depends on."""
    lists = state.lists
    if lists is None:
        assert state.picture is not None
        lists = state.picture.lists
    assert lists is not None
    return lists


def label_duplicates(state: State) -> Ints:
    """A label for every slot, one for equal points: they are neighbours, listed or not."""
    if state.distances is None:
        return measures.label_duplicates(state.support.scaled)
    labels: Ints = np.argmax(state.distances.weights == 0, axis=1).astype(np.int64)
    return labels
