"""The effects that an agent call has in each state, and the request to its model.

This includes which functions are offered, and which function calls of a round may run now.

Everything here follows from a record and the call's constants, so the record need not be the call's current one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fsm_agent._internal.structs import Value
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
from fsm_agent.call.limits import Limits, is_within
from fsm_agent.call.record import ASKING, CallRecord, OnceRun, State, Tally
from fsm_agent.call.spending import OVER_BUDGET, exceeded, has_budget
from fsm_agent.errors import ErrorReport, Retry
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.functions.hosted_calls import declared
from fsm_agent.messages.hosted_tools import merged
from fsm_agent.messages.message import FunctionCall, Message
from fsm_agent.messages.reply import Settings
from fsm_agent.prompts.prompt import MissingPrompt, Prompt
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.call.call import AgentCall


class ApprovalGate(Value, frozen=True):
    """Decides which calls need approval, by the function's policy or else by whether there is an approver."""

    has_approver: bool = False
    deps: Any = None

    def is_closed(self, function: Function, call: FunctionCall, record: CallRecord) -> bool:
        policy = function.needs_approval
        if policy is None:
            return self.has_approver
        if policy is True or policy is False:
            return policy
        needs: Any = policy(call, context_of(call, record, self.deps)) if function.asks_with_context else policy(call)
        what = f"the return value of needs_approval of function {function.name!r}"
        require(what, needs, isinstance(needs, bool), "True or False")
        return bool(needs)


UNATTENDED = ApprovalGate()  # without an approver


def context_of(call: FunctionCall, record: CallRecord, deps: Any) -> Context[Any]:
    """Return the `Context` in which an approver or a predicate judges a call."""
    return Context(deps=deps, function_call=call, agent_call_id=record.id, depth=record.depth)


def approved_keys(record: CallRecord) -> set[str]:
    """Return the keys under which function calls have been approved."""
    return {step.key for step in record.trace if step.trigger == "approved"}


def closed_again(record: CallRecord, prompt: Prompt, gate: ApprovalGate) -> CallRecord:
    """Apply the functions' policies again to pending calls that were not approved, and return the new record.

    Calls whose arguments are no longer valid wait for approval too.
    """
    approved = approved_keys(record) if record.round else set()

    def waits(f: FunctionCall) -> bool:
        function = prompt.by_name.get(f.name)
        if function is None:  # it was removed from the prompt, and its run returns an error to the model
            return False
        return function.refusal(f.arguments_json) is not None or gate.is_closed(function, f, record)

    calls = list(record.round)
    for i, f in enumerate(calls):
        if not (f.is_settled or f.needs_approval or f"ask:{f.id}" in approved) and waits(f):
            calls[i] = f.changed(needs_approval=True)
    return record.changed(round=tuple(calls)) if record.round else record


USED_UP = "{name} may be called {limit} time(s), and that is used up."

_NEVER = Tally()


def offered(record: CallRecord, prompt: Prompt) -> tuple[Function, ...]:
    """Return the functions that the model may call: the prompt's functions that are not used up."""
    if not record.tallies:
        return prompt.offers
    return tuple([f for f in prompt.offers if used_up(record, f) is None])


def used_up(record: CallRecord, function: Function) -> str | None:
    """Return why a function is no longer offered, as text for the model, or None if it is offered."""
    tally = record.tallies.get(function.name, _NEVER)
    if not is_within(tally.runs, function.max_calls):
        return USED_UP.format(name=function.name, limit=function.max_calls)
    failures = record.limits.failures_per_function if function.max_failures is None else function.max_failures
    if not is_within(tally.failures, failures):
        return f"{function.name} has failed {tally.failures} time(s) and is no longer available. Go on without it."
    return None


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


def tallied(record: CallRecord, calls: Iterable[FunctionCall], prompt: Prompt) -> Mapping[str, Tally]:
    """Return the tallies after counting these settled calls."""
    if not prompt.tallied and record.limits.failures_per_function is None:
        return record.tallies
    tallies = dict(record.tallies)
    for f in calls:
        if f.was_run and (record.limits.failures_per_function is not None or f.name in prompt.tallied):
            was = tallies.get(f.name, _NEVER)
            tallies[f.name] = Tally(was.successes + (f.error is None), was.failures + (f.error is not None))
    return tallies


