"""`merge_runs`: several runs of landmarks as one run, which can be read and learned into."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamembed.engine.engine import Engine
from streamembed.errors import ParameterError, check_path, quote
from streamembed.merging.landmark_set import LandmarkSet, renumber
from streamembed.merging.merged_set import merge
from streamembed.methods.options import Config
from streamembed.runs.online_run import open_run
from streamembed.runs.origin import list_differences, select_free_parameters
from streamembed.runs.run_reader import read_run

# Parameters in which runs may differ: none changes how landmarks are compared or mapped.
FREE_PARAMETERS = ("seed", "on_bad_row", "size", "warm_up")


def merge_runs(
    runs: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    size: int | None = None,
    scaling: str | None = "agreed",
) -> Engine:
    """What the engines of some runs have learned, as a new run.

    Parameters
    ----------
    runs
        Folders of runs with ``memory="landmarks"`` and otherwise the same parameters; each is one
        partition, numbered in this order, and taken as other events than the others.
    output
        The folder to create, empty or not there.
    size
        The most landmarks; None for the largest ``size`` among the runs. The new engine has as many
        places as are left where they were thinned, 0.995 of it at least.
    scaling
        As in `streamembed.merge`.

    Returns
    -------
    The engine that the new run begins with.

    Raises
    ------
    ParameterError
        Runs differ, or one is named twice, or is a copy of another, or a replay that was stopped;
        the folder holds something.
    InputError
        See `streamembed.merge`.
    FileError, DamagedFileError
        A run is missing or damaged.
    """
    folders = [Path(check_path(run, "runs")) for run in runs]
    sets, configs = _read_runs(folders)
    _check_distinct(folders, sets)
    before = _select_compared(configs[0]) if configs else {}
    for config in configs[1:]:
        if lines := list_differences(before, _select_compared(config)):
            raise ParameterError(
                f"runs differ in their parameters: {'; '.join(lines[:4])}: merge runs that began "
                "alike"
            )
    largest = max((config.size for config in configs), default=None)
    merged = merge(sets, largest if size is None else size, scaling=scaling)
    engine = Engine.of_landmarks(merged, **select_free_parameters(configs[0]))
    with open_run(output, engine) as run:
        run.checkpoint()
    return engine


def _read_runs(folders: Sequence[Path]) -> tuple[list[LandmarkSet], list[Config]]:
    sets, configs = [], []
    for number, folder in enumerate(folders):
        with read_run(folder) as run:
            if run.kind != "online" and not run.finished:
                raise ParameterError(
                    f"the replay into {quote(str(folder))} was stopped: run the same command again "
                    "to resume, and merge when it has come to the end of its log"
                )
            engine, size = run.engine(), run.origin["engine"]["size"]
        sets.append(engine.landmark_set(number))
        # of partitions an engine has as many places as they have landmarks
        configs.append(replace(engine.config, size=max(engine.config.size, size)))
    return sets, configs


def _check_distinct(folders: Sequence[Path], sets: Sequence[LandmarkSet]) -> None:
    """ParameterError where two runs hold the same landmarks, but for their numbers."""
    folder_of: dict[bytes, Path] = {}
    for folder, landmarks in zip(folders, sets, strict=True):
        data = renumber(landmarks, 0).to_bytes()
        if data in folder_of:
            raise ParameterError(
                f"runs has {quote(str(folder_of[data]))} and {quote(str(folder))}, which hold the "
                "same landmarks to the byte: one is the other, or a copy of it, and its events "
                "would count twice; name one of them"
            )
        folder_of[data] = folder


def _select_compared(config: Config) -> dict[str, Any]:
    return {name: value for name, value in config.as_dict().items() if name not in FREE_PARAMETERS}
