"""Parameters of the public classes: words that are written once, and hints for wrong names."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, dataclass_transform

from streamembed.errors import UnknownParameterError, suggest_word

Class = TypeVar("Class", bound=type[Any])

# Names in other libraries, and what a class of this one may call the same.
SYNONYMS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("random_state", "random_seed", "rng"), ("seed",)),
    **dict.fromkeys(("window", "window_size", "max_size", "size"), ("size", "window")),
    **dict.fromkeys(("n_neighbours", "k", "perplexity"), ("n_neighbors",)),
    **dict.fromkeys(("n_dims", "n_dimensions", "dim"), ("n_components",)),
    **dict.fromkeys(("sigma", "epsilon", "length_scale", "gamma"), ("bandwidth",)),
    **dict.fromkeys(("grace_period", "burn_in"), ("warm_up",)),
    **dict.fromkeys(("decay", "fading_factor", "halflife"), ("half_life",)),
    "batch_size": ("chunk_size",),
    "delta": ("ert",),
    "min_dist": ("spread",),
    "t": ("diffusion_time",),
    "tol": ("tolerance",),
    "affinity": ("kernel", "weights"),
    "embedding": ("method",),
}
# What a synonym differs in.
DIFFERENCES: Mapping[str, str] = {
    "perplexity": "t-SNE takes three times the perplexity",
    "gamma": "bandwidth is gamma**-0.5",
    "delta": "expected events between false alarms",
    "sigma": "the kernel is exp(-d**2 / bandwidth**2)",
    "min_dist": "larger values make denser groups",
    "decay": "in events",
    "fading_factor": "in events",
}
# What to do instead, where there is no such parameter.
NOTES: Mapping[str, str] = {
    "n_jobs": "one thread computes; for several processes use streamembed.replay_partitions",
    "random_state": "nothing here is drawn at random",
    "verbose": "streamembed logs nothing; `repr` says what was learned",
}
# Parameters of the public classes that are imported, and of the engine by method.
OWNERS: dict[str, frozenset[str]] = {}
MOST_OWNERS = 4  # that a message names

_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", re.MULTILINE)


# ------------------------------------------------------------------------------------- docstrings


def parse_parameter_texts(doc: str | None) -> dict[str, str]:
    """The texts of the section Parameters of a docstring, by name.

    Empty where there is no docstring (``python -OO``).
    """
    _, body, _ = _split_section(doc)
    texts = {}
    for names, text in re.findall(r"^(\S.*)\n((?:[ ]{4}.*\n?)+)", body, re.MULTILINE):
        for name in names.split(", "):
            texts[name] = inspect.cleandoc(text)
    return texts


def write_parameter_texts(
    doc: str | None,
    texts: Mapping[str, str],
    describe_use: Callable[[str], str],
    base: str | None = None,
) -> str | None:
    """The docstring with these texts as its section Parameters; None where there is none.

    Parameters
    ----------
    describe_use
        A name -> a sentence behind its text, or "".
    base
        A docstring of which all but the first paragraph and the parameters is added.
    """
    if doc is None:
        return None
    before, _, after = _split_section(doc)
    shared, _, sections = _split_section(base)
    entries = [
        f"{name}\n{textwrap.indent(f'{text}{chr(10)}{describe_use(name)}'.strip(), '    ')}"
        for name, text in texts.items()
    ]
    parameters = "\n".join(["Parameters", "----------", *entries])
    parts = [before, shared.partition("\n\n")[2], parameters, sections, after]
    return "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def _split_section(doc: str | None) -> tuple[str, str, str]:
    """A docstring before, in and after its section Parameters, or where that would stand."""
    text = inspect.cleandoc(doc or "")
    sections = list(_SECTION.finditer(text))
    own = next((each for each in sections if each.group(1) == "Parameters"), None)
    if own is None:
        place = sections[0].start() if sections else len(text)
        return text[:place], "", text[place:]
    following = sections[sections.index(own) + 1 :]
    end = following[0].start() if following else len(text)
    return text[: own.start()], text[own.end() : end], text[end:]


def take_first_sentence(text: str) -> str:
    """What a text says up to its first full stop, on one line.

    Examples
    --------
    >>> take_first_sentence("Events per update. Chunks are cut at multiples of it.")
    'Events per update.'
    """
    return " ".join(text.split()).partition(". ")[0].removesuffix(".") + "."


@dataclass_transform(eq_default=False, field_specifiers=(field,))
def declare_parameters(
    texts: Mapping[str, str],
    describe_use: Callable[[str, type[Any]], str] = lambda _name, _cls: "",
    base: str | None = None,
) -> Callable[[Class], Class]:
    """Class decorator: make annotations the parameters of `__init__`.

    The class gets its signature, hints for wrong names, and a docstring with each parameter.

    Parameters
    ----------
    texts
        Of parameters that the class shares with others; its own docstring has the rest.
    describe_use
        A name and the class -> a sentence behind a shared text, or "".
    base
        The docstring of a class whose other sections are added.
    """

    def declare(cls: Class) -> Class:
        dataclass(eq=False, repr=False)(cls)
        reject_unknown_parameters(cls)
        own = parse_parameter_texts(cls.__doc__)
        words = {**texts, **own}
        cls.__doc__ = write_parameter_texts(
            cls.__doc__,
            {name: words.get(name, "") for name in inspect.signature(cls).parameters},
            lambda name: "" if name in own else describe_use(name, cls),
            base,
        )
        return cls

    return declare


# ------------------------------------------------------------------------------------------ names


def reject_unknown_parameters(cls: Class) -> Class:
    """Make a class refuse parameters that it does not have, with a hint; a class decorator.

    Its signature stays as it is, as river and scikit-learn read it.

    Raises
    ------
    UnknownParameterError
        When an object is made.
    """
    create = cls.__init__
    own = inspect.signature(cls).parameters
    if cls.__module__.startswith("streamembed."):
        OWNERS[cls.__name__] = frozenset(own)

    @functools.wraps(create)
    def checked(self: Any, *args: Any, **parameters: Any) -> None:
        for name in parameters:
            if name not in own:
                raise UnknownParameterError(
                    f"{type(self).__name__} has no parameter {name!r}: {suggest_name(name, own)}"
                )
        create(self, *args, **parameters)

    if not any(each.kind == each.VAR_KEYWORD for each in own.values()):
        type.__setattr__(cls, "__init__", checked)
    return cls


def suggest_synonym(name: str, own: Collection[str]) -> str:
    """Which of these names others call so, or what to do instead; "" if neither is known."""
    known = [synonym for synonym in SYNONYMS.get(name, ()) if synonym in own]
    return known[0] if known else NOTES.get(name, "")


def suggest_name(name: str, own: Collection[str]) -> str:
    """What a caller may have meant who gave that name instead of one of these."""
    known = suggest_synonym(name, own)
    if known in own:
        difference = f" ({DIFFERENCES[name]})" if name in DIFFERENCES else ""
        return f"did you mean {known!r}?{difference}"
    if known:
        return known
    owners = sorted(owner for owner, names in OWNERS.items() if name in names)
    if owners:
        return f"{name!r} is a parameter of {_join(owners)}"
    return suggest_word(name, own) or f"it has {', '.join(own)}"


def _join(owners: list[str]) -> str:
    """Classes, then engines of a method, as a part of a sentence."""
    ordered = sorted(owners, key=lambda owner: owner.startswith("Engine"))
    ordered = ordered if len(ordered) <= MOST_OWNERS else [*ordered[: MOST_OWNERS - 1], "others"]
    return " and of ".join([", of ".join(ordered[:-1]), ordered[-1]] if ordered[1:] else ordered)


class HintedAttributes:
    """A class that answers the methods of other libraries with the name of its own."""

    _hints: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:  # a type checker is to find out which attributes there are not

        def __getattr__(self, name: str) -> Any:
            if hasattr(type(self), name):  # a property failed: let it say why
                return object.__getattribute__(self, name)
            message = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in self._hints:
                raise AttributeError(f"{message}: use {self._hints[name]}")
            raise AttributeError(message, name=name, obj=self)
