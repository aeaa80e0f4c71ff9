"""Converts questions into forms for the client's user, and completed forms into answers.

A form's fields can have only plain types (https://modelcontextprotocol.io/specification/2026-07-28/client/elicitation,
read 2026-11-27), so values of other types, and changed arguments for a call, are entered as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import mcp_types as types

from fsm_agent._internal.redaction import masked_arguments
from fsm_agent._internal.text import plain
from fsm_agent.call.outcomes import Cancelled, Denied, Outcome
from fsm_agent.call.question_forms import (
    Field,
    FormError,
    QuestionForm,
    about_of,
    masked_arguments_of,
    outcome_of,
    question_form,
    question_text,
    read_fields,
)
from fsm_agent.messages.events import Question
from fsm_agent.messages.json_data import parsed

MAX_WORDS = 2000  # characters of a question
_TEXT = {"type": "string"}
_FATES = {  # the user's choices for a function that may have run, by the kind of the outcome
    "returned": "It was done",
    "function_failed": "It failed",
    "run_again": "It did nothing: run it again",
    "cancelled": "Cancel the call",
}
_APPROVE = {"type": "boolean", "title": "Allow it"}
_REASON = {**_TEXT, "title": "Why not", "description": "The model is told."}
_BOUNDS = ("title", "description", "minLength", "maxLength", "minimum", "maximum")


def elicitation(question: Question) -> types.ElicitRequest:
    """Return the form that the client shows to its user."""
    form = question_form(question)
    if form.is_arguments:
        properties, needed = {"approve": _APPROVE, "reason": _REASON, **_arguments_field(question)}, ["approve"]
    elif "run_again" in form.answers:
        fates = {**_TEXT, "title": "What became of it", "enum": [_FATES[kind] for kind in form.answers]}
        properties, needed = {"outcome": fates, "text": {**_TEXT, "title": "Its result, or its error"}}, ["outcome"]
    else:
        fields = _fields(form)
        properties = {name: _property(field) for name, field in fields.items()}
        needed = [name for name, field in fields.items() if field.is_needed or not field.key]
        if len(form.choices) > 1:
            properties = {"type": {**_TEXT, "enum": [choice.name for choice in form.choices]}, **properties}
            needed = ["type", *needed]
    schema = {"type": "object", "properties": properties, "required": needed}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=_words(question), requested_schema=schema))


def answer(question: Question, filled: types.ElicitResult) -> tuple[str, Outcome]:
    """Return `(key, outcome)` for a completed form.  A call is approved only if the form says so explicitly.

    Raises:
        FormError: If a field is missing, or its value does not fit the question.
    """
    content = {name: value for name, value in (filled.content or {}).items() if value is not None}
    is_filled, form = filled.action == "accept", question_form(question)
    if form.is_arguments:
        if is_filled and content.get("approve") is True:
            return question.key, outcome_of(question, "approved", _given_arguments(content))
        default = "" if is_filled else "the user has declined"
        return question.key, Denied(_text(content, "reason") or default)
    if not is_filled:
        return "", Cancelled(reason="the user has declined to answer")
    if "run_again" in form.answers:
        return question.key, _fate(question, form, content)
    fields = _fields(form)
    if missing := [name for name, field in fields.items() if not field.key and name not in content]:
        raise FormError({missing[0]: f"{missing[0]!r} of the form: expected a value, got none"})
    typed = {field.name: _typed(field, content[name]) for name, field in fields.items() if name in content}
    value = read_fields([*fields.values()], typed, may_be_empty=True)
    return question.key, outcome_of(question, "returned", value, type=_text(content, "type"))


def _words(question: Question) -> str:
    about = about_of(question)
    if "function" in about:
        call = f"{about['function']}({masked_arguments(str(about.get('arguments', '')))})"
        text = {
            "approval": f"Allow {call}?",
            "doubt": f"{call} had begun, and it must not run twice. What became of it?",
        }.get(question.kind, f"What is the result of {call}?")
    else:
        text = question_text(question) or "An answer is needed."
    text = plain(text)
    if len(text) <= MAX_WORDS:
        return text
    note = f"… (cut off: the whole has {len(text):,} characters)"  # people must know that they see only a part
    return f"{text[: MAX_WORDS - len(note)]}{note}"


def _arguments_field(question: Question) -> dict[str, Any]:
    """Return the field for changing the arguments, or {} if the arguments are empty or too long."""
    shown = masked_arguments_of(question)
    if shown in ("", "{}") or len(shown) > MAX_WORDS:
        return {}
    about = "As JSON; change it to allow the call with other arguments."
    return {"arguments": {**_TEXT, "title": "Its arguments", "description": about, "default": shown}}


def _given_arguments(content: Mapping[str, Any]) -> Any:
    text = _text(content, "arguments")
    return parsed(text) if text.strip() else None


def _fields(form: QuestionForm) -> dict[str, Field]:
    """Return the fields for an answer, by name.  An answer with several possible types has a single field, for JSON."""
    if len(form.choices) > 1:
        return {"answer": Field("v", "", "its value", "json", "", is_needed=True)}
    whole = "result" if form.kind == "result" else "answer"
    return {field.key or whole: field for field in form.choices[0].fields}


def _property(field: Field) -> dict[str, Any]:
    if field.kind == "choice":
        return {**_kept(field, "title", "description"), **_TEXT, "enum": [words for _, words in field.choices]}
    if field.kind == "json":
        schema = json.dumps(field.schema) if field.schema else "any value"
        return {**_TEXT, "description": f"{field.hint} (as JSON: {schema})"[:MAX_WORDS]}
    return {**_kept(field, *_BOUNDS), "type": field.kind}


def _kept(field: Field, *names: str) -> dict[str, Any]:
    return {name: field.schema[name] for name in names if name in field.schema}


def _typed(field: Field, value: Any) -> str:
    """Return a value as text for a field."""
    if field.kind == "choice":
        return next((text for text, words in field.choices if words == value), json.dumps(value))
    return value if isinstance(value, str) else json.dumps(value)


def _fate(question: Question, form: QuestionForm, content: Mapping[str, Any]) -> Outcome:
    said, text = content.get("outcome"), _text(content, "text")
    kind = next((kind for kind in form.answers if _FATES[kind] == said), "")
    if not kind:
        raise FormError({"outcome": f"outcome: expected {' or '.join([_FATES[one] for one in form.answers])}"})
    value = read_fields(form.choices[0].fields, {"v": text}, may_be_empty=True) if kind == "returned" else None
    return outcome_of(question, kind, "" if value is None else value, reason=text)


def _text(content: Mapping[str, Any], name: str) -> str:
    value = content.get(name)
    return value if isinstance(value, str) else ""
