"""Generic classes and type variables with defaults (PEP 696), which Python itself has from 3.13 on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import typing_extensions

    Out = typing_extensions.TypeVar("Out", default=Any, covariant=True)  # the output of an agent call
else:  # typing_extensions is loaded by what needs it first
    Out = TypeVar("Out", covariant=True)
New = TypeVar("New")  # that of the prompt that a function is given


class Defaulted:
    """A base of generic classes of which the last types may be left out at run time, as type checkers allow it."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __class_getitem__(cls, types: Any) -> Any:
            given = types if isinstance(types, tuple) else (types,)
            return super().__class_getitem__((*given, *cls.__parameters__[len(given) :]))
