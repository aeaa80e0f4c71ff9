"""Questions as forms for the client's user, and filled forms as answers.

A form has fields of plain types alone: https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation
(read 2026-11-27).  A value of any other type is asked for as JSON, in one field.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from pydantic_core import from_json, to_json

from fsm_agent._internal.plain_text import plain
from fsm_agent._internal.redaction import masked_arguments
from fsm_agent.errors import OutcomeError, ParseError
from fsm_agent.functions.arguments import REFUSALS, ArgumentsValidator, refused
from fsm_agent.lifecycle.outcomes import (
    Approved,
    Cancelled,
    Denied,
    FunctionFailed,
    Outcome,
    Returned,
    RunAgain,
)
from fsm_agent.machine.process import Question

MAX_WORDS = 2000  # characters of a question
_ANSWER = "answer"
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
    params = types.ElicitRequestFormParams(message=_words(question), requested_schema=_schema(question))
    return types.ElicitRequest(params=params)


def outcome_of(question: Question, filled: types.ElicitResult) -> tuple[str, Outcome]:
    """Return the key and the outcome of a form that came back; anything but a clear approval is none.

    Raises:
        OutcomeError: A field is missing, or its value is not what the question takes.
    """
    content = filled.content or {}
    if question.kind == "approval":
        if filled.action == "accept" and content.get("approve") is True:
            return question.key, Approved()
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
    return text if len(text) <= MAX_WORDS else f"{text[: MAX_WORDS - 1]}…"


def _about(question: Question) -> Mapping[str, Any]:
    about = from_json(question.about) if question.about else {}
    return about if isinstance(about, dict) else {}


def _schema(question: Question) -> dict[str, Any]:
    known = {"approval": _APPROVAL, "doubt": _DOUBT, "result": _RESULT}.get(question.kind)
    if known is not None:
        return known
    schema = from_json(question.schema) if question.schema else {}
    return _fields(schema) or _one_field(schema)


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
    schema = from_json(question.schema) if question.schema else {}
    if _fields(schema):
        value: Any = dict(content)
    elif _plain_field(schema):
        value = content.get(_ANSWER)
    else:
        try:
            value = from_json(_required(content, _ANSWER))
        except ValueError:
            raise OutcomeError("the answer is no JSON") from None
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
    raise OutcomeError(f"the outcome is none of {_DONE!r}, {_FAILED!r} and {_AGAIN!r}")


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""


def _required(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise OutcomeError(f"the form lacks {name!r}, a text")
    return value
