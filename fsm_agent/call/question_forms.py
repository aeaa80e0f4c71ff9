"""Shows questions as forms, and turns filled-in forms into outcomes, for pages, clients and commands.

`question_form` makes a field for each value in an answer, from the question's JSON Schema.  Strings, numbers, choices
and booleans have fields; any other value is typed as JSON.  `outcome_from_form` reads what was typed, whereas
`outcome_of` takes a value and checks it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fsm_agent._internal.masking import masked_arguments, unmasked
from fsm_agent._internal.text import escaped, plain, pretty, shown
from fsm_agent.call.outcomes import Approved, Cancelled, Denied, FunctionFailed, Modified, Outcome, Returned, RunAgain
from fsm_agent.call.process import SEPARATOR
from fsm_agent.errors import OutcomeError
from fsm_agent.functions.arguments import REFUSALS, ArgumentsValidator, check_json, cores_of, validate_arguments
from fsm_agent.messages.event_json import parsed
from fsm_agent.messages.events import Question
from fsm_agent.prompts.unions import union_core

MOST_FIELDS = 40  # of a form; a value with more fields is written as JSON
_MOST_REFERENCES = 10
_MOST_PROBLEMS = 20  # of one value
_LONG = 60  # longer strings get a text area
_NULL = {"type": "null"}
_SCALARS = frozenset({"string", "integer", "number", "boolean"})
_RIGHT = {  # Python's own messages would quote the value, which may be secret
    "integer": "give a whole number",
    "number": "give a number such as 1.5",
    "boolean": "give true or false",
    "choice": "choose one from the list",
}
_WHOLE = ""  # the key of the field that is the whole value


class FormError(OutcomeError):
    """An answer that does not fit its question.

    Args:
        errors: The problems by field name; ``""`` stands for the whole form.
    """

    def __init__(self, errors: Mapping[str, str]) -> None:
        self.problem = "; ".join(errors.values())
        super().__init__(self.problem)
        self.errors = errors


class Field(NamedTuple):
    """A field of a form."""

    name: str  # in the form
    key: str  # in the value; "" for the whole value
    label: str
    kind: str  # "string", "integer", "number", "boolean", "choice" or "json"
    value: str
    is_needed: bool
    hint: str = ""
    choices: tuple[tuple[str, str], ...] = ()  # JSON, and its words
    schema: Mapping[str, Any] = {}  # of its value
    is_null_if_empty: bool = False  # True if the key is required and may be null

    @property
    def rows(self) -> int:
        """The number of text lines that the field shows."""
        lines = _as_typed(self.value).count("\n") + 1
        if self.kind == "json" or (self.kind == "string" and len(self.value) > _LONG) or lines > 1:
            return min(12, max(2, lines))
        return 1


class Choice(NamedTuple):
    """One of the types that an answer may have."""

    name: str  # as in the answer; empty if there is a single type
    fields: tuple[Field, ...]


class QuestionForm(NamedTuple):
    """A question as a form with fields to fill in."""

    key: str
    path: str  # of the process that asks
    subject: str  # the function, or the state of a flow
    kind: str
    text: str
    choices: tuple[Choice, ...]
    answers: tuple[str, ...]  # the kinds of outcomes that answer it
    is_arguments: bool  # the fields are those of a function call
    until_s: float | None  # Unix time until which it can be answered, or None without a limit

    @property
    def has_button_each(self) -> bool:
        """True if each type gets a button, because there are several types with at most one field each."""
        return len(self.choices) > 1 and all(len(choice.fields) <= 1 for choice in self.choices)


def question_form(question: Question) -> QuestionForm:
    """Return the form for a question.

    It shows arguments unmasked, so mask them if anyone but operators sees the form.
    """
    about = about_of(question)
    is_arguments = question.kind == "approval"
    choices = tuple(_argument_choices(question, about) if is_arguments else _answer_choices(question, about))
    is_function = not is_arguments and about.get("function") is not None
    return QuestionForm(
        question.key,
        question.key.rpartition(SEPARATOR)[0],
        question_subject(question),
        question.kind,
        pretty(about.get("arguments", "")) if is_function else question_text(question),
        choices,
        _kinds(question),
        is_arguments,
        question.until_s,
    )


def question_subject(question: Question) -> str:
    """Return what a question is about: a function, or a state in a flow."""
    function, own = about_of(question).get("function"), question.key.rpartition(SEPARATOR)[2]
    return shown(function if isinstance(function, str) else own.partition(":")[2].partition("#")[0] or own)


def question_text(question: Question) -> str:
    """Return a question's wording, or ``""`` if it is about a function or has no wording."""
    about = about_of(question)
    return shown(next((about[name] for name in ("question", "problem") if isinstance(about.get(name), str)), ""))


