"""The commonest action: what came goes into a field of the data."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from fsm_agent._internal.lazy_import import pydantic
from fsm_agent.flows.errors import FlowError
from fsm_agent.validation import check

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class IntoField:
    """An action that puts what came into a field.

    Args:
        field: The name of the field.
    """

    field: str

    def __repr__(self) -> str:
        return f"into({self.field!r})"

    @property
    def __name__(self) -> str:
        """Its name in errors and diagrams."""
        return f"into {self.field}"

    def __call__(self, data: T, answer: Any, /) -> T:
        """Return the data with what came in the field."""
        changed: Any = data
        if dataclasses.is_dataclass(changed):
            return dataclasses.replace(changed, **{self.field: answer})  # type: ignore[return-value, type-var]
        if isinstance(changed, tuple):
            return changed._replace(**{self.field: answer})  # type: ignore[attr-defined, no-any-return]
        return changed.model_copy(update={self.field: answer})  # type: ignore[no-any-return]


def into(field: str, /) -> IntoField:
    """Return an action that puts what came, an answer or a `Failure`, into a field of the data.

        judging.done(review, do=into("best"))

    The flow refuses it, when it is defined, if the data have no such field, or what comes has another type.

    Args:
        field: The name of the field.

    Raises:
        FlowError: It is no name.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass(frozen=True)
        ... class Letter:
        ...     about: str
        ...     text: str = ""
        >>> @execute
        ... def write(d: Letter) -> str:
        ...     return f"Dear Ada: {d.about}"
        >>> letters = Flow("letters", Letter, start=write, rows=[write.done(end("over"), do=into("text"))])
        >>> letters.call(Letter("a lamp")).output.text
        'Dear Ada: a lamp'
    """
    check("field of into", field, isinstance(field, str), "the name of a field of the data", FlowError)
    return IntoField(field)


def fields_of(data: Any) -> dict[str, Any]:
    """Return the types of the fields that an action can set, by name; `Any`: a type cannot be found."""
    try:
        hints = typing.get_type_hints(data)
    except (NameError, TypeError):  # types that are local to a function
        hints = {}
    if dataclasses.is_dataclass(data):
        names = [field.name for field in dataclasses.fields(data) if field.init]
    elif issubclass(data, pydantic.BaseModel):
        names = [*data.model_fields]
        hints = {name: info.annotation for name, info in data.model_fields.items()}
    else:
        names = [*getattr(data, "_fields", ())]
    return {name: hints.get(name, Any) for name in names}
