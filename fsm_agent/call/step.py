"""One step of an agent call: take a row, and make the changes that all rows have in common."""

from __future__ import annotations

from functools import cache
from typing import Any

from fsm_agent.call.effects import AskSummary, CallModel
from fsm_agent.call.interpret import TableEvent
from fsm_agent.call.machine import RowMachine, machine_of, take_row
from fsm_agent.call.outcomes import (
    Cancelled,
    CheckRefused,
    Expired,
    FinalReply,
    FunctionFailed,
    FunctionsRequested,
    HandoffEnded,
    Injected,
    ModelFailed,
    Replied,
    Returned,
    Stopped,
    TooLong,
)
from fsm_agent.call.process import STEP_WATCHES
from fsm_agent.call.record import FAILURES, CallRecord, ContextUse, RequestFailure, State
from fsm_agent.call.requests import rounds_used_up
from fsm_agent.call.table import ROWS, at_round_limit, tracked
from fsm_agent.messages.events import Stepped
from fsm_agent.messages.message import FunctionCall
from fsm_agent.messages.reply import UNUSED, Usage
from fsm_agent.prompts.prompt import Prompt

UNASKED = (Cancelled, Stopped, Expired, Injected)  # outcomes that answer no effect
OF_ANSWERS = (Replied, CheckRefused)  # outcomes with a new answer, or with a new problem of an answer
OF_FUNCTIONS = (Returned, FunctionFailed, HandoffEnded)  # the ends of functions, including agents
_MAY_USE = (*OF_FUNCTIONS, ModelFailed)  # outcomes that used tokens if they come from an agent
_TOLD = (*CallModel.outcomes, CheckRefused)  # outcomes whose problem is noted in the step
_ROUND_LIMIT = at_round_limit.__name__
_OF_SUMMARIES = f"{AskSummary.prefix}:"


def take_step(
    before: CallRecord,
    trigger: str,
    key: str,
    outcome: Any,
    event: TableEvent,
    prompt: Prompt,
    use: ContextUse | None = None,
) -> tuple[CallRecord, Stepped]:
    """Return the record after a step, and the step.

    Raises:
        IllegalTrigger: If no row takes the trigger, for example because the call has ended.
    """
    row = take_row(_machine(), trigger, before, event, prompt)
    after, state = row.after, row.state
    changes: dict[str, Any] = {"state": state}
    limited = rounds_used_up(before.limits) if row.guard == _ROUND_LIMIT else ""
    detail = limited if after.ending is None else after.ending.detail
    kind = type(outcome)
    if kind in CallModel.outcomes:
        changes["turn"] = before.turn + 1
    if kind in _TOLD:
        detail = detail or _problem(event)
    served_by = None
    if kind is Replied:
        served_by, adapted = outcome.reply.served_by, outcome.reply.adapted
        if adapted or after.repairs:
            detail = "; ".join([*filter(None, [detail]), *after.repairs, *adapted])
    elif trigger == "denied" and isinstance(event, FunctionCall):
        detail = detail or f"{event.name}: {event.error}"
    elif trigger == "handed_over":
        detail = detail or outcome.agent
    usage = _count_usage(before, key, outcome, use, changes)
    if trigger in FAILURES:  # also for a reply with an error
        changes["failures"] = before.failures.push(_failure(before, key, event, outcome.at_s, state))
    told = _told(before, after, event) if kind in _TOLD else ""
    step = Stepped(before.state, trigger, state, key, outcome.at_s, row.guard, detail, usage, served_by, told)
    for watch in STEP_WATCHES.get():
        watch(step)
    changes["trace"] = before.trace.push(step)
    return after.changed(**changes), step


@cache
def _machine() -> RowMachine:
    # Made at the first step, because its hundred transitions would take a tenth of the import time.
    return machine_of(ROWS, State)


def _count_usage(
    before: CallRecord, key: str, outcome: Any, use: ContextUse | None, changes: dict[str, Any]
) -> Usage | None:
    """Count the tokens of an outcome in ``changes``, and return them, or None if it used none."""
    kind = type(outcome)
    if kind is Replied:
        usage: Usage = outcome.reply.usage
        if not key.startswith(_OF_SUMMARIES):  # summaries are not answers
            changes["replies"] = before.replies + 1
            changes["reply"] = tracked(before, outcome.reply)
        if use is not None:
            use = use.changed(reported=usage.input_tokens, cached=usage.cached_tokens)
            changes["requests"] = before.requests.push(use)
    elif kind in _MAY_USE:
        if kind is Returned and outcome.releases:
            changes["released"] = (*before.released, *outcome.releases)
        usage = outcome.usage
        if usage is UNUSED:
            return None
    else:
        return None
    changes["usage"] = before.usage + usage
    return usage


def _problem(event: TableEvent) -> str:
    if type(event) is FinalReply:
        return event.problem
    return event.error.message if isinstance(event, ModelFailed | TooLong) else ""


def _told(before: CallRecord, after: CallRecord, event: TableEvent) -> str:
    if type(event) is FunctionsRequested:
        return "\n".join([call.error or call.result or "" for call in event.calls if call.is_settled])
    messages = after.branch[len(before.branch) :]
    told = [message for message in messages if message.role != "assistant"]
    return "\n".join([getattr(part, "text", "") for message in told for part in message.parts])


def _failure(before: CallRecord, key: str, event: Any, at_s: float, to: State) -> RequestFailure:
    delay_s = event.delay_s if to is State.BACKOFF else None
    number, report = before.rounds + 1, event.error
    return RequestFailure(key=key, attempt=before.attempt, round=number, report=report, at_s=at_s, delay_s=delay_s)
