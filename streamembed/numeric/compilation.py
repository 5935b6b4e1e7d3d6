"""Loops that numba compiles, where it is installed: both wait for the first call."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def import_numba() -> Any:
    """numba, an optional extra; None where it is not installed, or does not fit this numpy.

    It takes longer to import than all the rest, and most callers have no loop to compile.
    """
    with suppress(ImportError):
        import numba  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415

        return numba
    return None


def is_available() -> bool:
    """Whether loops can be compiled."""
    return import_numba() is not None


class _Loop:
    """A function that is compiled with the others of its module, which it may call."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        names = self.function.__globals__
        loops = {name: loop for name, loop in names.items() if isinstance(loop, _Loop)}
        compile_loop = import_numba().njit(cache=False, error_model="numpy")
        compiled = {loop: compile_loop(loop.function) for loop in loops.values()}
        names.update({name: compiled[loop] for name, loop in loops.items()})
        return compiled.get(self, names[self.function.__name__])(*args)


def compile_at_first_call(function: Function) -> Function:
    """A function of arrays as numba compiles it; a decorator. Call it where `is_available`.

    Divisions by zero are numpy's, and nothing is reordered.
    """
    return cast("Function", _Loop(function))
