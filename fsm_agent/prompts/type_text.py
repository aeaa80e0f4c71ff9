"""Shows types to a model: as a schema, as an example value, or as a guide with both."""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin

import msgspec
import pydantic
from pydantic_core import PydanticSerializationError, to_jsonable_python

from fsm_agent._internal.structs import UNIONS, without_notes
from fsm_agent.errors import PromptError, hint
from fsm_agent.functions.arguments import described_errors
from fsm_agent.functions.schema import undescribable
from fsm_agent.prompts.fields import (
    UNMARKED,
    RecordField,
    description_of,
    docstring_of,
    fields_of,
    is_record,
    is_skipped,
    label_of,
    merged,
)
from fsm_agent.prompts.unions import tags_of
from fsm_agent.validation import safe_repr

MAX_LINES = 5_000  # of a schema, since repeated nested types can double it at each level
_WORDS = {str: "string", bool: "boolean", int: "number", float: "number", None: "null", Any: "any", object: "any"}
_JSON_WORDS = {"integer": "number", "array": "any[]"}
_PLAIN = (str, bool, int, float, bytes, Enum, types.NoneType)

Lines = list[str]


def prompt_schema(kind: Any) -> str:
    """Return a type's schema in a compact form, for a model that must write a value.

    Args:
        kind: Any type that pydantic can validate, such as a model, a dataclass, an enumeration or a union.

    Raises:
        PromptError: If the type has no schema, or if its schema is too long.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: str
        ...     urgent: bool = False
        >>> print(prompt_schema(Ticket))
        ### Schema for `Ticket`
        {
          "text": "string",
          "urgent": "boolean"
        }
    """
    return _of_class(kind) if isinstance(kind, type) else _schema(kind)


def name_of(kind: Any) -> str:
    """Return the name of a type, as prompts show it."""
    return " ".join([line.strip() for line in _Names().typed(kind)])


@lru_cache(maxsize=1024)
def _of_class(kind: type) -> str:
    if issubclass(kind, Enum):
        return _of_enum(kind)
    return _schema(kind)


def _of_enum(kind: type[Enum]) -> str:
    heading = f"{kind.__name__}: {docstring_of(kind)}".rstrip().removesuffix("\n")
    return "\n".join([heading, "", "Possible values:", *[f"- {_member(m)}" for m in kind if not is_skipped(m)]])


def _member(member: Enum) -> str:
    label = label_of(member) if isinstance(member.value, str) else f"{member.name} ({member.value})"
    return f"{label}: {note}" if (note := description_of(member)) else label


def _schema(kind: Any) -> str:
    schema = _Schema()
    body = schema.typed(kind)
    doc = [docstring_of(kind)] if is_record(kind) and docstring_of(kind) else []
    meanings = [f"\n{_of_enum(enum)}" for enum in schema.enums if any(map(description_of, enum))]
    return "\n".join([f"### Schema for `{name_of(kind)}`", *doc, *body, *meanings])


