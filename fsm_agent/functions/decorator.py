"""The type of ``@function(…)``, for type checkers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar, overload

from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function

Args = ParamSpec("Args")
Result = TypeVar("Result")
FnDeps = TypeVar("FnDeps")  # the deps of a function's context


class AnyArgument:
    """A first argument that only a parameter of type ``object`` or ``Any`` takes."""


class Decorator(Protocol):
    """A decorator that makes a `Function` of a Python function, and keeps its signature.

    A function of ``Context[Shop]`` needs the deps ``Shop``, one without a context needs none.  The signature is left
    open where the first parameter takes anything, and would take a `Context`, too; and by mypy, which takes no overload
    for certain where there is an ``Any``, where a function of a `Context` has one.
    """

    @overload
    def __call__(self, call: Callable[Concatenate[AnyArgument, ...], Result], /) -> Function[..., Result, object]: ...
    @overload
    def __call__(
        self, call: Callable[Concatenate[Context[FnDeps], Args], Result], /
    ) -> Function[Concatenate[Context[FnDeps], Args], Result, FnDeps]: ...
    @overload
    def __call__(self, call: Callable[Args, Result], /) -> Function[Args, Result, object]: ...
