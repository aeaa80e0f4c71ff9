"""Signatures that show options one by one, for `help` and for editors that look at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, signature
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


def spelled_out(options: Any) -> Callable[[F], F]:
    """Return a decorator for a function whose last parameter is ``**`` with ``options``, of which each is then shown.

    Args:
        options: A `TypedDict`, whose keys are shown with the default ``...``, as what is not given has no effect; or a
            dataclass, whose fields are shown with their own defaults.
    """

    def spell_out(function: F) -> F:
        written = signature(function)
        kept = [*written.parameters.values()][:-1]
        shown: Any = function
        shown.__signature__ = written.replace(parameters=[*kept, *_parameters(options)])
        return function

    return spell_out


def _parameters(options: Any) -> Iterator[Parameter]:
    if is_dataclass(options):
        for item in fields(options):
            if item.init:
                default = ... if item.default is MISSING else item.default
                yield Parameter(item.name, Parameter.KEYWORD_ONLY, default=default, annotation=item.type)
        return
    for name, form in options.__annotations__.items():
        annotation = getattr(form, "__forward_arg__", form)
        yield Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=annotation)
