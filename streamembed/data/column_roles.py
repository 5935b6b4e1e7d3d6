"""What the columns of a table or a log are for: the one rule, for `Engine.learn` and for logs.

Columns named ``id``, ``label`` and ``event_time`` are reserved. Of the other numeric columns, those
that look like ids, times or targets are never features unless they are named: a map of a counter
is a line, and a map of the target knows the answer. What they look like is told by their names, and
by the first rows of all, however these come in files and record batches.
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

from streamembed.data.batch import LARGEST_VALUE
from streamembed.data.table import are_places, frame_of, in_order, is_frame
from streamembed.data.values import is_list_type, plain_type
from streamembed.errors import FeatureError, ParameterError, shown
from streamembed.numeric.arrays import Floats

__all__ = [
    "DISTANCES",
    "LOOKED_AT",
    "RESERVED",
    "Choice",
    "Columns",
    "Found",
    "Layout",
    "Split",
    "folded",
    "is_numeric",
    "layout_of",
    "named",
    "split",
    "suspects",
]

RESERVED = ("id", "label", "event_time")
DISTANCES = "distances"
ADVICE = (
    "lists of varying length cannot be features: write them as lists of one length, or as one "
    "numeric column per position"
)
# Rows that are looked at: as many as the shortest usual warm-up, which has to be waited for anyway.
LOOKED_AT = 50
# So many whole numbers ascend by chance once in 3.6 million columns.
FEWEST = 10
# Seconds since 1970 are larger since 1973, and so are all finer units.
SMALLEST_TIME = 1e8
AN_ID = re.compile(r"(?:^|[\W_\d])(?:id|uuid)$", re.IGNORECASE)
AN_ID_IN_ONE_WORD = re.compile(r"[a-z](?:Id|ID)$")
# A row number that a frame of pandas was written or read with.
AN_INDEX = re.compile(r"^__index_level_\d+__$|^Unnamed: \d+$")
A_TIME = re.compile(
    r"(?:^|[\W_])(?:timestamp|date|datetime|event_time)$|^time$|^ts$"
    r"|(?:^|_)(?:created|updated|modified)_at$",
    re.IGNORECASE,
)
A_TIME_IN_ONE_WORD = re.compile(r"[a-z](?:Date|DateTime|Timestamp)$|^eventTime$")
TARGETS = ("label", "labels", "target", "targets", "class", "class_label", "y_true")
MANY = 8  # features that a line names


@dataclass(frozen=True, slots=True)
class Choice:
    """What the caller said of the columns; None, where nothing.

    Attributes
    ----------
    features, exclude : tuple of str
        Names or patterns.
    id, label, time : str or None
        The columns of these uses; None for those of the reserved names.
    trusted : bool
        Whether every numeric column is taken for a feature, whatever it looks like.
    reserves : bool
        Whether the reserved names count.
    """

    features: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    id: str | None = None
    label: str | None = None
    time: str | None = None
    trusted: bool = False
    reserves: bool = True

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
                    f"the column {name!r} is named by {first[name]} and by {use}; it must have one "
                    "use: leave it out of one of them"
                )

    @property
    def uses(self) -> dict[str, str]:
        """Columns that are no features by their use, by name, whether or not there are any."""
        said = {"id": self.id, "label": self.label, "time": self.time}
        found = {name: use for use, name in said.items() if name is not None}
        excluded = matching(RESERVED, self.exclude)
        for usual, (use, name) in zip(RESERVED, said.items(), strict=True):
            if self.reserves and name is None and usual not in excluded:
                found.setdefault(usual, use)
        return found


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a log keeps its events.

    Attributes
    ----------
    kind : str
        "points" or "distances".
    feature_names : tuple of str
        Numeric columns, in the order of `in_order`; or the places "0", "1", ... of a list column;
        none of distances.
    list_column : str or None
        The list column that holds the points or the distances; None for numeric columns.
    """

    kind: str
    feature_names: tuple[str, ...]
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
            told = f"{n} numbers of {self.list_column}" if n else f"distances of {self.list_column}"
        else:
            told = ", ".join(folded(names)) + (f" ({n})" if n > MANY else "")
        uses = [f"{use}: {getattr(self, use) or 'none'}" for use in ("id", "label", "time")]
        aside = [f"{name} ({why})" for name, why in self.left_out.items()]
        line = "; ".join([f"features: {told}", *uses, f"left out: {', '.join(aside) or 'none'}"])
        if self.doubtful:
            line += "; settle it with --features, --exclude, --id, --label or --time"
        return line


