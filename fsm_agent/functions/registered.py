"""Functions by name, for configurations and files that cannot hold code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fsm_agent._internal.registry import Registry
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function

FUNCTIONS: Registry[Function] = Registry(
    "function", UsageError, replaces=lambda new, known: _source(new) == _source(known) is not None
)


def register_function(function: Function | Callable[..., Any], *, overwrite: bool = False) -> Function:
    """Register a function under its name, in this OS process.

    Returns:
        The function, so that it can be registered where it is defined.

    Raises:
        UsageError: It cannot be called by a model; or its name is another's, and ``overwrite`` is False.

    Examples:
        >>> def shout(text: str) -> str:
        ...     "Shout."
        ...     return text.upper()
        >>> register_function(shout, overwrite=True).name
        'shout'
    """
    made = Function.of(function)
    return FUNCTIONS.register(made.name, made, overwrite=overwrite)


def _source(function: Function) -> tuple[str, str] | None:
    """Return the place of its code: that of a module that is imported anew is the same."""
    name = getattr(function.call, "__qualname__", "<")
    return None if "<" in name else (getattr(function.call, "__module__", ""), name)
