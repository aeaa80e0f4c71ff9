"""The function calls of a round: which are offered, refused, repeated or wait for approval, and which may run now.

At most `Limits.parallel` run at once.

`fsm_agent.call.transition_table` opens and closes rounds, and puts the results in the order of the calls.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pydantic_core

from fsm_agent._internal.structs import Value
from fsm_agent.call.limits import is_within
from fsm_agent.call.record import CallRecord, Tally
from fsm_agent.errors import ParseError, Retry
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall, Message, object_text
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.output import ANSWER
from fsm_agent.prompts.prompt import MissingPrompt, Prompt
from fsm_agent.validation import require

REPEATED = (
    "The function {name} was already called with these arguments, and no other function has run since. Its result is "
    "above. Do not repeat this call. If you need no other function, give your final answer."
)

TWICE = "The function {name} was already called with these arguments in the same message, and runs only once."

NOT_TAKEN = "This answer was not accepted. Give your final answer once you need no other function."

USED_UP = "{name} may be called at most {limit} time(s), and cannot be called again."

_NEVER = Tally()

_COMPOUND = (dict, list)

_KEPT_CHARS = 2000  # the fingerprints of longer arguments are not cached


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


class ApprovalGate(Value, frozen=True):
    """Decides which calls need approval: as the function's policy says or, by default, all if there is an approver."""

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
    if not record.round:
        return record
    approved = approved_keys(record)

    def waits(f: FunctionCall) -> bool:
        function = prompt.by_name.get(f.name)
        if function is None:  # it was removed from the prompt, and its run returns an error to the model
            return False
        return function.refusal(f.arguments_json) is not None or gate.is_closed(function, f, record)

    calls = list(record.round)
    for i, f in enumerate(calls):
        if not (f.is_settled or f.needs_approval or f"ask:{f.id}" in approved) and waits(f):
            calls[i] = f.changed(needs_approval=True)
    return record.changed(round=tuple(calls))


def requested_calls(
    record: CallRecord, reply: Reply, prompt: Prompt, seen: Container[str], gate: ApprovalGate
) -> tuple[Message, tuple[FunctionCall, ...]]:
    """Return the reply's message and its calls, with new ids for the calls.

    Calls that cannot or need not run already have an error or a result.
    """
    message = reply.message
    parts: list[Any] = []
    calls: list[FunctionCall] = []
    index = len(record.dialog)
    asked = message.function_calls
    screen = _Screen(record, prompt, seen, gate, asked[-1] if asked and reply.is_cut_off else None)
    for part in message.parts:
        if isinstance(part, FunctionCall):
            part, call = screen.of(part, f"{index}.{len(calls)}")
            calls.append(call.changed(round=record.rounds + 1))
        parts.append(part)
    return Message(role=message.role, parts=tuple(parts)), unblocked(record, calls, prompt)


class _Screen:
    def __init__(
        self, record: CallRecord, prompt: Prompt, seen: Container[str], gate: ApprovalGate, cut: FunctionCall | None
    ) -> None:
        self.record, self.prompt, self.seen, self.gate = record, prompt, seen, gate
        self.cut = cut  # the last call of a reply that was cut off
        self.requested: set[str] = set()  # fingerprints of the calls to be run
        self.runs: dict[str, int] = {}  # by name, of functions with a budget

    def of(self, call: FunctionCall, id: str) -> tuple[FunctionCall, FunctionCall]:
        """Return two copies of the call with this id: one for the message and one for the round.

        The copy for the round may already be settled.
        """
        function = self.prompt.by_name.get(call.name)
        if function is None:
            call = call.changed(id=id)
            if call.name == ANSWER and self.prompt.output is not str:
                return call, call.changed(error=NOT_TAKEN)
            names = ", ".join(self.prompt.by_name) or "none"
            return call, call.changed(error=f"There is no function {call.name!r}. There are: {names}.")
        problem = used_up(self.record, function) if self.record.tallies else None
        is_bare = call is self.cut and call.arguments_json.strip() in ("", "{}")
        if problem is None and is_bare and function.parameters.get("properties"):
            problem = f"The call of {call.name} was cut off at the token limit before its arguments."
        if problem is None:
            try:
                call = as_taken(call, function)
            except ParseError as error:
                problem = refusal_text(str(error), call, is_cut=call is self.cut)
        if problem is not None:
            call = call.changed(id=id)
            return call, call.changed(error=problem)
        mark = fingerprint(call)
        if not function.repeatable and (mark in self.seen or mark in self.requested):
            call, text = call.changed(id=id), TWICE if mark in self.requested else REPEATED
            return call, call.changed(fingerprint=mark, is_repeated=True, result=text.format(name=call.name))
        if function.max_calls is not None and not self._is_within(function, function.max_calls):
            call = call.changed(id=id)
            return call, call.changed(error=USED_UP.format(name=call.name, limit=function.max_calls))
        self.requested.add(mark)
        call = call.changed(id=id, fingerprint=mark, needs_approval=False, version=function.version)
        if self.gate.is_closed(function, call, self.record):
            call = call.changed(needs_approval=True)
        return call, call

    def _is_within(self, function: Function, limit: int) -> bool:
        """Count one more call to the function in this reply, and return whether it is within the function's limit."""
        runs = self.record.tallies.get(function.name, _NEVER).runs + self.runs.get(function.name, 0)
        self.runs[function.name] = self.runs.get(function.name, 0) + 1
        return runs < limit