@dataclass(frozen=True, slots=True)
class Found:
    """The columns of one table by what they could be; as text, those that can be features.

    Attributes
    ----------
    where : str
        What the table is called.
    types : dict
        Arrow types by name.
    numeric : tuple of str
    vectors : dict
        Columns of lists of numbers of one length, with that length.
    doubtful : dict
        Numeric columns that look like something else, and what it is.
    excluded : frozenset of str
        Columns that the caller leaves out.
    """

    where: str
    types: Mapping[str, Any]
    numeric: tuple[str, ...]
    vectors: Mapping[str, int]
    doubtful: Mapping[str, str]
    excluded: frozenset[str]

    @classmethod
    def of(
        cls,
        where: str,
        types: Mapping[str, Any],
        head: Mapping[str, Any],
        choice: Choice,
    ) -> Found:
        """By types and first rows; of a log, these are the first rows of all its files."""
        excluded = matching(types, choice.exclude)
        aside = excluded.union(choice.uses)
        free = {name: kind for name, kind in types.items() if name not in aside}
        numeric = in_order(name for name, kind in free.items() if is_numeric(plain_type(kind)))
        vectors: dict[str, int] = {}
        for name, kind in free.items():
            if is_list_type(kind) and is_numeric(kind.value_type):
                size = _one_length(kind, head.get(name))
                vectors.update({name: size} if size else {})
        looks = {
            name: _told_by_name(name, types) or _told_by_values(head.get(name))
            for name in (() if choice.trusted else numeric)
        }
        doubtful = {name: told for name, told in looks.items() if told is not None}
        return cls(where, types, numeric, vectors, doubtful, excluded)

    @property
    def certain(self) -> tuple[str, ...]:
        """Numeric columns that look like features."""
        return tuple(name for name in self.numeric if name not in self.doubtful)

    def why_not(self, name: str) -> str:
        """Why a column is no feature, that is in no other use."""
        if name in self.excluded:
            return "excluded"
        kind = plain_type(self.types[name])
        if name in self.doubtful:
            return self.doubtful[name]
        if is_numeric(kind) or name in self.vectors:
            return "not among the features"
        return str(kind)

    def __str__(self) -> str:
        vectors = f" or the vectors {sorted(self.vectors)}" if self.vectors else ""
        return f"the numeric columns {list(self.numeric)}{vectors}"


def matching(names: Iterable[str], patterns: Sequence[str]) -> frozenset[str]:
    """The names that are one of these, or of one of these patterns."""
    exact, wild = set(patterns), [each for each in patterns if _is_pattern(each)]
    return frozenset(
        name for name in names if name in exact or any(fnmatchcase(name, each) for each in wild)
    )


