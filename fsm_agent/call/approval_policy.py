"""Decide which function calls wait for approval.

The approver is asked about every call, unless the function's policy exempts it.  Like its prompt, the presence of an
approver is part of a call's definition: its effects follow from its record and its definition, whatever drives it.
"""

from __future__ import annotations

from typing import Any

from fsm_agent._internal.values import Value
from fsm_agent.call.record import CallRecord
from fsm_agent.errors import UsageError
from fsm_agent.functions.context import Context
from fsm_agent.functions.function import Function
from fsm_agent.messages.message import FunctionCall
from fsm_agent.prompts.prompt import Prompt


class Gate(Value, frozen=True):
    """The inputs of the approval decision besides the functions' own policies."""

    has_approver: bool = False
    deps: Any = None

    def is_closed(self, function: Function, call: FunctionCall, record: CallRecord) -> bool:
        """Return whether a call with valid arguments needs approval.

        Raises:
            UsageError: The predicate of the function returned neither True nor False.
        """
        policy = function.needs_approval
        if policy is None:
            return self.has_approver
        if policy is True or policy is False:
            return policy
        needs: Any = policy(call, context_of(call, record, self.deps)) if function.asks_with_context else policy(call)
        if not isinstance(needs, bool):
            what = f"what needs_approval of function {function.name!r} returned"
            raise UsageError(f"{what}: expected True or False, got {needs!r:.200}")
        return needs


UNATTENDED = Gate()  # without an approver


def context_of(call: FunctionCall, record: CallRecord, deps: Any) -> Context[Any]:
    """Return the `Context` in which an approver or a predicate judges ``call``."""
    return Context(deps=deps, function_call=call, agent_call_id=record.id, depth=record.depth)


def approved_keys(record: CallRecord) -> set[str]:
    """Return the keys under which function calls were approved."""
    return {step.key for step in record.trace if step.trigger == "approved"}


def closed_again(record: CallRecord, prompt: Prompt, gate: Gate) -> CallRecord:
    """Return ``record`` with the policies applied again to pending calls without approval.

    A call that waits for approval keeps waiting.  So does a call whose arguments are no longer valid.
    """
    approved = approved_keys(record) if record.round else set()

    def waits(f: FunctionCall) -> bool:
        function = prompt.by_name.get(f.name)
        if function is None:  # it was removed from the prompt; running it returns an error to the model
            return False
        return function.refusal(f.arguments_json) is not None or gate.is_closed(function, f, record)

    calls = list(record.round)
    for i, f in enumerate(calls):
        if not (f.is_settled or f.needs_approval or f"ask:{f.id}" in approved) and waits(f):
            calls[i] = f.changed(needs_approval=True)
    return record.changed(round=tuple(calls)) if record.round else record
