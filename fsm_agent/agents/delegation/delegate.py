"""Agents as delegates: what the call of another agent needs from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fsm_agent._internal.lazy_import import pydantic_core
from fsm_agent.agents.persistence import AnyAgent
from fsm_agent.call.call import AgentCall
from fsm_agent.call.record import CallRecord
from fsm_agent.errors import UsageError
from fsm_agent.messages.message import FunctionCall
from fsm_agent.prompts.fingerprint import fingerprint_under
from fsm_agent.prompts.prompt import Prompt
from fsm_agent.runtime.environment import Environment

# Policies of a Python function that an agent sets elsewhere.
_ELSEWHERE = {
    "acall": "{a} is driven as the call that asks it is",
    "blocking": "{a} blocks no other task",
    "retries": "limits=Limits(recalls=…, parse_retries=…) of the agent say how often it tries",
    "once": "what must not run twice is one of {the}'s own functions",
    "reconcile": "what must not run twice is one of {the}'s own functions",
    "middleware": "{a} has hooks=[…], and its functions may have middleware",
}


class AgentDelegate:
    """An agent as a function of another; see `fsm_agent.functions.context`.

    Args:
        agent: The agent.
        timeout_s: How many seconds each of its calls may take, beside the agent's own limit; None: no other limit.
    """

    is_handoff = False
    hears_inside = False
    tables_json = b""

    def __init__(self, agent: AnyAgent, timeout_s: float | None) -> None:
        self.agent = agent
        limits, own_s = agent.limits, agent.limits.deadline_s
        is_shorter = timeout_s is not None and (own_s is None or timeout_s < own_s)
        self._limits = limits.changed(deadline_s=timeout_s) if is_shorter else limits

    @property
    def agent_name(self) -> str:
        return self.agent.name

    @property
    def environment(self) -> Environment:
        return self.agent._own_environment

    @property
    def hooks(self) -> Sequence[Any]:
        return self.agent.hooks

    @property
    def has_listener(self) -> bool:
        offers = self.agent.prompt.offers
        return bool(self.hooks) or any(f.delegate.has_listener for f in offers if f.delegate is not None)

    @property
    def agents(self) -> Sequence[AnyAgent]:
        return (self.agent,)

    @property
    def fingerprint(self) -> str:
        return fingerprint_under(self.agent.prompt, self.agent.system)

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> CallRecord:
        task = pydantic_core.from_json(f.arguments_json)["task"]
        resolved = self.agent._resolve_task(task, {"deps": deps})
        return CallRecord.of(resolved.messages, limits=self._limits, depth=depth)

    def take_over(self, record: CallRecord, path: str, deps: Any, is_system_own: bool) -> CallRecord:
        raise UsageError(f"the agent {self.agent_name!r} as a function cannot take over a dialog; use handoff(…)")

    def call_of(self, record: CallRecord, deps: Any, has_approver: bool) -> AgentCall[Any]:
        prompt = self.agent._resolve_prompt(None, {"deps": deps})
        parts = self.agent._call_parts(prompt, None, deps)
        parts["has_approver"] = parts["has_approver"] or has_approver
        return AgentCall(record, prompt, **parts)


def check_prices_inside(prompt: Prompt) -> None:
    """Refuse an agent among the functions of a call with a budget in dollars, if the price of its model is unknown.

    Raises:
        UsageError: It names the model.
    """
    left, seen = [prompt], {id(prompt)}  # agents may hand over to one another
    while left:
        offers = left.pop().offers
        for agent in [agent for f in offers if f.delegate is not None for agent in f.delegate.agents]:
            if id(agent.prompt) not in seen:
                agent._own_environment.price_list.check()
                seen.add(id(agent.prompt))
                left.append(agent.prompt)


def check_policy(kind: str, name: str, policy: Mapping[str, Any]) -> None:
    """Refuse policies that an agent or a flow as a function cannot have.

    Raises:
        UsageError: It says what to do instead.
    """
    for policy_name, instead in _ELSEWHERE.items():
        if policy.get(policy_name) not in (None, (), []):
            advice = instead.format(a=f"{'an' if kind == 'agent' else 'a'} {kind}", the=f"the {kind}")
            raise UsageError(f"the {kind} {name!r} as a function takes no {policy_name}: {advice}")
    if policy.get("on_error") == "retry":
        raise UsageError(f"the {kind} {name!r} as a function is not retried: {_ELSEWHERE['retries']}")
