"""Signatures that show options one by one, for `help` and for editors that look at run time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache, cached_property
from importlib import import_module
from inspect import Parameter, Signature, signature
from keyword import iskeyword
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
_BY_NAME = Parameter.KEYWORD_ONLY


def with_options_shown(options: Any, *, without: Collection[str] = (), is_change: bool = False) -> Callable[[F], F]:
    """Return a decorator for a function whose last parameter is ``**options``: its signature then shows each of them.

    Args:
        options: A callable with these keyword arguments, or a `TypedDict` of them; or ``module:name`` of one, which is
            loaded when the signature is read.
        without: The names of options that the function does not take.
        is_change: Whether options that are not passed keep their present values: their defaults are shown as ``...``,
            as are those of a `TypedDict`.
    """

    def spell_out(function: F) -> F:
        def make() -> Signature:
            written = signature(function, follow_wrapped=False)
            kept = [*written.parameters.values()][:-1]
            named = [p for p in _parameters(_found(options)) if p.name not in without]
            added = [p.replace(default=...) for p in named] if is_change else named
            return written.replace(parameters=[*kept, *added])

        shown: Any = function
        shown.__wrapped__ = _Shown(make)
        return function

    return spell_out


class _Shown:
    """The end of the chain that `inspect.signature` follows: a signature that is made on demand."""

    def __init__(self, make: Callable[[], Signature]) -> None:
        self._make = make

    @cached_property
    def __signature__(self) -> Signature:
        return self._make()


def _found(options: Any) -> Any:
    if not isinstance(options, str):
        return options
    module, _, name = options.partition(":")
    return getattr(import_module(module), name)


@cache
def _parameters(options: Any) -> tuple[Parameter, ...]:
    if hasattr(options, "__total__"):  # a TypedDict
        items = [item for item in options.__annotations__.items() if not iskeyword(item[0])]  # these no argument is
        written = {name: getattr(item, "__forward_arg__", item) for name, item in items}
        return tuple([Parameter(name, _BY_NAME, default=..., annotation=item) for name, item in written.items()])
    named = [p for p in signature(options).parameters.values() if p.kind in (p.POSITIONAL_OR_KEYWORD, _BY_NAME)]
    return tuple([p.replace(kind=_BY_NAME) for p in named])
