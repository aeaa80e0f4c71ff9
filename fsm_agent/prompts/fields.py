"""The fields of records and the members of enumerations, with the descriptions that their authors wrote."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable
from enum import Enum
from functools import cached_property, lru_cache
from typing import Any, Literal, NotRequired, Required, Self, get_args, get_origin, get_type_hints

import msgspec
import pydantic
from pydantic.fields import FieldInfo
from typing_extensions import ReadOnly, is_typeddict

from fsm_agent._internal.structs import Value, differing
from fsm_agent.errors import PromptError


class PromptChoice(str):
    """An enum member's value, with a description of its meaning for the model.

    ``GREETING = PromptChoice("Greeting", "User wants to greet or say hello")`` works in any ``Enum``.  This value
    equals the string ``"Greeting"``.

    Args:
        value: The text that models read and write.
        description: The meaning of the member.
        skip: Whether to leave the member out of schemas.  Such a member is printed without its description.

    Examples:
        >>> class Mood(PromptEnum):
        ...     HAPPY = PromptChoice("happy", "smiles a lot")
        ...     SAD = "sad"
        >>> Agent(Script("happy"), output=Mood).call("How is she?").output
        <Mood.HAPPY: 'happy'>
    """

    description: str
    skip: bool

    def __new__(cls, value: str, description: str = "", *, skip: bool = False) -> Self:
        choice = super().__new__(cls, value)
        choice.description = description
        choice.skip = skip
        return choice


def label_of(member: Enum) -> str:
    """Return the member's value if it is a string, otherwise its name."""
    return str.__str__(member.value) if isinstance(member.value, str) else member.name or str(member.value)


def is_skipped(member: Enum) -> bool:
    """Return whether schemas leave the member out."""
    value: Any = member.value
    return isinstance(value, PromptChoice) and value.skip


def description_of(member: Enum) -> str:
    """Return the member's meaning, from the description in its `PromptChoice` or from its own docstring."""
    value: Any = member.value
    description = value.description if isinstance(value, PromptChoice) else ""
    return " ".join(str(description or vars(member).get("__doc__") or "").split())


def text_of_member(member: Enum) -> str:
    """Return the member's label and meaning, or only its label if it has no meaning or is skipped."""
    description = "" if is_skipped(member) else description_of(member)
    return f"{label_of(member)}: {description}" if description else label_of(member)


TYPE_MARK = "__type"  # names the class of a value in JSON; models do not see it
UNMARKED = {TYPE_MARK: False}  # the context for writing values without it


class PromptField(Value, frozen=True, kw_only=True, eq=False):  # or typing takes example=True for example=1
    """Metadata for a field that is shown to a model.  Put it into ``Annotated``, like pydantic's ``Field``.

    A field may have more than one `PromptField`.  One with a ``target`` applies only to text for that target, and
    overrides those without a target.  The ``description``, ``examples`` and ``exclude`` of pydantic's ``Field`` also
    apply.

    Args:
        description: The meaning of the field.  This text labels the field's line unless ``rename`` is given, and is
            shown as a comment in schemas.
        rename: The label of the field's line.  Schemas and examples keep the name or alias that pydantic reads.
        skip: Whether to leave the field out of text, schemas and examples.  With a target, it is left out only of text
            for that target.
        format_with: A function that turns the field's value into text.
        example: A value of the field's type to show in examples.
        image: Whether to show the value as an image.  The value may be any source that `Image.of` accepts.
        target: The target (the intended reader) whose text includes the field.  The field is left out of text for any
            other target, unless another `PromptField` names that target.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: Annotated[str, PromptField(description="what the customer wrote")]
        ...     token: Annotated[str, PromptField(skip=True)] = ""
        >>> print(prompt_text(Ticket(text="It is late.", token="t-1")))
        what the customer wrote: It is late.
    """

    description: str | None = None
    rename: str | None = None
    skip: bool = False
    format_with: Callable[[Any], str] | None = None
    example: Any = msgspec.UNSET
    image: bool = False
    target: str | None = None


def merged(marks: Iterable[PromptField]) -> PromptField:
    """Return these marks combined into one.  Later marks override earlier ones."""
    merged_marks: dict[str, Any] = {}
    for mark in marks:
        merged_marks |= differing(mark)
    return PromptField(**merged_marks)