def unblocked(record: CallRecord, calls: Sequence[FunctionCall], prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return a round's calls, with an error for each call that depends on a function that can no longer succeed."""
    if not prompt.depended_on:
        return calls if isinstance(calls, tuple) else tuple(calls)
    done, waits = list(calls), True
    while waits:  # each pass except the last settles a call, which may block other calls
        hopeful = {f.name for f in done if f.succeeded or not f.is_settled}
        hopeful |= {name for name, tally in record.tallies.items() if tally.successes}
        waits = False
        for i, f in enumerate(done):
            if not f.is_settled and (missing := [name for name in _needs(f, prompt) if name not in hopeful]):
                error = f"{f.name} requires {' and '.join(missing)} to have succeeded first."
                done[i], waits = f.changed(error=error), True
    return tuple(done)


@lru_cache(maxsize=64)
def removed_function(name: str) -> Function:
    """Return a stand-in for a removed function, which returns an error to the model."""

    def call(**arguments: Any) -> str:
        raise Retry(f"The function {name!r} is no longer available. Go on without it.")

    return Function(name=name, parameters={}, call=call)


def ready(record: CallRecord, pending: tuple[FunctionCall, ...], prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return the round's pending calls that may run now, in the order requested."""
    if prompt.handoffs:  # a handoff comes after all other calls
        pending = tuple([f for f in pending if f.name not in prompt.handoffs]) or pending
    if prompt.depended_on:
        unsettled = {f.name for f in pending}
        pending = tuple([f for f in pending if unsettled.isdisjoint(_needs(f, prompt))])
    if prompt.in_order:
        first = {f.name: f for f in reversed(pending)}
        pending = tuple([f for f in pending if f.name not in prompt.in_order or first[f.name] is f])
    return pending if record.limits.parallel is None else pending[: record.limits.parallel]


def startable(record: CallRecord, prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return the round's calls that a driver may start without a record of it, and may therefore have started."""
    pending = record.pending
    if any(f.needs_approval for f in pending):
        return ()
    if isinstance(prompt, MissingPrompt):
        return tuple([f for f in pending if f.id not in record.once])
    once = {name for name, function in prompt.by_name.items() if function.once}
    return tuple([f for f in ready(record, pending, prompt) if f.id not in record.once and f.name not in once])


def _needs(f: FunctionCall, prompt: Prompt) -> Sequence[str]:
    function = prompt.by_name.get(f.name)
    return function.depends_on if function else ()


_BEGINNING = (Begin("begin"),)

_NOT_BEGUN = OnceRun(attempt=0, phase="cleared")


def effects_of(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    """Return the call's own effects in a record, without those of inner agents."""
    wanted = _WANTED.get(record.state)
    return () if wanted is None else wanted(call, record)


def effects_left(
    call: AgentCall, record: CallRecord, effects: tuple[Effect, ...], key: str
) -> tuple[Effect, ...] | None:
    """Return a round's effects without the effect for ``key``, or None if other calls may start now."""
    prompt = call.prompt
    if prompt.depended_on or prompt.handoffs or prompt.in_order or record.limits.parallel is not None:
        return None
    for i, effect in enumerate(effects):
        if effect.key == key:
            return effects[:i] + effects[i + 1 :]
    return effects


def _beginning(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    return _BEGINNING


def _reply(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    request, refusal = _request(call, record), None
    view = call.view
    if has_budget(record.limits) and exceeded(record):
        refusal = ErrorReport(kind=OVER_BUDGET, message="the budget is used up")
    elif view is not None and not view.is_idle(record):
        shown = view.show(record, request, request.messages[len(record.dialog) :])
        if shown.summary is not None:
            return (shown.summary,)
        request, refusal = shown.request, shown.refusal
    return (CallModel(f"model:{record.turn}", request, record.attempt, record.limits.cost_usd is not None, refusal),)


def _nap(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    return (Sleep(f"sleep:{record.turn}", record.wake_at_s),)


def _verdict(call: AgentCall, record: CallRecord) -> tuple[Effect, ...]:
    return (CheckOutput(f"check:{record.turn}"),)


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
        branch_length=len(record.branch) if record.branch else 0,
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


_WANTED: Mapping[State, Callable[[AgentCall, CallRecord], tuple[Effect, ...]]] = {
    State.SEEDED: _beginning,
    **dict.fromkeys(ASKING, _reply),
    State.TOOL_INTERRUPT: _round,
    State.BACKOFF: _nap,
    State.CHECKING: _verdict,
}
