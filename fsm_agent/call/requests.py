"""The effects that an agent call has in each state, and the request to its model.

`fsm_agent.call.rounds` decides which functions are offered, and which function calls of a round may run now.

Everything here follows from a record and the call's constants, so the record need not be the call's current one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsm_agent.call.effects import (
    TEXT,
    AskApproval,
    Begin,
    CallModel,
    CheckOutput,
    Effect,
    Reconcile,
    Request,
    RunFunction,
    Sleep,
    StartFunction,
)
from fsm_agent.call.limits import OVER_BUDGET, Limits, exceeded
from fsm_agent.call.record import CallRecord, OnceRun, State
from fsm_agent.call.rounds import offered, ready, removed_function
from fsm_agent.errors import ErrorReport
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import declared
from fsm_agent.messages.hosted_tools import merged
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import MissingPrompt, Prompt

if TYPE_CHECKING:
    from fsm_agent.call.call import AgentCall


def is_final(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether the model must answer now, because rounds or functions are used up or the draft is done."""
    limit = record.limits.rounds
    if record.is_drafted or (limit is not None and record.rounds >= limit):
        return True
    if not record.tallies:
        return False
    return bool(prompt.offers) and not offered(record, prompt)


def needs_final_prompt(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether a request ends with the final prompt, because functions were withdrawn after a round."""
    # After a paused reply, the dialog ends with the assistant's message, which the model continues without a prompt.
    is_behind_results = bool(record.function_calls) and record.dialog[len(record.dialog) - 1].role != "assistant"
    return is_behind_results and not record.is_drafted and is_final(record, prompt)


def rounds_used_up(limits: Limits) -> str:
    """Return the message that tells people that the round limit has been reached."""
    return f"limits.rounds={limits.rounds} is used up"


def is_draft_stage(record: CallRecord, prompt: Prompt) -> bool:
    """Return whether a second request, without functions, has yet to produce the final answer."""
    if prompt.finalizer is not None:
        return not record.is_drafted
    return prompt.mode == "two_stage" and bool(prompt.offers) and not is_final(record, prompt)


def active_prompt(record: CallRecord, prompt: Prompt, *, in_branch: bool) -> Prompt:
    """Return the prompt for the next request, which also parses the answer."""
    if prompt.finalizer is None:
        return prompt.prompt_for_request(is_final=is_final(record, prompt), in_branch=in_branch)
    if not record.is_drafted:
        return prompt.final_handler if is_final(record, prompt) else prompt
    return prompt.finalizing.prompt_for_request(is_final=False, in_branch=in_branch)


_NOT_BEGUN = OnceRun(attempt=0, phase="cleared")


def effects_of(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    """Return the call's own effects in a record, without those of inner agents."""
    match record.state:
        case State.SEEDED:
            return (Begin("begin"),)
        case State.CALLING | State.PARSE_EXCEPTION:
            return _reply(call, record)
        case State.TOOL_INTERRUPT:
            return _round(call, record)
        case State.BACKOFF:
            return (Sleep(f"sleep:{record.turn}", record.wake_at_s),)
        case State.CHECKING:
            return (CheckOutput(f"check:{record.turn}"),)
    return ()


def effects_left(
    call: AgentCall, record: CallRecord, effects: tuple[Effect, ...], key: str
) -> tuple[Effect, ...] | None:
    """Return a round's effects without the effect for ``key``, or None if other calls may start now."""
    prompt = call.prompt
    if type(effects[0]) is AskApproval:  # no call starts until all are approved
        return tuple([effect for effect in effects if effect.key != key]) or None
    if prompt.depended_on or prompt.handoffs or prompt.in_order or record.limits.parallel is not None:
        return None
    for i, effect in enumerate(effects):
        if effect.key == key:
            return effects[:i] + effects[i + 1 :]
    return effects


def _reply(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    request, refusal = _request(call, record), None
    view = call.view
    if exceeded(record):
        refusal = ErrorReport(kind=OVER_BUDGET, message="the budget is used up")
    elif view is not None and not view.is_idle(record):
        shown = view.show(record, request, request.messages[len(record.dialog) :])
        if shown.summary is not None:
            return (shown.summary,)
        request, refusal = shown.request, shown.refusal
    return (CallModel(f"model:{record.turn}", request, record.attempt, record.limits.cost_usd is not None, refusal),)


def _round(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    pending = record.pending
    if asked := [f for f in pending if f.needs_approval]:
        known = {} if isinstance(call.prompt, MissingPrompt) else call.prompt.by_name
        return tuple([AskApproval(f"ask:{f.id}", f, known.get(f.name)) for f in asked])
    named = call.prompt.by_name
    wanted: list[Effect] = []
    for f in ready(record, pending, call.prompt):
        function = named.get(f.name) or removed_function(f.name)
        if function.call is not None and (function.once or f.id in record.once):
            wanted.append(_once(record, f, function))
        else:
            wanted.append(RunFunction(f"run:{f.id}", f, function))
    return tuple(wanted)


def _once(record: CallRecord, f: FunctionCall, function: Function) -> Effect:
    run = record.once.get(f.id, _NOT_BEGUN)
    attempt = run.attempt + 1 if run.phase == "cleared" else run.attempt
    name = f.id if attempt == 1 else f"{f.id}:{attempt}"
    if run.phase == "cleared":
        return StartFunction(f"start:{name}", f)
    if run.phase == "doubtful":
        return Reconcile(f"reconcile:{name}", f, function, f"{record.id}/{f.id}")
    return RunFunction(f"run:{name}", f, function, is_once=True)


def _request(call: AgentCall, record: CallRecord) -> Request:
    prompt, settings = call.prompt, call.settings
    functions: tuple[Function, ...] = ()
    is_last = is_final(record, prompt)
    if is_last or record.branch:
        prompt = active_prompt(record, prompt, in_branch=bool(record.branch))
    if is_last or prompt.settings or prompt.hosted_tools or call.args:
        settings = _settings(call, prompt, is_last)
    if not is_last and settings.tool_choice != "none":
        functions = offered(record, prompt)
        if settings.hosted_tools:
            functions = declared(functions, settings.hosted_tools)
    messages: Sequence[Message] = record.dialog
    if is_last and needs_final_prompt(record, call.prompt):  # only in the request, not in the dialog
        messages = (*messages, Message.of("user", call.prompt.handler_text("final", rounds=record.rounds)))
    output, mode = prompt.expected, prompt.mode
    if mode is not None or call.prompt.finalizer is not None:
        output = TEXT if is_draft_stage(record, call.prompt) else output
        mode = None if mode == "two_stage" else mode
    return Request(
        messages=(*messages, *record.branch) if record.branch else messages,
        functions=functions,
        # A forced choice holds for the first request only; otherwise the model could never answer.
        tool_choice="auto" if record.rounds or not functions else settings.tool_choice,
        output=output,
        mode=mode,
        settings=settings,
        branch_length=len(record.branch),
    )


def _settings(call: AgentCall, prompt: Prompt, is_last: bool) -> Settings:
    settings = call.settings
    if prompt.settings or call.args:
        settings = settings.override({**prompt.settings, **call.args})
    if is_last:
        return settings.override({"hosted_tools": ()}) if settings.hosted_tools else settings
    if prompt.hosted_tools:
        return settings.override({"hosted_tools": merged(settings.hosted_tools, prompt.hosted_tools)})
    return settings
