"""Examples of a type's values, as JSON."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
import pydantic
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fsm_agent._internal.annotations import UNIONS
from fsm_agent.errors import PromptError
from fsm_agent.functions.schema import described_errors
from fsm_agent.prompts.rendering.choices import is_skipped
from fsm_agent.prompts.rendering.fields import UNMARKED, RecordField, fields_of, is_record, merged
from fsm_agent.prompts.rendering.schema import bare, name_of

_MISSING = object()
_REMEDY = "add Annotated[…, PromptField(example=…)]"
_SECTION = "### Examples\n\nHere are examples of the data structures you should use.\n\n"
_LISTS = (list, tuple, set, frozenset)


def prompt_example(kind: Any) -> str:
    """Return an example of a type's values as JSON, for a model that has to write one.

    Each field has the ``example`` of its `PromptField` or the first of pydantic's ``examples``; otherwise its default;
    otherwise its value, if one is given; otherwise what its type allows to conclude.

    Args:
        kind: A type, or a value of it, which completes the example.

    Raises:
        PromptError: There is no example of some field, or the example is not valid.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: Annotated[str, PromptField(example="It is late.")]
        >>> print(prompt_example(Ticket))
        {
          "text": "It is late."
        }
    """
    of = kind_of(kind)
    value = kind if of is not kind else _MISSING
    example = _Example().of_type(of, value)
    if example is _MISSING:
        raise PromptError(f"{name_of(of)}: expected a model or dataclass with an example, got none; {_REMEDY}")
    return json.dumps(example, indent=2, ensure_ascii=False)


def examples_section(*kinds: Any) -> str:
    """Return a section of a prompt with an example of each type; see `prompt_example`.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: Annotated[str, PromptField(example="It is late.")]
        >>> "It is late." in examples_section(Ticket)
        True
    """
    examples = [f"---\n#### `{name_of(kind_of(kind))}`\n{prompt_example(kind)}\n" for kind in kinds]
    return f"{_SECTION}{''.join(examples)}---"


def kind_of(kind: Any) -> Any:
    """Return the type of a record or of a member of an enumeration; a type is its own."""
    return type(kind) if isinstance(kind, Enum) or is_record(type(kind)) else kind


class _Example:
    """One example that is being made."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # the records that are being made

    def of_type(self, kind: Any, value: Any = _MISSING) -> Any:
        """Return an example of a type, or `_MISSING` where nothing allows to conclude one."""
        kind = bare(kind)
        origin, arguments = get_origin(kind), get_args(kind)
        if is_record(kind):
            return self.record(kind, value)
        if isinstance(kind, type) and issubclass(kind, Enum):
            members = [member for member in kind if not is_skipped(member)]
            return _as_json(value if value is not _MISSING else members[0].value if members else _MISSING)
        if value is not _MISSING:
            return _as_json(value)
        if origin is Literal:
            return _as_json(arguments[0])
        if origin in UNIONS:
            found = [example for example in map(self.of_type, arguments) if example is not _MISSING]
            return found[0] if found else _MISSING
        if kind in (None, type(None)):
            return None
        if origin in _LISTS and (arguments[-1] is Ellipsis or origin is not tuple):
            item = self.of_type(arguments[0])
            return item if item is _MISSING else [item]
        return _MISSING

    def record(self, kind: Any, value: Any) -> Any:
        if kind in self.open:
            return _MISSING
        self.open.append(kind)
        shown_fields = [field for field in fields_of(kind) if field.is_shown]
        made = {field.json_name: self.field(kind, field, value) for field in shown_fields}
        self.open.pop()
        if all(field.is_shown or not field.info.is_required() for field in fields_of(kind)):
            _check_whole(kind, made)
        return made

    def field(self, kind: Any, field: RecordField, value: Any) -> Any:
        owner = f"{kind.__name__}.{field.name}"
        example = merged([mark for mark in field.marks if mark.target is None]).example
        if example is msgspec.UNSET and field.info.examples:
            example = field.info.examples[0]
        if example is not msgspec.UNSET:
            return _checked(field, example, owner)
        if not field.info.is_required() and not field.info.default_factory_takes_validated_data:
            return _as_json(field.info.get_default(call_default_factory=True))
        own = _MISSING if value is _MISSING else _value_of(value, field.name)
        example = self.of_type(field.info.annotation, own)
        if example is _MISSING:
            raise PromptError(f"{owner}: expected an example, a default or a value, got none; {_REMEDY}")
        return example


def _value_of(value: Any, name: str) -> Any:
    return value.get(name, _MISSING) if isinstance(value, dict) else getattr(value, name, _MISSING)


def _checked(field: RecordField, example: Any, owner: str) -> Any:
    """Return an example that the user wrote, as JSON, if it is of the field's type."""
    data = _as_json(example)
    annotated: Any = Annotated
    adapter = pydantic.TypeAdapter(annotated[(field.info.annotation, *(field.info.metadata or [None]))])
    try:
        adapter.validate_json(json.dumps(data), strict=True)
    except pydantic.ValidationError as error:
        raise PromptError(f"the example {example!r} of {owner} is not valid: {described_errors(error)}") from None
    return data


def _check_whole(kind: Any, made: dict[str, Any]) -> None:
    try:
        pydantic.TypeAdapter(kind).validate_json(json.dumps(made))
    except pydantic.ValidationError as error:
        raise PromptError(f"the example of {kind.__name__} is not valid: {described_errors(error)}") from None


def _as_json(value: Any) -> Any:
    if value is _MISSING:
        return value
    try:
        return to_jsonable_python(value, by_alias=True, context=UNMARKED)
    except PydanticSerializationError as error:
        raise PromptError(f"an example with {value!r} cannot be written as JSON: {error}") from error
