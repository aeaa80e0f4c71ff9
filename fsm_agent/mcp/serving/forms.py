"""Questions as forms for the client's user, and filled forms as answers.

A form has fields of plain types alone: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
(read 2026-11-27).  A value of any other type is asked for as JSON, in one field, and so are other arguments of a call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic_core import ValidationError, from_json, to_json

from fsm_agent._internal.plain_text import plain
from fsm_agent._internal.redaction import masked_arguments, unmasked
from fsm_agent.call.outcomes import Approved, Cancelled, Denied, FunctionFailed, Modified, Outcome, Returned, RunAgain
from fsm_agent.errors import OutcomeError, ParseError
from fsm_agent.functions.arguments import REFUSALS, ArgumentsValidator, refused
from fsm_agent.messages.event_json import parsed
from fsm_agent.messages.question import Question

MAX_WORDS = 2000  # characters of a question
_MAX_ERRORS = 5
_ANSWER, _ARGUMENTS = "answer", "arguments"
_TEXT = {"type": "string"}
_DONE, _FAILED, _AGAIN = "It was done", "It failed", "It did nothing: run it again"
_APPROVAL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "approve": {"type": "boolean", "title": "Allow it"},
        "reason": {"type": "string", "title": "Why not", "description": "The model is told."},
    },
    "required": ["approve"],
}
_DOUBT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "outcome": {"type": "string", "title": "What became of it", "enum": [_DONE, _FAILED, _AGAIN]},
        "text": {"type": "string", "title": "Its result, or its error"},
    },
    "required": ["outcome"],
}
_RESULT: dict[str, Any] = {"type": "object", "properties": {"result": _TEXT}, "required": ["result"]}
_KEPT = {  # of the schema of a field, by its type
    "string": ("minLength", "maxLength", "enum"),
    "integer": ("minimum", "maximum"),
    "number": ("minimum", "maximum"),
    "boolean": (),
}


def form_of(question: Question) -> types.ElicitRequest:
    """Return what the client is to ask its user."""
    params = types.ElicitRequestFormParams(message=_words(question), requested_schema=_form_schema(question))
    return types.ElicitRequest(params=params)


def outcome_of(question: Question, filled: types.ElicitResult) -> tuple[str, Outcome]:
    """Return the key and the outcome of a form that came back; anything but a clear approval is none.

    Raises:
        OutcomeError: A field is missing, or its value is not what the question takes.
    """
    content = filled.content or {}
    if question.kind == "approval":
        if filled.action == "accept" and content.get("approve") is True:
            return question.key, _approval(question, content)
        default = "" if filled.action == "accept" else "the user has declined"
        return question.key, Denied(_text(content, "reason") or default)
    if filled.action != "accept":
        return "", Cancelled(reason="the user has declined to answer")
    if question.kind == "doubt":
        return question.key, _fate(content)
    if question.kind == "result":
        return question.key, Returned(text=_required(content, "result"))
    return question.key, Returned(text=_checked(question, content))


def _words(question: Question) -> str:
    about = _about(question)
    if "function" in about:
        call = f"{about['function']}({masked_arguments(str(about.get('arguments', '')))})"
        text = {
            "approval": f"Allow {call}?",
            "doubt": f"{call} had begun, and it must not run twice. What became of it?",
        }.get(question.kind, f"What is the result of {call}?")
    else:
        text = str(about.get("question", "")) or "An answer is needed."
    text = plain(text)
    if len(text) <= MAX_WORDS:
        return text
    note = f"… (cut off: the whole has {len(text):,} characters)"  # a person decides by this text
    return f"{text[: MAX_WORDS - len(note)]}{note}"


def _about(question: Question) -> Mapping[str, Any]:
    about = from_json(question.about) if question.about else {}
    return about if isinstance(about, dict) else {}


def _form_schema(question: Question) -> dict[str, Any]:
    if question.kind == "approval":
        return _approval_form(question)
    known = {"doubt": _DOUBT, "result": _RESULT}.get(question.kind)
    if known is not None:
        return known
    schema = _answer_schema(question)
    return _fields(schema) or _one_field(schema)


def _answer_schema(question: Question) -> dict[str, Any]:
    """Return the schema of the answer; of an approval, that of the function's arguments."""
    schema: dict[str, Any] = from_json(question.schema) if question.schema else {}
    return schema


def _approval_form(question: Question) -> dict[str, Any]:
    """Return the form of an approval, with the arguments to be changed if there are some, and they are not long."""
    shown = _shown_arguments(question)
    if shown in ("", "{}") or len(shown) > MAX_WORDS:
        return _APPROVAL
    about = "As JSON; change it to allow the call with other arguments."
    field = {**_TEXT, "title": "Its arguments", "description": about, "default": shown}
    return {**_APPROVAL, "properties": {**_APPROVAL["properties"], _ARGUMENTS: field}}


