"""Types as a model reads them: like TypeScript, with a comment behind each field."""

from __future__ import annotations

import json
import types
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, reduce
from operator import or_
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import pydantic
from typing_extensions import TypeAliasType

from fsm_agent._internal.annotations import UNIONS, without_notes
from fsm_agent.errors import PromptError
from fsm_agent.functions.schema import undescribable
from fsm_agent.prompts.rendering.choices import description_of, is_skipped, label_of
from fsm_agent.prompts.rendering.fields import RecordField, docstring_of, fields_of, is_record
from fsm_agent.prompts.unions import tags_of

MAX_LINES = 5_000  # of a schema: types that contain others twice, which do so again, double with each level
_WORDS = {str: "string", bool: "boolean", int: "number", float: "number", None: "null", Any: "any", object: "any"}
_JSON_WORDS = {"integer": "number", "array": "any[]"}
_PLAIN = (str, bool, int, float, bytes, Enum, types.NoneType)

Lines = list[str]


def prompt_schema(kind: Any) -> str:
    """Return the form of a type's values, for a model that has to write one.

    Args:
        kind: A pydantic model, dataclass, enumeration, union: any type that pydantic can validate.

    Raises:
        PromptError: It has no schema, or one that is too long.

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
    """Return the name of a type in a prompt."""
    return kind.__name__ if is_record(kind) else _Schema().named(kind)


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
    printed = schema.typed(kind)
    body = [printed] if isinstance(printed, str) else printed
    doc = [docstring_of(kind)] if is_record(kind) and docstring_of(kind) else []
    meanings = [f"\n{_of_enum(enum)}" for enum in schema.enums if any(map(description_of, enum))]
    return "\n".join([f"### Schema for `{name_of(kind)}`", *doc, *body, *meanings])


class _Schema:
    """One schema that is being printed.  A type is a text, or the lines of a block."""

    def __init__(self) -> None:
        self.open: list[Any] = []  # the records that are being printed
        self.recursive: set[Any] = set()  # those of them that contain themselves
        self.enums: list[type[Enum]] = []  # those that occur
        self.lines = 0

    def named(self, kind: Any) -> str:
        """Return the type in one line, with records by their names."""
        if is_record(kind):
            return str(kind.__name__)
        printed = _Names().typed(kind)
        return printed if isinstance(printed, str) else " ".join([line.strip() for line in printed])

    def typed(self, kind: Any) -> str | Lines:
        kind = bare(kind)
        if kind in (None, types.NoneType):
            return "null"
        if isinstance(kind, type) and issubclass(kind, Enum):
            return self.enum(kind)
        if is_record(kind):
            return self.record(kind)
        if isinstance(kind, type) and issubclass(kind, pydantic.RootModel):
            return self.guarded(kind, kind.model_fields["root"].annotation)
        if isinstance(kind, TypeAliasType) or type(kind).__name__ == "TypeAliasType":
            return self.guarded(kind, kind.__value__)
        origin, arguments = get_origin(kind), get_args(kind)
        if isinstance(origin, TypeAliasType) or type(origin).__name__ == "TypeAliasType":
            return self.guarded(kind, origin.__value__[arguments])
        if origin in UNIONS:
            return self.union(arguments)
        if origin is Literal:
            return " | ".join([_literal(value) for value in arguments])
        if isinstance(origin or kind, type) and not issubclass(origin or kind, str | bytes):
            return self.collection(kind, origin or kind, arguments)
        return _leaf(kind)

    def guarded(self, kind: Any, inner: Any) -> str | Lines:
        """Return the type behind a name, which may occur in it."""
        if kind in self.open:
            self.recursive.add(kind)
            return str(getattr(kind, "__name__", kind))
        self.open.append(kind)
        try:
            return self.typed(inner)
        finally:
            self.open.pop()

    def record(self, kind: Any) -> str | Lines:
        if kind in self.open:
            self.recursive.add(kind)
            return str(kind.__name__)
        self.open.append(kind)
        shown_fields = [field for field in fields_of(kind) if field.is_shown]
        lines = [line for field in shown_fields for line in self.field(field, is_last=field is shown_fields[-1])]
        self.open.pop()
        self.lines += len(shown_fields) + 1
        if self.lines > MAX_LINES:
            raise PromptError(f"the schema of {(self.open or [kind])[0].__name__} has more than {MAX_LINES} lines")
        is_named = kind in self.recursive and bool(self.open)
        return [f"{{ // {kind.__name__}" if is_named else "{", *_indented(lines), "}"]

    def field(self, field: RecordField, *, is_last: bool) -> Lines:
        printed = self.typed(field.info.annotation)
        lines = [_quoted(printed)] if isinstance(printed, str) else [*printed]
        lines[0] = f"{_quoted(field.json_name)}: {lines[0]}"
        lines[-1] += "" if is_last else ","
        lines[-1] += f" // {field.description}" if field.description else ""
        return lines

    def enum(self, kind: type[Enum]) -> str:
        if kind not in self.enums:
            self.enums.append(kind)
        return " | ".join([_literal(member.value) for member in kind if not is_skipped(member)])

    def union(self, kinds: Sequence[Any]) -> str | Lines:
        tags = _tags_of(kinds)
        are_named = sum(map(is_record, kinds)) > 1
        printed = [
            self.variant(kind, tag) if are_named or tag else self.typed(kind)
            for kind, tag in zip(kinds, tags, strict=True)
        ]
        if all(isinstance(item, str) for item in printed):
            return " | ".join(dict.fromkeys([str(item) for item in printed]))
        joined: Lines = [""]
        for item in printed:
            first, *rest = [item if item == "null" else _quoted(item)] if isinstance(item, str) else item
            joined[-1] += f" | {first}" if joined[-1] else first
            joined += rest
        return joined

    def variant(self, kind: Any, tag: str | None) -> str | Lines:
        """Return one of several types with its name and its docstring, and within its tag if it has one."""
        printed = self.typed(kind)
        doc = docstring_of(kind).partition("\n\n")[0] if is_record(kind) else ""
        lines = [_quoted(printed)] if isinstance(printed, str) else [*printed]
        if is_record(kind) and lines[0].startswith("{"):
            note = ": ".join([part for part in ("" if tag else kind.__name__, " ".join(doc.split())) if part])
            lines[0] = f"{{ // {note}" if note else "{"
        if tag is None:
            return printed if isinstance(printed, str) else lines
        return ["{", *_indented([f"{_quoted(tag)}: {lines[0]}", *lines[1:]]), "}"]

    def collection(self, kind: Any, origin: Any, arguments: Sequence[Any]) -> str | Lines:
        if issubclass(origin, Mapping):
            value = self.typed(arguments[1]) if len(arguments) == 2 else "any"
            if isinstance(value, str):
                return f"Record<string, {value}>"
            return ["{", *_indented([f'"[key: string]": {value[0]}', *value[1:]]), "}"]
        if issubclass(origin, tuple) and arguments and arguments[-1] is not Ellipsis:
            return self.tuple(arguments)
        if issubclass(origin, Collection):
            item = self.typed(arguments[0]) if arguments else "any"
            if isinstance(item, str):
                return f"({item})[]" if " | " in item else f"{item}[]"
            return ["[", *_indented(item), "]"]
        return _leaf(kind)

    def tuple(self, kinds: Sequence[Any]) -> str | Lines:
        printed = [self.typed(kind) for kind in kinds]
        if all(isinstance(item, str) for item in printed):
            return f"[{', '.join([str(item) for item in printed])}]"
        blocks = [[_quoted(item)] if isinstance(item, str) else item for item in printed]
        for block in blocks[:-1]:
            block[-1] += ","
        return ["[", *_indented([line for block in blocks for line in block]), "]"]


class _Names(_Schema):
    """Types whose records are printed as their names."""

    def record(self, kind: Any) -> str:
        return str(kind.__name__)

    def variant(self, kind: Any, tag: str | None) -> str | Lines:
        return self.typed(kind)


def _tags_of(kinds: Sequence[Any]) -> Sequence[str | None]:
    notes = [note for kind in kinds if get_origin(kind) is Annotated for note in kind.__metadata__]
    are_plain = len([kind for kind in kinds if not _is_plain(bare(kind))]) < 2
    if are_plain or any(isinstance(note, pydantic.Tag) for note in notes):  # or the type has tags of its own
        return [None] * len(kinds)
    try:
        return tags_of(kinds)
    except undescribable():
        return [None] * len(kinds)


def _is_plain(kind: Any) -> bool:
    return get_origin(kind) is Literal or kind is None or (isinstance(kind, type) and issubclass(kind, _PLAIN))


def bare(kind: Any) -> Any:
    """Return the type without what else is said of it."""
    while True:
        kind = without_notes(kind)
        if not isinstance(kind, TypeVar):
            return kind
        kind = kind.__bound__ or (reduce(or_, kind.__constraints__) if kind.__constraints__ else Any)


def _leaf(kind: Any) -> str:
    """Return the type of a plain value, as pydantic would describe it."""
    if (word := next((word for plain, word in _WORDS.items() if kind is plain), None)) is not None:
        return word
    try:
        schema = pydantic.TypeAdapter(kind).json_schema()
    except undescribable() as error:
        problem = str(error).partition("\n")[0]
        raise PromptError(f"the type {kind!r} cannot be described to a model: {problem}") from error
    first = schema["anyOf"][0] if "anyOf" in schema else schema  # a Decimal is a number or a text
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
