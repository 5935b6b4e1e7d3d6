"""What each column is for: the one rule, by type and name, for tables, dicts and logs.

Numeric columns are features, except ``id``, ``label`` and ``event_time``, which are reserved, and
columns whose names are those of ids, times and targets, which are suspicious: a map of a counter is
a line, and a map of the target knows the answer. Suspicious columns are left out with a warning,
unless they are learned already or named as features.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from streamembed.data.table import (
    parse_vector_name,
    sort_names,
)
from streamembed.data.values import (
    find_storage_type,
    holds_vectors,
    is_numeric,
    is_sequence,
)
from streamembed.errors import (
    FeatureError,
    ParameterError,
    quote,
    suggest_word,
)

RESERVED = ("id", "label", "event_time")
DISTANCES = "distances"
LIST_ADVICE = (
    "lists of varying length cannot be features: write them as fixed-size lists, or as one numeric "
    "column per position"
)
# Names of columns that are no features, by what they name; ``y`` beside ``x`` is a coordinate.
SUSPICIOUS = re.compile(
    r"(?P<id>(?i:(?:^|[\W_\d])(?:id|uuid)$)|[a-z](?:Id|ID)$)"
    # a row number that a frame of pandas was written or read with
    r"|(?P<index>^__index_level_\d+__$|^Unnamed: \d+$|^level_\d+$)"
    r"|(?P<time>(?i:(?:^|[\W_])(?:timestamp|date|date[\W_]?time|event[\W_]?time)$|^time$|^ts$"
    r"|(?:^|_)(?:created|updated|modified)[\W_]?at$)|[a-z](?:Date|DateTime|Timestamp)$)"
    r"|(?P<target>(?i:^(?:labels?|targets?|class|classes|class_label|y_true|y)$))"
)
REASONS = {
    "id": "named like an id",
    "index": "the index of a pandas frame",
    "time": "named like a time",
    "target": "named like a target",
}
# What to do about suspicious columns, where features can be chosen and where they cannot.
LOG_REMEDY = "decide with features=, exclude=, id=, label= or time="
CHOOSE = "decide with features=[...]"
RENAME = "rename those that are features, and drop the others to do without this warning"
MAX_LISTED = 8  # features that a line names


# ------------------------------------------------------------------ names


def explain_suspicion(name: str, others: Iterable[str] = ()) -> str | None:
    """Why a column of this name, beside others, is suspicious; None where it is not."""
    match = SUSPICIOUS.search(name.strip())
    if match is None or (name.lower() == "y" and "x" in map(str.lower, others)):
        return None
    return REASONS[str(match.lastgroup)]


def find_suspicious(names: Iterable[str], learned: Iterable[str] = ()) -> dict[str, str]:
    """Which columns are suspicious, reserved ones too, and why; those that are learned are not."""
    known = set(learned)
    others = known or set(names)
    return {n: why for n in names if n not in known and (why := explain_suspicion(n, others))}


def describe_suspicious(reasons: Mapping[str, str], remedy: str) -> str:
    """The warning about columns that are left out."""
    columns = ", ".join(f"{name!r} ({why})" for name, why in reasons.items())
    return f"columns are left out of the features: {columns}; {remedy}"


def describe_empty(empty: Sequence[str], names: Sequence[str], largest: float) -> str:
    """The warning about columns without a usable number so far, which may be among the features.

    Values beyond ``largest`` are missing.
    """
    columns = [f"{name!r}{' (ignored)' if names and name not in names else ''}" for name in empty]
    limit = f"{largest:g}".replace("+", "")
    return (
        f"no usable number so far in {', '.join(columns)}: values beyond {limit} are missing "
        "(scale the feature), and so are values that are no numbers (encode text before with "
        "preprocessing.OneHotEncoder of river, or select compose.SelectType(numbers.Number)); a "
        "missing value becomes the mean of the feature, or 0"
    )


# ------------------------------------------------------------------ roles


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that the caller chose; None where the caller chose nothing."""

    # Names or patterns.
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    # The columns of these roles; None for those of the reserved names.
    id: str | None = None
    label: str | None = None
    time: str | None = None
    keep: tuple[str, ...] = ()  # names: written beside the events, whatever else they are for

    def __post_init__(self) -> None:
        """Refuse a column of two roles."""
        roles = [(name, getattr(self, name)) for name in ("id", "label", "time")]
        chosen = [(role, name) for role, name in roles if name is not None]
        chosen += [("features", name) for name in self.features or ()]
        chosen += [("exclude", name) for name in self.exclude]
        first: dict[str, str] = {}
        for role, name in chosen:
            if first.setdefault(name, role) != role:
                raise ParameterError(
                    f"the column {name!r} is in {first[name]}= and in {role}=: leave it out of one "
                    "of them"
                )

    @property
    def roles(self) -> dict[str, str]:
        """Columns that are no features by their role, by name, whether or not there are any."""
        chosen = {"id": self.id, "label": self.label, "time": self.time}
        columns = {name: role for role, name in chosen.items() if name is not None}
        taken = match_names(RESERVED, self.exclude).union(self.features or ())
        for reserved, (role, name) in zip(RESERVED, chosen.items(), strict=True):
            if name is None and reserved not in taken:
                columns.setdefault(reserved, role)
        return columns


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a log are for; as text, one line that says so.

    Attributes
    ----------
    features : tuple of str
        The features, or the places "0", "1", ... of a list column; none of distances.
    list_column : str or None
        The list column that holds the points or the distances, alone.
    id, label, time : str or None
        The columns of these roles; None where there is none.
    keep : tuple of str
        The columns that are written beside the events.
    left_out : dict of str to str
        Every other column, and why.
    suspicious : tuple of str
        Those of them that are numeric, and named like ids, times or targets.
    vectors : tuple of str
        List columns beside other features: these are then called ``embedding[0]``, and so on.
    """

    features: tuple[str, ...]
    list_column: str | None = None
    id: str | None = None
    label: str | None = None
    time: str | None = None
    keep: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    suspicious: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What events are: "points" or "distances"."""
        return "points" if self.features else "distances"

    @property
    def event_columns(self) -> tuple[str, ...]:
        """The columns of the file that hold the events."""
        if self.list_column is not None:
            return (self.list_column,)
        return tuple(dict.fromkeys(_find_column(name, self.vectors) for name in self.features))

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        names = ("features", "keep", "suspicious", "vectors")
        return {**asdict(self), **{name: list(getattr(self, name)) for name in names}}

    def describe_features(self) -> str:
        """The features in a few words."""
        n = len(self.features)
        if self.list_column is not None:
            return f"{n} numbers of {self.list_column}" if n else f"distances of {self.list_column}"
        if n > MAX_LISTED:
            return f"{self.features[0]} … {self.features[-1]} ({n})"
        return ", ".join(self.features)

    def __str__(self) -> str:
        roles = [f"{role}: {getattr(self, role) or 'none'}" for role in ("id", "label", "time")]
        roles += [f"kept: {', '.join(self.keep)}"] if self.keep else []
        left_out = ", ".join(f"{name} ({why})" for name, why in self.left_out.items()) or "none"
        remedy = [LOG_REMEDY] if self.suspicious else []
        features = f"features: {self.describe_features()}"
        return "; ".join([features, *roles, f"left out: {left_out}", *remedy])