def _shown_arguments(question: Question) -> str:
    """Return the arguments of a call as JSON in which secrets are masked; empty: there is no such text."""
    arguments = parsed(str(_about(question).get(_ARGUMENTS, "")))
    if not isinstance(arguments, dict):
        return ""
    text = masked_arguments(json.dumps(arguments, ensure_ascii=False))
    return text if plain(text) == text else masked_arguments(json.dumps(arguments))  # what hides is escaped


def _approval(question: Question, content: Mapping[str, Any]) -> Outcome:
    """Return the approval of a call, with other arguments if its field was changed.

    Raises:
        OutcomeError: The arguments are no JSON object, or not what the function takes.
    """
    text = _text(content, _ARGUMENTS)
    if not text.strip():
        return Approved()
    given, shown = parsed(text), parsed(_shown_arguments(question))
    if not isinstance(given, dict):
        raise OutcomeError("the arguments of a function: expected an object, {…}, got another value")
    try:
        if json.dumps(given, sort_keys=True) == json.dumps(shown, sort_keys=True):  # 1 and true are equal in Python
            return Approved()
        arguments = json.dumps(unmasked(given, shown, parsed(str(_about(question).get(_ARGUMENTS, "")))))
        ArgumentsValidator(_answer_schema(question)).validate_json(arguments)
    except ValidationError as error:  # without what was given, in which secrets are as they are
        items = error.errors(include_url=False, include_input=False)[:_MAX_ERRORS]
        problems = "; ".join([f"{'.'.join(map(str, item['loc'])) or 'input'}: {item['msg']}"[:200] for item in items])
        raise OutcomeError(f"the arguments do not fit: {problems}") from None
    except REFUSALS:
        raise OutcomeError("the arguments do not fit") from None
    return Modified(arguments)


def _fields(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the form of an object whose fields are all plain; None: it is none."""
    properties = schema.get("properties")
    if schema.get("type") != "object" or not isinstance(properties, dict) or not properties:
        return None
    fields = {name: _plain_field(value) for name, value in properties.items()}
    if not all(fields.values()):
        return None
    return {"type": "object", "properties": fields, "required": list(schema.get("required", ()))}


def _one_field(schema: Mapping[str, Any]) -> dict[str, Any]:
    field = _plain_field(schema)
    if field is None:
        field = {**_TEXT, "description": f"As JSON: {to_json(schema).decode()}"[:MAX_WORDS]}
    return {"type": "object", "properties": {_ANSWER: field}, "required": [_ANSWER]}


def _plain_field(schema: Any) -> dict[str, Any] | None:
    kind = schema.get("type") if isinstance(schema, dict) else None
    if kind not in _KEPT or any(not isinstance(item, str) for item in schema.get("enum", ())):
        return None
    kept = ("title", "description", *_KEPT[kind])
    return {"type": kind, **{name: schema[name] for name in kept if name in schema}}


def _checked(question: Question, content: Mapping[str, Any]) -> str:
    """Return the answer to a question of a flow, as JSON."""
    schema = _answer_schema(question)
    if _fields(schema):
        value: Any = dict(content)
    elif _plain_field(schema):
        value = content.get(_ANSWER)
    else:
        try:
            value = from_json(_required(content, _ANSWER))
        except ValueError:
            raise OutcomeError("the answer: expected JSON, got other text") from None
    text = to_json(value).decode()
    try:
        _validator(schema).validate_json(f'{{"{_ANSWER}":{text}}}')
    except REFUSALS as error:
        problem: ParseError = refused(error)
        raise OutcomeError(f"the answer does not fit: {problem}") from None
    return text


def _validator(schema: Mapping[str, Any]) -> ArgumentsValidator:
    own = {name: value for name, value in schema.items() if name != "$defs"}
    whole = {"type": "object", "properties": {_ANSWER: own}, "required": [_ANSWER]}
    return ArgumentsValidator({**whole, "$defs": schema["$defs"]} if "$defs" in schema else whole)


def _fate(content: Mapping[str, Any]) -> Outcome:
    outcome, text = content.get("outcome"), _text(content, "text")
    if outcome == _DONE:
        return Returned(text=text)
    if outcome == _FAILED:
        return FunctionFailed(text=text or "it failed")
    if outcome == _AGAIN:
        return RunAgain()
    raise OutcomeError(f"the outcome: expected {_DONE!r}, {_FAILED!r} or {_AGAIN!r}, got another value")


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _required(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise OutcomeError(f"{name!r} of the form: expected a text, got none")
    return value
