"""The function calls that a reply requests, and which of them run, are refused, or repeat earlier calls."""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import Any

import pydantic_core

from fsm_agent.call.record import CallRecord, Tally
from fsm_agent.call.requests import USED_UP, ApprovalGate, unblocked, used_up
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall, Message, object_text
from fsm_agent.messages.reply import Reply
from fsm_agent.prompts.output import ANSWER
from fsm_agent.prompts.prompt import Prompt

REPEATED = (
    "The function {name} was already called with these arguments, and no other function has run since; its result "
    "stands above. Do not call it so again: if you need no other function, give your final answer."
)


TWICE = "The function {name} was called with these arguments before in the same message, and is run once."


NOT_TAKEN = "This answer was not taken: give it when you need no other function any more."


_COMPOUND = (dict, list)


_KEPT_CHARS = 2000  # the fingerprints of longer arguments are not cached


def requested_calls(
    record: CallRecord, reply: Reply, prompt: Prompt, seen: Container[str], gate: ApprovalGate
) -> tuple[Message, tuple[FunctionCall, ...]]:
    """Return the reply's message and calls with our ids.  Calls that cannot or need not run are settled."""
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
    __slots__ = ("cut", "gate", "prompt", "record", "requested", "runs", "seen")

    def __init__(
        self, record: CallRecord, prompt: Prompt, seen: Container[str], gate: ApprovalGate, cut: FunctionCall | None
    ) -> None:
        self.record, self.prompt, self.seen, self.gate = record, prompt, seen, gate
        self.cut = cut  # the last call of a reply that was cut off
        self.requested: set[str] = set()  # fingerprints of the calls to be run
        self.runs: dict[str, int] = {}  # by name, of functions with a budget

    def of(self, call: FunctionCall, id: str) -> tuple[FunctionCall, FunctionCall]:
        """Return the call with our id twice: for the message, and for the round, where it may be settled."""
        function = self.prompt.by_name.get(call.name)
        if function is None:
            call = call.changed(id=id)
            if call.name == ANSWER and self.prompt.output is not str:
                return call, call.changed(error=NOT_TAKEN)
            names = ", ".join(self.prompt.by_name) or "none"
            return call, call.changed(error=f"There is no function {call.name!r}. There are: {names}.")
        problem = used_up(self.record, function) if self.record.tallies else None
        if problem is None and self._lacks_arguments(call) and function.parameters.get("properties"):
            problem = f"The call of {call.name} was cut off at the token limit, before its arguments."
        if problem is None and (refusal := function.refusal(call.arguments_json)) is not None:
            problem = refusal_text(refusal, call, is_cut=call is self.cut)
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

    def _lacks_arguments(self, call: FunctionCall) -> bool:
        return call is self.cut and call.arguments_json.strip() in ("", "{}")

    def _is_within(self, function: Function, limit: int) -> bool:
        """Count a call of the function in this reply, and return whether it is within the function's limit."""
        runs = self.record.tallies.get(function.name, Tally()).runs + self.runs.get(function.name, 0)
        self.runs[function.name] = self.runs.get(function.name, 0) + 1
        return runs < limit


def refusal_text(refusal: str, call: FunctionCall, *, is_cut: bool = False) -> str:
    """Return the error for the model about invalid arguments."""
    cut = "\n(The call was cut off at the token limit.)" if is_cut else ""
    return f"The arguments of {call.name} are not valid:\n{refusal}{cut}"


def fingerprint(call: FunctionCall) -> str:
    """Return a string that is equal for calls with equal names and arguments.

    The order of keys does not matter, but 1, 1.0 and true differ.
    """
    arguments = object_text(call.arguments_json)
    return (_fingerprint if len(arguments) <= _KEPT_CHARS else _fingerprint.__wrapped__)(call.name, arguments)


def are_equal(calls: Sequence[FunctionCall], others: Sequence[FunctionCall]) -> bool:
    """Return whether two rounds have the same calls, in any order."""
    return sorted(map(_mark, calls)) == sorted(map(_mark, others))


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
