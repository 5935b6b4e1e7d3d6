"""`merge_runs`: several runs of landmarks as one run, which can be read and learned into."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from streamembed.engine.engine import Engine
from streamembed.errors import ParameterError, path_text, shown
from streamembed.merging.landmark_set import LandmarkSet, renumbered
from streamembed.merging.merged_set import merge
from streamembed.methods.options import Config
from streamembed.runs.origin import differences
from streamembed.runs.run_folder import same
from streamembed.runs.run_reader import read_run
from streamembed.runs.session import open_run

__all__ = ["merge_runs"]

# In what runs may differ: none of it says how landmarks are compared, or what their map is.
FREE = ("seed", "on_bad_row", "size", "warm_up")
# What a merged set has settled.
SETTLED = ("memory", "half_life", "size", "warm_up")


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
        Runs differ, or one is named twice, or is a copy of another; the folder holds something.
    InputError
        See `streamembed.merge`.
    FileError, DamagedFileError
        A run is missing or damaged.
    """
    folders = [Path(path_text(run, "runs")) for run in runs]
    sets, configs = _read(folders)
    _must_be_others(folders, sets)
    for config in configs[1:]:
        if lines := _differences(configs[0], config):
            raise ParameterError(
                f"runs differ in their parameters: {'; '.join(lines[:4])}: merge runs that began "
                "alike"
            )
    largest = max((config.size for config in configs), default=None)
    found = merge(sets, largest if size is None else size, scaling=scaling)
    known = {name: one for name, one in configs[0].as_dict().items() if name not in SETTLED}
    engine = Engine.of_landmarks(found, **known)
    with open_run(output, engine) as run:
        run.checkpoint()
    return engine


def _read(folders: Sequence[Path]) -> tuple[list[LandmarkSet], list[Config]]:
    """The landmarks of each run, and its parameters."""
    sets, configs = [], []
    for number, folder in enumerate(folders):
        if again := [other for other in folders[:number] if same(folder, other)]:
            raise ParameterError(
                f"runs has {shown(str(folder))} twice ({again[0]}): its events would count twice; "
                "name each run once"
            )
        with read_run(folder) as run:
            engine, asked = run.engine(), run.origin["engine"]["size"]
        sets.append(engine.landmark_set(number))
        # of partitions an engine has as many places as they have landmarks
        configs.append(replace(engine.config, size=max(engine.config.size, asked)))
    return sets, configs


def _must_be_others(folders: Sequence[Path], sets: Sequence[LandmarkSet]) -> None:
    """ParameterError where two runs hold the same landmarks, but for their numbers."""
    known: dict[bytes, Path] = {}
    for folder, found in zip(folders, sets, strict=True):
        told = renumbered(found, 0).to_bytes()
        if told in known:
            raise ParameterError(
                f"runs has {shown(str(known[told]))} and {shown(str(folder))}, which hold the same "
                "landmarks to the byte: one is a copy of the other, and its events would count "
                "twice; name one of them"
            )
        known[told] = folder


def _differences(one: Config, other: Config) -> list[str]:
    """Parameters in which two engines differ, a phrase each."""
    before, now = (
        {name: value for name, value in config.as_dict().items() if name not in FREE}
        for config in (one, other)
    )
    return differences(before, now)
