"""The origin of a run: what produced it.

Parameters of the engine and of the replay, the version, and the columns of the log: no path and no
time, so that the same rows in other files give the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from streamembed.errors import ParameterError, UnknownParameterError, quote
from streamembed.logs.event_log import EventLog, open_with_choice, parse_choice
from streamembed.logs.paths import Paths
from streamembed.methods.options import Config
from streamembed.parameters import suggest_name
from streamembed.version import __version__

# Parameters of an engine that a merged set of landmarks determines.
MERGED_PARAMETERS = {"memory", "half_life", "clock", "size", "warm_up"}


def select_free_parameters(config: Config) -> dict[str, Any]:
    """The parameters for an engine of merged landmarks, without those that these determine."""
    parameters = config.as_dict().items()
    return {name: value for name, value in parameters if name not in MERGED_PARAMETERS}


def check_parameters(given: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Parameters of an engine; UnknownParameterError for a name that no engine has.

    Parameters
    ----------
    given
        By name.
    others
        Other parameters of the caller, to suggest in the message.

    Examples
    --------
    >>> check_parameters({"sizze": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    streamembed.errors.UnknownParameterError: 'sizze' is no parameter ...: did you mean 'size'?
    """
    if not isinstance(given, Mapping):
        raise ParameterError(f"engine={quote(given)} must be an Engine, or parameters by name")
    names = [parameter.name for parameter in fields(Config)]
    for name in given:
        if name not in names:
            hint = suggest_name(str(name), [*names, *others])
            raise UnknownParameterError(f"{quote(name)} is no parameter of an engine: {hint}")
    return dict(given)


def describe_replay(
    log: EventLog, config: Config, snapshot_every: int, embed: str
) -> dict[str, Any]:
    """The origin of a replay, JSON-ready: what is known before the first row."""
    return {
        "version": __version__,
        "engine": config.as_dict(),
        "snapshot_every": snapshot_every,
        "embed": embed,
        "log": {
            "kind": log.kind,
            "features": list(log.feature_names),
            "list_column": log.columns.list_column,
            "has_ids": log.id_type is not None,
            "label": None if log.label_type is None else str(log.label_type),
            "event_time": None if log.event_time_type is None else str(log.event_time_type),
        },
    }


def describe_place(log: EventLog) -> list[str]:
    """Where a log can be read again: its folders, or its files."""
    places = [path.absolute() if isinstance(path, Path) else path for path in log.paths]
    folders = [folder.absolute() for folder in log.folders]
    inside = all(
        isinstance(place, Path) and any(folder in place.parents for folder in folders)
        for place in places
    )
    return [str(place) for place in (folders if inside else places)]


def open_recorded_log(origin: Mapping[str, Any], paths: Paths) -> EventLog:
    """The log of a run, with the columns that it used."""
    columns = origin["columns"]
    features = columns["features"] or None  # none of distances
    roles = {role: columns[role] for role in ("id", "label", "time", "keep")}
    log = open_with_choice(paths, parse_choice(features, **roles))
    return replace(log, metric=origin["engine"]["metric"])


def list_differences(before: Any, now: Any, name: str = "") -> list[str]:
    """Where two descriptions differ, a line each; of long values the beginning.

    Examples
    --------
    >>> list_differences({"engine": {"size": 5}, "embed": "final"}, {"engine": {"size": 7}})
    ['engine.size was 5 and is 7', "embed was 'final' and is None"]
    >>> list_differences([*range(1000)], [*range(999), 0], "rows")
    ['rows[999] was 999 and is 0']
    """
    if isinstance(before, dict) and isinstance(now, dict):
        parts = [(f"{name}.{key}" if name else key, key) for key in dict.fromkeys([*before, *now])]
        lists = [list_differences(before.get(key), now.get(key), label) for label, key in parts]
        return [line for lines in lists for line in lines]
    if before == now:
        return []
    was, is_ = quote(before), quote(now)
    if isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            return [f"{name} had {len(before):,} entries and has {len(now):,}"]
        if was == is_:  # the difference shows further on
            at = next(i for i, (a, b) in enumerate(zip(before, now, strict=True)) if a != b)
            return list_differences(before[at], now[at], f"{name}[{at}]")
    return [f"{name} was {was} and is {is_}"]


def check_same(run: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """ParameterError unless a run has the origin that is asked for."""
    lines = list_differences(dict(before), json.loads(json.dumps(now)))
    if lines:
        more = f" (and {len(lines) - 4} more)" if len(lines) > 4 else ""
        choice = "" if now["kind"] == "online" else ", or replace it with overwrite=True"
        raise ParameterError(
            f"run={quote(str(run))} is not empty: it holds a run that differs: "
            f"{'; '.join(lines[:4])}{more}; repeat it as it was, choose another folder{choice}"
        )
