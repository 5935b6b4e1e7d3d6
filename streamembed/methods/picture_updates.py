"""The picture beside the coordinates: when it is laid out, spread out again, or followed.

It hangs on the nearest neighbours that the method keeps, or on lists of its own where the method
has none. It changes nothing of the embedding.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamembed.geometry.lists import Lists
from streamembed.geometry.pairwise import Pairwise
from streamembed.layout import layout, measures
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.numeric.arrays import Ints, frozen

__all__ = ["begin", "find_twins", "follow", "lay_out_again", "lists_of", "respread"]

# Where more than this share of the slots is new, there is no picture to follow.
MOST_NEW = 1 / 2
# While the support grows, the picture is spread out again whenever there are so many times more.
GROWTH = 2


def begin(state: State, near: Pairwise, config: Config) -> State:
    """The state with a first picture, where one is asked for."""
    if not config.picture:
        return state
    lists, births = state.lists, state.support.births
    own = lists is None
    if lists is None:
        lists = Lists.build(near, births, config.n_neighbors)
    columns = state.frame.columns  # the slots filled since it was renewed begin in the middle
    columns = np.pad(columns, ((0, len(births) - len(columns)), (0, 0)))
    laid = layout.anew(lists, own, columns, births, config.spread, find_twins(state))
    return replace(state, picture=laid)


def lay_out_again(state: State, shared: Ints, near: Pairwise, config: Config) -> State:
    """The state with a picture from scratch, turned as the one that it has, by the slots shared."""
    fresh = begin(state, near, config).picture
    assert state.picture is not None
    assert fresh is not None
    return replace(state, picture=layout.again(state.picture, fresh, shared))


def respread(state: State, near: Pairwise, config: Config) -> State:
    """The state with a picture whose points have come to rest under new lists."""
    if state.picture is None:
        return state
    lists = state.lists or Lists.build(near, state.support.births, config.n_neighbors)
    twins = find_twins(state)
    return replace(state, picture=layout.respread(state.picture, lists, config.spread, twins))


def follow(before: State, after: State, slots: Ints, near: Pairwise, config: Config) -> State:
    """The state after a chunk that filled ``slots``, with its picture."""
    picture, births = before.picture, after.support.births
    if picture is None:
        return after
    n, stayed = len(births), np.setdiff1d(np.arange(len(before.support)), slots)
    if len(stayed) < MOST_NEW * n:
        return lay_out_again(replace(after, picture=picture), stayed, near, config)
    earlier, lists = lists_of(before), after.lists
    if lists is None:
        lists = earlier.replace(slots, near, births)[0]
        if after.scaling is not before.scaling:
            lists = Lists.build(near, births, config.n_neighbors)
    positions = before.position, after.position
    followed = layout.follow(picture, earlier, lists, slots, births, positions, config.spread)
    is_full = picture.laid_out < n == config.slots
    if n >= GROWTH * picture.laid_out or is_full:
        followed = layout.respread(followed, lists, config.spread, find_twins(after))
        steps = followed.places[stayed] - picture.places[stayed]
        moved = np.zeros(n)  # by all of it, and newcomers have not moved
        moved[stayed] = np.sqrt((steps**2).sum(axis=1))
        followed = replace(followed, moved=frozen(moved))
    return replace(after, picture=followed)


def lists_of(state: State) -> Lists:
    """The nearest neighbours that the picture hangs on."""
    lists = state.lists
    if lists is None:
        assert state.picture is not None
        lists = state.picture.lists
    assert lists is not None
    return lists


def find_twins(state: State) -> Ints:
    """A label for every slot, one for equal points: they are neighbours, listed or not."""
    if state.distances is None:
        return measures.twins_of(state.support.scaled)
    labels: Ints = np.argmax(state.distances.weights == 0, axis=1).astype(np.int64)
    return labels
