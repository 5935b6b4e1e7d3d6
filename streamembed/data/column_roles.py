"""What the columns of a table or a log are for: the one rule, for `Engine.learn` and for logs.

Columns named ``id``, ``label`` and ``event_time`` are reserved. Of the other numeric columns, those
that look like ids, times or targets are never features unless they are named: a map of a counter
is a line, and a map of the target knows the answer. Their names and their first rows decide,
however these rows are cut into files and record batches.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa

from streamembed.data.batch import Batch
from streamembed.data.table import are_positions, is_frame, open_frame, sort_names
from streamembed.data.values import decode_type, is_list_type
from streamembed.errors import FeatureError, ParameterError, quote
from streamembed.numeric.arrays import LARGEST_VALUE, Floats

RESERVED = ("id", "label", "event_time")
DISTANCES = "distances"
LIST_ADVICE = (
    "lists of varying length cannot be features: write them as lists of one length, or as one "
    "numeric column per position"
)
# Rows that are looked at: as many as the shortest usual warm-up, which has to be waited for anyway.
HEAD_ROWS = 50
# Ten whole numbers ascend by chance once in 3.6 million columns.
MIN_ROWS = 10
# Seconds since 1970 are larger since 1973, and so are all finer units.
SMALLEST_TIME = 1e8
ID_NAME = re.compile(r"(?:^|[\W_\d])(?:id|uuid)$", re.IGNORECASE)
ID_NAME_CAMEL_CASE = re.compile(r"[a-z](?:Id|ID)$")
# A row number that a frame of pandas was written or read with.
INDEX_NAME = re.compile(r"^__index_level_\d+__$|^Unnamed: \d+$")
TIME_NAME = re.compile(
    r"(?:^|[\W_])(?:timestamp|date|datetime|event_time)$|^time$|^ts$"
    r"|(?:^|_)(?:created|updated|modified)_at$",
    re.IGNORECASE,
)
TIME_NAME_CAMEL_CASE = re.compile(r"[a-z](?:Date|DateTime|Timestamp)$|^eventTime$")
TARGET_NAMES = ("label", "labels", "target", "targets", "class", "class_label", "y_true")
MAX_LISTED = 8  # features that a line names


@dataclass(frozen=True, slots=True)
class ColumnChoice:
    """The columns that the caller chose; None where the caller chose nothing."""

    # Names or patterns.
    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    # The columns of these uses; None for those of the reserved names.
    id: str | None = None
    label: str | None = None
    time: str | None = None
    # Whether every numeric column is taken for a feature, whatever it looks like.
    trusted: bool = False
    reserves: bool = True  # whether the reserved names count

    def __post_init__(self) -> None:
        """Refuse a column of two uses."""
        uses = [(name, getattr(self, name)) for name in ("id", "label", "time")]
        used = [(use, name) for use, name in uses if name is not None]
        used += [("features", name) for name in self.features or ()]
        used += [("exclude", name) for name in self.exclude]
        first: dict[str, str] = {}
        for use, name in used:
            if first.setdefault(name, use) != use:
                raise ParameterError(
                    f"the column {name!r} is in {first[name]}= and in {use}=: leave it out of one "
                    "of them"
                )

    @property
    def uses(self) -> dict[str, str]:
        """Columns that are no features by their use, by name, whether or not there are any."""
        chosen = {"id": self.id, "label": self.label, "time": self.time}
        columns = {name: use for use, name in chosen.items() if name is not None}
        excluded = match_names(RESERVED, self.exclude)
        for usual, (use, name) in zip(RESERVED, chosen.items(), strict=True):
            if self.reserves and name is None and usual not in excluded:
                columns.setdefault(usual, use)
        return columns


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The columns that hold the events of a table or log."""

    kind: str  # "points" or "distances"
    # Numeric columns, in the order of `in_order`; or the places "0", "1", ... of a list column;
    # none of distances.
    feature_names: tuple[str, ...]
    # The list column that holds the points or the distances; None for numeric columns.
    list_column: str | None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the file that hold the events."""
        return self.feature_names if self.list_column is None else (self.list_column,)

    def __str__(self) -> str:
        if self.kind == "distances":
            return "distances"
        if self.list_column is None:
            return f"the numeric columns {list(self.feature_names)}"
        return f"the vectors {self.list_column!r} of {len(self.feature_names)} numbers"


# For columns in doubt.
REMEDY = "settle it with --features, --exclude, --id, --label or --time"


@dataclass(frozen=True, slots=True)
class Columns:
    """What the columns of a log are for; as text, one line that says so.

    Attributes
    ----------
    features : tuple of str
        The features, or the places "0", "1", ... of a list column; none of distances.
    list_column : str or None
        The list column that holds the points or the distances.
    id, label, time : str or None
        The columns of these uses; None where there is none.
    left_out : dict of str to str
        Every other column, and why.
    doubtful : tuple of str
        Those of them that are numeric and look like ids, times or targets.
    """

    features: tuple[str, ...]
    list_column: str | None = None
    id: str | None = None
    label: str | None = None
    time: str | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    doubtful: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        return {**asdict(self), "features": list(self.features), "doubtful": list(self.doubtful)}

    def __str__(self) -> str:
        n, names = len(self.features), list(self.features)
        if self.list_column is not None:
            features = (
                f"{n} numbers of {self.list_column}" if n else f"distances of {self.list_column}"
            )
        else:
            features = ", ".join(abbreviate_names(names)) + (f" ({n})" if n > MAX_LISTED else "")
        uses = [f"{use}: {getattr(self, use) or 'none'}" for use in ("id", "label", "time")]
        left_out = ", ".join(self.list_left_out()) or "none"
        remedy = [REMEDY] if self.doubtful else []
        return "; ".join([f"features: {features}", *uses, f"left out: {left_out}", *remedy])

    def list_left_out(self) -> list[str]:
        """Every column that is left out, with the reason."""
        return [f"{name} ({why})" for name, why in self.left_out.items()]


@dataclass(frozen=True, slots=True)
class ColumnCandidates:
    """The columns of one table by what they could be; as text, those that can be features."""

    where: str  # what the table is called
    types: Mapping[str, Any]  # arrow types by name
    numeric: tuple[str, ...]
    vectors: Mapping[str, int]  # columns of lists of numbers of one length, with that length
    doubtful: Mapping[str, str]  # numeric columns that look like something else, and what it is
    excluded: frozenset[str]  # columns that the caller leaves out

    @classmethod
    def of(
        cls,
        where: str,
        types: Mapping[str, Any],
        head: Mapping[str, Any],
        choice: ColumnChoice,
    ) -> ColumnCandidates:
        """By types and first rows; of a log, these are the first rows of all its files."""
        excluded = match_names(types, choice.exclude)
        reserved = excluded.union(choice.uses)
        free = {name: kind for name, kind in types.items() if name not in reserved}
        numeric = sort_names(name for name, kind in free.items() if is_numeric(decode_type(kind)))
        vectors: dict[str, int] = {}
        for name, kind in free.items():
            if is_list_type(kind) and is_numeric(kind.value_type):
                size = _find_common_length(kind, head.get(name))
                vectors.update({name: size} if size else {})
        reasons = {
            name: _classify_name(name, types) or _classify_values(head.get(name))
            for name in (() if choice.trusted else numeric)
        }
        doubtful = {name: reason for name, reason in reasons.items() if reason is not None}
        return cls(where, types, numeric, vectors, doubtful, excluded)

    @property
    def certain(self) -> tuple[str, ...]:
        """Numeric columns that look like features."""
        return tuple(name for name in self.numeric if name not in self.doubtful)

    def explain(self, name: str) -> str:
        """Why a column without another use is not a feature."""
        if name in self.excluded:
            return "excluded"
        kind = decode_type(self.types[name])
        if name in self.doubtful:
            return self.doubtful[name]
        if is_numeric(kind) or name in self.vectors:
            return "not among the features"
        return str(kind)

    def __str__(self) -> str:
        vectors = f" or the vectors {sorted(self.vectors)}" if self.vectors else ""
        return f"the numeric columns {list(self.numeric)}{vectors}"


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
    is_list = isinstance(values, Sequence) and not isinstance(values, (str, bytes, memoryview))
    texts = [str(name) for name in values if isinstance(name, str)] if is_list else []
    if not texts or len(texts) < len(values) or len(set(texts)) < len(texts):
        alternative = "None for all numeric columns" if argument == "features" else "None for none"
        raise ParameterError(
            f"{argument}={quote(names)} must be a list of different column names or patterns, at "
            f"least one, or {alternative}"
        )
    return sort_names(texts)


# ------------------------------------------------------------------ what a column looks like


def _classify_name(name: str, names: Iterable[str]) -> str | None:
    """Why a column's name is not a feature's, or None; ``y`` beside ``x`` is a coordinate."""
    if ID_NAME.search(name) or ID_NAME_CAMEL_CASE.search(name):
        return "named like an id"
    if INDEX_NAME.search(name):
        return "the index of a pandas frame"
    if TIME_NAME.search(name) or TIME_NAME_CAMEL_CASE.search(name):
        return "named like a time"
    low = name.lower()
    if low in TARGET_NAMES or (low == "y" and "x" not in {each.lower() for each in names}):
        return "named like a target"
    return None


def abbreviate_names(names: Sequence[str]) -> list[str]:
    """Names, with three or more that differ only in their final number written as one range.

    Examples
    --------
    >>> abbreviate_names(["id", "c0", "c1", "c2", "coverage", "x1", "x2"])
    ['id', 'c0 … c2', 'coverage', 'x1', 'x2']
    """
    abbreviated = []
    for stem, group in groupby(names, lambda name: name.rstrip("0123456789")):
        run = list(group)
        numbered = len(run) > 2 and stem not in run
        abbreviated += [f"{run[0]} … {run[-1]}"] if numbered else run
    return abbreviated


def describe_suspects(
    names: Sequence[str],
    values: Floats,
    largest: float = LARGEST_VALUE,
    ignored: Sequence[str] = (),
) -> str | None:
    """A message on learned features that look like ids, times or targets; None without any.

    Parameters
    ----------
    names
        Of d features; of places, as an array has them, only missing values tell anything.
    values
        Shape (n, d), their first rows, NaN where one is missing.
    largest
        Values beyond it are missing.
    ignored
        Features without a number that are not learned.
    """
    empty = [name for name, column in zip(names, values.T, strict=True) if np.isnan(column).all()]
    reasons: dict[str, str | None] = dict.fromkeys(empty, "no usable number so far")
    for name, column in (
        () if are_positions(names) else zip(names, values[:HEAD_ROWS].T, strict=True)
    ):
        present = column[~np.isnan(column)]
        whole = np.array_equal(present, np.rint(present)) and np.abs(present).max(initial=0) < 2**53
        numbers = pa.array(present.astype(np.int64) if whole else present)
        if name not in reasons:
            reasons[name] = _classify_name(name, names) or _classify_values(numbers)
    parts = [f"{name!r} ({why})" for name, why in reasons.items() if why is not None]
    text = ""
    if parts:
        text += (
            f"; {'the others' if ignored else 'they'} are learned: to leave them out, select the "
            "others before (features=[...] of Engine.learn, compose.Discard of river)"
        )
    parts = [f"{name!r} (no usable number so far: it is ignored)" for name in ignored] + parts
    if not parts:
        return None
    if empty or ignored:
        limit = f"{largest:g}".replace("+", "")
        text += (
            f"; values beyond {limit} are taken as missing: scale the feature; so are values that "
            "are no numbers: encode text before (preprocessing.OneHotEncoder of river), or take "
            "numbers alone (compose.SelectType(numbers.Number)); a missing value becomes the mean "
            "of the feature, or 0"
        )
    return f"these features may be none: {', '.join(parts)}{text}"


def _classify_values(column: Any) -> str | None:
    """Why the first rows of a column are not a feature's, or None."""
    if column is None:
        return None
    kind = decode_type(column.type)
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    has_gaps = column.null_count > 0
    column = column.drop_null()
    if len(column) < MIN_ROWS or pa.types.is_boolean(kind):
        return None
    if pa.types.is_integer(column.type):
        values, whole = np.asarray(column), True
    else:
        values = np.asarray([float(each) for each in column.to_pylist()])
        total, values = len(values), values[~np.isnan(values)]
        # of whole numbers with a gap pandas makes floats
        could_be = has_gaps or len(values) < total or pa.types.is_decimal(kind)
        whole = could_be and bool((values == np.rint(values)).all())
        if len(values) < MIN_ROWS:
            return None
    before, after = values[:-1], values[1:]
    if whole and (after > before).all():
        return "whole numbers that ascend, like ids or times"
    is_late = values[0] >= SMALLEST_TIME and np.isfinite(values[-1])
    if is_late and (after >= before).all() and values[-1] > values[0]:
        return "large and never falling, like times"
    return None