class _Schema:
    """Prints a schema.  Each type becomes lines: one without quotation marks, or those of a block."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # the records and aliases that are being printed
        self.recursive: set[Any] = set()  # those that contain themselves
        self.enums: list[type[Enum]] = []  # the enumerations that occur
        self.lines = 0

    def typed(self, kind: Any) -> Lines:
        kind = bare(kind)
        if kind in (None, types.NoneType):
            return ["null"]
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self.enum(kind)
        if is_record(kind):
            return self.guarded(kind, lambda: self.record(kind))
        if isinstance(kind, type) and issubclass(kind, pydantic.RootModel):
            return self.guarded(kind, lambda: self.typed(kind.model_fields["root"].annotation))
        arguments = get_args(kind)
        origin = get_origin(kind) or kind
        if type(origin).__name__ == "TypeAliasType":  # in typing and in typing_extensions
            inner = origin.__value__[arguments] if arguments else origin.__value__
            return self.guarded(kind, lambda: self.typed(inner))
        if origin in UNIONS:
            return self.union(arguments)
        if origin is Literal:
            return [" | ".join(map(_literal, arguments))]
        if isinstance(origin, type) and not issubclass(origin, str | bytes):
            return self.collection(kind, origin, arguments)
        return [_leaf(kind)]

    def guarded(self, kind: Any, printed: Callable[[], Lines]) -> Lines:
        """Return the lines of a type that may contain itself; inside itself, only its name is printed."""
        if kind in self.open:
            self.recursive.add(kind)
            return [getattr(kind, "__name__", str(kind))]
        self.open.append(kind)
        try:
            return printed()
        finally:
            self.open.pop()

    def record(self, kind: Any) -> Lines:
        shown_fields = [field for field in fields_of(kind) if field.is_shown]
        lines = [line for field in shown_fields for line in self.field(field, is_last=field is shown_fields[-1])]
        self.lines += len(shown_fields) + 1
        if self.lines > MAX_LINES:
            raise PromptError(f"the schema of {self.open[0].__name__} has more than {MAX_LINES} lines")
        is_named = kind in self.recursive and len(self.open) > 1
        return [f"{{ // {kind.__name__}" if is_named else "{", *_indented(lines), "}"]

    def field(self, field: RecordField, *, is_last: bool) -> Lines:
        lines = _as_value(self.typed(field.info.annotation))
        lines[0] = f"{_quoted(field.json_name)}: {lines[0]}"
        lines[-1] += "" if is_last else ","
        lines[-1] += f" // {field.description}" if field.description else ""
        return lines

    def enum(self, kind: type[Enum]) -> Lines:
        if kind not in self.enums:
            self.enums.append(kind)
        return [" | ".join([_literal(member.value) for member in kind if not is_skipped(member)])]

    def union(self, kinds: Sequence[Any]) -> Lines:
        are_named = sum(map(is_record, kinds)) > 1
        printed = [
            self.variant(kind, tag) if are_named or tag else self.typed(kind)
            for kind, tag in zip(kinds, _tags_of(kinds), strict=True)
        ]
        if all(len(item) == 1 for item in printed):
            return [" | ".join(dict.fromkeys([item for (item,) in printed]))]
        joined: Lines = [""]
        for item in printed:
            first, *rest = item if item == ["null"] else _as_value(item)
            joined[-1] += f" | {first}" if joined[-1] else first
            joined += rest
        return joined

    def variant(self, kind: Any, tag: str | None) -> Lines:
        """Return a union member with its name and docstring, printed inside its tag if it has one."""
        printed = self.typed(kind)
        lines = _as_value(printed)
        if is_record(kind) and lines[0].startswith("{"):
            doc = " ".join(docstring_of(kind).partition("\n\n")[0].split())
            note = ": ".join(filter(None, ["" if tag else kind.__name__, doc]))
            lines[0] = f"{{ // {note}" if note else "{"
        if tag is None:
            return printed if len(printed) == 1 else lines
        return ["{", *_indented([f"{_quoted(tag)}: {lines[0]}", *lines[1:]]), "}"]

    def collection(self, kind: Any, origin: type, arguments: Sequence[Any]) -> Lines:
        if issubclass(origin, Mapping):
            value = self.typed(arguments[1]) if len(arguments) == 2 else ["any"]
            if len(value) == 1:
                return [f"Record<string, {value[0]}>"]
            return ["{", *_indented([f'"[key: string]": {value[0]}', *value[1:]]), "}"]
        if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
            return self.tuple(arguments)
        if issubclass(origin, Collection):
            item = self.typed(arguments[0]) if arguments else ["any"]
            if len(item) == 1:
                return [f"({item[0]})[]" if " | " in item[0] else f"{item[0]}[]"]
            return ["[", *_indented(item), "]"]
        return [_leaf(kind)]

    def tuple(self, kinds: Sequence[Any]) -> Lines:
        printed = [self.typed(kind) for kind in kinds]
        if all(len(item) == 1 for item in printed):
            return [f"[{', '.join([item for (item,) in printed])}]"]
        blocks = list(map(_as_value, printed))
        for block in blocks[:-1]:
            block[-1] += ","
        return ["[", *_indented([line for block in blocks for line in block]), "]"]


def _as_value(lines: Lines) -> Lines:
    """Return the lines of a type as they stand in a block, where a type without lines of its own is a string."""
    return [_quoted(lines[0])] if len(lines) == 1 else [*lines]


class _Names(_Schema):
    """Prints the names of records in place of their fields."""

    def record(self, kind: Any) -> Lines:
        return [kind.__name__]

    def variant(self, kind: Any, tag: str | None) -> Lines:
        return self.typed(kind)


def _tags_of(kinds: Sequence[Any]) -> Sequence[str | None]:
    notes = [note for kind in kinds if get_origin(kind) is Annotated for note in kind.__metadata__]
    are_plain = len([kind for kind in kinds if not _is_plain(bare(kind))]) < 2
    if are_plain or any(isinstance(note, pydantic.Tag) for note in notes):  # the second: the type has its own tags
        return [None] * len(kinds)
    try:
        return tags_of(kinds)
    except undescribable():
        return [None] * len(kinds)


def _is_plain(kind: Any) -> bool:
    return get_origin(kind) is Literal or kind is None or (isinstance(kind, type) and issubclass(kind, _PLAIN))


def bare(kind: Any) -> Any:
    """Return the type without annotations and aliases, with type variables replaced by their bounds."""
    while True:
        kind = without_notes(kind)
        if not isinstance(kind, TypeVar):
            return kind
        kind = kind.__bound__ or (reduce(or_, kind.__constraints__) if kind.__constraints__ else Any)


def _leaf(kind: Any) -> str:
    """Return the text for a plain type, as pydantic describes the type."""
    if (word := next((word for plain, word in _WORDS.items() if kind is plain), None)) is not None:
        return word
    try:
        schema = pydantic.TypeAdapter(kind).json_schema()
    except undescribable() as error:
        problem = str(error).partition("\n")[0]
        raise PromptError(f"the type {kind!r} cannot be described to a model: {problem}") from error
    first = schema["anyOf"][0] if "anyOf" in schema else schema  # a Decimal is a number or a string
    json_type = first.get("type", "any")
    note = f" ({schema['format']})" if "format" in schema else ""
    return f"{_JSON_WORDS.get(json_type, json_type)}{note}"


def _literal(value: Any) -> str:
    if isinstance(value, Enum):
        value = value.value
    if isinstance(value, str):
        text = str.__str__(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}'"
    return json.dumps(value) if value is None or isinstance(value, bool | int | float) else str(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _indented(lines: Iterable[str]) -> Lines:
    return [f"  {line}" for line in lines]


_MISSING = object()
_REMEDY = "add Annotated[…, PromptField(example=…)]"
_SECTION = "### Examples\n\nHere are examples of the data structures you should use.\n\n"
_LISTS = (list, tuple, set, frozenset)


def prompt_example(kind: Any) -> str:
    """Return an example of a type's values as JSON, for a model that must write a value.

    The example for a field is the first of these that exists: the ``example`` in its `PromptField`, the first of
    pydantic's ``examples``, the default, the value in ``kind``, or a value derived from the type.

    Args:
        kind: A type, or a value from which the example takes fields.

    Raises:
        PromptError: If a field has no example, or if its example is invalid.

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
    """Return a section for a prompt with an example of each type; see `prompt_example`.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: Annotated[str, PromptField(example="It is late.")]
        >>> "It is late." in examples_section(Ticket)
        True
    """
    examples = [f"---\n#### `{name_of(kind_of(kind))}`\n{prompt_example(kind)}\n" for kind in kinds]
    return f"{_SECTION}{''.join(examples)}---"


