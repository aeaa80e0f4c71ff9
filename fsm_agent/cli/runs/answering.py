"""Check an answer before it is posted: who gives it does not hear what its driver later refuses, or tells the model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pydantic

from fsm_agent.cli.runs.tables import OPTIONS
from fsm_agent.cli.terminal import one_line
from fsm_agent.errors import UsageError
from fsm_agent.functions.arguments import ArgumentsValidator, described_errors
from fsm_agent.lifecycle.outcomes import Modified, Outcome, Returned
from fsm_agent.machine.process import Question


def check_answer(question: Question, outcome: Outcome) -> None:
    """Check that an answer is of a kind that its question takes, and fits the schema in it.

    Raises:
        UsageError: It is of another kind, or does not fit.
    """
    if question.answers and outcome.kind not in question.answers:
        named = ", ".join([OPTIONS.get(kind, kind) for kind in question.answers])
        given = OPTIONS[outcome.kind].split(" ")[0]
        raise UsageError(f"{question.key!r} is not answered with {given}: {named} would be right")
    if isinstance(outcome, Modified):
        _check("--arguments", outcome.arguments_json, json.loads(question.schema or "{}"))
    elif isinstance(outcome, Returned) and question.types and question.schema:
        try:
            value, kind = _typed(json.loads(outcome.text), schema := json.loads(question.schema), question.types)
        except (ValueError, RecursionError):
            return  # that it is no JSON, the store tells
        whole = {"properties": {"answer": kind}, "required": ["answer"], "$defs": schema.get("$defs", {})}
        _check("--result", json.dumps({"answer": value}), whole)


def _typed(value: Any, schema: Mapping[str, Any], types: tuple[str, ...]) -> tuple[Any, Any]:
    """Return an answer without the name of its type, and the schema of that."""
    kinds = schema.get("anyOf")
    if len(types) == 1 or not (isinstance(value, list) and len(value) == 2 and value[0] in types):
        return value, schema
    is_known = isinstance(kinds, list) and len(kinds) == len(types)
    return value[1], kinds[types.index(value[0])] if is_known and kinds else schema


def _check(option: str, text: str, schema: Mapping[str, Any]) -> None:
    try:
        ArgumentsValidator(schema).validate_json(text)
    except pydantic.ValidationError as error:
        wrong = "; ".join([one_line(line) for line in described_errors(error).splitlines()])
        raise UsageError(f"{option} does not fit: {wrong}") from None
