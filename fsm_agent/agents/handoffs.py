"""Agents that work for other agents: as functions, or by taking over the dialog in a handoff.

For the outer call's side, see `fsm_agent.call.delegation`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeGuard

import pydantic_core

from fsm_agent._internal.structs import type_words, types_of
from fsm_agent.agents.hooks import are_heard
from fsm_agent.agents.options import UNNAMED, Deps
from fsm_agent.agents.system_prompt import NO_ARGS, SystemPrompt
from fsm_agent.agents.task_messages import needs_of, resolve_task
from fsm_agent.agents.verbs import CallVerbs
from fsm_agent.call.call import AgentCall
from fsm_agent.call.process import SEPARATOR
from fsm_agent.call.record import CallRecord
from fsm_agent.context.passes import AnyPass, apply_passes, passes_of
from fsm_agent.errors import UsageError
from fsm_agent.functions.function import Function
from fsm_agent.functions.policy import AgentPolicy, PolicyOptions
from fsm_agent.messages.message import FunctionCall, renumbered
from fsm_agent.prompts.dialog import Dialog
from fsm_agent.prompts.prompt import Prompt, fingerprint_under
from fsm_agent.runtime.environment import Environment
from fsm_agent.validation import require

if TYPE_CHECKING:
    from fsm_agent.agents.agent import Agent

_ELSEWHERE = PolicyOptions.__optional_keys__ - AgentPolicy.__optional_keys__


class AgentDelegate:
    """Lets an agent serve as another agent's function; see `fsm_agent.functions.context`.

    ``timeout_s`` limits each call, in addition to the agent's own limit.
    """

    is_handoff = False
    hears_inside = False
    tables_json = b""

    def __init__(self, agent: Agent[Any, Any], timeout_s: float | None) -> None:
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
        return are_heard(self.hooks, self.agent.prompt)

    @property
    def agents(self) -> Sequence[Agent[Any, Any]]:
        return (self.agent,)

    @property
    def fingerprint(self) -> str:
        return fingerprint_under(self.agent.prompt, self.agent.system)

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> CallRecord:
        task = pydantic_core.from_json(f.arguments_json)["task"]
        resolved = resolve_task(self.agent, task, deps)
        return CallRecord.of(resolved.messages, limits=self._limits, depth=depth)

    def take_over(self, record: CallRecord, path: str, deps: Any, is_system_own: bool) -> CallRecord:
        raise UsageError(f"the agent {self.agent_name!r} as a function cannot take over a dialog; use handoff(…)")

    def call_of(self, record: CallRecord, deps: Any, has_approver: bool) -> AgentCall[Any]:
        prompt = self.agent._resolve_prompt(None, deps)
        parts = self.agent._call_parts(prompt, None, deps)
        parts["has_approver"] = parts["has_approver"] or has_approver
        return AgentCall(record, prompt, **parts)


def check_prices_inside(prompt: Prompt) -> None:
    """If the call has a budget in dollars, refuse agents used as functions whose model has no known price."""
    left, seen = [prompt], {id(prompt)}  # agents may hand over to each other
    while left:
        offers = left.pop().offers
        for agent in [agent for f in offers if f.delegate is not None for agent in f.delegate.agents]:
            if id(agent.prompt) not in seen:
                agent._own_environment.price_list.check(agent.name)
                seen.add(id(agent.prompt))
                left.append(agent.prompt)


def check_policy(kind: str, name: str, policy: Mapping[str, Any]) -> None:
    """Reject policies that do not apply to an agent or a flow used as a function."""
    refused = [each for each in policy if each in _ELSEWHERE and policy[each] not in (None, (), [])]
    if policy.get("on_error") == "retry":
        refused.append("on_error='retry'")
    if refused:
        raise UsageError(
            f"the {kind} {name!r} as a function does not support {refused[0]}; set it on the functions of the {kind},"
            " and retries of its model by its limits"
        )


def handoff(
    agent: CallVerbs[Deps, Any] | Callable[[], CallVerbs[Deps, Any]],
    *,
    name: str | None = None,
    description: str | None = None,
    context: AnyPass | Sequence[AnyPass] = (),
    needs_approval: bool | Callable[..., bool] | None = None,
) -> Function[..., Any, Deps]:
    """Return a function that a model calls to hand the dialog over to another agent.

    From then on, the dialog continues with the other agent's system prompt, functions, model and limits.  That agent
    answers the call.  It also answers the following turns of the conversation, until it hands the dialog over itself.

    The call enters the state ``HandedOver`` and reports the agent's events as `Inside` events.  Other functions in the
    same reply run first.  If a reply contains several handoffs, the first one that is allowed takes effect, and the
    results of the others say that they were refused.  A denied handoff leaves the dialog with the current agent.  When
    a saved dialog refers to a handoff that the agent no longer has, the agent itself answers.

    Args:
        agent: The agent.  If two agents hand over to each other, pass a function that returns the agent.
        name: The function's name for the model; by default, ``transfer_to_`` followed by the agent's name.
        description: Tells the model when to hand over.
        context: Passes that choose how much of the earlier dialog the agent sees, such as ``keep_last(8)``; by default,
            all of it.
        needs_approval: See `Policy`.

    Raises:
        UsageError: If ``agent`` is not an agent, or its system prompt has variables, which a handoff cannot provide.

    Examples:
        >>> billing = Agent(Script("Which order?"), name="billing")
        >>> desk = Agent(Script(function_call("transfer_to_billing")), functions=[handoff(billing)])
        >>> desk.call("I want my money back.").output
        'Which order?'
    """
    target: Any = agent
    is_known = _is_agent(target)
    require("the agent of a handoff", target, is_known or callable(target), "an Agent, or a function that returns one")
    if not is_known and name is None:
        raise UsageError(
            "name: expected one for a handoff to an agent that a function returns, got none; pass name='transfer_to_…'"
        )
    delegate = HandoffDelegate(target, passes_of(context, "context of a handoff"))
    described = description
    if is_known:
        _check_system(target)
        name = name or f"transfer_to_{target.name}"
        described = described or f"Hand the conversation over to {target.name}, who will continue it."
    made = Function.of(_hand_over, name=name, description=described, needs_approval=needs_approval)
    needy = target.prompt.needs_deps if is_known else None
    return replace(made, delegate=delegate, **needs_of(needy))


def _hand_over(reason: str = "") -> str:
    """Hand the conversation over to another agent, which continues it.

    Args:
        reason: Why.
    """
    raise UsageError(f"only an agent call can hand a dialog over; a handoff was called (reason: {reason!r:.80})")


class HandoffDelegate(AgentDelegate):
    """Lets an agent take over dialogs; see `fsm_agent.functions.context`."""

    is_handoff = True

    def __init__(self, agent: Agent[Any, Any] | Callable[[], Agent[Any, Any]], passes: tuple[AnyPass, ...]) -> None:
        self._target = agent
        self._passes = passes

    @property
    def is_known(self) -> bool:
        """True if the handoff was given an agent rather than a function that returns one."""
        return _is_agent(self._target)

    @cached_property
    def agent(self) -> Agent[Any, Any]:  # type: ignore[override]
        """The agent."""
        target = self._target
        agent: Any = target if _is_agent(target) else target()  # type: ignore[operator]
        require("the return value of the function of a handoff", agent, _is_agent(agent), "an Agent")
        _check_system(agent)
        return agent  # type: ignore[no-any-return]

    @property
    def has_listener(self) -> bool:
        return not self.is_known or super().has_listener  # agents that hand over to each other would recurse forever

    @property
    def fingerprint(self) -> str:
        return super().fingerprint if self.is_known else ""

    def seeded(self, f: FunctionCall, depth: int, deps: Any) -> CallRecord:
        raise UsageError(f"{f.name}: expected a function that does a task, got a handoff, which takes the dialog over")

    def take_over(self, record: CallRecord, path: str, deps: Any, is_system_own: bool) -> CallRecord:
        agent, before = self.agent, record.dialog
        is_asked = record.trace[-1].key != ""  # in this call, not in an earlier turn
        seen: Any = before
        if self._passes and is_asked:
            seen = renumbered(apply_passes(self._passes, before))
        dialog = Dialog(seen, system_args=None if is_system_own else NO_ARGS)
        dialog = SystemPrompt(agent.system, agent.name, deps=deps).before(dialog)
        limit = min((n for n in (agent.limits.handoffs, record.limits.handoffs) if n is not None), default=None)
        made = CallRecord.of(
            dialog.messages, limits=agent.limits.changed(handoffs=limit), depth=record.depth, governed_by=path
        )
        return made.changed(handoffs=record.handoffs + is_asked)


def _is_agent(value: object) -> TypeGuard[Agent[Any, Any]]:
    return isinstance(value, CallVerbs) and hasattr(value, "system")  # a conversation has the verbs, too


def _check_system(agent: Agent[Any, Any]) -> None:
    if isinstance(agent.system, Prompt) and agent.system.variables:
        names = ", ".join(sorted(agent.system.variables))
        raise UsageError(
            f"system of the agent {agent.name!r}: expected no variables, since a handoff has no values for them, got"
            f" {names}; pass a function of the deps, such as def system(deps: Shop) -> str"
        )


def _handoffs(prompt: Prompt) -> Iterator[tuple[str, HandoffDelegate]]:
    for name in sorted(prompt.handoffs):
        delegate = prompt.by_name[name].delegate
        if isinstance(delegate, HandoffDelegate):
            yield name, delegate


def check_agents(agent: Agent[Any, Any], prompt: Prompt, *, is_late: bool = True) -> None:
    """Reject agents that cannot work as this agent's functions.

    An inner agent's result cannot pass through a pipeline, because its call ends within a step, whereas a pipeline may
    wait.  An agent that takes over the dialog must have the requested output type.

    ``is_late`` is True if all agents exist by now, including those that hand over to each other.
    """
    asked = sorted(prompt.delegates - prompt.handoffs)
    if agent.results is not None and asked:
        raise UsageError(
            f"results of the agent {agent.name!r}: expected none, since its function {asked[0]!r} is an agent, whose"
            " result does not pass through a ResultPipeline; use as_function(format=…), or a Python function that calls"
            " the agent"
        )
    for name, delegate in _handoffs(prompt):
        if not (delegate.is_known or is_late) or prompt.parser is not None:
            continue
        inner = delegate.agent
        if not _is_of(inner.output, prompt.output):
            own, wanted = type_words(inner.output), type_words(prompt.output)
            raise UsageError(
                f"{name}: expected an agent that answers with {wanted}, which {prompt.path!r} is asked for, got"
                f" {inner.name!r}, which answers with {own}; pass output={wanted} | {own} to {prompt.path!r}, or give"
                " both the same output"
            )


def _is_of(inner: Any, outer: Any) -> bool:
    """Return whether every value of the first type is certainly a value of the second."""
    if outer is Any or outer is object or inner == outer:
        return True
    wanted = types_of(outer)
    return all(any(one == other or _is_subclass(one, other) for other in wanted) for one in types_of(inner))


def _is_subclass(one: Any, other: Any) -> bool:
    return isinstance(one, type) and isinstance(other, type) and issubclass(one, other)


def path_from(agent: Agent[Any, Any], prompt: Prompt, path: str) -> str:
    """Return the shortest path, through existing handoffs, to the agent at the end of the given path."""
    names, passed = list[str](), [agent]
    for name in path.split(SEPARATOR):
        delegate = dict(_handoffs(prompt)).get(name)
        if delegate is None:
            break
        agent = delegate.agent
        again = next((i for i, one in enumerate(passed) if _is_same(one, agent)), None)
        if again is None:
            names.append(name)
            passed.append(agent)
        else:
            names, passed = names[:again], passed[: again + 1]
            agent = passed[-1]
        prompt = agent.prompt
    return SEPARATOR.join(names)


def _is_same(one: Agent[Any, Any], other: Agent[Any, Any]) -> bool:
    return one is other or one.name == other.name != UNNAMED  # a variant of the agent
