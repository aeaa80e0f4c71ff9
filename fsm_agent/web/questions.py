"""Questions of runs as forms: a field for each value that answers one, by the JSON Schema in it; and forms as outcomes.

A field is made for texts, numbers, choices, yes and no.  Anything else is written as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pydantic

from fsm_agent._internal.plain_text import plain
from fsm_agent.call.outcomes import Approved, Cancelled, Denied, FunctionFailed, Modified, Outcome, Returned, RunAgain
from fsm_agent.call.process import SEPARATOR
from fsm_agent.functions.arguments import ArgumentsValidator, described_errors
from fsm_agent.messages.question import Question
from fsm_agent.web.run_list import pretty, shown

MOST_FIELDS = 40  # of a form; what has more is written as JSON
_MOST_REFERENCES = 10
_LONG = 60  # characters of a text that gets an area
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_WHOLE = ""  # the name of the field that is the whole value


class FormError(ValueError):
    """A form that answers nothing, as it was filled in.

    Args:
        errors: What is wrong, by the name of the field; ``""``: with the form.
    """

    def __init__(self, errors: Mapping[str, str]) -> None:
        super().__init__("; ".join(errors.values()))
        self.errors = errors


class Field(NamedTuple):
    """A field of a form."""

    name: str  # in the form
    key: str  # in the value; "": it is the whole value
    label: str
    kind: str  # "string", "integer", "number", "boolean", "choice" or "json"
    value: str
    is_needed: bool
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # JSON, and its words

    @property
    def rows(self) -> int:
        """How many lines it has; 1: it is a line."""
        lines = _as_typed(self.value).count("\n") + 1
        if self.kind == "json" or (self.kind == "string" and len(self.value) > _LONG) or lines > 1:
            return min(12, max(2, lines))
        return 1


class Choice(NamedTuple):
    """A type that an answer may have."""

    name: str  # as the answer says it; empty: there is one type
    fields: tuple[Field, ...]


class QuestionForm(NamedTuple):
    """A question, to be answered in a form."""

    key: str
    path: str  # of the process that asks
    subject: str  # what it is about: a function, or the state of a flow
    kind: str
    text: str
    choices: tuple[Choice, ...]
    answers: tuple[str, ...]
    is_arguments: bool  # the fields are those of a function call
    until_s: float | None  # Unix time until which it can be answered; None: there is no limit

    @property
    def has_button_each(self) -> bool:
        """Whether each type is a button of its own: there are several, of a field at most."""
        return len(self.choices) > 1 and all(len(choice.fields) <= 1 for choice in self.choices)


def question_form(question: Question) -> QuestionForm:
    """Return the form of a question."""
    about = _about(question)
    text = asked_text(question)
    is_arguments = question.kind == "approval"
    choices = tuple(_argument_choices(question, about) if is_arguments else _answer_choices(question, about))
    if not is_arguments and about.get("function") is not None:
        text = pretty(about.get("arguments", ""))
    answers = question.answers or ("returned",)
    return QuestionForm(
        question.key,
        question.key.rpartition(SEPARATOR)[0],
        asked_subject(question),
        question.kind,
        text,
        choices,
        answers,
        is_arguments,
        question.until_s,
    )


def asked_subject(question: Question) -> str:
    """Return what a question is about: a function, or the state of a flow."""
    function, own = _about(question).get("function"), question.key.rpartition(SEPARATOR)[2]
    return shown(function if isinstance(function, str) else own.partition(":")[2].partition("#")[0] or own)


def asked_text(question: Question) -> str:
    """Return the text of a question; empty: it is about a function, or has none."""
    about = _about(question)
    text = next((about[name] for name in ("question", "problem") if isinstance(about.get(name), str)), "")
    return shown(text)


def outcome_of(question: Question, form: Mapping[str, str]) -> Outcome:
    """Return the outcome that a form says.

    Raises:
        FormError: A field is wrong, or the form answers something else.
    """
    kind, reason = form.get("kind", ""), form.get("reason", "").strip()
    asked = question_form(question)
    if kind not in asked.answers:
        raise FormError({"": f"expected {' or '.join(asked.answers)}, got {shown(kind)!r}"})
    match kind:
        case "approved" | "modified":
            return _approval(question, asked, form)
        case "denied":
            return Denied(reason)
        case "returned":
            return Returned(text=_answer(question, asked, form))
        case "function_failed":
            return FunctionFailed(text=reason or "it failed, a person says")
        case "run_again":
            return RunAgain()
        case "cancelled":
            return Cancelled(reason=reason)
    raise FormError({"": f"expected an answer that a form can give, got {kind!r}"})


def _about(question: Question) -> dict[str, Any]:
    try:
        about = json.loads(question.about or "{}")
    except (ValueError, RecursionError):
        return {"question": question.about}
    return about if isinstance(about, dict) else {"question": question.about}


def _schema(question: Question) -> dict[str, Any]:
    try:
        schema = json.loads(question.schema or "{}")
    except (ValueError, RecursionError):
        return {}
    return schema if isinstance(schema, dict) else {}


# Fields


def _argument_choices(question: Question, about: Mapping[str, Any]) -> Iterator[Choice]:
    """Yield the arguments of a function call, to be changed."""
    text, arguments, schema = about.get("arguments"), _arguments(about), _schema(question)
    properties = schema.get("properties")
    if isinstance(arguments, dict) and isinstance(properties, dict) and arguments.keys() <= properties.keys():
        yield Choice("", tuple(_fields(schema, schema, "v", arguments)))
    else:
        given = "" if text is None else pretty(text, is_spread=True)
        yield Choice("", (Field("v", _WHOLE, "arguments, as JSON", "json", given, is_needed=True),))


def _arguments(about: Mapping[str, Any]) -> Any:
    """Return the arguments that a question is about; None: they are no JSON."""
    text = about.get("arguments")
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def _answer_choices(question: Question, about: Mapping[str, Any]) -> Iterator[Choice]:
    """Yield the types of an answer."""
    if "returned" not in (question.answers or ("returned",)):
        return
    if not _is_typed(question):
        yield Choice("", (Field("v", _WHOLE, "what it returned", "string", "", is_needed=False),))
        return
    schema, types = _schema(question), about.get("types")
    names = [name for name in types if isinstance(name, str)] if isinstance(types, list) else []
    kinds = schema.get("anyOf") if len(names) > 1 else [schema]
    if not isinstance(kinds, list) or len(kinds) != max(1, len(names)):
        label = f"answer, as JSON of {' or '.join(names) or 'any type'}"
        yield Choice("", (Field("v", _WHOLE, label, "json", "", is_needed=True),))
        return
    for n, kind in enumerate(kinds):
        resolved, name = _resolved(kind, schema), names[n] if n < len(names) else ""
        fields = (
            [*_fields(resolved, schema, f"v{n}", {})]
            if _is_flat(resolved)
            else [_field(f"v{n}", _WHOLE, name or "answer", resolved, schema, None, is_needed=True)]
        )
        yield Choice(name if len(kinds) > 1 else "", tuple(fields))


def _is_typed(question: Question) -> bool:
    """Return True if an answer is JSON: of the types that a state of a flow gives."""
    return question.kind == "answer" or bool(question.types)


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return schema.get("type") == "object" and isinstance(properties, dict) and len(properties) <= MOST_FIELDS


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema behind its references, and without null as another type."""
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        match schema:
            case {"$ref": str(ref)} if ref.startswith("#/$defs/"):
                found = root.get("$defs")
                schema = found.get(ref.removeprefix("#/$defs/")) if isinstance(found, dict) else {}
            case {"allOf": [dict(only)]}:
                schema = only
            case {"anyOf": [dict(only), {"type": "null"}]} | {"anyOf": [{"type": "null"}, dict(only)]}:
                schema = {**only, **{name: schema[name] for name in ("description", "title") if name in schema}}
            case _:
                return schema
    return {}