class RecordField(Value, frozen=True, kw_only=True):
    """A field of a record, with its metadata."""

    name: str
    json_name: str  # as pydantic reads it
    info: FieldInfo
    marks: tuple[PromptField, ...] = ()

    @property
    def description(self) -> str | None:
        """The field's meaning, on one line."""
        description = merged([mark for mark in self.marks if mark.target is None]).description or self.info.description
        return " ".join(description.split()) if description else None

    def look(self, target: str | None = None) -> PromptField | None:
        """Return the metadata that says how to print the field for a target, or None if it is left out."""
        own = [mark for mark in self.marks if mark.target is not None and mark.target == target]
        look = merged([mark for mark in self.marks if mark.target is None] + own)
        is_of_others = target is not None and not own and any(mark.target and not mark.skip for mark in self.marks)
        return None if look.skip or is_of_others else look

    @property
    def is_picture(self) -> bool:
        """Whether at least one target renders the value as an image rather than as text."""
        return any(mark.image for mark in self.marks)

    @property
    def is_shown(self) -> bool:
        """Whether schemas and examples include the field."""
        return self.json_name != TYPE_MARK and self.look() is not None


def is_record(kind: Any) -> bool:
    """Return whether values of this type are printed field by field."""
    if not isinstance(kind, type):
        return False
    if issubclass(kind, pydantic.BaseModel):
        return not issubclass(kind, pydantic.RootModel)
    return dataclasses.is_dataclass(kind) or is_typeddict(kind)


@lru_cache(maxsize=1024)
def fields_of(kind: type) -> tuple[RecordField, ...]:
    """Return the fields of a record type, in declaration order.

    Raises:
        PromptError: If an annotation contains an undefined name.
    """
    try:
        infos = _infos(kind)
    except (NameError, TypeError, pydantic.PydanticUserError) as error:
        problem = str(error).partition("\n")[0]
        raise PromptError(f"the fields of {kind.__qualname__} cannot be read: {problem}") from error
    return tuple([_field(name, info) for name, info in infos.items()])


def _infos(kind: Any) -> dict[str, FieldInfo]:
    if issubclass(kind, pydantic.BaseModel):
        if not kind.__pydantic_complete__:
            kind.model_rebuild()
        return dict(kind.model_fields)
    if pydantic.dataclasses.is_pydantic_dataclass(kind):
        return dict(kind.__pydantic_fields__)
    hints = get_type_hints(kind, include_extras=True)
    if is_typeddict(kind):
        return {name: FieldInfo.from_annotation(_bare(hint)) for name, hint in hints.items()}
    own: Any = dataclasses.fields(kind)
    return {item.name: FieldInfo.from_annotated_attribute(hints[item.name], item) for item in own}


def _bare(hint: Any) -> Any:
    """Return a TypedDict key's annotation without qualifiers such as ``Required``."""
    while get_origin(hint) in (Required, NotRequired, ReadOnly):
        (hint,) = get_args(hint)
    return hint


def _field(name: str, info: FieldInfo) -> RecordField:
    alias = info.validation_alias if isinstance(info.validation_alias, str) else info.alias
    marks = tuple([mark for mark in info.metadata if isinstance(mark, PromptField)])
    return RecordField(name=name, json_name=alias or name, info=info, marks=marks)


def tag_of(kind: type) -> tuple[str, str] | None:
    """Return the name and value of the field that identifies a variant, or None if the record has no such field."""
    for field in fields_of(kind):
        choices = get_args(field.info.annotation) if get_origin(field.info.annotation) is Literal else ()
        if len(choices) == 1 and isinstance(choices[0], str) and field.look() is not None:
            return field.name, choices[0]
    return None


def names_of(kind: type) -> list[str]:
    """Return the names that a template for this class may use: its fields and properties."""
    bases = [base for base in kind.__mro__ if base.__module__.partition(".")[0] not in ("builtins", "pydantic")]
    computed = [
        name
        for base in reversed(bases)
        for name, item in vars(base).items()
        if isinstance(item, property | cached_property)
    ]
    return list(dict.fromkeys([*_field_names(kind), *computed]))


def _field_names(kind: Any) -> list[str]:
    if issubclass(kind, pydantic.BaseModel):
        return list(kind.model_fields)
    own = dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ()
    return [item.name for item in own]


def docstring_of(kind: type) -> str:
    """Return the class's own docstring, not an inherited or generated one."""
    text = vars(kind).get("__doc__") or ""
    is_made = dataclasses.is_dataclass(kind) and text.startswith(f"{kind.__name__}(")
    return "" if is_made else inspect.cleandoc(text)
