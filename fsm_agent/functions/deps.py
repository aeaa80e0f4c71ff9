"""Deps: what functions find in their `Context`.

Wherever deps are given, they are a value, or a function of (agent, extra, user) that makes the value for one run: of
the name of the run's agent or flow, of the run's ``extra``, and of who asked, the run's ``by``.  A class is neither.
Any other object is a value, even one that can be called; a function that is itself the value is what another returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

from typing_extensions import TypeVar

from fsm_agent.errors import UsageError
from fsm_agent.validation import shown

Given = TypeVar("Given")
# What options named ``deps`` take; in a generic alias, as checkers infer `Given` from either form.
GivenDeps: TypeAlias = Given | Callable[[str, Mapping[str, Any], str], Given]

EXPECTED = "a value, or a function of (agent, extra, user) that returns it"
_BUILT_IN = "builtins"


class Made:
    """Deps that are this value, whatever it is; no function is called for them."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Later:
    """Stands for deps that only another driver has, for who puts work in or reads a run."""

    def __repr__(self) -> str:
        return "the deps of the driver"


LATER = Later()


def is_maker(deps: object) -> bool:
    """Return whether deps are a function that makes them."""
    return callable(deps) and (isinstance(deps, partial) or inspect.isroutine(deps))


def check_deps(deps: object) -> None:
    """Refuse deps that are neither a value nor a function of (agent, extra, user).

    Raises:
        UsageError: They are a class, or a function of other parameters.
    """
    if isinstance(deps, type):
        raise UsageError(
            f"deps=: expected {EXPECTED}, got the class {deps.__name__}; pass an object of it, deps={deps.__name__}(…)"
        )
    if not is_maker(deps):
        return
    name = getattr(deps, "__name__", "") or shown(deps)
    if inspect.iscoroutinefunction(deps) or inspect.isasyncgenfunction(deps):
        raise UsageError(f"deps=: expected {EXPECTED}, got the coroutine function {name}; pass a plain function")
    try:
        signature = inspect.signature(deps)  # type: ignore[arg-type]
        signature.bind("agent", {}, "user")
    except TypeError:
        raise UsageError(
            f"deps=: expected {EXPECTED}, got the function {name}{signature}; pass one of these three parameters, also"
            " to return a function that is itself the value"
        ) from None
    except ValueError:  # written in C, without a signature
        return


def deps_for(deps: Any, agent: str, extra: Mapping[str, Any], user: str) -> Any:
    """Return the value of deps for one run.

    Args:
        deps: As they were given: a value, or a function.
        agent: The name of the run's agent or flow.
        extra: The run's ``extra``.
        user: Who asked; empty: unknown.

    Raises:
        UsageError: They are neither a value nor such a function.
    """
    if isinstance(deps, Made):
        return deps.value
    check_deps(deps)
    return deps(agent, extra, user) if is_maker(deps) else deps


def misfit(deps: object, kind: type | None) -> bool:
    """Return whether a value cannot stand for an object of a class.

    An object of another class of the user's may stand for it, as a double does in a test; a value of a type of
    Python's own, such as a mapping, may not.
    """
    if (
        kind is None
        or type(deps).__module__ != _BUILT_IN
        or (kind in (float, complex) and isinstance(deps, int | float))
    ):
        return False
    try:
        return not isinstance(deps, kind)
    except TypeError:  # a protocol or a TypedDict, which cannot be asked
        return False