def _find_common_length(kind: Any, column: Any) -> int:
    """How many numbers each list of a column has; 0 where they have several lengths, or none."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if column is None:
        return 0
    lengths = {len(each) for each in column.to_pylist() if each is not None}
    return lengths.pop() if len(lengths) == 1 else 0


def is_numeric(kind: Any) -> bool:
    """Whether columns of an Arrow type can be features."""
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in tests)


# ------------------------------------------------------------------ the events of a table


def choose_event_columns(candidates: ColumnCandidates, choice: ColumnChoice) -> EventColumns:
    """Choose the columns that hold the events of one table.

    Raises
    ------
    FeatureError
        No features, more than one thing that could be them, or none by a name or pattern.
    """
    for pattern in choice.exclude:
        exists = pattern in candidates.types
        if not exists and not (_is_pattern(pattern) and match_names(candidates.types, [pattern])):
            raise FeatureError(
                f"{candidates.where} has no column {pattern!r} to exclude; it has "
                f"{quote(sorted(candidates.types))}"
            )
    if choice.features is None:
        return _choose_default(candidates, choice)
    return _choose_requested(candidates, choice.features, choice.uses)


def _choose_default(candidates: ColumnCandidates, choice: ColumnChoice) -> EventColumns:
    """The event columns of a table if the caller chose none."""
    where, certain = candidates.where, candidates.certain
    # lists of any length are taken where nothing else could be meant
    fixed = {
        n: d
        for n, d in candidates.vectors.items()
        if pa.types.is_fixed_size_list(candidates.types[n])
    }
    vectors = fixed if fixed or certain else candidates.vectors
    is_free = DISTANCES not in choice.uses and DISTANCES not in candidates.excluded
    if is_free and _is_list_of_distances(candidates.types.get(DISTANCES)):
        return EventColumns("distances", (), DISTANCES)
    if vectors and (certain or len(vectors) > 1):
        first = sorted(vectors)[0]
        raise FeatureError(
            f"{where} has several possible sets of features ({candidates}); choose one with "
            f"features=, for example {[first]} or {list(certain[:3]) or [sorted(vectors)[1]]}"
        )
    if vectors:
        return _use_vector(*vectors.items())
    if certain:
        return EventColumns("points", certain, None)
    if candidates.doubtful:
        doubtful = ", ".join(f"{name!r} ({why})" for name, why in candidates.doubtful.items())
        raise FeatureError(
            f"{where} has no numeric column that looks like a feature, only {doubtful}; if these "
            "are features, name them with features="
        )
    lists = [name for name, kind in candidates.types.items() if _is_list_of_distances(kind)]
    raise FeatureError(
        f"{where} has no numeric column besides {list(choice.uses)}, only "
        f"{sorted(candidates.types)}; a log needs at least one feature"
        f"{f' ({lists[0]!r}: {LIST_ADVICE})' if lists else ''}"
    )


def _choose_requested(
    candidates: ColumnCandidates, chosen: tuple[str, ...], uses: Mapping[str, str]
) -> EventColumns:
    """The event columns that names, patterns or the places of a vector select."""
    vectors = candidates.vectors
    if not candidates.types.keys() & set(chosen) and set(chosen) == set(_index_names(len(chosen))):
        fitting = [name for name, size in vectors.items() if size == len(chosen)]
        if len(fitting) > 1:
            raise FeatureError(
                f"{candidates.where} has the vectors {sorted(fitting)}, all of {len(chosen)} "
                f"numbers; choose one of them with features=, for example {sorted(fitting)[:1]}"
            )
        if fitting:
            return _use_vector((fitting[0], len(chosen)))
    if len(chosen) == 1 and chosen[0] in vectors:
        return _use_vector((chosen[0], vectors[chosen[0]]))
    names: set[str] = set()
    numeric = set(candidates.numeric)
    for name in chosen:
        if name in numeric:
            names.add(name)
        elif name in candidates.types or not _is_pattern(name):
            raise FeatureError(_explain_refusal(candidates, name, uses))
        else:
            matching = [column for column in candidates.certain if fnmatchcase(column, name)]
            if not matching:
                doubtful = [column for column in candidates.doubtful if fnmatchcase(column, name)]
                hint = f"; {doubtful} must be named in full" if doubtful else ""
                raise FeatureError(
                    f"the pattern {name!r} matches no numeric column of {candidates.where}; choose "
                    f"among {candidates}{hint}"
                )
            names.update(matching)
    return EventColumns("points", sort_names(names), None)


def _explain_refusal(candidates: ColumnCandidates, name: str, uses: Mapping[str, str]) -> str:
    """Why a column cannot be a feature."""
    kind = candidates.types.get(name)
    remedy = ""
    if name in uses:
        what = "reserved"
    elif kind is None:
        what = "missing"
    elif name in candidates.vectors:
        what = f"a vector of {candidates.vectors[name]} numbers"
        remedy = "; a vector column must be chosen alone"
    else:
        what = f"of type {kind}"
        if name == DISTANCES and _is_list_of_distances(kind):
            remedy = "; a log of distances takes no features"
        elif _is_list_of_distances(kind):
            remedy = f"; {LIST_ADVICE}"
    return (
        f"the feature {name!r} of {candidates.where} is {what}; "
        f"it must be one of {candidates}{remedy}"
    )


def _use_vector(column: tuple[str, int]) -> EventColumns:
    return EventColumns("points", _index_names(column[1]), column[0])


def _index_names(size: int) -> tuple[str, ...]:
    """The names that features have by their place, as those of an array."""
    return tuple(map(str, range(size)))


def _is_list_of_distances(kind: Any) -> bool:
    if kind is None or not is_list_type(kind):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


# ------------------------------------------------------------------ a table that is learned


@dataclass(frozen=True, slots=True, eq=False)
class SplitTable:
    """A table by what its columns are for: what holds points, columns of ids, labels and times."""

    points: Any
    ids: Any = None
    labels: Any = None
    _frame: Any = None

    @property
    def times(self) -> Any:
        """The column of times, read when it is asked for; None where there is none."""
        return None if self._frame is None else self._frame.arrow(RESERVED[2])


def split(
    X: Any, learned_names: tuple[str, ...] | None, features: Any = None, name: str = "X"
) -> SplitTable:
    """The columns of a data frame or Arrow table by their use; anything else is all points.

    Parameters
    ----------
    learned_names
        The features that are learned already: these are features, whatever their names.
    features
        Names or patterns of the columns to take; None for all that are not reserved.
    name
        The argument, for messages.

    Raises
    ------
    FeatureError
        Where nothing is known or chosen, a column that looks like an id, a time or a target.
    ParameterError
        Features chosen of what has no columns.
    """
    chosen = None if features is None else check_names("features", features)
    if isinstance(X, Batch) or not is_frame(X):
        if chosen is not None:
            raise ParameterError(
                f"features={quote(features)} chooses columns of a data frame or an Arrow table, "
                f"but {name} is a {type(X).__name__}: choose its columns beforehand"
            )
        return SplitTable(X)
    frame = open_frame(X, name)
    if len(set(frame.names)) < len(frame.names):
        return SplitTable(frame)  # refused where it is read
    learned = set(learned_names or ()) | set(chosen or ())
    reserved = {use for use in RESERVED if use in frame.names and use not in learned}
    rest = [column for column in frame.names if column not in reserved]
    points = frame if not reserved else frame.select(rest)
    ids, labels = (frame.arrow(use) if use in reserved else None for use in RESERVED[:2])
    others = ids, labels, frame if RESERVED[2] in reserved else None
    if learned_names is not None and chosen is None:
        return SplitTable(points, *others)
    head = points.head(HEAD_ROWS)
    types = {column: values.type for column, values in head.items()}
    # names that were chosen in full are features, reserved or not
    choice = ColumnChoice(chosen, reserves=False)
    candidates = ColumnCandidates.of(name, types, head, choice)
    if chosen is not None:
        return SplitTable(points.select(choose_event_columns(candidates, choice).columns), *others)
    if candidates.doubtful:
        doubtful = ", ".join(f"{column!r} ({why})" for column, why in candidates.doubtful.items())
        raise FeatureError(
            f"{name} has columns that may be no features: {doubtful}; nothing was learned: drop "
            "them, or say which columns are features, these among them or not, with features=[...]"
        )
    return SplitTable(points, *others)
