"""Check answers before they are posted: who answers does not hear what a driver refuses later, or tells the model."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, get_args

from fsm_agent.call.outcomes import Modified, Outcome, Returned
from fsm_agent.errors import OutcomeError, UsageError
from fsm_agent.functions.arguments import REFUSALS, ArgumentsValidator, refused

if TYPE_CHECKING:
    from fsm_agent.messages.question import Question
    from fsm_agent.store.store import Run


_NAMES = {kind.__struct_config__.tag: kind.__name__ for kind in get_args(Outcome)}


def check_answers(answers: Mapping[str, Outcome], run: Run, typed: Collection[str] = ()) -> None:
    """Refuse answers that the open questions of a run do not accept.

    Whether a question is open at all is checked by the store, in the transaction that posts the answer.  The code of
    the run is not needed: a question has the schema of what answers it.

    Args:
        answers: Outcomes by the keys of questions.
        run: The run.
        typed: The keys of answers that were written by the types of their states, which may write what their schemas
            do not describe.

    Raises:
        UsageError: An answer is of another kind, or is an error or no JSON where a state of a flow wants some; or, an
            `OutcomeError`, it does not fit the schema of its question.
    """
    for question in run.waits:
        outcome = answers.get(question.key)
        if outcome is None:
            continue
        _check_kind(question, outcome, run)
        if question.key not in typed and (problem := _misfit(question, outcome)):
            what = "arguments that do not fit" if isinstance(outcome, Modified) else "an answer that does not fit"
            asked = f"{question.key!r} of the run {run.id!r}"
            refused = OutcomeError(f"{asked} got {what}, and stays open: {problem}")
            refused.problem = str(problem)
            raise refused


def check_one_answer(answers: Any) -> None:
    """Refuse an id for what is not one answer under a key.

    Raises:
        UsageError: There are several, or none, or it has no key.
    """
    if not isinstance(answers, Mapping) or len(answers) != 1:
        given = f"{len(answers)} answers" if isinstance(answers, Mapping) else "an answer without its key"
        raise UsageError(f"post_id=: expected one answer by its key, got {given}; post each answer alone")


def _check_kind(question: Question, outcome: Outcome, run: Run) -> None:
    asked = f"{question.key!r} of the run {run.id!r}"
    if question.answers and outcome.kind not in question.answers:
        named = " or ".join([_NAMES.get(kind, kind) for kind in question.answers])
        raise UsageError(f"{asked}: expected {named}, got {type(outcome).__name__}; the question stays open")
    if question.types and isinstance(outcome, Returned) and (outcome.is_error or not _is_json(outcome.text)):
        given = f"{'the error ' if outcome.is_error else ''}{outcome.text!r:.80}"
        right = f"JSON of {' | '.join(question.types)}, with a text in double quotes"
        raise UsageError(f"{asked}: expected {right}, got {given}; the question stays open")


def _misfit(question: Question, outcome: Outcome) -> str:
    """Return why an answer does not fit the schema of its question; empty: it fits, or there is none."""
    schema = json.loads(question.schema or "{}")
    try:
        if isinstance(outcome, Modified):
            ArgumentsValidator(schema).validate_json(outcome.arguments_json)
        elif isinstance(outcome, Returned) and question.types and schema:
            value, kind = _named(json.loads(outcome.text), schema, question.types)
            whole = {"properties": {"answer": kind}, "required": ["answer"], "$defs": schema.get("$defs", {})}
            ArgumentsValidator(whole).validate_json(json.dumps({"answer": value}))
    except REFUSALS as error:
        return "; ".join(str(refused(error)).splitlines())
    return ""


def _named(value: Any, schema: Mapping[str, Any], types: tuple[str, ...]) -> tuple[Any, Any]:
    """Return an answer without the name of its type, and the schema of that type."""
    kinds = schema.get("anyOf")
    if len(types) == 1 or not (isinstance(value, list) and len(value) == 2 and value[0] in types):
        return value, schema
    is_known = isinstance(kinds, list) and len(kinds) == len(types)
    return value[1], kinds[types.index(value[0])] if is_known and kinds else schema


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
