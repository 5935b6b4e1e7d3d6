"""The initial state of an engine built from a set of landmarks instead of events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from streamembed.data.batch import Batch
from streamembed.engine.snapshot import Snapshot
from streamembed.errors import InputError, ParameterError, quote
from streamembed.merging import landmark_set
from streamembed.merging.labelled_stream import LabelledStream
from streamembed.merging.landmark_set import LandmarkSet
from streamembed.methods import frame_reference, update
from streamembed.methods.frame_reference import LARGEST_PRICE, LEAST_FIDELITY
from streamembed.methods.options import Config
from streamembed.methods.state import State
from streamembed.metrics import engine_metrics as metrics
from streamembed.threads import one_blas_thread
from streamembed.validation import check_whole


def choose_parameters(landmarks: LandmarkSet, given: Mapping[str, Any]) -> dict[str, Any]:
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
            f"landmarks={quote(landmarks)} must be a LandmarkSet: of Engine.landmark_set, "
            "LandmarkSet.load or merge"
        )
    fixed = landmark_set.infer_engine_parameters(landmarks)
    for name, value in fixed.items():
        if given.get(name, value) != value:
            raise ParameterError(
                f"{name}={quote(given[name])} must be {quote(value)}, that of the landmarks: leave "
                "it out"
            )
    n, size = len(landmarks), len(landmarks) if landmarks.radius else landmarks.size
    least = 2 + check_whole("n_components", given.get("n_components", 2), 1)
    parameters = {"size": max(size, least), **given, **fixed}
    if not least <= n <= check_whole("size", parameters["size"], 1):
        raise InputError(
            f"landmarks has {n} landmarks; there must be at least n_components + 2 = {least} and "
            f"at most size={parameters['size']}"
        )
    return parameters


def start_state(
    landmarks: LandmarkSet,
    config: Config,
    like: Snapshot | None,
    training: LabelledStream | None,
) -> tuple[State, Snapshot | None]:
    """The state after all that the landmarks stand for, and its snapshot, if known.

    Raises
    ------
    ParameterError, FeatureError
        The axes cannot be those of ``like``.
    """
    with one_blas_thread():
        support, scaling = landmark_set.build_support(landmarks, config)
        events = sum(landmarks.positions.values())
        state = update.start_from_support(
            support, scaling, events, landmarks.radius, landmarks.time, config
        )
        if training is not None and state.metrics is not None:
            state = replace(state, metrics=metrics.adopt_stream(state.metrics, training.stream))
        return (state, None) if like is None else _align_axes(state, like, landmarks, config)


def _align_axes(
    state: State, like: Snapshot, landmarks: LandmarkSet, config: Config
) -> tuple[State, Snapshot]:
    """The state with the axes of a snapshot, in another epoch where they cannot be kept."""
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
    points = Batch.of_points(state.support.points, landmarks.agreement.as_features())
    frame = frame_reference.adopt_columns(state, like.transform(points), like.frame.epoch)
    aligned = replace(state, frame=frame)
    published = Snapshot.of(aligned, config, points.features)
    moved = published.frame
    if moved.fidelity >= LEAST_FIDELITY and moved.price <= LARGEST_PRICE:
        return aligned, published
    lost = frame_reference.find_lost_axes(np.array(moved.correlations))
    later = replace(frame, epoch=like.frame.epoch + 1, lost=lost)
    published = replace(published, frame=replace(moved, epoch=later.epoch, lost=lost))
    return replace(state, frame=later), published