@dataclass(frozen=True, slots=True)
class ColumnCandidates:
    """The columns of one table by what they could be; as text, those that can be features."""

    where: str  # what the table is called
    types: Mapping[str, Any]  # arrow types by name
    numeric: tuple[str, ...]
    vectors: Mapping[str, int]  # columns of lists of numbers of one length, with that length
    suspicious: Mapping[str, str]  # numeric columns that are left out unless named, and why
    excluded: frozenset[str]  # columns that the caller leaves out

    @classmethod
    def of(
        cls, where: str, types: Mapping[str, Any], sizes: Mapping[str, int], choice: ColumnChoice
    ) -> ColumnCandidates:
        """By types and names; ``sizes`` are the lengths of lists that have none in their type."""
        excluded = match_names(types, choice.exclude)
        reserved = excluded.union(choice.roles)
        free = [name for name in types if name not in reserved]
        numeric = sort_names(name for name in free if is_numeric(types[name]))
        lengths = {name: find_list_size(types[name]) or sizes.get(name, 0) for name in free}
        vectors = {name: size for name, size in lengths.items() if size}
        suspicious = {name: why for name in numeric if (why := explain_suspicion(name, types))}
        return cls(where, types, numeric, vectors, suspicious, excluded)

    @property
    def features(self) -> tuple[str, ...]:
        """Numeric columns that are not suspicious."""
        return tuple(name for name in self.numeric if name not in self.suspicious)

    def explain_exclusion(self, name: str) -> str:
        """Why a column without another role is not a feature."""
        if name in self.excluded:
            return "excluded"
        if name in self.suspicious:
            return self.suspicious[name]
        if is_numeric(self.types[name]) or name in self.vectors:
            return "not among the features"
        why = explain_suspicion(name)
        return f"{self.types[name]}{f', {why}' if why else ''}"

    def __str__(self) -> str:
        vectors = f" or the vectors {sorted(self.vectors)}" if self.vectors else ""
        return f"the numeric columns {list(self.numeric)}{vectors}"