def as_taken(call: FunctionCall, function: Function) -> FunctionCall:
    """Return the call with the arguments that the function will get, for code that decides about the call."""
    taken = function.normalize(call.arguments_json)
    return call if taken is call.arguments_json else call.changed(arguments_json=taken)


def refusal_text(refusal: str, call: FunctionCall, *, is_cut: bool = False) -> str:
    """Return the error that tells the model about invalid arguments."""
    cut = "\n(The call was cut off at the token limit.)" if is_cut else ""
    return f"The arguments of {call.name} are not valid:\n{refusal}{cut}"


def unrunnable(call: FunctionCall, prompt: Prompt) -> str | None:
    """Return why a call that was valid when the model requested it can no longer run, or None if it can."""
    function = prompt.by_name.get(call.name)
    if function is None:
        return f"the function {call.name!r} no longer exists; known: {', '.join(map(repr, prompt.by_name)) or 'none'}"
    refusal = function.refusal(call.arguments_json)
    return None if refusal is None else f"{call.name!r} now takes other arguments: {'; '.join(refusal.splitlines())}"


def fingerprint(call: FunctionCall) -> str:
    """Return a string that is equal for calls with equal names and arguments.

    The order of keys does not matter, but 1, 1.0 and true differ.
    """
    arguments = object_text(call.arguments_json)
    return (_fingerprint if len(arguments) <= _KEPT_CHARS else _fingerprint.__wrapped__)(call.name, arguments)


def are_equal(calls: Sequence[FunctionCall], others: Sequence[FunctionCall]) -> bool:
    """Return whether two rounds contain the same calls, in any order."""
    return len(calls) == len(others) and sorted(map(_mark, calls)) == sorted(map(_mark, others))


def _mark(call: FunctionCall) -> str:
    try:
        return call.fingerprint or fingerprint(call)
    except (ValueError, TypeError):  # not JSON
        return call.name + call.arguments_json


@lru_cache(maxsize=64)  # each fingerprint is needed twice: in its round and in the next one
def _fingerprint(name: str, arguments_json: str) -> str:
    canonical = name + pydantic_core.to_json(_sorted(pydantic_core.from_json(arguments_json))).decode()
    if len(canonical) <= 64:
        return canonical
    return hashlib.blake2b(canonical.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        for item in value.values():
            if isinstance(item, _COMPOUND):
                return {name: _sorted(value[name]) for name in sorted(value)}
        return value if (names := sorted(value)) == [*value] else {name: value[name] for name in names}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


def unblocked(record: CallRecord, calls: Sequence[FunctionCall], prompt: Prompt) -> tuple[FunctionCall, ...]:
    """Return a round's calls, with an error for each call that depends on a function that can no longer succeed."""
    if not prompt.depended_on:
        return tuple(calls)
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
    """Return the round's calls that a driver may have started already, because no record shows when they start."""
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


@lru_cache(maxsize=64)
def removed_function(name: str) -> Function:
    """Return a stand-in for a removed function, which returns an error to the model."""

    def call(**arguments: Any) -> str:
        raise Retry(f"The function {name!r} is no longer available. Go on without it.")

    return Function(name=name, parameters={}, call=call)


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