def kind_of(kind: Any) -> Any:
    """Return the type of a record or an enum member.  If a type is given, return it unchanged."""
    return type(kind) if isinstance(kind, Enum) or is_record(type(kind)) else kind


class _Example:
    def __init__(self) -> None:
        self.open: list[Any] = []  # the records that are being made

    def of_type(self, kind: Any, value: Any = _MISSING) -> Any:
        """Return an example of a type, or `_MISSING` if none can be derived."""
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
            _check(kind, made, f"the example of {kind.__name__}")
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
    data = _as_json(example)
    annotated: Any = Annotated
    kind = annotated[(field.info.annotation, *(field.info.metadata or [None]))]
    _check(kind, data, f"the example {example!r} of {owner}", strict=True)
    return data


def _check(kind: Any, data: Any, what: str, *, strict: bool | None = None) -> None:
    try:
        pydantic.TypeAdapter(kind).validate_json(json.dumps(data), strict=strict)
    except pydantic.ValidationError as error:
        raise PromptError(f"{what} is not valid: {described_errors(error)}") from None


def _as_json(value: Any) -> Any:
    if value is _MISSING:
        return value
    try:
        return to_jsonable_python(value, by_alias=True, context=UNMARKED)
    except PydanticSerializationError as error:
        raise PromptError(f"an example with {value!r} cannot be written as JSON: {error}") from error


GuideMode: TypeAlias = Literal["full", "schema_only", "example_only"]
MODES: tuple[GuideMode, ...] = get_args(GuideMode)


def prompt_guide(kind: Any, mode: GuideMode = "full") -> str:
    """Return a type's schema, an example of its values, or both.

    Args:
        kind: The type, or a value from which the example takes fields.
        mode: ``"full"``, ``"schema_only"`` or ``"example_only"``.

    Raises:
        PromptError: If the mode is unknown, or if the type has no schema or example.

    Examples:
        >>> class Ticket(PromptModel):
        ...     text: str
        >>> print(prompt_guide(Ticket, "schema_only"))
        ### Schema for `Ticket`
        {
          "text": "string"
        }
    """
    if mode not in MODES:
        raise PromptError(f"mode: expected a known mode, got {safe_repr(mode)}{hint(str(mode), MODES)}")
    if mode == "schema_only":
        return prompt_schema(kind_of(kind))
    if mode == "example_only":
        return prompt_example(kind)
    of = kind_of(kind)
    example = f"### Example\nHere is an example of a valid `{name_of(of)}` object:\n{prompt_example(kind)}"
    return f"{prompt_schema(of)}\n\n{example}"