def _fields(
    schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str, values: Mapping[str, Any]
) -> Iterator[Field]:
    needed = schema.get("required")
    names = needed if isinstance(needed, list) else []
    for n, (key, inner) in enumerate(schema["properties"].items()):
        value = values.get(key, inner.get("default") if isinstance(inner, dict) and not values else None)
        yield _field(f"{prefix}.{n}", key, key, _resolved(inner, root), root, value, is_needed=key in names)


def _field(
    name: str, key: str, label: str, schema: Mapping[str, Any], root: Mapping[str, Any], value: Any, *, is_needed: bool
) -> Field:
    about = schema.get("description")
    hint, choices = shown(about) if isinstance(about, str) else "", ()
    given = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    kind = str(schema.get("type"))
    if isinstance(given, list) and len(given) <= MOST_FIELDS:
        words = tuple([(json.dumps(one), one if isinstance(one, str) else json.dumps(one)) for one in given])
        text = json.dumps(value) if value is not None else words[0][0] if len(words) == 1 else ""
        return Field(name, key, shown(label), "choice", text, is_needed, hint, words)
    if kind not in _SCALARS or (value is not None and not _fits(kind, value)):
        text = "" if value is None else pretty(json.dumps(value), is_spread=True)
        return Field(name, key, shown(label), "json", text, is_needed, hint or f"JSON: {_form(schema, root)}")
    text = "" if value is None else plain(_as_typed(value)) if isinstance(value, str) else json.dumps(value)
    return Field(name, key, shown(label), kind, text, is_needed, hint, choices)


