"""What an engine begins with that is made of a set of landmarks instead of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamembed.data.batch import Batch
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, ParameterError, shown
from streamembed.merging import landmark_set
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.methods import frame_reference, publish, update
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.threads import one_blas_thread
from streamembed.validation import whole

__all__ = ["begin", "parameters_of"]


def parameters_of(landmarks: LandmarkSet, given: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of an engine of these landmarks, where those that were given do not contradict.

    Raises
    ------
    ParameterError
        One has another value than the set.
    InputError
        There are fewer landmarks than a map needs, or more than ``size``.
    """
    if not isinstance(landmarks, LandmarkSet):
        raise InputError(
            f"landmarks={shown(landmarks)} must be a LandmarkSet: of Engine.landmark_set, "
            "LandmarkSet.load or merge"
        )
    fixed = landmark_set.parameters_of(landmarks)
    for name, value in fixed.items():
        if given.get(name, value) != value:
            raise ParameterError(
                f"{name}={shown(given[name])} must be {shown(value)}, that of the landmarks: leave "
                "it out"
            )
    n, size = len(landmarks), len(landmarks) if landmarks.radius else landmarks.size
    least = 2 + whole("n_components", given.get("n_components", 2), 1)
    parameters = {"size": max(size, least), **given, **fixed}
    if not least <= n <= whole("size", parameters["size"], 1):
        raise InputError(
            f"landmarks has {n} landmarks; there must be at least n_components + 2 = {least} and "
            f"at most size={parameters['size']}"
        )
    return parameters


def begin(
    landmarks: LandmarkSet, config: Config, like: Snapshot | None
) -> tuple[State, publish.Columns | None]:
    """The state after all that the landmarks stand for, and what is published of it, if known.

    Raises
    ------
    ParameterError, FeatureError
        The axes cannot be those of ``like``.
    """
    with one_blas_thread():
        held, scaling = landmark_set.support_of(landmarks, config)
        events = sum(landmarks.positions.values())
        state = update.of_support(held, scaling, events, landmarks.radius, landmarks.time, config)
        return (state, None) if like is None else _turned(state, like, landmarks, config)


def _turned(
    state: State, like: Snapshot, landmarks: LandmarkSet, config: Config
) -> tuple[State, publish.Columns]:
    """The state with the axes of a snapshot, in another epoch where they cannot be compared."""
    if config.method != "diffusion_map" or like.method != config.method:
        raise ParameterError(
            f"like= keeps the axes of diffusion maps, and method is {like.method!r} and "
            f"{config.method!r}: leave it out"
        )
    if len(like.eigenvalues) != config.n_components:
        raise ParameterError(
            f"like= has {len(like.eigenvalues)} components, and n_components="
            f"{config.n_components}: they must be equal"
        )
    names, ordered = landmarks.agreement.features, landmarks.agreement.ordered
    index = np.arange(len(landmarks), dtype=np.int64)
    known = like.transform(Batch(state.support.points, names, ordered, None, index, ()))
    powers = like.eigenvalues**like.diffusion_time
    columns = np.divide(known, powers, out=np.zeros_like(known), where=powers > 0)
    followed = frame_reference.follow(
        state, config, columns, like.eigenvalues.copy(), like.frame.epoch
    )
    turned = replace(state, frame=followed)
    published = publish.publish(turned, config)
    if frame_reference.is_comparable(published.psi, columns):
        return turned, published
    later = replace(followed, epoch=like.frame.epoch + 1)
    return replace(state, frame=later), published