def about_of(question: Question) -> dict[str, Any]:
    """Return a question's subject as data.  A subject that is not a JSON object becomes ``{"question": subject}``."""
    about = parsed(question.about or "{}")
    return about if isinstance(about, dict) else {"question": question.about}


def arguments_of(question: Question) -> Any:
    """Return the arguments of the function call that a question is about, or None if they are not JSON."""
    text = about_of(question).get("arguments")
    try:
        return json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None


def masked_arguments_of(question: Question) -> str:
    """Return a question's arguments as JSON with secrets masked, or ``""`` if they are not an object."""
    arguments = arguments_of(question)
    if not isinstance(arguments, dict):
        return ""
    text = masked_arguments(json.dumps(arguments, ensure_ascii=False))
    return text if plain(text) == text else masked_arguments(json.dumps(arguments))  # to escape hidden characters


def _kinds(question: Question) -> tuple[str, ...]:
    return question.answers or (("approved", "denied") if question.kind == "approval" else ("returned",))


def _schema(question: Question) -> dict[str, Any]:
    schema = parsed(question.schema or "{}")
    return schema if isinstance(schema, dict) else {}


# Fields


def _argument_choices(question: Question, about: Mapping[str, Any]) -> Iterator[Choice]:
    text, arguments, schema = about.get("arguments"), arguments_of(question), _schema(question)
    properties = schema.get("properties")
    if isinstance(arguments, dict) and isinstance(properties, dict) and arguments.keys() <= properties.keys():
        yield Choice("", tuple(_fields(schema, schema, "v", arguments)))
    else:
        given = "" if text is None else pretty(text, is_spread=True)
        yield Choice("", (Field("v", _WHOLE, "arguments, as JSON", "json", given, is_needed=True),))


def _answer_choices(question: Question, about: Mapping[str, Any]) -> Iterator[Choice]:
    if "returned" not in _kinds(question):
        return
    if not _is_typed(question):
        yield Choice("", (Field("v", _WHOLE, "what it returned", "string", "", is_needed=False),))
        return
    schema, names = _schema(question), question.types
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
    return question.kind == "answer" or bool(question.types)


def _is_flat(schema: Mapping[str, Any]) -> bool:
    properties = schema.get("properties")
    return schema.get("type") == "object" and isinstance(properties, dict) and len(properties) <= MOST_FIELDS


