"""Typed answers from a small model: each field of a flat object is copied from the task's text.

Given only a schema, a small model makes up values and may never end a string.  Therefore, code reads numbers and enums
from the text, and the model chooses which words to copy.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping
from typing import Any

from fsm_agent.call.effects import Request
from fsm_agent.clients.local.functions.fields import resolved
from fsm_agent.clients.local.functions.filling import filled
from fsm_agent.clients.local.functions.grammar import quoted
from fsm_agent.clients.local.functions.question import Question
from fsm_agent.clients.local.functions.wire import Step
from fsm_agent.functions.function import Function
from fsm_agent.messages.reply import Reply

_SCALARS = ("string", "integer", "number", "boolean")
_INSTRUCTION = (
    re.compile(  # before the text: "Extract the order: …", "Who is it about? …", "Get the name out of this: …"
        r"(?:please\s+)?(?:(?:extract|read|identify|parse|fill)\b[^\n]*?(?:[.:?!]\s|\n)"
        r"|(?:what|who|which|where|when|how)\b[^\n?]*\?\s"
        r"|(?:find|get|give|return|take|collect|list)\b[^\n:.?!]*:\s)",
        re.I,
    )
)
_LABEL = re.compile(
    r"^(?:text|input|message|e-?mail|mail|document|letter|note|review|article|content)\s*:", re.I | re.M
)


def is_extraction(request: Request) -> bool:
    """Return True if the request wants a flat object as its answer and sets no output mode."""
    output = request.output
    return request.mode is None and not output.is_text and not output.is_wrapped and is_flat(output.schema or {})


def is_flat(schema: Mapping[str, Any]) -> bool:
    """Return True for an object that contains only strings, numbers, booleans, enums, lists of these, and nulls."""
    whole = resolved(schema, schema)
    properties = whole.get("properties")
    if not properties or "anyOf" in schema or "oneOf" in schema:
        return False
    return all(
        _is_simple(field)
        or (field["type"] == "array" and _is_simple(field.get("items") or {}) and "prefixItems" not in field)
        for field in properties.values()
    )


def _is_simple(field: Mapping[str, Any]) -> bool:
    choices = [one for union in ("anyOf", "oneOf") for one in field.get(union) or () if one.get("type") != "null"]
    return field.get("type") in _SCALARS and len(choices) < 2


def extracted(request: Request) -> Generator[Step, Reply, Reply]:
    """Return the object as a reply.  A value that the text does not contain is null.

    The exception branch is ignored, because its messages are about refused answers and not about the task.
    """
    messages = request.messages[: len(request.messages) - request.branch_length]
    task = next((message.text for message in reversed(messages) if message.role == "user"), "")
    schema = request.output.schema or {}
    form = Function(name=request.output.name, description=str(schema.get("description", "")), parameters=schema)
    question = Question(source_text(task))
    values = yield from filled(question, form, copies_only=True)
    return Reply.of(quoted(values)).changed(finish="stop", adapted=question.notes)


def source_text(task: str) -> str:
    """Return a task's text without the instruction before it, or the whole task if there is no instruction."""
    if not (instruction := _INSTRUCTION.match(task)):
        return task
    label = _LABEL.search(task, instruction.end())
    text = task[(label or instruction).end() :].strip()
    return text or task