def _is_pattern(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def named(argument: str, names: Any) -> tuple[str, ...]:
    """Different names or patterns, at least one, in order; ParameterError for anything else."""
    given = names.tolist() if isinstance(names, np.ndarray) else names
    listed = isinstance(given, Sequence) and not isinstance(given, (str, bytes, memoryview))
    texts = [str(name) for name in given if isinstance(name, str)] if listed else []
    if not texts or len(texts) < len(given) or len(set(texts)) < len(texts):
        none = "None for all numeric columns" if argument == "features" else "None for none"
        raise ParameterError(
            f"{argument}={shown(names)} must be a list of different column names or patterns, at "
            f"least one, or {none}"
        )
    return in_order(texts)


# ------------------------------------------------------------------ what a column looks like


def _told_by_name(name: str, names: Iterable[str]) -> str | None:
    """What a column is called like, that is no feature; a ``y`` beside an ``x`` is a coordinate."""
    if AN_ID.search(name) or AN_ID_IN_ONE_WORD.search(name):
        return "named like an id"
    if AN_INDEX.search(name):
        return "the index of a pandas frame"
    if A_TIME.search(name) or A_TIME_IN_ONE_WORD.search(name):
        return "named like a time"
    low = name.lower()
    if low in TARGETS or (low == "y" and "x" not in {each.lower() for each in names}):
        return "named like a target"
    return None


def folded(names: Sequence[str]) -> list[str]:
    """Names, three and more that differ only in the number at their end as one.

    Examples
    --------
    >>> folded(["id", "c0", "c1", "c2", "coverage", "x1", "x2"])
    ['id', 'c0 … c2', 'coverage', 'x1', 'x2']
    """
    told = []
    for stem, group in groupby(names, lambda name: name.rstrip("0123456789")):
        run = list(group)
        numbered = len(run) > 2 and stem not in run
        told += [f"{run[0]} … {run[-1]}"] if numbered else run
    return told


def suspects(
    names: Sequence[str],
    values: Floats,
    largest: float = LARGEST_VALUE,
    ignored: Sequence[str] = (),
) -> str | None:
    """Of features that were learned already, those that look like none, in words; None: all do.

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
    looks: dict[str, str | None] = dict.fromkeys(empty, "no usable number so far")
    for name, column in () if are_places(names) else zip(names, values[:LOOKED_AT].T, strict=True):
        known = column[~np.isnan(column)]
        whole = np.array_equal(known, np.rint(known)) and np.abs(known).max(initial=0) < 2**53
        numbers = pa.array(known.astype(np.int64) if whole else known)
        if name not in looks:
            looks[name] = _told_by_name(name, names) or _told_by_values(numbers)
    told = [f"{name!r} ({why})" for name, why in looks.items() if why is not None]
    text = ""
    if told:
        text += (
            f"; {'the others' if ignored else 'they'} are learned: to leave them out, select the "
            "others before (features=[...] of Engine.learn, compose.Discard of river)"
        )
    told = [f"{name!r} (no usable number so far: it is ignored)" for name in ignored] + told
    if not told:
        return None
    if empty or ignored:
        limit = f"{largest:g}".replace("+", "")
        text += (
            f"; values beyond {limit} are taken as missing: scale the feature; so are values that "
            "are no numbers: encode text before (preprocessing.OneHotEncoder of river), or take "
            "numbers alone (compose.SelectType(numbers.Number)); a missing value becomes the mean "
            "of the feature, or 0"
        )
    return f"these features may be none: {', '.join(told)}{text}"


def _told_by_values(column: Any) -> str | None:
    """What the first rows of a column look like, that is no feature."""
    if column is None:
        return None
    kind = plain_type(column.type)
    if pa.types.is_decimal(kind) and kind.scale > 0:
        return None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    has_gaps = column.null_count > 0
    column = column.drop_null()
    if len(column) < FEWEST or pa.types.is_boolean(kind):
        return None
    if pa.types.is_integer(column.type):
        values, whole = np.asarray(column), True
    else:
        values = np.asarray([float(each) for each in column.to_pylist()])
        given, values = len(values), values[~np.isnan(values)]
        # of whole numbers with a gap pandas makes floats
        could_be = has_gaps or len(values) < given or pa.types.is_decimal(kind)
        whole = could_be and bool((values == np.rint(values)).all())
        if len(values) < FEWEST:
            return None
    before, after = values[:-1], values[1:]
    if whole and (after > before).all():
        return "whole numbers that ascend, like ids or times"
    is_late = values[0] >= SMALLEST_TIME and np.isfinite(values[-1])
    if is_late and (after >= before).all() and values[-1] > values[0]:
        return "large and never falling, like times"
    return None


def _one_length(kind: Any, column: Any) -> int:
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


def layout_of(found: Found, choice: Choice) -> Layout:
    """Where one table keeps its events.

    Raises
    ------
    FeatureError
        No features, more than one thing that could be them, or none by a name or pattern.
    """
    for pattern in choice.exclude:
        known = pattern in found.types
        if not known and not (_is_pattern(pattern) and matching(found.types, [pattern])):
            raise FeatureError(
                f"{found.where} has no column {pattern!r} to exclude; it has "
                f"{shown(sorted(found.types))}"
            )
    if choice.features is None:
        return _find(found, choice)
    return _choose(found, choice.features, choice.uses)


def _find(found: Found, choice: Choice) -> Layout:
    """The layout of a table of which nothing was chosen."""
    where, certain = found.where, found.certain
    # lists of any length are taken where nothing else could be meant
    fixed = {n: d for n, d in found.vectors.items() if pa.types.is_fixed_size_list(found.types[n])}
    vectors = fixed if fixed or certain else found.vectors
    is_free = DISTANCES not in choice.uses and DISTANCES not in found.excluded
    if is_free and _is_list_of_distances(found.types.get(DISTANCES)):
        return Layout("distances", (), DISTANCES)
    if vectors and (certain or len(vectors) > 1):
        one = sorted(vectors)[0]
        raise FeatureError(
            f"{where} has several possible sets of features ({found}); choose one with features=, "
            f"for example {[one]} or {list(certain[:3]) or [sorted(vectors)[1]]}"
        )
    if vectors:
        return _vector(*vectors.items())
    if certain:
        return Layout("points", certain, None)
    if found.doubtful:
        told = ", ".join(f"{name!r} ({why})" for name, why in found.doubtful.items())
        raise FeatureError(
            f"{where} has no numeric column that looks like a feature, only {told}; if these are "
            "features, name them with features= (--features)"
        )
    lists = [name for name, kind in found.types.items() if _is_list_of_distances(kind)]
    raise FeatureError(
        f"{where} has no numeric column besides {list(choice.uses)}, only {sorted(found.types)}; "
        f"a log needs at least one feature{f' ({lists[0]!r}: {ADVICE})' if lists else ''}"
    )


def _choose(found: Found, chosen: tuple[str, ...], uses: Mapping[str, str]) -> Layout:
    """The layout that names, patterns, or the places of a vector, ask for."""
    vectors = found.vectors
    if not found.types.keys() & set(chosen) and set(chosen) == set(_places(len(chosen))):
        fitting = [name for name, size in vectors.items() if size == len(chosen)]
        if len(fitting) > 1:
            raise FeatureError(
                f"{found.where} has the vectors {sorted(fitting)}, all of {len(chosen)} numbers; "
                f"choose one of them with features=, for example {sorted(fitting)[:1]}"
            )
        if fitting:
            return _vector((fitting[0], len(chosen)))
    if len(chosen) == 1 and chosen[0] in vectors:
        return _vector((chosen[0], vectors[chosen[0]]))
    names: set[str] = set()
    numeric = set(found.numeric)
    for name in chosen:
        if name in numeric:
            names.add(name)
        elif name in found.types or not _is_pattern(name):
            raise FeatureError(_refusal(found, name, uses))
        else:
            matching = [column for column in found.certain if fnmatchcase(column, name)]
            if not matching:
                doubtful = [column for column in found.doubtful if fnmatchcase(column, name)]
                hint = f"; {doubtful} must be named in full" if doubtful else ""
                raise FeatureError(
                    f"the pattern {name!r} matches no numeric column of {found.where}; choose "
                    f"among {found}{hint}"
                )
            names.update(matching)
    return Layout("points", in_order(names), None)


def _refusal(found: Found, name: str, uses: Mapping[str, str]) -> str:
    """Why a column cannot be a feature."""
    kind = found.types.get(name)
    advice = ""
    if name in uses:
        what = "reserved"
    elif kind is None:
        what = "missing"
    elif name in found.vectors:
        what = f"a vector of {found.vectors[name]} numbers"
        advice = "; a vector column must be chosen alone"
    else:
        what = f"of type {kind}"
        if name == DISTANCES and _is_list_of_distances(kind):
            advice = "; a log of distances takes no features"
        elif _is_list_of_distances(kind):
            advice = f"; {ADVICE}"
    return f"the feature {name!r} of {found.where} is {what}; it must be one of {found}{advice}"


def _vector(column: tuple[str, int]) -> Layout:
    return Layout("points", _places(column[1]), column[0])


def _places(size: int) -> tuple[str, ...]:
    """The names that features have by their place, as those of an array."""
    return tuple(map(str, range(size)))


def _is_list_of_distances(kind: Any) -> bool:
    if kind is None or not is_list_type(kind):
        return False
    return bool(pa.types.is_integer(kind.value_type) or pa.types.is_floating(kind.value_type))


# ------------------------------------------------------------------ a table that is learned


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """A table by what its columns are for: what holds points, columns of ids, labels and times."""

    points: Any
    ids: Any = None
    labels: Any = None
    _frame: Any = None

    @property
    def times(self) -> Any:
        """The column of times, read when it is asked for; None where there is none."""
        return None if self._frame is None else self._frame.arrow(RESERVED[2])


def split(X: Any, known: tuple[str, ...] | None, features: Any = None) -> Split:
    """The columns of a data frame or Arrow table by their use; anything else is all points.

    Parameters
    ----------
    known
        The features that are learned already: these are features, whatever they are called.
    features
        Names or patterns of the columns to take; None for all that are not reserved.

    Raises
    ------
    FeatureError
        Where nothing is known or chosen, a column that looks like an id, a time or a target.
    ParameterError
        Features chosen of what has no columns.
    """
    chosen = None if features is None else named("features", features)
    if not is_frame(X):
        if chosen is not None:
            raise ParameterError(
                f"features={shown(features)} chooses columns of a data frame or an Arrow table, "
                f"but X is a {type(X).__name__}: choose its columns beforehand"
            )
        return Split(X)
    frame = frame_of(X)
    if len(set(frame.names)) < len(frame.names):
        return Split(frame)  # refused where it is read
    learned = set(known or ()) | set(chosen or ())
    aside = {name for name in RESERVED if name in frame.names and name not in learned}
    rest = [name for name in frame.names if name not in aside]
    points = frame if not aside else frame.only(rest)
    ids, labels = (frame.arrow(name) if name in aside else None for name in RESERVED[:2])
    others = ids, labels, frame if RESERVED[2] in aside else None
    if known is not None and chosen is None:
        return Split(points, *others)
    head = points.head(LOOKED_AT)
    types = {name: column.type for name, column in head.items()}
    # names that were chosen in full are features, reserved or not
    choice = Choice(chosen, reserves=False)
    found = Found.of("X", types, head, choice)
    if chosen is not None:
        return Split(points.only(layout_of(found, choice).columns), *others)
    if found.doubtful:
        told = ", ".join(f"{name!r} ({why})" for name, why in found.doubtful.items())
        raise FeatureError(
            f"X has columns that may be no features: {told}; nothing was learned: drop them, or "
            "say which columns are features, these among them or not, with features=[...]"
        )
    return Split(points, *others)