def find_list_size(kind: Any) -> int:
    """How many numbers each list of a type has; 0 where they are no numbers, or of any length."""
    return int(getattr(find_storage_type(kind), "list_size", 0)) if holds_vectors(kind) else 0


def _find_column(feature: str, vectors: Collection[str]) -> str:
    """The column of a feature: of a number of a vector, the vector."""
    vector = parse_vector_name(feature) or feature
    return vector if vector in vectors else feature


def match_names(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """The names that equal or match one of the patterns."""
    exact, wild = set(patterns), [each for each in patterns if _is_pattern(each)]
    return frozenset(
        name for name in names if name in exact or any(fnmatchcase(name, each) for each in wild)
    )


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def check_names(argument: str, names: Any) -> tuple[str, ...]:
    """Different names or patterns, at least one, in order; ParameterError for anything else."""
    values = names.tolist() if isinstance(names, np.ndarray) else names
    texts = [str(name) for name in values if isinstance(name, str)] if is_sequence(values) else []
    if not texts or len(texts) < len(values) or len(set(texts)) < len(texts):
        alternative = "None for all numeric columns" if argument == "features" else "None for none"
        raise ParameterError(
            f"{argument}={quote(names)} must be a list of different column names or patterns, at "
            f"least one, or {alternative}"
        )
    return sort_names(texts)


# ------------------------------------------------------------------ the events of a table


def choose_event_columns(candidates: ColumnCandidates, choice: ColumnChoice) -> Columns:
    """Choose the columns that hold the events of one table; those of other roles are open yet.

    Raises
    ------
    FeatureError
        No features, more than one thing that could be them, or none by a name or pattern.
    """
    names = candidates.types
    for pattern in choice.exclude:
        if pattern not in names and not match_names(names, [pattern]):
            raise FeatureError(
                f"{candidates.where} has no column {pattern!r} to exclude: "
                + (suggest_word(pattern, names) or f"it has {quote(sorted(names))}")
            )
    if choice.features is None:
        return _choose_default(candidates, choice)
    return _choose_requested(candidates, choice.features)


def _choose_default(candidates: ColumnCandidates, choice: ColumnChoice) -> Columns:
    """The event columns of a table if the caller chose none."""
    where, features, types = candidates.where, candidates.features, candidates.types
    lists = [name for name, kind in types.items() if holds_vectors(kind)]
    if DISTANCES in lists and DISTANCES not in candidates.excluded.union(choice.roles):
        return Columns((), DISTANCES)
    # lists of any length are taken where nothing else could be meant
    fixed = {name: size for name, size in candidates.vectors.items() if find_list_size(types[name])}
    vectors = fixed if fixed or features else candidates.vectors
    if vectors and (features or len(vectors) > 1):
        first = sorted(vectors)[0]
        raise FeatureError(
            f"{where} has several possible sets of features ({candidates}); choose one with "
            f"features=, for example {[first]} or {list(features[:3]) or [sorted(vectors)[1]]}"
        )
    if vectors:
        return _use_vector(*next(iter(vectors.items())))
    if features:
        return Columns(features)
    reasons = {name: choice.roles.get(name) or candidates.explain_exclusion(name) for name in types}
    remedy = f" ({lists[0]!r}: {LIST_ADVICE})" if lists else ""
    raise FeatureError(describe_no_features(where, reasons) + remedy)


def describe_no_features(where: str, columns: Mapping[str, str]) -> str:
    """The error of a table without features, whose columns are each described."""
    listed = [f"{name!r} ({what})" for name, what in columns.items()]
    if len(listed) > MAX_LISTED:
        listed[MAX_LISTED:] = [f"{len(listed) - MAX_LISTED} more"]
    return (
        f"{where} has no column that is a feature, only {', '.join(listed) or 'none'}; name "
        "numeric columns of these with features=, or write features as numbers"
    )


def _choose_requested(candidates: ColumnCandidates, chosen: tuple[str, ...]) -> Columns:
    """The event columns that names, patterns or the places of a vector select."""
    vectors, types = candidates.vectors, candidates.types
    if set(chosen) == set(map(str, range(len(chosen)))).difference(types):
        fitting = [name for name, size in vectors.items() if size == len(chosen)]
        if len(fitting) > 1:
            raise FeatureError(
                f"{candidates.where} has the vectors {sorted(fitting)}, all of {len(chosen)} "
                f"numbers; choose one of them with features=, for example {sorted(fitting)[:1]}"
            )
        if fitting:
            return _use_vector(fitting[0], len(chosen))
    if len(chosen) == 1 and chosen[0] in vectors:
        return _use_vector(chosen[0], vectors[chosen[0]])
    names: set[str] = set()
    for name in chosen:
        column = name if name in types else _find_column(name, vectors)
        matching = {column}.intersection((*candidates.numeric, *vectors))
        if _is_pattern(name) and column not in types:
            matching = {column for column in candidates.features if fnmatchcase(column, name)}
        if not matching:
            raise FeatureError(_explain_refusal(candidates, name))
        names |= matching
    beside = tuple(sorted(names.intersection(vectors)))
    numbers = [f"{name}[{i}]" for name in beside for i in range(vectors[name])]
    for name in beside:
        places = {place for place in chosen if parse_vector_name(place) == name}
        if places and len(places) < vectors[name]:
            raise FeatureError(
                f"features has {sorted(places)[0]!r} of the {vectors[name]} numbers of {name!r}: a "
                f"vector is learned whole; choose {name!r}"
            )
    return Columns(sort_names([*names.difference(beside), *numbers]), vectors=beside)


def _explain_refusal(candidates: ColumnCandidates, name: str) -> str:
    """Why a column cannot be a feature, or none is by a pattern."""
    kind = candidates.types.get(name)
    missing = "a pattern without a match" if _is_pattern(name) else "missing"
    what, remedy = missing if kind is None else f"of type {kind}", ""
    if hint := suggest_word(name, candidates.types) if kind is None else "":
        what += f" ({hint})"
    if others := [column for column in candidates.suspicious if fnmatchcase(column, name)]:
        remedy = f"; {others} must be named in full"
    elif kind is not None and holds_vectors(kind):
        remedy = f"; {LIST_ADVICE}"
    return (
        f"the feature {name!r} of {candidates.where} is {what}; "
        f"it must be one of {candidates}{remedy}"
    )


def _use_vector(name: str, size: int) -> Columns:
    return Columns(tuple(map(str, range(size))), name)