def _fits(kind: str, value: Any) -> bool:
    right = {"string": str, "integer": int, "number": int | float, "boolean": bool}[kind]
    return isinstance(value, right) and (kind == "boolean" or not isinstance(value, bool))


def _form(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Return what JSON of a schema looks like, in a few words."""
    match schema:
        case {"type": "array", "items": inner}:
            return f"a list, each {_form(_resolved(inner, root), root)[:80]}"
        case {"type": "object", "properties": dict(properties)}:
            return shown(f"an object with {', '.join(list(properties)[:8])}")
        case {"type": str(kind)}:
            return shown(kind)
    return "any value"


# Values


def _approval(question: Question, asked: QuestionForm, form: Mapping[str, str]) -> Outcome:
    """Return an approval; of arguments that were changed, as they are now.

    What was not touched stays as it is: a field shows it without control characters, and cut if it is very long.
    """
    fields = asked.choices[0].fields
    touched = tuple(
        [field for field in fields if _as_typed(form.get(field.name, field.value)) != _as_typed(field.value)]
    )
    if not touched:
        return Approved()
    value = _value(touched, form, may_be_empty=True)
    if fields[0].key != _WHOLE:
        keys = {field.key for field in touched}
        value = {key: kept for key, kept in _arguments(_about(question)).items() if key not in keys} | value
    if not isinstance(value, dict):
        raise FormError({fields[0].name: "expected an object {…}, got another value"})
    _check(value, _schema(question), fields)
    return Modified(json.dumps(value, ensure_ascii=False))


def _answer(question: Question, asked: QuestionForm, form: Mapping[str, str]) -> str:
    """Return the text of an answer: JSON, with the name of its type if there are several."""
    if not _is_typed(question):
        return form.get("v", "").replace("\r\n", "\n")
    names = [choice.name for choice in asked.choices]
    name = form.get("type", names[0])
    if name not in names:
        raise FormError({"": f"expected the type {' or '.join(names)}, got {shown(name)!r}"})
    fields = asked.choices[names.index(name)].fields
    value = _value(fields, form)
    schema = _schema(question)
    kinds = schema.get("anyOf")
    inner = kinds[names.index(name)] if name and isinstance(kinds, list) else schema
    if schema:
        _check({"value": value}, {"properties": {"value": inner}, "required": ["value"], **_defs(schema)}, fields)
    return json.dumps([name, value] if name else value, ensure_ascii=False)


def _defs(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"$defs": schema["$defs"]} if "$defs" in schema else {}


def _check(value: Any, schema: Mapping[str, Any], fields: tuple[Field, ...]) -> None:
    """Refuse a value that does not fit a schema.

    Raises:
        FormError: It does not fit; each error is that of its field, if it has one.
    """
    try:
        ArgumentsValidator(schema).validate_json(json.dumps(value))
    except pydantic.ValidationError as error:
        names = {field.key: field.name for field in fields}
        errors: dict[str, str] = {}
        for one, line in zip(error.errors(include_url=False), described_errors(error).splitlines(), strict=False):
            key = next((str(step) for step in one["loc"] if str(step) in names), None)
            name = fields[0].name if key is None and len(fields) == 1 else names.get(key or "", "")
            errors.setdefault(name, str(one["msg"]) if name else line)
        raise FormError(errors) from None


def _value(fields: tuple[Field, ...], form: Mapping[str, str], *, may_be_empty: bool = False) -> Any:
    """Return the value of fields.

    Args:
        fields: The fields.
        form: What was typed into them.
        may_be_empty: A text that is needed, or was there before, may be empty; else it was forgotten.

    Raises:
        FormError: A field is empty that is needed, or holds something else.
    """
    value: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in fields:
        text = _as_typed(form.get(field.name, ""))
        is_text = may_be_empty and field.kind == "string" and (field.is_needed or field.value)
        if not text.strip() and not is_text:
            if field.is_needed:
                errors[field.name] = "expected a value, got none"
            continue
        try:
            value[field.key] = _read(field, text)
        except (ValueError, RecursionError) as error:
            errors[field.name] = f"expected a value of the kind {field.kind}: {error}"[:300]
    if errors:
        raise FormError(errors)
    return value.get(_WHOLE) if fields and fields[0].key == _WHOLE else value


def _as_typed(text: str) -> str:
    """Return text with the ends of lines that a page has; its form sends others."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(field: Field, text: str) -> Any:
    if field.kind == "string":
        return text
    if field.kind == "integer":
        return int(text)
    value = json.loads(text.strip())
    if field.kind == "number" and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError("give a number such as 1.5")
    if field.kind == "boolean" and not isinstance(value, bool):
        raise ValueError("give true or false")
    if field.kind == "choice" and text not in dict(field.choices):
        raise ValueError("choose one from the list")
    return value
