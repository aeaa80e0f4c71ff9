"""What an annotation says of the types of values."""

from __future__ import annotations

from types import UnionType
from typing import Annotated, Any, NewType, Union, get_args, get_origin

UNIONS = (Union, UnionType)  # the origins of a union, which may be written in two ways


def types_of(annotation: Any) -> tuple[Any, ...]:
    """Return the types of a union; of any other annotation itself alone."""
    return get_args(annotation) if get_origin(annotation) in UNIONS else (annotation,)


def without_notes(kind: Any) -> Any:
    """Return a type without what `Annotated` and `NewType` add to it."""
    while True:
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif isinstance(kind, NewType):
            kind = kind.__supertype__
        else:
            return kind