def _resolved(schema: Any, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a schema with its references resolved, and with ``nullable`` in place of a null type."""
    beside: dict[str, Any] = {}
    for _ in range(_MOST_REFERENCES):
        if not isinstance(schema, dict):
            return {}
        match schema:
            case {"$ref": str(ref)} if ref.startswith("#/$defs/"):
                found = root.get("$defs")
                schema = found.get(ref.removeprefix("#/$defs/")) if isinstance(found, dict) else {}
            case {"allOf": [dict(only)]}:
                schema = only
            case {"anyOf": list(kinds)} if _NULL in kinds:
                rest = [kind for kind in kinds if kind != _NULL]
                about = {name: schema[name] for name in ("description", "title") if name in schema}
                beside = {**about, **beside, "nullable": True}
                schema = rest[0] if len(rest) == 1 else {**schema, "anyOf": rest}
            case {"type": [str(kind), "null"] | ["null", str(kind)]}:
                schema = {**schema, "type": kind, "nullable": True}
            case _:
                return {**schema, **beside}
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
    hint = shown(about) if isinstance(about, str) else ""
    is_null_if_empty = is_needed and (schema.get("nullable") is True or schema.get("type") == "null")
    is_needed = is_needed and not is_null_if_empty
    given = schema.get("enum") or ([schema["const"]] if "const" in schema else None)
    kind = str(schema.get("type"))
    if isinstance(given, list) and len(given) <= MOST_FIELDS:
        words = tuple([(json.dumps(one), one if isinstance(one, str) else json.dumps(one)) for one in given])
        text = json.dumps(value) if value is not None else words[0][0] if len(words) == 1 else ""
        return Field(name, key, shown(label), "choice", text, is_needed, hint, words, schema, is_null_if_empty)
    is_unseen = isinstance(value, str) and escaped(value) != value  # in part
    if kind not in _SCALARS or is_unseen or (value is not None and not _fits(kind, value)):
        text = "" if value is None else pretty(json.dumps(value), is_spread=True)
        hint = hint or f"JSON: {_described(schema, root)}"
        return Field(name, key, shown(label), "json", text, is_needed, hint, (), schema, is_null_if_empty)
    text = "" if value is None else plain(_as_typed(value)) if isinstance(value, str) else json.dumps(value)
    return Field(name, key, shown(label), kind, text, is_needed, hint, (), schema, is_null_if_empty)


def _fits(kind: str, value: Any) -> bool:
    right = {"string": str, "integer": int, "number": int | float, "boolean": bool}[kind]
    return isinstance(value, right) and (kind == "boolean" or not isinstance(value, bool))


def _described(schema: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    match schema:
        case {"type": "array", "items": inner}:
            return f"a list, each {_described(_resolved(inner, root), root)[:80]}"
        case {"type": "object", "properties": dict(properties)}:
            return shown(f"an object with {', '.join(list(properties)[:8])}")
        case {"type": str(kind)}:
            return shown(kind)
    return "any value"


# Outcomes


def outcome_of(question: Question, kind: str, value: Any = None, *, reason: str = "", type: str = "") -> Outcome:
    """Return an answer as the outcome that its question expects.

    Args:
        question: The question.
        kind: The kind of outcome: one of `QuestionForm.answers`, or ``modified``.
        value: The arguments for an approval, or None to keep them; masked parts keep their former values.  For other
            kinds, it is the result of the function or state.
        reason: Why a call is denied or a run is cancelled, or the function's error.
        type: The name of the value's type, if the state accepts several types.

    Raises:
        FormError: If the question does not take this kind, or the value does not fit its schema.
    """
    if not _is_taken(question, kind):
        raise FormError({"": f"expected {' or '.join(_kinds(question))}, got {shown(kind)!r}"})
    outcome = _outcome_of(question, kind, value, reason, type)
    if problems := misfit(question, outcome):
        raise FormError({"": "; ".join([f"{path}: {problem}" for path, problem in problems])})
    return outcome


def _is_taken(question: Question, kind: str) -> bool:
    kinds = _kinds(question)
    return kind in kinds or (kind == "modified" and "approved" in kinds)


def _outcome_of(question: Question, kind: str, value: Any, reason: str, type: str) -> Outcome:
    match kind:
        case "approved" | "modified":
            return Approved() if value is None else _approval(question, value)
        case "denied":
            return Denied(reason)
        case "returned" if _is_typed(question):
            return Returned(text=json.dumps([type, value] if type else value, ensure_ascii=False))
        case "returned":
            return Returned(text=value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
        case "function_failed":
            return FunctionFailed(text=reason or "a person reported that it failed")
        case "run_again":
            return RunAgain()
        case "cancelled":
            return Cancelled(reason=reason)
    raise FormError({"": f"expected an answer that a form can give, got {kind!r}"})


def _approval(question: Question, arguments: Any) -> Outcome:
    if not isinstance(arguments, dict):
        raise FormError({"": "the arguments: expected an object {…}, got another value"})
    asked = arguments_of(question)
    if isinstance(asked, dict):
        arguments = unmasked(arguments, parsed(masked_arguments(json.dumps(asked))), asked)
        if json.dumps(arguments, sort_keys=True) == json.dumps(asked, sort_keys=True):  # 1 and true are equal in Python
            return Approved()
    return Modified(json.dumps(arguments, ensure_ascii=False))


def misfit(question: Question, outcome: Outcome) -> Sequence[tuple[str, str]]:
    """Return where and why an answer does not fit its question's schema.  The texts do not quote the answer."""
    schema = _schema(question)
    try:
        if isinstance(outcome, Modified):
            validate_arguments(ArgumentsValidator(schema), outcome.arguments_json, schema)
        elif isinstance(outcome, Returned) and _is_typed(question) and schema:
            _check_answer(outcome.text, schema, question.types)
    except REFUSALS as error:
        return _problems(error)
    return ()


def _check_answer(text: str, schema: Mapping[str, Any], types: Sequence[str]) -> None:
    answer, kinds = json.loads(text), schema.get("anyOf")
    is_each_known = len(types) > 1 and isinstance(kinds, list) and len(kinds) == len(types)
    parts: Sequence[Any] = kinds if is_each_known and kinds else [schema]
    cores = cores_of(parts, schema)
    match answer:
        case [str(name), value] if len(types) > 1 and name in types:
            answer, core = value, cores[types.index(name) if is_each_known else 0]
        case _ if is_each_known:
            # The tag of a generic class in JSON is the title of its schema, not its name.
            titles = [_resolved(part, schema).get("title") for part in parts]
            names = [name if name.isidentifier() else str(title) for name, title in zip(types, titles, strict=True)]
            core = union_core(cores, names)
        case _:
            core = cores[0]
    check_json(core, json.dumps(answer))


def _problems(error: Exception) -> list[tuple[str, str]]:
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return [("input", f"{type(error).__name__}: {error}"[:1000])]
    items = error.errors(include_url=False, include_context=False, include_input=False)
    found = [(".".join([str(step)[:100] for step in item["loc"][:20] if step != ""]), item["msg"]) for item in items]
    return [(path or "input", problem[:1000]) for path, problem in found[:_MOST_PROBLEMS]]


# Texts in fields


def outcome_from_form(question: Question, form: Mapping[str, str]) -> Outcome:
    """Return the outcome that a filled-in form describes.

    ``form`` holds its values by field name, and its ``kind``, ``reason`` and ``type``.

    Raises:
        FormError: If a field is wrong, or the question does not take this kind of answer.
    """
    kind, reason = form.get("kind", ""), form.get("reason", "").strip()
    asked = question_form(question)
    if not _is_taken(question, kind):
        raise FormError({"": f"expected {' or '.join(asked.answers)}, got {shown(kind)!r}"})
    fields: tuple[Field, ...] = ()
    value, name = None, ""
    if kind in ("approved", "modified"):
        fields = asked.choices[0].fields
        value = _edited(question, fields, form)
    elif kind == "returned" and not _is_typed(question):
        value = _as_typed(form.get("v", ""))
    elif kind == "returned":
        names = [choice.name for choice in asked.choices]
        name = form.get("type", names[0])
        if name not in names:
            raise FormError({"": f"expected the type {' or '.join(names)}, got {shown(name)!r}"})
        fields = asked.choices[names.index(name)].fields
        value = read_fields(fields, form)
    outcome = _outcome_of(question, kind, value, reason, name)
    if problems := misfit(question, outcome):
        raise FormError(_by_field(problems, fields))
    return outcome


def _edited(question: Question, fields: Sequence[Field], form: Mapping[str, str]) -> Any:
    """Return the changed arguments of a call, or None if they were not changed.

    Fields that were not touched keep their values, although a field omits control characters and truncates very long
    values.
    """
    touched = [one for one in fields if _as_typed(form.get(one.name, one.value)) != _as_typed(one.value)]
    if not touched:
        return None
    value = read_fields(touched, form, may_be_empty=True)
    if fields[0].key == _WHOLE:
        if not isinstance(value, dict):
            raise FormError({fields[0].name: "expected an object {…}, got another value"})
        return value
    keys = {field.key for field in touched}
    return {key: kept for key, kept in arguments_of(question).items() if key not in keys} | value


def _by_field(problems: Sequence[tuple[str, str]], fields: Sequence[Field]) -> dict[str, str]:
    names = {field.key: field.name for field in fields if field.key != _WHOLE}
    errors: dict[str, str] = {}
    for path, problem in problems:
        key = next((step for step in path.split(".") if step in names), None)
        name = fields[0].name if key is None and len(fields) == 1 else names.get(key or "", "")
        errors.setdefault(name, problem if name else f"{path}: {problem}")
    return errors


def read_fields(fields: Sequence[Field], form: Mapping[str, str], *, may_be_empty: bool = False) -> Any:
    """Return the value that the filled-in fields describe.

    With ``may_be_empty``, an empty string is accepted even in a field that is required or had a value.

    Raises:
        FormError: If a required field is empty, or a field holds a wrong value.
    """
    value: dict[str, Any] = {}
    errors: dict[str, str] = {}
    for field in fields:
        text = _as_typed(form.get(field.name, ""))
        may_be_text = field.is_needed or field.is_null_if_empty or field.value
        is_text = may_be_empty and field.kind == "string" and field.name in form and may_be_text
        if not text.strip() and not is_text:
            if field.is_null_if_empty:
                value[field.key] = None
            elif field.is_needed:
                errors[field.name] = "expected a value, got none"
            continue
        try:
            value[field.key] = _read(field, text)
        except (ValueError, RecursionError) as error:
            errors[field.name] = f"expected a value of the kind {field.kind}: {_RIGHT.get(field.kind, error)}"[:300]
    if errors:
        raise FormError(errors)
    return value.get(_WHOLE) if fields and fields[0].key == _WHOLE else value


def _as_typed(text: str) -> str:
    """Return text with the line endings that it had on the page, because browsers change them when they send a form."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _read(field: Field, text: str) -> Any:
    if field.kind == "string":
        return text
    if field.kind == "integer":
        return int(text)
    value = json.loads(text.strip())
    if field.kind in _SCALARS and not _fits(field.kind, value):
        raise ValueError(value)
    return value
